"""However a model is trained, the same steps give the same tables."""

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.keras_layers.models import OPTIMIZERS, all_rows, table_of
from tfsparse.keras_layers import DynamicEmbedding

STEPS, BATCH = 10, 8
RATE = 0.05
LOSS = tf.keras.losses.MeanSquaredError()

rng = np.random.default_rng(0)
IDS = rng.integers(0, 40, (STEPS, BATCH, 3))
LABELS = rng.normal(size=(STEPS, BATCH, 1)).astype(np.float32)
LossScaleOptimizer = tf.keras.mixed_precision.LossScaleOptimizer


def make_model():
    kernel = tf.keras.initializers.GlorotUniform(seed=1)
    ids = tf.keras.Input((3,), dtype=tf.int64)
    vectors = DynamicEmbedding(4, combiner="mean", name="table")(ids)
    hidden = tf.keras.layers.Dense(4, "tanh", kernel_initializer=kernel)(vectors)
    return tf.keras.Model(ids, tf.keras.layers.Dense(1, kernel_initializer=kernel)(hidden))


def adam(generation="new"):
    return tfs.DistributedOptimizer(OPTIMIZERS[generation].Adam(RATE))


def fit(model, optimizer, **compile_options):
    data = tf.data.Dataset.from_tensor_slices((IDS, LABELS))
    model.compile(optimizer, LOSS, **compile_options)
    model.fit(data, verbose=0)


def loop(model, optimizer, compiled, call=None):
    def step(ids, labels):
        with tf.GradientTape() as tape:
            loss = LOSS(labels, (call or model)(ids, training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    step = tf.function(step) if compiled else step
    for ids, labels in zip(IDS, LABELS):
        step(tf.constant(ids), tf.constant(labels))


def minimize(model, optimizer):
    @tf.function
    def step(ids, labels):
        with tf.GradientTape() as tape:
            loss = LOSS(labels, model(ids, training=True))
        optimizer.minimize(loss, model.trainable_variables, tape=tape)

    for ids, labels in zip(IDS, LABELS):
        step(tf.constant(ids), tf.constant(labels))


def nested(model, optimizer):
    loop(model, optimizer, True, tf.function(lambda ids, training: model(ids, training=training)))


def train_on_batch(model, optimizer):
    model.compile(optimizer, LOSS)
    for ids, labels in zip(IDS, LABELS):
        model.train_on_batch(ids, labels)


WAYS = {
    "steps_per_execution": lambda model: fit(model, adam(), steps_per_execution=5),
    "run_eagerly": lambda model: fit(model, adam(), run_eagerly=True),
    "train_on_batch": lambda model: train_on_batch(model, adam()),
    "tape_eager": lambda model: loop(model, adam(), compiled=False),
    "tape_in_function": lambda model: loop(model, adam(), compiled=True),
    "minimize": lambda model: minimize(model, adam()),
    "nested_function": lambda model: nested(model, adam()),
    "loss_scale_around": lambda model: fit(model, LossScaleOptimizer(adam())),
    "loss_scale_inside": lambda model: fit(
        model, tfs.DistributedOptimizer(LossScaleOptimizer(tf.keras.optimizers.Adam(RATE)))
    ),
    "legacy": lambda model: fit(model, adam("legacy")),
    "legacy_steps_per_execution": lambda m: fit(m, adam("legacy"), steps_per_execution=5),
    "legacy_tape": lambda model: loop(model, adam("legacy"), compiled=False),
    "legacy_minimize": lambda model: minimize(model, adam("legacy")),
    "legacy_loss_scale": lambda model: fit(model, LossScaleOptimizer(adam("legacy"))),
}


def state_of(model):
    dense = [weight for layer in model.layers[-2:] for weight in layer.get_weights()]
    return all_rows(table_of(model)), dense


@pytest.fixture(scope="module")
def plain():
    """What `fit` leaves behind: rows with slots, and dense weights."""
    model = make_model()
    start = [weight for layer in model.layers[-2:] for weight in layer.get_weights()]
    fit(model, adam())
    rows, dense = state_of(model)
    assert set(rows) == set(IDS.flatten().tolist())
    assert min(np.abs(row[:4]).max() for row in rows.values()) > 0.02
    # The last slot counts the updates of the row: the steps that have its key.
    assert {key: row[-1] for key, row in rows.items()} == {
        key: sum(key in ids for ids in IDS) for key in rows
    }
    assert max(np.abs(a - b).max() for a, b in zip(dense, start)) > 0.05
    return rows, dense


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_training_leaves_what_fit_leaves(way, plain):
    model = make_model()
    WAYS[way](model)
    rows, dense = state_of(model)
    assert set(rows) == set(plain[0])
    for key, row in rows.items():
        np.testing.assert_allclose(row, plain[0][key], rtol=1e-4, atol=2e-6, err_msg=str(key))
    for weight, wanted in zip(dense, plain[1]):
        np.testing.assert_allclose(weight, wanted, rtol=1e-4, atol=2e-6)
    if model.optimizer is not None:
        assert int(model.optimizer.iterations) == STEPS
    assert table_of(model).stats()["provisional_rows"] == 0
