"""What the code below Keras knows of layers: which tables they read, and from where.

A layer that reads a table mixes in `TableReader`. In its `call` it asks `source_of(table)`, and
so reads the trained shard, or whatever a `serving` block has put in its place.
"""

import contextlib

from tfsparse.embedding.table import shard_of

_serving = []


class TableReader:
    """A layer that reads one `tfs.Table`, `self.table_config`."""

    table_config = None


def tables_of(model):
    """The distinct `tfs.Table`s that the layers of a model read, in the layers' order."""
    readers = [layer for layer in model.submodules if isinstance(layer, TableReader)]
    return list(dict.fromkeys(reader.table_config for reader in readers))


def source_of(table):
    """What has `gather` for a table, as `ShardedTable` does: its shard, or a stand-in."""
    return _serving[-1][table] if _serving else shard_of(table)


@contextlib.contextmanager
def serving(sources):
    """Within the block layers read from `sources`, a dict from `tfs.Table`, instead."""
    _serving.append(sources)
    try:
        yield
    finally:
        _serving.pop()
