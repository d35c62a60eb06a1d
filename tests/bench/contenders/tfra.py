"""TensorFlow Recommenders-Addons: its variable; in steps and in `fit`, its layer and optimizer."""

import itertools

import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as tfra

from tests.bench.contenders.keras_step import OPTIMIZERS, step_of, use_threads  # noqa: F401

# With the new optimizers the number of its table ops grows as the square of the layers.
SETTINGS = "CPU cuckoo tables, legacy optimizers"
PACKAGES = ("tensorflow-recommenders-addons", "tensorflow")
_numbers = itertools.count()


def embedding(dim, capacity):
    """The layer, on the CPU."""
    return tfra.keras.layers.Embedding(
        dim,
        key_dtype=tf.int64,
        value_dtype=tf.float32,
        initializer=tf.keras.initializers.RandomNormal(0, 0.01),
        devices=["/CPU:0"],
        init_capacity=capacity or 1024,
        name=f"bench_{next(_numbers)}",
    )


def optimizer(name):
    """Keras's legacy one, which trains the tables too."""
    legacy = getattr(tf.keras.optimizers.legacy, OPTIMIZERS[name])
    return tfra.DynamicEmbeddingOptimizer(legacy(1e-3))


class Table:
    """See `tests.bench.contenders`."""

    def __init__(self, dim, optimizer_name, capacity):
        variable = tfra.get_variable(
            f"bench_{next(_numbers)}", dim=dim, devices=["/CPU:0"], init_size=capacity or 1024
        )
        self.ids = self.floats = tf.constant
        self.lookup = tf.function(lambda ids: variable.lookup(ids))
        self.insert = variable.upsert
        layer, keras_optimizer = embedding(dim, capacity), optimizer(optimizer_name)
        self.step = step_of(layer, keras_optimizer)

        def tables():
            slots = keras_optimizer.variables()
            return [layer.params, *(slot.params for slot in slots if hasattr(slot, "params"))]

        # What FileSystemSaver calls, with its own size of buffers.
        self.save = lambda folder: [table.save_to_file_system(folder) for table in tables()]
        self.restore = lambda folder: [table.load_from_file_system(folder) for table in tables()]
