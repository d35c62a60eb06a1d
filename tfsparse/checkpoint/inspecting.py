"""What is in a checkpoint, for those who look at it without its model."""

import os
import re
from typing import NamedTuple, Optional

import numpy as np

from tfsparse import runtime
from tfsparse.checkpoint import manifest, series
from tfsparse.checkpoint.manifest import CheckpointError
from tfsparse.checkpoint.stored_table import StoredTable
from tfsparse.checkpoint.threads import run_all

# What the arguments of the core's rules are, in the words of Keras.
_ARGUMENTS = {
    "none": (),
    "sgd": (),
    "adagrad": ("initial_accumulator_value", "epsilon"),
    "adam": ("1 - beta_1", "1 - beta_2", "epsilon"),
}


class ColumnStatistics(NamedTuple):
    """Of a column of all rows; numbers are None where no row is finite.

    Attributes:
        mean_norm: mean over rows of the L2 norm.
        smallest: of all values.
        largest: of all values.
        rows_not_finite: rows with a NaN or infinite value, which do not count in the others.
    """

    mean_norm: Optional[float]
    smallest: Optional[float]
    largest: Optional[float]
    rows_not_finite: int


def open_checkpoint(directory):
    """The absolute path of a checkpoint, and its manifest.

    Raises:
        CheckpointError: it is none. If it has folders `step-<n>` that are, the message lists them.
        ValueError: it is a URL.
    """
    path = runtime.mounted_path(directory)
    try:
        return path, manifest.read(path)
    except CheckpointError:
        steps = series.steps_of(path) if os.path.isdir(path) else []
        if os.path.lexists(os.path.join(path, manifest.NAME)) or not steps:
            raise
    raise CheckpointError(
        f"'{path}' is not a checkpoint, but has checkpoints of {len(steps)} steps, the newest "
        f"last: {', '.join(map(str, steps))}. Use '{series.path_of(path, steps[-1])}'."
    )


def describe_rule(rule, arguments):
    """The optimizer of a table with its arguments by name, as a text; no two have the same."""
    told = [f"{name}={np.float32(value)!s}" for name, value in zip(_ARGUMENTS[rule], arguments)]
    return f"{rule}({', '.join(told)})"


def describe_initializer(of_table):
    """The initializer of a table with its arguments, as a text."""
    initializer = of_table["initializer"]
    told = [f"{name}={value!r}" for name, value in initializer["config"].items()]
    return f"{initializer['class_name']}({', '.join(told)})"


def count_weights(content):
    """How many weights a checkpoint has by its manifest, and how many values they have in all."""
    shapes = [re.findall(r"\d+", text.partition("[")[2]) for text in content["weights"]]
    return len(shapes), sum(int(np.prod([int(n) for n in shape])) for shape in shapes)


def rows_of_ranks(content, of_table):
    """The rows of a table that each rank has saved."""
    rows = [0] * content["num_ranks"]
    for file in of_table["files"]:
        rows[file["rank"]] += file["rows"]
    return rows


def column_statistics(path, of_table):
    """`{column: ColumnStatistics}` of a table; all of its rows are read, in blocks.

    Args:
        path: of the checkpoint.
        of_table: what its manifest says of the table.
    """
    table = StoredTable(path, of_table)
    return {column: _statistics(table, column) for column in table.columns}


def _statistics(table, column):
    def of_block(begin, end):
        rows = table.read(column, begin, end)
        rows = rows[np.isfinite(rows).all(axis=1)]
        rows = rows.astype(np.float64)  # in which no square is too large
        norms = np.sqrt((rows * rows).sum(axis=1))
        return len(rows), norms.sum(), rows.min(initial=np.inf), rows.max(initial=-np.inf)

    blocks = run_all(of_block, table.blocks(column, 0, table.num_rows))
    finite = sum(block[0] for block in blocks)
    if not finite:
        return ColumnStatistics(None, None, None, table.num_rows)
    return ColumnStatistics(
        mean_norm=float(sum(block[1] for block in blocks) / finite),
        smallest=float(min(block[2] for block in blocks)),
        largest=float(max(block[3] for block in blocks)),
        rows_not_finite=table.num_rows - finite,
    )
