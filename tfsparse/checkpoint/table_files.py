"""The rows of a table as files of a checkpoint: how they are cut, and what the manifest says."""

import os

import numpy as np

from tfsparse import ops, runtime
from tfsparse.checkpoint.row_file import RowFile
from tfsparse.checkpoint.threads import run_all
from tfsparse.embedding.ownership import buckets_of_rank

# Of one file. Several are written at once, and 16 bytes a row are in memory for each.
FILE_BYTES = 256 << 20
FILE_ROWS = 1 << 20


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


def write_table(number, table, new):
    """Writes this rank's rows into files of a `NewCheckpoint`.

    Args:
        number: of the table, 0 for the first.
        table: a `Table`.
        new: the checkpoint.

    Returns:
        What the manifest says of the files.
    """
    counts = ops.count_by_bucket(table.shard.handle).numpy()
    _, _, columns = ops.describe(table.shard.handle)

    def write(file, prefix):
        name = file_name(new.folder, number, file)
        full = os.path.join(new.path, name)
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
