"""What is wrong with a checkpoint, found without its model."""

import os

import numpy as np

from tfsparse import ops
from tfsparse.checkpoint.manifest import CheckpointError
from tfsparse.checkpoint.row_file import RowFile
from tfsparse.checkpoint.threads import run_all
from tfsparse.embedding.ownership import NUM_BUCKETS, buckets_of, hashes_of

_BLOCK_KEYS = 1 << 18  # read at a time


def require_files(path, content):
    """Raises if files are missing, foreign or of another length, or dense ones were altered.

    Args:
        path: of the checkpoint.
        content: its manifest.

    Raises:
        CheckpointError: it names the first.
    """
    fault = next(_faults_of_files(path, content), None)
    if fault is not None:
        raise CheckpointError(fault)


def faults(path, content):
    """Everything that is wrong with a checkpoint, a list of texts; every byte is read.

    Beyond what `require_files` looks at, rows must be as they were written, and keys in the order
    of their hashes, each once, in the buckets of their file.
    """
    row_files = [(path, t, file) for t in content["tables"] for file in t["files"]]
    found = [*_faults_of_files(path, content), *run_all(_fault_of_rows, row_files)]
    return [fault for fault in found if fault is not None]


def altered(path, parts=()):
    """Says that a file is not as it was written, and in which parts."""
    where = f" ({', '.join(parts)})" if parts else ""
    return f"'{path}' was altered after it was written{where}. Use another checkpoint."


def _faults_of_files(path, content):
    row_files = [file for of_table in content["tables"] for file in of_table["files"]]
    for of_table in content["tables"]:
        bounds = sorted(file["buckets"] for file in of_table["files"])
        ends = [0] + [end for _, end in bounds]
        if [begin for begin, _ in bounds] != ends[:-1] or ends[-1] != NUM_BUCKETS:
            yield f"'{path}': files of table '{of_table['name']}' are missing."
    for file in row_files + content["dense"]:
        fault = _fault_of_length(path, file)
        if fault is not None:
            yield fault
    folder = os.path.join(path, content["folder"])
    known = {os.path.basename(file["file"]) for file in row_files + content["dense"]}
    foreign = sorted(set(os.listdir(folder)) - known) if os.path.isdir(folder) else []
    if foreign:
        yield (
            f"'{folder}' has files that do not belong to the checkpoint: {foreign}. Remove them "
            "if you know where they come from."
        )
    for file in content["dense"]:
        full = os.path.join(path, file["file"])
        if _fault_of_length(path, file) is None:
            if int(ops.checksum(full, 0, file["bytes"])) != file["crc32c"]:
                yield altered(full)


def _fault_of_length(path, file):
    full = os.path.join(path, file["file"])
    if not os.path.isfile(full):
        return f"'{full}' is missing. Use another checkpoint."
    if os.path.getsize(full) != file["bytes"]:
        return (
            f"'{full}' has {os.path.getsize(full)} bytes and should have {file['bytes']}. Use "
            "another checkpoint."
        )
    return None


def _fault_of_rows(path, of_table, described):
    """What is wrong with a file of rows of the right length, None if nothing."""
    if _fault_of_length(path, described) is not None:
        return None
    full = os.path.join(path, described["file"])
    file = RowFile(of_table["name"], described["buckets"], described["rows"], of_table["columns"])
    wrong = [
        part
        for part, (begin, end) in file.parts.items()
        if int(ops.checksum(full, begin, end)) != described["crc32c"][part]
    ]
    return altered(full, wrong) if wrong else _fault_of_keys(full, file)


def _fault_of_keys(full, file):
    """What is wrong with keys and bucket offsets of a file that is as it was written."""
    first, last = file.buckets
    counts = np.zeros(last - first, np.int64)
    last_hash = np.empty(0, np.uint64)
    for begin in range(0, file.num_rows, _BLOCK_KEYS):
        keys = file.read(full, "keys", begin, min(begin + _BLOCK_KEYS, file.num_rows))
        buckets = buckets_of(keys)
        if buckets.min() < first or buckets.max() >= last:
            return f"'{full}' has keys of other buckets than {first} to {last - 1}."
        hashes = np.concatenate([last_hash, hashes_of(keys)])
        if not (hashes[:-1] < hashes[1:]).all():
            return f"'{full}' has keys that repeat or are not in the order of their hashes."
        last_hash = hashes[-1:]
        counts += np.bincount(buckets - first, minlength=len(counts))
    with open(full, "rb") as opened:
        if opened.read(file.offsets["keys"]) != file.prefix(counts):
            return f"'{full}' has a header or bucket offsets that do not fit its keys."
    return None
