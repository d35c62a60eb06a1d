"""What a step costs depends on its batch, not on how many rows the table has."""

import time

import numpy as np
import pytest
import tensorflow as tf

from tests.keras_layers.models import linear_model, table_of

STEPS, BATCH = 300, 512


def cpu_s_of_steps(model, num_ids):
    """Seconds of CPU, whatever else the machine does."""
    ids = np.random.default_rng(0).integers(0, num_ids, (STEPS, BATCH))
    data = tf.data.Dataset.from_tensor_slices((ids, np.ones((STEPS, BATCH, 8), np.float32)))
    model.fit(data.take(10), verbose=0)
    start = time.process_time()
    model.fit(data, verbose=0)
    return time.process_time() - start


@pytest.mark.slow
def test_a_step_costs_the_same_with_a_hundred_times_the_rows():
    seconds = []
    for num_ids in (10_000, 1_000_000):
        model = linear_model(tf.keras.optimizers.Adam(0.01), dim=8)
        everything = tf.data.Dataset.range(num_ids).batch(10_000)
        zeros = everything.map(lambda ids: (ids, tf.zeros([tf.shape(ids)[0], 8])))
        model.fit(zeros, verbose=0)
        assert table_of(model).size() == num_ids
        seconds.append(cpu_s_of_steps(model, num_ids))
    # Rows of the large table are in no cache; a step that touched all would take a hundred times.
    assert seconds[1] < 3 * seconds[0], seconds
