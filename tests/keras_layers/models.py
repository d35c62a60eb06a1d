"""Small models whose training can be followed by hand, or beside Keras's own layers."""

import numpy as np
import tensorflow as tf

import tfsparse as tfs
from tfsparse.keras_layers import DynamicEmbedding

OPTIMIZERS = {"new": tf.keras.optimizers, "legacy": tf.keras.optimizers.legacy}


def linear_loss(upstream, output):
    """Its gradient for `output` is `upstream`, divided by the samples of the batch."""
    return tf.reduce_sum(tf.cast(upstream, output.dtype) * output, axis=-1)


def linear_model(optimizer=None, dim=1, **options):
    """One table, rows of zeros: with batches of one sample, gradients are what is fed as `y`."""
    options = {"initializer": "zeros", **options}
    model = tf.keras.Sequential([DynamicEmbedding(dim, name="table", **options)])
    if optimizer is not None:
        model.compile(tfs.DistributedOptimizer(optimizer), linear_loss)
    return model


def table_of(model, name="table"):
    return model.get_layer(name).table


def rows_of(model, ids, name="table"):
    return table_of(model, name).lookup(ids).numpy()


def samples(ids, upstream, repeat=1):
    """A dataset of batches of one sample."""
    upstream = np.asarray(upstream, np.float32).reshape(len(ids), -1)
    data = tf.data.Dataset.from_tensor_slices((np.asarray(ids, np.int64), upstream))
    return data.repeat(repeat).batch(1)


def all_rows(table):
    """`{key: row, slots included}` of a whole table."""
    return {
        int(key): np.concatenate([row, slots])
        for keys, rows, all_slots in table.export()
        for key, row, slots in zip(keys, rows, all_slots)
    }


class Losses(tf.keras.callbacks.Callback):
    """Collects the loss that Keras shows after each batch."""

    def __init__(self):
        super().__init__()
        self.values = []

    def on_train_batch_end(self, batch, logs=None):
        self.values.append(logs["loss"])
