"""A file of rows: some buckets of a table, in the `safetensors` format.

It has the tensors `bucket_offsets` int64 `[groups + 1]`, `keys` int64 `[rows]`, and for each
column of a row one float32 `[rows, floats]`: `parameter`, then the slots of the optimizer. Rows
stand in the order of their keys' hashes, and so in the order of buckets. A group is as many buckets
as the metadata say under `buckets_per_group`, one where there are many rows; the rows of group
number g of the file are `[bucket_offsets[g], bucket_offsets[g + 1])`.

The format (github.com/huggingface/safetensors): 8 bytes, the length of the header; the header,
JSON that says type, shape and place of each tensor; the tensors, in little endian.
"""

import json

import numpy as np

from tfsparse.embedding.ownership import buckets_of

_ROWS_PER_GROUP = 16  # on average, at least: offsets of few rows would take more than the rows


class RowFile:
    """Where things stand in one file.

    Args:
        table_name: of the table.
        buckets: `(first, last)`, the buckets [first, last).
        num_rows: rows in the file.
        columns: `{name: floats}` of a row.

    Attributes:
        offsets: `{tensor: where in the file it begins}`.
        bytes: of the file.
    """

    def __init__(self, table_name, buckets, num_rows, columns):
        self._buckets = buckets
        num_buckets = buckets[1] - buckets[0]
        self._per_group = 1
        while self._per_group < num_buckets and (
            num_rows * self._per_group < num_buckets * _ROWS_PER_GROUP
        ):
            self._per_group *= 2
        tensors = {
            "bucket_offsets": ("I64", [-(-num_buckets // self._per_group) + 1]),
            "keys": ("I64", [num_rows]),
            **{name: ("F32", [num_rows, int(floats)]) for name, floats in columns.items()},
        }
        metadata = {
            "table": table_name,
            "first_bucket": str(buckets[0]),
            "buckets_per_group": str(self._per_group),
        }
        header = {"__metadata__": metadata}
        ends = 0
        begins = {}
        for name, (dtype, shape) in tensors.items():
            begins[name] = ends
            ends += int(np.prod(shape)) * (8 if dtype == "I64" else 4)
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begins[name], ends]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._header = len(text).to_bytes(8, "little") + text
        self.offsets = {name: len(self._header) + begin for name, begin in begins.items()}
        self.bytes = len(self._header) + ends

    def prefix(self, counts):
        """All that stands before the keys; `counts` int64 `[buckets]`, rows of each bucket."""
        groups = np.add.reduceat(counts, np.arange(0, len(counts), self._per_group))
        offsets = np.concatenate([[0], np.cumsum(groups)])
        return self._header + offsets.astype("<i8").tobytes()

    def rows_of_buckets(self, path, first, last):
        """The rows `(begin, end)` of the buckets [first, last), which are in the file."""
        with open(path, "rb") as file:
            count = (self.offsets["keys"] - self.offsets["bucket_offsets"]) // 8
            offsets = self._read(file, "bucket_offsets", 0, count)
            return tuple(self._rows_before(file, offsets, bucket) for bucket in (first, last))

    def _rows_before(self, file, offsets, bucket):
        group, within = divmod(bucket - self._buckets[0], self._per_group)
        if within == 0:
            return int(offsets[group])
        begin, end = offsets[group : group + 2].tolist()
        keys = self._read(file, "keys", begin, end - begin)
        return begin + int(np.searchsorted(buckets_of(keys), bucket))

    def _read(self, file, tensor, begin, count):
        """Some of the int64 numbers of a tensor."""
        file.seek(self.offsets[tensor] + 8 * begin)
        return np.fromfile(file, "<i8", count)
