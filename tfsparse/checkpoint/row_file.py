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

from tfsparse.checkpoint.manifest import CheckpointError
from tfsparse.embedding.ownership import buckets_of

_ROWS_PER_GROUP = 16  # on average, at least: offsets of few rows would take more than the rows
_NUMPY_TYPES = {"I64": np.dtype("<i8"), "F32": np.dtype("<f4")}


class RowFile:
    """Where things stand in one file.

    Args:
        table_name: of the table.
        buckets: `(first, last)`, the buckets [first, last).
        num_rows: rows in the file.
        columns: `{name: floats}` of a row.

    Attributes:
        buckets: as given.
        num_rows: as given.
        offsets: `{tensor: where in the file it begins}`.
        parts: `{part: (begin, end)}` of the bytes that have a checksum each: `"prefix"`, all that
            stands before the keys, `"keys"` and the columns.
        bytes: of the file.
    """

    def __init__(self, table_name, buckets, num_rows, columns):
        self.buckets = buckets
        self.num_rows = num_rows
        num_buckets = buckets[1] - buckets[0]
        self._per_group = 1
        while self._per_group < num_buckets and (
            num_rows * self._per_group < num_buckets * _ROWS_PER_GROUP
        ):
            self._per_group *= 2
        self._tensors = {
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
        end = 0
        places = {}
        for name, (dtype, shape) in self._tensors.items():
            begin, end = end, end + int(np.prod(shape)) * _NUMPY_TYPES[dtype].itemsize
            places[name] = begin, end
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._header = len(text).to_bytes(8, "little") + text
        places = {
            name: tuple(len(self._header) + place for place in begin_end)
            for name, begin_end in places.items()
        }
        self.offsets = {name: begin for name, (begin, _) in places.items()}
        _, prefix_end = places.pop("bucket_offsets")
        self.parts = {"prefix": (0, prefix_end), **places}
        self.bytes = len(self._header) + end

    def prefix(self, counts):
        """All that stands before the keys; `counts` int64 `[buckets]`, rows of each bucket."""
        groups = np.add.reduceat(counts, np.arange(0, len(counts), self._per_group))
        offsets = np.concatenate([[0], np.cumsum(groups)])
        return self._header + offsets.astype("<i8").tobytes()

    def read(self, path, tensor, begin, end):
        """The elements or rows [begin, end) of a tensor of the file at `path`.

        Raises:
            CheckpointError: the file ends before.
        """
        dtype, (_, *floats) = self._tensors[tensor]
        dtype, per_row = _NUMPY_TYPES[dtype], int(np.prod(floats))
        offset = self.offsets[tensor] + begin * per_row * dtype.itemsize
        values = np.fromfile(path, dtype, (end - begin) * per_row, offset=offset)
        if len(values) != (end - begin) * per_row:
            raise CheckpointError(f"'{path}' ends within its {tensor}. Use another checkpoint.")
        return values.reshape(-1, *floats)

    def rows_of_buckets(self, path, first, last):
        """The rows `(begin, end)` of the buckets [first, last), which are in the file."""
        _, (count,) = self._tensors["bucket_offsets"]
        offsets = self.read(path, "bucket_offsets", 0, count)
        return tuple(self._rows_before(path, offsets, bucket) for bucket in (first, last))

    def _rows_before(self, path, offsets, bucket):
        group, within = divmod(bucket - self.buckets[0], self._per_group)
        if within == 0:
            return int(offsets[group])
        begin, end = offsets[group : group + 2].tolist()
        keys = self.read(path, "keys", begin, end)
        return begin + int(np.searchsorted(buckets_of(keys), bucket))
