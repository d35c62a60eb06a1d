"""Memory is used once per row, and given back with the model."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.keras_layers.models import table_of
from tests.memory import MB, rss_bytes
from tfsparse.keras_layers import DynamicEmbedding

keras = tf.keras
WARM_UP, STEPS = 500, 2000
BATCH, LENGTH, NUM_IDS = 128, 10, 2000
# 10 kB of ids a batch: 2,000 of them kept would be 20 MB, their rows 160 MB.
BATCH_BYTES = BATCH * LENGTH * 8


def two_reads_of_one_table():
    items = tfs.Table("table", 16)
    candidate = keras.Input((), dtype=tf.int64)
    history = keras.Input((None,), dtype=tf.int64, ragged=True)
    vectors = [
        DynamicEmbedding(items, name="table")(candidate),
        DynamicEmbedding(items, combiner="mean")(history),
    ]
    score = keras.layers.Dense(1)(keras.layers.Concatenate()(vectors))
    model = keras.Model([candidate, history], score)
    model.compile(tfs.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    return model


def batches():
    """Without end; always the same ids, in lists of other lengths each time."""
    rng = tf.random.Generator.from_seed(1)

    def batch(_):
        lengths = rng.uniform([BATCH], 0, 2 * LENGTH, tf.int64)
        ids = rng.uniform([tf.reduce_sum(lengths)], 0, NUM_IDS, tf.int64)
        history = tf.RaggedTensor.from_row_lengths(ids, lengths)
        candidate = rng.uniform([BATCH], 0, NUM_IDS, tf.int64)
        return (candidate, history), tf.ones([BATCH, 1])

    return tf.data.Dataset.range(1).repeat().map(batch)


def fit(model):
    return lambda steps: model.fit(batches(), steps_per_epoch=steps, verbose=0)


def own_loop(model):
    @tf.function
    def step(inputs, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs, training=True) - labels) ** 2)
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    def run(steps):
        for inputs, labels in batches().take(steps):
            step(inputs, labels)

    return run


def forward_only(model):
    """Training passes whose gradients nobody applies: they reserve rows and give them back."""
    step = tf.function(lambda inputs: model(inputs, training=True), reduce_retracing=True)

    def run(steps):
        for inputs, _ in batches().take(steps):
            step(inputs)

    return run


def evaluate(model):
    return lambda steps: model.evaluate(batches(), steps=steps, verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("way", [fit, own_loop, forward_only, evaluate])
def test_steps_on_the_same_ids_do_not_grow_memory(way):
    model = two_reads_of_one_table()
    run = way(model)
    run(WARM_UP)
    stats, before = table_of(model).stats(), rss_bytes()
    assert stats["rows"] == (NUM_IDS if way in (fit, own_loop) else 0)
    run(STEPS)
    grown = rss_bytes() - before
    assert grown < STEPS * BATCH_BYTES / 2, f"{grown / STEPS:.0f} bytes a step"
    after = table_of(model).stats()
    if way is forward_only:  # the rows that its last steps have reserved
        after.update(provisional_rows=stats["provisional_rows"])
    assert after == stats


# Two hundred megabytes, and a model around them. Its batches are small: of their tensors the C
# library keeps some for the next ones.
DIM, ROWS, PER_STEP = 100, 500_000, 5_000


def big_model():
    ids = keras.Input((), dtype=tf.int64)
    vectors = DynamicEmbedding(DIM, name="table")(ids)
    model = keras.Model(ids, keras.layers.Dense(1)(vectors))
    model.compile(tfs.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    return model


def train(model, fail=False):
    ids = tf.data.Dataset.range(ROWS).batch(PER_STEP)
    data = ids.map(lambda part: (part, tf.ones([tf.shape(part)[0], 1])))
    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=fail_in_fit)] if fail else []
    model.fit(data, verbose=0, callbacks=callbacks)


def fail_in_fit(epoch, logs):
    raise RuntimeError("meant to fail")


def live_trained():
    model = big_model()
    train(model)
    assert table_of(model).stats()["rows"] == ROWS
    return weakref.ref(table_of(model))


def live_through_an_exception():
    model = big_model()
    with pytest.raises(RuntimeError, match="meant to fail"):
        train(model, fail=True)
    assert table_of(model).stats()["rows"] == ROWS
    return weakref.ref(table_of(model))


def live_as_a_copy():
    copy = keras.Model.from_config(big_model().get_config())
    copy.compile(tfs.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    train(copy)
    return weakref.ref(table_of(copy))


def live_untrained():
    model = big_model()
    model.predict(np.arange(10), verbose=0)
    return weakref.ref(table_of(model))


@pytest.mark.slow
@pytest.mark.parametrize(
    "live", [live_trained, live_through_an_exception, live_as_a_copy, live_untrained]
)
def test_a_model_that_is_gone_gives_its_memory_back(live):
    table_bytes = DIM * 4 * ROWS
    live()
    gc.collect()
    before = rss_bytes()
    for _ in range(2):
        table = live()
        left = rss_bytes() - before
        assert table() is None
        assert left < table_bytes / 4, f"{left / MB:.0f} MB left"


def test_a_model_alive_has_its_rows_in_memory_once():
    before = rss_bytes()
    model = big_model()
    train(model)
    grown, table_bytes = rss_bytes() - before, DIM * 4 * ROWS
    assert 0.95 * table_bytes < grown < 1.5 * table_bytes
    assert table_of(model).stats()["page_bytes"] < 1.1 * table_bytes
