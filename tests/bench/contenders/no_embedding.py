"""The floor of `fit`: one trained vector that stands for every id."""

import tensorflow as tf

from tests.bench.contenders.keras_step import OPTIMIZERS, use_threads  # noqa: F401

SETTINGS = "one vector for all ids"
PACKAGES = ("tensorflow",)


class _OneVector(tf.keras.layers.Layer):
    def __init__(self, dim):
        super().__init__()
        self._dim = dim

    def build(self, input_shape):
        self._vector = self.add_weight("vector", (self._dim,))

    def call(self, ids):
        zeros = tf.zeros_like(ids, tf.float32)[..., tf.newaxis]
        return zeros + self._vector


def embedding(dim, capacity):
    """The layer."""
    return _OneVector(dim)


def optimizer(name):
    """Keras's."""
    return getattr(tf.keras.optimizers.legacy, OPTIMIZERS[name])(1e-3)
