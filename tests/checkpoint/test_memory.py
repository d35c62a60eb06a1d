"""A table is saved and restored in little more memory than it takes."""

import gc

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.memory import MB, added
from tfsparse.keras_layers import DynamicEmbedding

DIM, ROWS = 256, 700_000
TABLE_BYTES = ROWS * 4 * (3 * DIM + 1)  # with the slots of Adam


def big_model():
    """A model whose table has no rows yet."""
    ids = tf.keras.Input((), dtype=tf.int64)
    model = tf.keras.Model(ids, DynamicEmbedding(DIM, name="table")(ids))
    model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adam()), "mse")
    return model, model.layers[1].table


@pytest.mark.slow
def test_two_gigabytes_are_saved_and_restored_in_little_more_memory(tmp_path):
    assert TABLE_BYTES > 2e9
    model, table = big_model()
    model.train_on_batch(np.array([0]), np.zeros([1, DIM]))  # rows have slots from now on
    for part in np.array_split(np.arange(ROWS), 20):
        tfs.load_rows(table, (part, np.full([len(part), DIM], part[:, None], np.float32)))
    with added() as grown:
        tfs.save(model, tmp_path)
        assert grown() < 256 * MB, f"grew by {grown() / MB:.0f} MB"
    del model, table
    gc.collect()

    model, table = big_model()
    with added() as grown:
        tfs.restore(model, tmp_path)
        assert 0.9 * TABLE_BYTES < grown() < 1.2 * TABLE_BYTES, f"grew by {grown() / MB:.0f} MB"
    assert table.size() == ROWS
    some = np.arange(0, ROWS, 997)
    np.testing.assert_array_equal(table.lookup(some)[:, -1], some)
