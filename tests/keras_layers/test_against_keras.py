"""Tables train as `tf.keras.layers.Embedding` does, on real ids."""

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.keras_layers import gowalla
from tests.keras_layers.models import OPTIMIZERS, Losses, all_rows, linear_model, samples, table_of

STEPS = 50
RULES = {
    "SGD": {"learning_rate": 1.0},
    "Adagrad": {"learning_rate": 0.1, "initial_accumulator_value": 0.1},
}


@pytest.fixture(scope="module")
def stream(data_dir):
    return gowalla.Gowalla(data_dir, STEPS, batch_size=128)


@pytest.fixture(scope="module")
def users(stream):
    return np.unique(stream.users)


@pytest.fixture(scope="module")
def items(stream):
    return np.unique(stream.items)


def first_vectors(table, keys):
    return table.gather(tf.constant(keys), tf.constant(0, tf.int64), training=True).numpy()


@pytest.fixture(scope="module", params=RULES)
def twin(request, stream, users, items):
    """Keras's layers, trained from the first vectors of the tables: name, weights, losses."""
    rule = request.param
    start = gowalla.tables_recommender()
    model = gowalla.recommender(
        tf.keras.layers.Embedding(len(users), gowalla.DIM, name="user"),
        tf.keras.layers.Embedding(len(items), gowalla.DIM, name="item"),
    )
    for name, keys in (("user", users), ("item", items)):
        model.get_layer(name).set_weights([first_vectors(table_of(start, name), keys)])
    losses = Losses()
    model.compile(getattr(tf.keras.optimizers, rule)(**RULES[rule]), gowalla.LOSS)
    model.fit(stream.dataset(users, items), verbose=0, callbacks=[losses])
    assert len(losses.values) == STEPS
    return rule, [weight.numpy() for weight in model.weights], losses.values


@pytest.mark.real_data
@pytest.mark.parametrize("generation", OPTIMIZERS)
def test_fit_equals_keras_embedding(twin, generation, stream, users, items):
    rule, (user_rows, item_rows, *dense), keras_losses = twin
    model = gowalla.tables_recommender()
    losses = Losses()
    optimizer = getattr(OPTIMIZERS[generation], rule)(**RULES[rule])
    model.compile(tfs.DistributedOptimizer(optimizer), gowalla.LOSS)
    first = first_vectors(table_of(model, "user"), users)
    model.fit(stream.dataset(), verbose=0, callbacks=[losses])

    np.testing.assert_allclose(losses.values, keras_losses, rtol=1e-5)
    rows = table_of(model, "user").lookup(users).numpy()
    np.testing.assert_allclose(rows, user_rows, atol=1e-6)
    np.testing.assert_allclose(table_of(model, "item").lookup(items).numpy(), item_rows, atol=1e-6)
    own = [weight for layer in model.layers[-2:] for weight in layer.get_weights()]
    for weight, other in zip(own, dense):
        np.testing.assert_allclose(weight, other, atol=1e-6)

    assert table_of(model, "user").size() == len(users)
    assert table_of(model, "item").size() == len(items)
    assert np.abs(rows - first).max(axis=1).min() > 0, "a row that was trained did not move"
    assert int(model.optimizer.iterations) == STEPS


def lazy_adam(steps, rate, beta_1, beta_2, epsilon):
    """The documented rule, in float64: a row lives only in the steps that have its key."""
    rows = {}
    for gradients in steps:
        for key, g in gradients.items():
            w, m, v, t = rows.get(key, (0.0, 0.0, 0.0, 0))
            t += 1
            m += (1 - beta_1) * (g - m)
            v += (1 - beta_2) * (g * g - v)
            correction = np.sqrt(1 - beta_2**t) / (1 - beta_1**t)
            rows[key] = (w - rate * correction * m / (np.sqrt(v) + epsilon), m, v, t)
    return rows


@pytest.mark.parametrize("generation", OPTIMIZERS)
def test_adam_counts_the_updates_of_each_row(generation):
    rng = np.random.default_rng(5)
    # Row 1 is in every step; 2 pauses and comes back; 3 and 4 appear late, together.
    keys = [[1], [1, 2], [1], [1], [1, 2], [1], [1, 3, 4], [1, 4], [1, 2], [1, 3]] * 3
    steps = [{key: float(rng.normal()) for key in step} for step in keys]
    settings = {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-5}
    model = linear_model(OPTIMIZERS[generation].Adam(0.1, **settings))
    data = tf.data.Dataset.from_generator(
        lambda: (
            (np.array(list(step)), len(step) * np.array(list(step.values()))[:, np.newaxis])
            for step in steps
        ),
        output_signature=(tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, 1], tf.float32)),
    )
    model.fit(data, verbose=0)
    wanted = lazy_adam(steps, 0.1, **settings)
    rows = all_rows(table_of(model))
    assert set(rows) == set(wanted)
    for key, row in rows.items():
        np.testing.assert_allclose(row, wanted[key], rtol=1e-4, atol=1e-6, err_msg=str(key))
    assert [wanted[key][3] for key in (1, 2, 3, 4)] == [30, 9, 6, 6]


def test_adam_equals_keras_for_a_row_of_every_step():
    rng = np.random.default_rng(6)
    upstream = rng.normal(size=(20, 1))
    model = linear_model(tf.keras.optimizers.Adam(0.1))
    model.fit(samples([7] * 20, upstream), verbose=0)
    weight = tf.Variable([0.0])
    keras = tf.keras.optimizers.Adam(0.1)
    for value in upstream.astype(np.float32):
        keras.apply_gradients([(tf.constant(value), weight)])
    np.testing.assert_allclose(all_rows(table_of(model))[7][0], weight.numpy()[0], rtol=1e-5)


def test_keras_adam_and_that_of_tables_are_one_rule():
    model = linear_model(tf.keras.optimizers.Adam(0.1))
    model.fit(samples([7], [1.0]), verbose=0)
    table_of(model).bind(tfs.optimizers.Adam(0.1))  # raises if it has another
    with pytest.raises(tf.errors.FailedPreconditionError, match="cannot change"):
        table_of(model).bind(tfs.optimizers.Adam(0.1, beta_2=0.99))
