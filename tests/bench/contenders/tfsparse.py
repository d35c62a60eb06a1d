"""tfsparse: the table's ops; in steps and in `fit`, the Keras layer and optimizer."""

import itertools

import tensorflow as tf

import tfsparse as tfs
from tests.bench.contenders.keras_step import OPTIMIZERS, step_of, use_threads  # noqa: F401
from tfsparse import ops
from tfsparse.embedding.table import shard_of
from tfsparse.keras_layers import DynamicEmbedding

SETTINGS = "defaults"
PACKAGES = ("tfsparse", "tensorflow")
_numbers = itertools.count()


def embedding(dim, capacity):
    """The layer; a table grows and need not be told how far."""
    return DynamicEmbedding(dim)


def optimizer(name):
    """Keras's, which trains the tables too."""
    return tfs.DistributedOptimizer(getattr(tf.keras.optimizers, OPTIMIZERS[name])(1e-3))


class Table:
    """See `tests.bench.contenders`."""

    def __init__(self, dim, optimizer_name, capacity):
        rule = getattr(tfs.optimizers, OPTIMIZERS[optimizer_name])()
        config = tfs.Table(f"bench_{next(_numbers)}", dim, optimizer=rule)
        handle = shard_of(config).handle
        self.ids = self.floats = tf.constant
        self.lookup = tf.function(lambda ids: ops.lookup(handle, ids, dim))
        # A step of rate 0 makes rows with their first vectors.
        self.insert = lambda ids, rows: ops.apply(handle, ids, rows, 0.0)
        layer = DynamicEmbedding(config)
        self.step = step_of(layer, optimizer(optimizer_name))
        model = tf.keras.Sequential([tf.keras.Input((), dtype=tf.int64), layer])
        self.save = lambda folder: tfs.save(model, folder)
        self.restore = lambda folder: tfs.restore(model, folder)
