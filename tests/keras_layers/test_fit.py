"""`model.fit`: what it trains, what it leaves alone, and how it counts."""

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.keras_layers import gowalla
from tests.keras_layers.models import (
    OPTIMIZERS,
    all_rows,
    linear_loss,
    linear_model,
    rows_of,
    samples,
    table_of,
)
from tfsparse.keras_layers import DynamicEmbedding

Constant = tfs.initializers.Constant


def with_dense(optimizer, dense=None, **options):
    """A table of ones, dim 2, and a dense layer of ones behind it."""
    ids = tf.keras.Input((), dtype=tf.int64)
    options = {"initializer": Constant(1.0), **options}
    vectors = DynamicEmbedding(2, name="table", **options)(ids)
    dense = {"kernel_initializer": "ones", "use_bias": False, **(dense or {})}
    model = tf.keras.Model(ids, tf.keras.layers.Dense(1, name="dense", **dense)(vectors))
    model.compile(tfs.DistributedOptimizer(optimizer), linear_loss)
    return model


def kernel_of(model):
    return model.get_layer("dense").get_weights()[0][:, 0].tolist()


def matrix_factorisation():
    """A model without dense weights."""
    user = tf.keras.Input((), dtype=tf.int64)
    item = tf.keras.Input((), dtype=tf.int64)
    vectors = [
        DynamicEmbedding(2, name=name, initializer=Constant(1.0))(ids)
        for name, ids in (("user", user), ("item", item))
    ]
    return tf.keras.Model([user, item], tf.keras.layers.Dot(1)(vectors))


# What is trained.


@pytest.mark.real_data
def test_rows_of_other_batches_stay_bit_equal_and_those_of_the_batch_move(data_dir):
    stream = gowalla.Gowalla(data_dir, num_steps=10, batch_size=64)
    model = gowalla.tables_recommender()
    model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), gowalla.LOSS)
    ids = {"user": stream.users, "item": stream.items}
    model.fit(stream.dataset().take(5), verbose=0)
    before = {name: all_rows(table_of(model, name)) for name in ids}
    model.fit(stream.dataset().skip(5), verbose=0)
    for name, keys in ids.items():
        assert set(before[name]) == set(keys[:320].tolist())
        after, later = all_rows(table_of(model, name)), set(keys[320:].tolist())
        assert set(after) == set(keys.tolist())
        assert table_of(model, name).size() == len(after)
        both = set(before[name]) & later
        assert both
        for key, row in before[name].items():
            assert np.array_equal(after[key], row) == (key not in later), (name, key)
        for key in both:
            assert after[key][-1] > before[name][key][-1], "its count of updates grew"


def test_evaluation_validation_and_prediction_create_no_rows():
    model = linear_model(tf.keras.optimizers.SGD(1.0), default=0.5)
    model.fit(samples([1, 2], [1, 1]), validation_data=samples([3, 4], [1, 1]), verbose=0)
    model.evaluate(samples([5, 6], [1, 1]), verbose=0)
    assert model.predict(np.array([1, 7]), verbose=0).tolist() == [[-1.0], [0.5]]
    assert set(all_rows(table_of(model))) == {1, 2}
    assert table_of(model).stats()["provisional_rows"] == 0


def test_ids_that_repeat_in_a_batch_are_trained_once_with_their_sum():
    # Adagrad from 0: one update by g moves a row by exactly the rate, whatever g is.
    model = linear_model(tf.keras.optimizers.Adagrad(1.0, 0.0, epsilon=1e-30))
    model.fit(np.array([7, 7, 8, 7]), 4.0 * np.array([[1.0], [2], [5], [-6]]), verbose=0)
    rows = all_rows(table_of(model))
    np.testing.assert_allclose(rows[7], [1.0, 9.0], rtol=1e-6)
    np.testing.assert_allclose(rows[8], [-1.0, 25.0], rtol=1e-6)


def test_sample_weights_weigh_rows():
    model = linear_model(tf.keras.optimizers.SGD(1.0))
    weights = np.array([3.0, 0.0])
    model.fit(np.array([1, 2]), 2.0 * np.ones((2, 1)), sample_weight=weights, verbose=0)
    assert rows_of(model, [1, 2]).tolist() == [[-3.0], [0.0]]


def test_a_model_of_tables_only_learns():
    model = matrix_factorisation()
    model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    model.fit([np.array([5]), np.array([6])], np.array([3.0]), verbose=0)
    # The product is 2: dL/dy = 2 * (2 - 3), and each vector moves by -0.1 * -2 * the other.
    np.testing.assert_allclose(rows_of(model, [5], "user"), [[1.2, 1.2]], rtol=1e-6)
    np.testing.assert_allclose(rows_of(model, [6], "item"), [[1.2, 1.2]], rtol=1e-6)
    assert int(model.optimizer.iterations) == 1


def test_a_table_with_a_rule_of_its_own_stands_beside_one_that_follows_keras():
    own = tfs.Table("own", 1, optimizer=tfs.optimizers.SGD(0.5), initializer="zeros")
    auto = tfs.Table("auto", 1, initializer="zeros")
    ids = tf.keras.Input((), dtype=tf.int64)
    outputs = [DynamicEmbedding(table, name=table.name)(ids) for table in (own, auto)]
    model = tf.keras.Model(ids, tf.keras.layers.Concatenate()(outputs))
    model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adagrad(1.0, 1.0)), linear_loss)
    model.fit(samples([7, 7], [[3.0, 3.0], [4.0, 4.0]]), verbose=0)
    assert all_rows(own.shard)[7].tolist() == [-0.5 * 3 - 0.5 * 4]
    wanted = [-3 / np.sqrt(1 + 9) - 4 / np.sqrt(1 + 9 + 16), 1 + 9 + 16]
    np.testing.assert_allclose(all_rows(auto.shard)[7], wanted, rtol=1e-6)


def test_two_models_in_one_program_do_not_meet():
    one = linear_model(tf.keras.optimizers.SGD(1.0))
    other = linear_model(tf.keras.optimizers.legacy.Adagrad(1.0, 9.0))
    for _ in range(2):
        one.fit(samples([1, 2], [3, 4]), verbose=0)
        other.fit(samples([2, 3], [4, 5]), verbose=0)
    assert {key: row.tolist() for key, row in all_rows(table_of(one)).items()} == {
        1: [-6.0],
        2: [-8.0],
    }
    rows = all_rows(table_of(other))
    assert set(rows) == {2, 3}
    # Two steps by 4, from accumulator 9: the roots are 5 and sqrt(41).
    np.testing.assert_allclose(rows[2], [-4 / 5 - 4 / np.sqrt(41), 41.0], rtol=1e-6)
    assert [int(model.optimizer.iterations) for model in (one, other)] == [4, 4]


def test_a_regulariser_of_a_dense_layer_is_left_as_it_is():
    l2 = tf.keras.regularizers.L2(0.25)
    model = with_dense(tf.keras.optimizers.SGD(0.5), {"kernel_regularizer": l2})
    model.fit(np.array([7]), np.array([[3.0]]), verbose=0)
    assert kernel_of(model) == [1 - 0.5 * (3.0 + 2 * 0.25)] * 2
    assert rows_of(model, [7]).tolist() == [[1 - 0.5 * 3.0] * 2]


# What is not.


def test_a_frozen_layer_is_not_trained_and_gets_no_rows():
    model = with_dense(tf.keras.optimizers.SGD(1.0), default=0.5)
    model.fit(np.array([7]), np.array([[1.0]]), verbose=0)
    model.get_layer("table").trainable = False
    model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.SGD(1.0)), linear_loss)
    model.fit(samples([7, 8], [8.0, 2.0]), verbose=0)
    assert {key: row.tolist() for key, row in all_rows(table_of(model)).items()} == {7: [0.0, 0.0]}
    assert kernel_of(model) == [0.0 - 8 * 0.0 - 2 * 0.5] * 2


@pytest.mark.parametrize("generation", OPTIMIZERS)
def test_a_layer_left_out_of_the_variables_is_not_trained(generation):
    model = with_dense(OPTIMIZERS[generation].SGD(1.0))
    model.fit(np.array([7]), np.array([[1.0]]), verbose=0)
    dense = model.get_layer("dense").trainable_weights

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(ids, training=True))
        model.optimizer.minimize(loss, dense, tape=tape)

    step(tf.constant([7, 8]))
    assert {key: row.tolist() for key, row in all_rows(table_of(model)).items()} == {7: [0.0, 0.0]}
    assert kernel_of(model) == [0.0 - 0.0 - 1.0] * 2


# How steps are counted.

DATASETS = {
    "filter": lambda data: data.filter(lambda ids, upstream: tf.reduce_all(ids > 0)),
    "from_generator": lambda data: tf.data.Dataset.from_generator(
        lambda: iter(data.skip(1)), output_signature=data.element_spec
    ),
}


@pytest.mark.parametrize("only", ["tables", "dense_too"])
@pytest.mark.parametrize("generation", OPTIMIZERS)
@pytest.mark.parametrize("kind", DATASETS)
def test_iterations_are_exact_on_data_of_unknown_length(kind, generation, only):
    make = linear_model if only == "tables" else with_dense
    model = make(OPTIMIZERS[generation].SGD(0.25))
    data = DATASETS[kind](samples([0, 1, 2, 3, 4, 5], [1, 1, 1, 1, 1, 1]))
    assert data.cardinality() == tf.data.UNKNOWN_CARDINALITY
    model.fit(data, epochs=3, verbose=0)
    assert int(model.optimizer.iterations) == 3 * 5
    assert set(all_rows(table_of(model))) == {1, 2, 3, 4, 5}
    if only == "tables":
        assert rows_of(model, [1, 5]).tolist() == [[-0.75], [-0.75]]


# Clipping.

LIMITS = {"clipnorm": 3.0, "global_clipnorm": 3.0, "clipvalue": 7.0}


@pytest.mark.parametrize("generation", OPTIMIZERS)
@pytest.mark.parametrize("kind", LIMITS)
def test_clipping_is_that_of_keras_with_repeated_ids_summed(kind, generation):
    limit = LIMITS[kind]
    model = with_dense(OPTIMIZERS[generation].SGD(1.0, **{kind: limit}))
    model.run_eagerly = True
    upstream = np.array([[2.0], [4.0], [8.0]])
    model.train_on_batch(np.array([7, 7, 8]), 3 * upstream)  # 3: the mean over the batch

    rows = np.array([[6.0, 6.0], [8.0, 8.0]])  # of 7 and 8; the kernel and the rows are ones
    dense = np.array([14.0, 14.0])
    norms = np.sqrt((rows**2).sum()), np.sqrt((dense**2).sum())
    if kind == "clipvalue":
        rows, dense = np.minimum(rows, limit), np.minimum(dense, limit)
    elif kind == "clipnorm":
        rows, dense = rows * limit / norms[0], dense * limit / norms[1]
    else:
        rows, dense = rows * limit / np.hypot(*norms), dense * limit / np.hypot(*norms)
    np.testing.assert_allclose(rows_of(model, [7, 8]), 1 - rows, rtol=1e-5)
    np.testing.assert_allclose(kernel_of(model), 1 - dense, rtol=1e-5)
