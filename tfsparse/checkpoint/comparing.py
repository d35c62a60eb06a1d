"""What differs between two checkpoints.

Values are compared as numbers, but a NaN equals a NaN. How many ranks saved a checkpoint, and how
its rows are cut into files, is no difference.
"""

import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfsparse.checkpoint import dense
from tfsparse.checkpoint.inspecting import describe_initializer, describe_rule
from tfsparse.checkpoint.stored_table import BLOCK_BYTES, StoredTable
from tfsparse.checkpoint.threads import run_all
from tfsparse.embedding.ownership import NUM_BUCKETS

_BLOCK_ROWS = 1 << 20  # of narrow rows; of wide ones fewer
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # of a TensorFlow checkpoint: what its variables hang on
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"  # of the names of its variables


class TableDifference(NamedTuple):
    """How the rows of two tables of one name differ.

    Attributes:
        settings: `{what: (in A, in B)}` of dim, columns, optimizer, initializer, seed and default,
            where they differ.
        only_in_a: rows whose key B does not have.
        only_in_b: rows whose key A does not have.
        in_both: rows whose key both have.
        changed: those of them that differ in a column that both have.
        largest: `{column: largest absolute difference of two values}`, of the columns that both
            have. NaN where a NaN stands against something else.
    """

    settings: dict
    only_in_a: int
    only_in_b: int
    in_both: int
    changed: int
    largest: dict

    def __bool__(self):
        """Whether anything differs."""
        return bool(self.settings or self.only_in_a or self.only_in_b or self.changed)


class DenseDifference(NamedTuple):
    """How what is not in tables differs; names are those of the TensorFlow checkpoints.

    Attributes:
        compared: variables that both have, of the same type and shape.
        shapes: `{name: (in A, in B)}`, types and shapes where they differ, None where it is absent.
        largest: `{name: largest absolute difference}` of variables that differ; NaN for texts.
    """

    compared: int
    shapes: dict
    largest: dict

    def __bool__(self):
        """Whether anything differs."""
        return bool(self.shapes or self.largest)


def compare_settings(content_a, content_b):
    """`{what: (in A, in B)}` of the step, the optimizer and the names of tables."""
    in_a, in_b = (
        {
            "step": content["step"],
            "optimizer": content["optimizer"],
            "tables": sorted(of_table["name"] for of_table in content["tables"]),
        }
        for content in (content_a, content_b)
    )
    return _differing(in_a, in_b)


def compare_tables(path_a, content_a, path_b, content_b):
    """`{name: TableDifference}` of the tables that both checkpoints have.

    Rows are read in blocks of some buckets. Their checksums are not looked at.

    Args:
        path_a: of checkpoint A.
        content_a: its manifest.
        path_b: of checkpoint B.
        content_b: its manifest.
    """
    tables_b = {of_table["name"]: of_table for of_table in content_b["tables"]}
    return {
        of_table["name"]: _compare_table(path_a, of_table, path_b, tables_b[of_table["name"]])
        for of_table in content_a["tables"]
        if of_table["name"] in tables_b
    }


def compare_dense(path_a, content_a, path_b, content_b):
    """The `DenseDifference` of two checkpoints; arguments are as for `compare_tables`."""
    a, b = _reader(path_a, content_a), _reader(path_b, content_b)
    forms_a, forms_b = map(_forms, (a, b))
    shapes = _differing(forms_a, forms_b)
    alike = sorted(forms_a.keys() - shapes.keys())
    largest = {}
    for name in alike:
        differing, difference = _difference(a.get_tensor(name), b.get_tensor(name))
        if differing.any():
            largest[_short(name)] = difference
    return DenseDifference(len(alike), {_short(name): s for name, s in shapes.items()}, largest)


def _short(name):
    return name.removesuffix(_SUFFIX)


def _reader(path, content):
    """Of the TensorFlow checkpoint in one of ours; None if that has tables alone."""
    if not content["dense"]:
        return None
    return tf.train.load_checkpoint(os.path.join(path, content["folder"], dense.PREFIX))


def _forms(reader):
    """`{name: type and shape}` of the variables of a TensorFlow checkpoint."""
    if reader is None:
        return {}
    types = reader.get_variable_to_dtype_map()
    return {
        name: f"{types[name].name}{shape}"
        for name, shape in sorted(reader.get_variable_to_shape_map().items())
        if name != _GRAPH
    }


def _compare_table(path_a, described_a, path_b, described_b):
    a, b = StoredTable(path_a, described_a), StoredTable(path_b, described_b)
    columns = [name for name, floats in a.columns.items() if b.columns.get(name) == floats]

    def compare(rows_a, rows_b):
        keys_a, keys_b = a.read("keys", *rows_a), b.read("keys", *rows_b)
        both, at_a, at_b = np.intersect1d(keys_a, keys_b, assume_unique=True, return_indices=True)
        changed, largest = np.zeros(len(both), bool), []
        for column in columns:
            values_a, values_b = a.read(column, *rows_a)[at_a], b.read(column, *rows_b)[at_b]
            differing, difference = _difference(values_a, values_b)
            changed |= differing.any(axis=1)
            largest.append(difference)
        only_in_a, only_in_b = len(keys_a) - len(both), len(keys_b) - len(both)
        return (only_in_a, only_in_b, len(both), int(changed.sum())), largest

    row_bytes = 4 * max([*a.columns.values(), *b.columns.values()])
    blocks = run_all(compare, _same_buckets(a, b, min(_BLOCK_ROWS, BLOCK_BYTES // row_bytes + 1)))
    only_in_a, only_in_b, in_both, changed = np.sum([counts for counts, _ in blocks], 0).tolist()
    largest = np.max([difference for _, difference in blocks], 0).tolist()
    return TableDifference(
        settings=_differing(_settings(described_a), _settings(described_b)),
        only_in_a=only_in_a,
        only_in_b=only_in_b,
        in_both=in_both,
        changed=changed,
        largest=dict(zip(columns, largest)),
    )


def _same_buckets(a, b, block_rows):
    """Blocks of two tables, `[(rows of a, rows of b)]`, each block of the same buckets.

    A block has `block_rows` of either table, but for those of one bucket.
    """
    counts = a.count_by_bucket(), b.count_by_bucket()
    numbers = np.cumsum(np.maximum(*counts)) // block_rows  # of the block of each bucket
    buckets = [0, *(np.flatnonzero(np.diff(numbers)) + 1), NUM_BUCKETS]
    bounds_a, bounds_b = (np.concatenate([[0], np.cumsum(c)])[buckets].tolist() for c in counts)
    return zip(zip(bounds_a, bounds_a[1:]), zip(bounds_b, bounds_b[1:]))


def _settings(described):
    return {
        "dim": described["dim"],
        "columns": described["columns"],
        "optimizer": describe_rule(**described["optimizer"]),
        "initializer": describe_initializer(described),
        "seed": described["seed"],
        "default": described["default"],
    }


def _difference(a, b):
    """Where two arrays of one type and shape differ, and the largest absolute difference."""
    a, b = np.asarray(a), np.asarray(b)
    differing = (a != b) & ~((a != a) & (b != b))
    if not differing.any():
        return differing, 0.0
    if a.dtype.kind in "OSU":
        return differing, np.nan
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    return differing, float(np.abs(a[differing].astype(wide) - b[differing].astype(wide)).max())


def _differing(in_a, in_b):
    """`{name: (in A, in B)}` of what is not the same in two dicts."""
    names = [*in_a, *(name for name in in_b if name not in in_a)]
    pairs = {name: (in_a.get(name), in_b.get(name)) for name in names}
    return {name: (a, b) for name, (a, b) in pairs.items() if a != b}
