"""One table and one optimizer, small enough to be followed by hand."""

import tensorflow as tf

import tfsparse as tfs
from tfsparse.embedding.table import shard_of


class OneTable:
    """A table of rows that start at [5, 5], and an optimizer that subtracts gradients."""

    def __init__(self, optimizer="auto", initializer=None, keras=None, dim=2, **options):
        initializer = initializer or tfs.initializers.Constant(5.0)
        config = tfs.Table(
            "users", dim, optimizer=optimizer, initializer=initializer, default=-1.0, **options
        )
        self.shard = shard_of(config)
        self.optimizer = tfs.DistributedOptimizer(keras or tf.keras.optimizers.SGD(1.0))

    def forward(self, keys, training=True):
        keys = tf.convert_to_tensor(keys, tf.int64)
        return self.shard.gather(keys, tf.size(keys, tf.int64), training)

    def gradient(self, keys, upstream):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.forward(keys) * tf.convert_to_tensor(upstream))
        return tape.gradient(loss, self.shard.anchor)

    def apply(self, gradient):
        self.optimizer.apply_gradients([(gradient, self.shard.anchor)])

    def train(self, keys, upstream):
        self.apply(self.gradient(keys, upstream))

    def rows(self, keys):
        return self.shard.lookup(keys).numpy().tolist()

    def all_rows(self, block_rows=100):
        blocks = list(self.shard.export(block_rows))
        return {
            int(key): (row.tolist(), slots.tolist())
            for keys, rows, slots_of_block in blocks
            for key, row, slots in zip(keys, rows, slots_of_block)
        }
