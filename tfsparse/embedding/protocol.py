"""What the code below Keras knows of layers: which tables they read, and from where.

A layer that reads a table mixes in `TableReader`. In its `call` it asks `source_of(table)`, and
so reads the trained shard, or whatever a `serving` block has put in its place.
"""

import contextlib

import tensorflow as tf

from tfsparse.embedding.table import shard_of

_serving = []
_rows_kept_elsewhere = 0


class TableReader:
    """A layer that reads one `tfs.Table`, `self.table_config`."""

    table_config = None


def tables_of(model):
    """The distinct `tfs.Table`s that the layers of a model read, in the layers' order."""
    readers = [layer for layer in model.submodules if isinstance(layer, TableReader)]
    return list(dict.fromkeys(reader.table_config for reader in readers))


def built_tables_of(model):
    """`tables_of`, each with a shard.

    Raises:
        TypeError: `model` is not a Keras model.
        ValueError: the layers of a table have never been called. Its shard, made now by one rank
            for itself, would be missing on the others.
    """
    if not isinstance(model, tf.keras.Model):
        raise TypeError(f"`model` must be a tf.keras.Model. Received: {model!r}.")
    tables = tables_of(model)
    missing = [table.name for table in tables if table.shard is None]
    if missing:
        raise ValueError(
            f"Tables {missing} of model '{model.name}' have no rows: their layers have never been "
            "called. Call it, or fit it, before."
        )
    return tables


def named_tables_of(model):
    """`built_tables_of`, told apart by their names.

    Raises:
        TypeError, ValueError: as there, or two tables have one name.
    """
    tables = built_tables_of(model)
    names = [table.name for table in tables]
    if len(set(names)) < len(names):
        raise ValueError(
            f"Tables of one model need names of their own to be saved. Received: {names}."
        )
    return tables


def table_rule(table, model):
    """The `(rule, arguments)` that a table gets by the model's first step; None without one."""
    optimizer = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of a LossScaleOptimizer
    rule = getattr(optimizer, "table_rule", None) if table.optimizer == "auto" else table.optimizer
    return None if rule is None else rule.rule()


def source_of(table):
    """What has `gather` for a table, as `ShardedTable` does: its shard, or a stand-in."""
    return _serving[-1][table] if _serving else shard_of(table)


@contextlib.contextmanager
def rows_kept_elsewhere():
    """Within the block TensorFlow's checkpoints leave rows out: the caller sees to them."""
    global _rows_kept_elsewhere
    _rows_kept_elsewhere += 1
    try:
        yield
    finally:
        _rows_kept_elsewhere -= 1


def are_rows_kept_elsewhere():
    """Whether a `rows_kept_elsewhere` block is open."""
    return _rows_kept_elsewhere > 0


@contextlib.contextmanager
def serving(sources):
    """Within the block layers read from `sources`, a dict from `tfs.Table`, instead."""
    _serving.append(sources)
    try:
        yield
    finally:
        _serving.pop()
