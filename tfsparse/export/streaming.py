"""Puts large tensors into a checkpoint in slices, each rank its own.

A checkpoint may hold a tensor as slices, in any number of files: `RestoreV2`, the op by which a
SavedModel loads, puts them together. So every rank writes its slices into files of its own, and
one rank joins their indexes at the end; that moves no data.
"""

import os

import tensorflow as tf

from tfsparse import runtime
from tfsparse.export.serving_table import checkpoint_names

# What is read from a shard at a time.
BLOCK_BYTES = 8 << 20

# Bytes of a slice, where there is as much. Up to three are in memory, and a fourth while one is
# put together. TensorFlow reads slices into temporary memory while a model loads, and with glibc
# only blocks of more than 32 MiB leave no holes: a 300 MB table then takes 50 MB more for a
# moment, with slices of 24 MB 200 MB more for ever, and with slices of 1 MB twice its size.
SLICE_BYTES = 33 << 20


class SliceWriter:
    """Writes tensors and slices of tensors into files `<prefix>-0`, `<prefix>-1`, ...

    Args:
        prefix: path of the files; no other rank has the same.

    Attributes:
        prefixes: of the files so far, for `merge`.
    """

    def __init__(self, prefix):
        self._prefix = prefix
        self._open = {}  # name -> _Slice
        self._complete, self._complete_bytes = [], 0
        self.prefixes = []

    def add(self, name, values, first, total):
        """Adds rows `[first, first + len(values))` of the tensor `name` `[total, ...]`."""
        if not len(values):
            return
        if name in self._open and self._open[name].last != first:
            self._close(name)
        part = self._open.setdefault(name, _Slice(first, total))
        part.append(tf.convert_to_tensor(values))
        if part.bytes >= SLICE_BYTES:
            self._close(name)

    def add_whole(self, name, tensor):
        """Adds a tensor of any type and shape."""
        # A string counts as nothing; it is the description of the model.
        self._add(name, "", tensor, 0 if tensor.dtype == tf.string else _bytes(tensor))

    def _close(self, name):
        part = self._open.pop(name)
        place, values = part.place(), part.values()
        self._add(name, place, values, part.bytes)

    def _add(self, name, place, tensor, num_bytes):
        self._complete.append((name, place, tensor))
        self._complete_bytes += num_bytes
        if self._complete_bytes >= SLICE_BYTES:
            self._save()

    def flush(self):
        """Writes what is not written yet."""
        for name in list(self._open):
            self._close(name)
        if self._complete:
            self._save()

    def _save(self):
        prefix = f"{self._prefix}-{len(self.prefixes)}"
        names, places, tensors = zip(*self._complete)
        self._complete, self._complete_bytes = [], 0
        tf.raw_ops.SaveV2(
            prefix=prefix, tensor_names=names, shape_and_slices=places, tensors=tensors
        )
        self.prefixes.append(prefix)
        for suffix in (".index", ".data-00000-of-00001"):
            runtime.sync(prefix + suffix)


class _Slice:
    """Consecutive rows of a tensor `[total, ...]`, beginning at `first`."""

    def __init__(self, first, total):
        self._first, self._total = first, total
        self.last, self.bytes = first, 0
        self._pieces = []

    def append(self, piece):
        self._pieces.append(piece)
        self.last += len(piece)
        self.bytes += _bytes(piece)

    def place(self):
        inner = self._pieces[0].shape[1:].as_list()
        shape = " ".join(map(str, [self._total, *inner]))
        rows = f"{self._first},{self.last - self._first}"
        return f"{shape} {':'.join([rows, *'-' * len(inner)])}"

    def values(self):
        """All rows in one tensor; the pieces are given up."""
        pieces, self._pieces = self._pieces, None
        return tf.concat(pieces, 0)


def _bytes(tensor):
    return tensor.dtype.size * tensor.shape.num_elements()


def stream_table(number, table, rows_of_ranks, writer):
    """Puts this rank's part of a table into the checkpoint, block by block.

    Args:
        number: of the table in the SavedModel.
        table: the `tfs.Table`.
        rows_of_ranks: how many rows each rank has.
        writer: a `SliceWriter`.

    Raises:
        RuntimeError: the shard changed meanwhile.
    """
    names, rank = checkpoint_names(number), runtime.rank()
    total, first = sum(rows_of_ranks), sum(rows_of_ranks[:rank])
    if rank == 0:
        # TensorFlow refuses to fill a hash table with nothing: key 0 of an empty table has a row,
        # which is the default that it would read without.
        count = 1 if total else 2
        default = tf.fill([count, table.dim], tf.constant(table.default, tf.float32))
        writer.add(names[1], default, 0, total + count)
        if total == 0:
            writer.add_whole(names[0], tf.zeros([1], tf.int64))
    shard, row = table.shard, first
    block_rows = max(1, BLOCK_BYTES // shard.stats()["row_bytes"])
    for keys, rows, _ in shard.export(block_rows):
        writer.add(names[0], keys, row, total)
        writer.add(names[1], rows, row + 1, total + 1)
        row += len(keys)
    if row != first + rows_of_ranks[rank]:
        raise RuntimeError(f"Table '{table.name}' was trained while it was exported.")


def rewrite(checkpoint, without, writer):
    """Copies the tensors of a checkpoint into `writer`, all but those named in `without`.

    Raises:
        RuntimeError: the checkpoint does not have all of the latter.
    """
    dtypes = tf.train.load_checkpoint(checkpoint).get_variable_to_dtype_map()
    if not set(without) <= set(dtypes):
        raise RuntimeError(f"Expected {sorted(without)} in the checkpoint. It has {sorted(dtypes)}")
    for name in sorted(set(dtypes) - set(without)):
        (tensor,) = tf.raw_ops.RestoreV2(
            prefix=checkpoint, tensor_names=[name], shape_and_slices=[""], dtypes=[dtypes[name]]
        )
        writer.add_whole(name, tensor)
        del tensor  # or two would be in memory


def merge(prefixes, checkpoint):
    """Makes the files of all ranks one checkpoint, in place of the one that stands there."""
    folder = os.path.dirname(checkpoint)
    for file in os.listdir(folder):
        os.remove(os.path.join(folder, file))
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=prefixes, destination_prefix=checkpoint, delete_old_dirs=False
    )
