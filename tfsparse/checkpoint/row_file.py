"""A file of rows: some buckets of a table, in the `safetensors` format.

It has the tensors `bucket_offsets` int64 `[buckets + 1]`, `keys` int64 `[rows]`, and for each
column of a row one float32 `[rows, floats]`: `parameter`, then the slots of the optimizer. Rows
stand in the order of their keys' hashes, so those of bucket number b of the file are
`[bucket_offsets[b], bucket_offsets[b + 1])`.

The format (github.com/huggingface/safetensors): 8 bytes, the length of the header; the header,
JSON that says type, shape and place of each tensor; the tensors, in little endian.
"""

import json

import numpy as np


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
        tensors = {
            "bucket_offsets": ("I64", [buckets[1] - buckets[0] + 1]),
            "keys": ("I64", [num_rows]),
            **{name: ("F32", [num_rows, int(floats)]) for name, floats in columns.items()},
        }
        header = {"__metadata__": {"table": table_name, "first_bucket": str(buckets[0])}}
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
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return self._header + offsets.astype("<i8").tobytes()

    def read_bucket_offsets(self, path):
        """The `bucket_offsets` of the file, int64."""
        count = (self.offsets["keys"] - self.offsets["bucket_offsets"]) // 8
        with open(path, "rb") as file:
            if file.read(len(self._header)) != self._header:
                raise ValueError(f"'{path}' does not begin as the manifest says.")
            return np.frombuffer(file.read(8 * count), "<i8")
