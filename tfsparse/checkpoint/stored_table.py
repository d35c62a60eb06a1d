"""The rows of a table in a checkpoint, for those who read them in blocks and without a table."""

import os

import numpy as np

from tfsparse.checkpoint.row_file import RowFile
from tfsparse.embedding.ownership import NUM_BUCKETS, buckets_of

BLOCK_BYTES = 8 << 20  # of one array; several threads have some of them each


class StoredTable:
    """The rows of a table, numbered in the order of their keys' hashes, whatever file has them.

    It holds no rows, and may be read by several threads. It compares no checksums.

    Args:
        path: of the checkpoint.
        described: what the manifest says of the table.

    Attributes:
        name: of the table.
        columns: `{name: floats}` of a row.
        num_rows: of the table.
    """

    def __init__(self, path, described):
        self.name = described["name"]
        self.columns = described["columns"]
        self.num_rows = described["rows"]
        files = sorted(described["files"], key=lambda file: file["buckets"])
        self._starts = np.cumsum([0] + [file["rows"] for file in files[:-1]])
        self._files = [
            (
                os.path.join(path, file["file"]),
                RowFile(self.name, file["buckets"], file["rows"], self.columns),
            )
            for file in files
        ]

    def read(self, tensor, begin, end):
        """The rows [begin, end) of `"keys"`, int64 `[n]`, or a column, float32 `[n, floats]`."""
        first = np.searchsorted(self._starts, begin, side="right") - 1
        last = max(np.searchsorted(self._starts, end), first + 1)
        parts = [
            file.read(path, tensor, max(begin - start, 0), min(end - start, file.num_rows))
            for start, (path, file) in zip(self._starts[first:last], self._files[first:last])
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def blocks(self, tensor, begin, end):
        """The bounds of blocks of `BLOCK_BYTES` of a tensor that make up the rows [begin, end)."""
        rows = max(1, BLOCK_BYTES // (8 if tensor == "keys" else 4 * self.columns[tensor]))
        return [(start, min(start + rows, end)) for start in range(begin, end, rows)]

    def count_by_bucket(self):
        """The rows in each bucket, int64 `[NUM_BUCKETS]`."""
        counts = np.zeros(NUM_BUCKETS, np.int64)
        for block in self.blocks("keys", 0, self.num_rows):
            counts += np.bincount(buckets_of(self.read("keys", *block)), minlength=NUM_BUCKETS)
        return counts
