"""The floor of lookups: `tf.gather` from a variable, which knows no keys."""

import tensorflow as tf

from tests.bench.contenders.keras_step import use_threads  # noqa: F401
from tests.bench.workload import row_numbers

SETTINGS = "tf.gather from a tf.Variable"
PACKAGES = ("tensorflow",)


class Table:
    """See `tests.bench.contenders`."""

    def __init__(self, dim, optimizer_name, capacity):
        variable = tf.Variable(tf.random.normal((capacity, dim)))
        self.ids = lambda keys: tf.constant(row_numbers(keys))
        self.floats = tf.constant
        self.insert = lambda rows, values: None
        self.lookup = tf.function(lambda rows: tf.gather(variable, rows))
