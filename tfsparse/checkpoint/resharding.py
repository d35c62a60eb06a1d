"""A checkpoint as another number of ranks would have saved it."""

import os
import shutil

import numpy as np

from tfsparse import ops, runtime
from tfsparse.checkpoint import checking, manifest, position, table_files
from tfsparse.checkpoint.inspecting import open_checkpoint
from tfsparse.checkpoint.manifest import CheckpointError
from tfsparse.checkpoint.new_checkpoint import NewCheckpoint, require_empty
from tfsparse.checkpoint.stored_table import StoredTable
from tfsparse.checkpoint.threads import run_all
from tfsparse.embedding.ownership import NUM_BUCKETS, buckets_of_rank


def reshard(source, target, num_ranks):
    """Writes a checkpoint anew, as `num_ranks` ranks would have saved it.

    All of the source is checked first, and then copied in blocks: no table is in memory. The
    checkpoint appears when it is complete; until then an error removes what was written.

    Args:
        source: directory of a checkpoint.
        target: directory, to be made, or empty.
        num_ranks: 1 to 65,536.

    Returns:
        The manifest of the new checkpoint.

    Raises:
        ValueError: `source` is no checkpoint or damaged, `target` has something in it or is in
            `source`, or there cannot be so many ranks.
        OSError, tf.errors.OpError: something cannot be read or written.
    """
    if not 1 <= num_ranks <= NUM_BUCKETS:
        raise ValueError(
            f"A checkpoint can be of 1 to {NUM_BUCKETS} ranks, one bucket of keys each. "
            f"Received: {num_ranks}."
        )
    source, content = open_checkpoint(source)
    target = runtime.mounted_path(target)
    _check_target(source, target)
    for fault in checking.faults(source, content):
        raise CheckpointError(fault)
    if "position" in content and num_ranks != content["num_ranks"]:
        content = {**content, **position.without_iterators(content, num_ranks)}
    with NewCheckpoint(target) as new:
        dense_files = run_all(lambda f: _copy(f, source, new), [(f,) for f in content["dense"]])
        tables = [
            {**of_table, "files": _write_table(number, of_table, num_ranks, source, new)}
            for number, of_table in enumerate(content["tables"])
        ]
        changed = {"num_ranks": num_ranks, "dense": dense_files, "tables": tables}
        new.finish({**content, **changed})
    return manifest.read(target)


def _check_target(source, target):
    require_empty(target)
    real_source, real_target = map(os.path.realpath, (source, target))
    if os.path.commonpath([real_source, real_target]) == real_source:
        raise ValueError(f"'{target}' must not be in the checkpoint '{source}' itself.")


def _copy(file, source, new):
    """Copies a file of dense variables; returns what the manifest says of it."""
    name = f"{new.folder}/{os.path.basename(file['file'])}"
    full = os.path.join(new.path, name)
    shutil.copyfile(os.path.join(source, file["file"]), full)
    runtime.sync(full)
    if int(ops.checksum(full, 0, file["bytes"])) != file["crc32c"]:
        raise CheckpointError(checking.altered(os.path.join(source, file["file"])))
    return {**file, "file": name}


def _write_table(number, of_table, num_ranks, source, new):
    """Writes the files of a table; returns what the manifest says of them."""
    table = StoredTable(source, of_table)
    counts = table.count_by_bucket()
    first_rows = np.concatenate([[0], np.cumsum(counts)])

    def write(rank, file, prefix):
        name = table_files.file_name(new.folder, number, file)
        full = os.path.join(new.path, name)
        begin, end = first_rows[list(file.buckets)].tolist()
        with open(full, "xb") as opened:
            opened.write(prefix)
            for tensor in ("keys", *table.columns):
                for block in table.blocks(tensor, begin, end):
                    opened.write(table.read(tensor, *block))
        runtime.sync(full)
        checksums = [int(ops.checksum(full, *part)) for part in file.parts.values()]
        return table_files.describe_file(name, rank, file, checksums)

    files = []
    for rank in range(num_ranks):
        of_rank = counts[slice(*buckets_of_rank(rank, num_ranks))]
        cut = table_files.files_of_rank(table.name, table.columns, of_rank, rank, num_ranks)
        files += [(rank, file, prefix) for file, prefix in cut]
    return run_all(write, files)
