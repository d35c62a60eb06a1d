"""`tfs.load_rows`: vectors that exist already, as those of a language model, into a table."""

import contextlib
import hashlib
import os
import zipfile

import numpy as np
import safetensors
import tensorflow as tf

from tfsparse import runtime
from tfsparse.checkpoint.placing import block_rows, place
from tfsparse.embedding.config import Table
from tfsparse.embedding.keys import as_keys
from tfsparse.embedding.table import ShardedTable, shard_of

_BLOCKS, _BLOCK_BYTES = 64, 16 << 10  # of a file that are compared


def load_rows(table, file_or_arrays):
    """Gives rows of a table vectors that exist already.

    Every rank calls it, between steps. Keys that the table does not have appear; rows that it has
    take the new vector, and their slots begin anew; all other rows stay. Everything is read and
    checked before anything changes; until then the new rows are in memory beside the table.

    Args:
        table: a `tfs.Table`, or `layer.table`.
        file_or_arrays: ids `[n]`, integers or strings, and their vectors `[n, dim]`, of float16,
            float32 or float64. One of
            - `(ids, vectors)`, arrays or paths of `.npy` files;
            - the path of a `.npz` or `.safetensors` file. If it has more than two arrays, they
              must be called `keys` and `parameter`, as in the files of `tfs.save`.
            Where all ranks bring the same, each takes an equal part of it, and a file is read
            once in all (a `.npz` by rank 0). They may also bring a part each. Files are the same
            if their sizes are, and some blocks of them.

    Returns:
        How many vectors all ranks have brought.

    Raises:
        TypeError: of a table or arrays of other types.
        ValueError: shapes do not fit each other or the table, a value is not finite, an id comes
            with two vectors, a file is not what it should be, or ranks load rows of different
            tables.
        OSError: a file cannot be read.
        RuntimeError: another rank failed; it says which, and why.

    Example:
        ```python
        tfs.load_rows(layer.table, ("words.npy", "vectors.npy"))
        ```
    """
    is_config = isinstance(table, Table)
    if not is_config and not isinstance(table, ShardedTable):
        raise TypeError(
            f"`table` must be a `tfs.Table`, or `layer.table`. Received: {type(table).__name__}."
        )
    runtime.require_same(f"load rows into table '{table.name}'")
    shard = shard_of(table) if is_config else table
    with runtime.together("load_rows.open"):
        source = _open(file_or_arrays)
        ids, vectors = source.ids, source.vectors
        if tuple(vectors.shape) != (len(ids), shard.dim):
            raise ValueError(
                f"Table '{shard.name}' has vectors of {shard.dim} floats, so {len(ids)} ids need "
                f"vectors of shape {(len(ids), shard.dim)}. Received: {tuple(vectors.shape)}."
            )
    same = len(set(runtime.allgather_object(source.digest, "load_rows.sources"))) == 1
    begin, end = _part(len(ids), source.has_parts) if same else (0, len(ids))
    place(shard, _blocks(ids, vectors, begin, end))
    return sum(runtime.allgather_object(end - begin, "load_rows.count"))


def _part(num_rows, has_parts):
    """The rows [begin, end) that this rank reads of what all ranks could."""
    readers = runtime.size() if has_parts else 1
    begin, end = (min(runtime.rank() + i, readers) * num_rows // readers for i in (0, 1))
    return begin, end


def _blocks(ids, vectors, begin, end):
    rows = block_rows(vectors.shape[1])
    for start in range(begin, end, rows):
        block = slice(start, min(start + rows, end))
        keys = as_keys(tf.constant(ids[block])).numpy()
        with np.errstate(over="ignore"):  # what is too large for float32 is refused as infinite
            yield keys, np.ascontiguousarray(vectors[block], np.float32)


class _Source:
    """Ids and vectors that can be sliced.

    Args:
        ids: `[n]`.
        vectors: `[n, dim]`.
        digest: a text, the same for the same content.
        has_parts: whether a slice can be read alone.
    """

    def __init__(self, ids, vectors, digest, has_parts=True):
        self.ids, self.vectors, self.digest, self.has_parts = ids, vectors, digest, has_parts
        for array, what, kinds, rank in (
            (ids, "ids", "iuUS", 1),
            (vectors, "vectors", "f", 2),
        ):
            fits = array.dtype.kind in kinds and array.dtype not in (np.uint64, np.longdouble)
            if not fits:
                raise TypeError(
                    f"`file_or_arrays`: ids are integers that fit into int64, or strings; vectors "
                    f"are float16, float32 or float64. Received: {what} of type {array.dtype}."
                )
            if len(array.shape) != rank:
                raise ValueError(
                    "`file_or_arrays`: ids have shape [n] and vectors [n, dim]. Received: "
                    f"{what} of shape {tuple(array.shape)}."
                )


class _Tensor:
    """A tensor of a safetensors file; a slice reads what is wanted alone."""

    def __init__(self, file, name):
        self._slice = file.get_slice(name)
        self.shape = tuple(self._slice.get_shape())
        self.dtype = _dtype(self._slice.get_dtype())

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, block):
        return self._slice[block]


class _Member:
    """An array of a .npz file, which is read whole when it is sliced first."""

    def __init__(self, path, name):
        self._path, self._name, self._array = path, name, None
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read = np.lib.format.read_array_header_2_0
            self.shape, _, self.dtype = read(file)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, block):
        if self._array is None:
            with _reading(self._path, "npz"), np.load(self._path, allow_pickle=False) as file:
                self._array = file[self._name]
        return self._array[block]


def _dtype(name):
    """What numpy has for a type of safetensors."""
    kinds = {"I": "int", "U": "uint", "F": "float"}
    try:
        return np.dtype(kinds[name[0]] + name[1:])
    except (KeyError, TypeError):
        return np.dtype("V1")  # as BF16: none of those that are taken


def _open(file_or_arrays):
    if isinstance(file_or_arrays, (str, bytes, os.PathLike)):
        path = os.fsdecode(file_or_arrays)
        if path.endswith(".npz"):
            return _of_npz(path)
        if path.endswith(".safetensors"):
            return _of_safetensors(path)
        raise ValueError(
            "`file_or_arrays` must be the path of a .npz or .safetensors file, or a pair "
            f"(ids, vectors) of arrays or .npy files. Received: {path!r}."
        )
    if not isinstance(file_or_arrays, (tuple, list)) or len(file_or_arrays) != 2:
        raise ValueError(
            "`file_or_arrays` must be a pair (ids, vectors) of arrays or .npy files, or the path "
            f"of a .npz or .safetensors file. Received: {type(file_or_arrays).__name__}."
        )
    (ids, of_ids), (vectors, of_vectors) = map(_array, file_or_arrays)
    return _Source(ids, vectors, f"{of_ids} {of_vectors}")


def _array(array_or_path):
    """The array, and a digest of it."""
    if isinstance(array_or_path, (str, bytes, os.PathLike)):
        path = os.fsdecode(array_or_path)
        with _reading(path, "npy"):
            return np.lib.format.open_memmap(path, mode="r"), _digest(path)
    if np.ma.is_masked(array_or_path):
        raise TypeError("`file_or_arrays`: ids and vectors have no mask. Leave masked rows out.")
    array = np.asarray(array_or_path)
    if array.dtype == object and all(isinstance(value, (str, bytes)) for value in array.flat):
        array = np.array(array.tolist())  # strings as pandas has them
    if runtime.size() == 1:
        return array, ""
    content = np.ascontiguousarray(array).data.cast("B") if array.size else b""
    return array, f"{array.dtype}{array.shape} {hashlib.blake2b(content).hexdigest()}"


@contextlib.contextmanager
def _reading(path, form):
    """Names the file in what numpy says of it."""
    try:
        yield
    except (zipfile.BadZipFile, EOFError, KeyError, ValueError) as error:
        raise ValueError(f"'{path}' is not a whole .{form} file: {error}.") from error


def _digest(path):
    """A text that is the same for equal files, and another one if a machine has its own part."""
    if runtime.size() == 1:
        return ""
    size = os.path.getsize(path)
    content = hashlib.blake2b()
    with open(path, "rb") as file:
        for number in range(_BLOCKS):
            file.seek(number * max(0, size - _BLOCK_BYTES) // (_BLOCKS - 1))
            content.update(file.read(_BLOCK_BYTES))
    return f"{size} {content.hexdigest()}"


def _of_npz(path):
    with _reading(path, "npz"), np.load(path, allow_pickle=False) as file:
        arrays = {name: _Member(path, name) for name in file}
    return _Source(*_chosen(arrays, path), _digest(path), has_parts=False)


def _of_safetensors(path):
    try:
        file = safetensors.safe_open(path, "np")
    except safetensors.SafetensorError as error:
        raise ValueError(f"'{path}' is not a safetensors file: {error}.") from error
    tensors = {name: _Tensor(file, name) for name in file.keys()}  # noqa: SIM118, it is no dict
    return _Source(*_chosen(tensors, path), _digest(path))


def _chosen(arrays, path):
    """The ids and the vectors among `{name: array}`."""
    if {"keys", "parameter"} <= set(arrays):
        return arrays["keys"], arrays["parameter"]
    by_rank = sorted(arrays.values(), key=lambda array: len(array.shape))
    if [len(array.shape) for array in by_rank] == [1, 2]:
        return by_rank
    raise ValueError(
        f"'{path}' must have two arrays, ids [n] and vectors [n, dim], or among others `keys` and "
        f"`parameter`. Received: {', '.join(f'{n} {arrays[n].shape}' for n in arrays) or 'none'}."
    )
