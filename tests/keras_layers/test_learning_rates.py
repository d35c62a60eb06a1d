"""Rows of "auto" tables follow the rate of the step, whoever sets it.

The model holds a table and Keras's own embedding side by side: both read the same ids, get the
same gradients and must stay equal. Gradients are one, so a row is minus the sum of its rates.
"""

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.keras_layers.models import OPTIMIZERS, linear_loss, rows_of
from tfsparse.keras_layers import DynamicEmbedding

STEPS = 4
# Step t reads ids 0 and t + 1.
IDS = np.stack([np.zeros(STEPS, np.int64), np.arange(1, STEPS + 1)], axis=1)


class RatePerBatch(tf.keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = 0.5 ** (batch + 1)


def by_epoch(epoch):
    return 1.0 / (epoch + 2)


def plateau():
    # No epoch gets better by 10^9, so the rate is halved after each, from the second on.
    return tf.keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=1e9)


SCHEDULE = tf.keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5)

WAYS = {  # the optimizer's rate, callbacks, epochs and the rates of all steps
    "constant": (0.25, [], 2, [0.25] * 8),
    "schedule": (SCHEDULE, [], 2, 0.5 ** np.arange(8.0)),
    "LearningRateScheduler": (
        9.0,
        [tf.keras.callbacks.LearningRateScheduler(by_epoch)],
        2,
        [1 / 2] * 4 + [1 / 3] * 4,
    ),
    "ReduceLROnPlateau": (1.0, [plateau()], 3, [1.0] * 8 + [0.5] * 4),
    "assigned_per_batch": (9.0, [RatePerBatch()], 2, [0.5, 0.25, 0.125, 0.0625] * 2),
}


@pytest.mark.parametrize("generation", OPTIMIZERS)
@pytest.mark.parametrize("way", WAYS)
def test_rows_follow_the_rate_of_the_step(way, generation):
    rate, callbacks, epochs, rates = WAYS[way]
    ids = tf.keras.Input((2,), dtype=tf.int64)
    table = DynamicEmbedding(1, initializer="zeros", name="table")
    embedding = tf.keras.layers.Embedding(STEPS + 1, 1, embeddings_initializer="zeros")
    total = tf.keras.layers.Add()([table(ids), embedding(ids)])
    model = tf.keras.Model(ids, tf.keras.layers.Flatten()(total))
    model.compile(tfs.DistributedOptimizer(OPTIMIZERS[generation].SGD(rate)), linear_loss)
    data = tf.data.Dataset.from_tensor_slices((IDS, np.ones_like(IDS))).batch(1)
    model.fit(data, epochs=epochs, callbacks=callbacks, verbose=0)

    rates = np.reshape(rates, [epochs, STEPS])
    wanted = -np.concatenate([[rates.sum()], rates.sum(axis=0)])
    rows = rows_of(model, np.arange(STEPS + 1))[:, 0]
    np.testing.assert_allclose(rows, wanted, rtol=1e-6)
    np.testing.assert_allclose(rows, embedding.get_weights()[0][:, 0], rtol=1e-6)


def test_a_schedule_goes_on_inside_several_steps_per_execution():
    ids = tf.keras.Input((), dtype=tf.int64)
    model = tf.keras.Model(ids, DynamicEmbedding(1, initializer="zeros", name="table")(ids))
    optimizer = tfs.DistributedOptimizer(tf.keras.optimizers.SGD(SCHEDULE))
    model.compile(optimizer, linear_loss, steps_per_execution=4)
    model.fit(np.arange(8), np.ones((8, 1)), batch_size=1, shuffle=False, verbose=0)
    np.testing.assert_array_equal(rows_of(model, np.arange(8))[:, 0], -(0.5 ** np.arange(8)))


def test_a_table_with_a_rate_of_its_own_follows_nobody():
    ids = tf.keras.Input((), dtype=tf.int64)
    table = tfs.Table("t", 1, optimizer=tfs.optimizers.SGD(0.125), initializer="zeros")
    model = tf.keras.Model(ids, DynamicEmbedding(table, name="table")(ids))
    optimizer = tfs.DistributedOptimizer(tf.keras.optimizers.SGD(SCHEDULE))
    model.compile(optimizer, linear_loss)
    model.fit(np.arange(4), np.ones((4, 1)), batch_size=1, verbose=0)
    np.testing.assert_array_equal(rows_of(model, np.arange(4))[:, 0], [-0.125] * 4)
