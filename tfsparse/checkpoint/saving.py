"""`tfs.save`: every rank writes its rows, rank 0 the rest."""

import contextlib
import os
import re
import shutil
import uuid

import numpy as np
import tensorflow as tf

from tfsparse import ops, runtime
from tfsparse.checkpoint import dense, manifest
from tfsparse.checkpoint.position import describe as describe_position
from tfsparse.checkpoint.position import write as write_position
from tfsparse.checkpoint.row_file import RowFile
from tfsparse.checkpoint.threads import run_all
from tfsparse.embedding.ownership import buckets_of_rank
from tfsparse.embedding.protocol import named_tables_of
from tfsparse.version import __version__

# Of one file. Several are written at once, and 16 bytes a row are in memory for each.
FILE_BYTES = 256 << 20
FILE_ROWS = 1 << 20

FOLDER = "data-"  # with an id behind it; one for each save


def save(model, directory):
    """Saves a model as a checkpoint: its tables, its weights, its optimizer and its metrics.

    Every rank calls it, between steps; any number of ranks can `tfs.restore` it. Each rank writes
    the rows that it owns, slots included, and rank 0 everything else. The checkpoint appears, or
    takes the place of one that was in the directory before, at once and when it is complete:
    a program that is killed, or a disk that is full, leaves the earlier one as it was.

    Args:
        model: a `tf.keras.Model` that has been called.
        directory: path on a file system that all ranks see. It is made if it is missing.

    Raises:
        TypeError: `model` is not a Keras model.
        ValueError: a table has no rows yet because its layer has not been called; or
            `directory` is a URL.
        OSError, tf.errors.OpError: something cannot be written.
        RuntimeError: another rank failed; it says which, and why.

    Example:
        ```python
        tfs.save(model, "checkpoints/monday")
        ```
    """
    write(model, directory)


def write(model, directory, position=None):
    """`save`, and where in its data the training stands, a `Position`."""
    runtime.require_same(f"save a checkpoint to {os.path.abspath(str(directory))!r}")
    with runtime.together("save.check"):
        path = runtime.mounted_path(directory)
        tables = named_tables_of(model)
        if runtime.rank() == 0:
            _refuse_foreign_manifest(path)
        optimizer = dense.describe_optimizer(model)
    folder = FOLDER + runtime.allgather_object(uuid.uuid4().hex[:12], "save.folder")[0]
    made = []
    try:
        with runtime.together("save.begin"):
            if runtime.rank() == 0:
                made = runtime.missing_folders(path)
                os.makedirs(os.path.join(path, folder))
        with runtime.together("save.write"):
            check_seen(path, folder)
            files = [
                write_table(number, table, path, folder) for number, table in enumerate(tables)
            ]
            other_files = dense.write(model, path, folder) if runtime.rank() == 0 else []
            position_files = write_position(position, path, folder) if position else []
        files_of_ranks = runtime.allgather_object(files, "save.files")
        position_files = runtime.allgather_object(position_files, "save.position")
        with runtime.together("save.end"):
            if runtime.rank() == 0:
                runtime.sync(os.path.join(path, folder))
                for new in made:
                    runtime.sync(os.path.dirname(new))
                described = [
                    describe_table(
                        table, [part for files in files_of_ranks for part in files[number]]
                    )
                    for number, table in enumerate(tables)
                ]
                content = {
                    "tfsparse": __version__,
                    "tensorflow": tf.__version__,
                    "num_ranks": runtime.size(),
                    "step": dense.step_of(model),
                    "folder": folder,
                    "optimizer": optimizer,
                    "weights": dense.describe_weights(model),
                    "dense": sum(position_files, other_files),
                    "tables": described,
                }
                if position is not None:
                    content["position"] = describe_position(position, position_files)
                manifest.write(content, path)
    except BaseException:
        if runtime.rank() == 0:
            _discard(path, folder, made)
        raise
    if runtime.rank() == 0:
        with contextlib.suppress(OSError):  # the next save tries again
            _remove_others(path, folder)


def _refuse_foreign_manifest(path):
    """Raises if saving to `path` would replace something that is no checkpoint."""
    try:
        manifest.read(path)
    except manifest.CheckpointError as error:
        name = os.path.join(path, manifest.NAME)
        if os.path.lexists(name) and not manifest.is_ours(path):
            raise ValueError(
                f"'{name}' is there and is not of a checkpoint. Save to another directory."
            ) from error


def check_seen(path, folder):
    """Raises if this rank does not see the folder that rank 0 has made in a checkpoint."""
    if not os.path.isdir(os.path.join(path, folder)):
        raise FileNotFoundError(
            f"Rank {runtime.rank()} does not see '{os.path.join(path, folder)}', which rank 0 has "
            "made. `directory` must be on a file system that all ranks share."
        )


def _discard(path, folder, made):
    """Removes what a failed save has made, unless its very last steps alone have failed."""
    try:
        complete = manifest.read(path)["folder"] == folder
    except (manifest.CheckpointError, OSError):
        complete = False
    if complete:
        return
    shutil.rmtree(os.path.join(path, folder), ignore_errors=True)
    with contextlib.suppress(OSError):
        os.remove(os.path.join(path, manifest.ASIDE))
    for new in made:
        with contextlib.suppress(OSError):
            os.rmdir(new)


def _remove_others(path, folder):
    """Removes what earlier saves to the directory have left, whether they ended well or not."""
    for name in os.listdir(path):
        if _is_of_a_save(name) and name != folder:
            shutil.rmtree(os.path.join(path, name), ignore_errors=True)


def has_only_ours(path):
    """Whether something is a directory with nothing but what saves write."""
    if not os.path.isdir(path):
        return False
    names = set(os.listdir(path)) - {manifest.NAME, manifest.ASIDE}
    return all(_is_of_a_save(name) for name in names)


def _is_of_a_save(name):
    return re.fullmatch(FOLDER + "[0-9a-f]{12}", name) is not None


def files_of_rank(table_name, columns, counts, rank, num_ranks):
    """The files that a rank writes of a table, `[(RowFile, bytes before the keys)]`.

    Args:
        table_name: of the table.
        columns: `{name: floats}` of a row.
        counts: int64 `[buckets of the rank]`, rows of each bucket.
        rank: of `num_ranks`.
        num_ranks: how many ranks save.
    """
    first, last = buckets_of_rank(rank, num_ranks)
    num_rows = int(counts.sum())
    row_bytes = 8 + 4 * sum(columns.values())
    num_files = max(-(-num_rows * row_bytes // FILE_BYTES), -(-num_rows // FILE_ROWS), 1)
    bounds = np.linspace(first, last, min(num_files, last - first) + 1).astype(int).tolist()
    files = []
    for begin, end in zip(bounds, bounds[1:]):
        file_counts = counts[begin - first : end - first]
        file = RowFile(table_name, (begin, end), int(file_counts.sum()), columns)
        files.append((file, file.prefix(file_counts)))
    return files


def file_name(folder, number, file):
    """The path below a checkpoint of a `RowFile` of table `number`."""
    begin, end = file.buckets
    return f"{folder}/table-{number}-buckets-{begin:05}-{end - 1:05}.safetensors"


def describe_file(name, rank, file, checksums):
    """What the manifest says of a `RowFile`; `checksums` are those of its parts."""
    return {
        "file": name,
        "rank": rank,
        "buckets": list(file.buckets),
        "rows": file.num_rows,
        "bytes": file.bytes,
        "crc32c": dict(zip(file.parts, checksums)),
    }


def write_table(number, table, path, folder):
    """Writes this rank's rows into files; returns what the manifest says of them."""
    counts = ops.count_by_bucket(table.shard.handle).numpy()
    _, _, columns = ops.describe(table.shard.handle)

    def write(file, prefix):
        name = file_name(folder, number, file)
        full = os.path.join(path, name)
        sums = ops.write_rows(table.shard.handle, full, prefix, file.buckets, file.num_rows)
        return describe_file(name, runtime.rank(), file, sums.numpy().tolist())

    return run_all(
        write, files_of_rank(table.name, columns, counts, runtime.rank(), runtime.size())
    )


def describe_table(table, files):
    """What the manifest says of a table; `files` are what it says of those of all ranks."""
    optimizer, arguments, columns = ops.describe(table.shard.handle)
    config = table.get_config()
    return {
        "name": table.name,
        "dim": table.dim,
        "seed": table.seed,
        "default": table.default,
        "initializer": config["initializer"],
        "optimizer": {"rule": optimizer, "arguments": arguments},
        "columns": {name: int(floats) for name, floats in columns.items()},
        "rows": sum(file["rows"] for file in files),
        "files": files,
    }
