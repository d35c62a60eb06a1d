"""The layer among other layers: sharing, copies, masks, types, and what it refuses."""

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tfsparse.keras_layers import DynamicEmbedding

Constant = tfs.initializers.Constant


@pytest.fixture
def sgd():
    """The optimizer that subtracts gradients."""
    return tfs.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))


def train(optimizer, layers, loss_of_step):
    with tf.GradientTape() as tape:
        loss = loss_of_step()
    variables = list({layer.anchor.ref(): layer.anchor for layer in layers}.values())
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))


# Whose rows they are.


def test_layers_with_default_names_have_tables_of_their_own(sgd):
    one, other = DynamicEmbedding(2), DynamicEmbedding(2)
    train(sgd, [one], lambda: tf.reduce_sum(one([1], training=True)))
    other([1], training=True)
    assert (one.table.size(), other.table.size()) == (1, 0)
    assert one.table_config.name != other.table_config.name


def test_layers_of_one_name_have_tables_of_their_own(sgd):
    one, other = DynamicEmbedding(2, name="users"), DynamicEmbedding(2, name="users")
    train(sgd, [one], lambda: tf.reduce_sum(one([1], training=True)))
    other([1], training=True)
    assert (one.table.size(), other.table.size()) == (1, 0)


def test_layers_on_one_table_share_rows_and_train_them_together(sgd):
    items = tfs.Table("items", 2, initializer=Constant(10.0))
    candidate, history = DynamicEmbedding(items), DynamicEmbedding(items, combiner="sum")

    def loss():
        one = candidate([1, 2], training=True)
        many = history(tf.ragged.constant([[2, 2], [], [1, 3]]), training=True)
        return 3.0 * tf.reduce_sum(one) + tf.reduce_sum(many)

    train(sgd, [candidate, history], loss)
    # 1: once as candidate, once in a list. 2: once as candidate, twice in a list. 3: in a list.
    assert items.shard.lookup([1, 2, 3]).numpy().tolist() == [[6.0, 6.0], [5.0, 5.0], [9.0, 9.0]]
    assert candidate.table is history.table
    assert candidate.table.size() == 3
    np.testing.assert_array_equal(candidate([2]), [[5.0, 5.0]])


def test_a_layer_called_twice_in_a_step_gets_the_sum_of_both_gradients(sgd):
    layer = DynamicEmbedding(tfs.Table("items", 2, initializer=Constant(0.0)))

    def loss():
        first = layer(tf.constant([1, 2]), training=True)
        second = layer(tf.constant([[2, 3, 2]]), training=True)
        upstream = tf.constant([[[1.0, 2.0], [4.0, 8.0], [16.0, 32.0]]])
        return tf.reduce_sum(100.0 * first) + tf.reduce_sum(upstream * second)

    train(sgd, [layer], loss)
    rows = layer.table.lookup([1, 2, 3]).numpy().tolist()
    assert rows == [[-100.0, -100.0], [-117.0, -134.0], [-4.0, -8.0]]


@pytest.mark.parametrize("dtype", [tf.int64, tf.string])
def test_no_id_is_special(dtype, sgd):
    ids = tf.constant([0, -1, -2, -3, 2**63 - 1, -(2**63)], tf.int64)
    layer = DynamicEmbedding(2, initializer=Constant(0.0))
    wanted = -np.arange(1.0, 7.0)[:, np.newaxis].repeat(2, axis=1)
    given = tf.strings.as_string(ids) if dtype == tf.string else ids
    for step in (1, 2):
        train(sgd, [layer], lambda: tf.reduce_sum(-wanted * layer(given, training=True)))
        np.testing.assert_array_equal(layer(given).numpy(), step * wanted)
    assert layer.table.size() == 6


def test_evaluation_inserts_nothing_whatever_the_forms():
    layer = DynamicEmbedding(2, combiner="sum", default=0.5)
    for training in (None, False, 0, np.bool_(False), tf.constant(False)):
        assert layer([[1, 2]], training=training).numpy().tolist() == [[1.0, 1.0]]
        assert layer(tf.ragged.constant([["a"]]), training=training).numpy().tolist() == [[0.5] * 2]
    assert layer.table.stats()["rows"] == layer.table.stats()["provisional_rows"] == 0


def test_training_may_be_any_constant_truth():
    layer = DynamicEmbedding(2, initializer=Constant(7.0))
    for training in (True, 1, np.bool_(True), tf.constant(True)):
        assert layer([1], training=training).numpy().tolist() == [[7.0, 7.0]]


def test_training_that_is_known_only_at_run_time_is_refused():
    layer = DynamicEmbedding(2, name="users")
    call = tf.function(lambda training: layer([1], training=training))
    with pytest.raises(TypeError, match="'users': `training` must be a Python bool"):
        call(tf.constant(True))


def test_a_frozen_layer_reads_the_default_and_creates_no_rows(sgd):
    layer = DynamicEmbedding(2, default=0.5, initializer=Constant(7.0))
    train(sgd, [layer], lambda: tf.reduce_sum(layer([1], training=True)))
    layer.trainable = False
    assert layer([1, 2], training=True).numpy().tolist() == [[6.0, 6.0], [0.5, 0.5]]
    assert layer.table.stats()["provisional_rows"] == 0
    assert layer.trainable_weights == []
    layer.trainable = True
    assert layer([1, 2], training=True).numpy().tolist() == [[6.0, 6.0], [7.0, 7.0]]


def test_a_frozen_layer_in_a_nested_function_lets_others_train(sgd):
    frozen = DynamicEmbedding(1, default=2.0, trainable=False)
    weight = tf.Variable(1.0)
    nested = tf.function(lambda ids: frozen(ids, training=True))

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight * nested(ids))
        sgd.apply_gradients([(tape.gradient(loss, weight), weight)])

    step(tf.constant([7]))
    assert float(weight) == -1.0
    assert frozen.table.size() == 0


# Padding.


def test_padding_never_gets_a_row(sgd):
    layer = DynamicEmbedding(2, padding_id=-1, initializer=Constant(1.0))
    pooled = DynamicEmbedding(layer.table_config, combiner="mean", padding_id=-1)
    ids = tf.constant([[5, -1], [-1, -1]])

    def loss():
        return tf.reduce_sum(layer(ids, training=True)) + tf.reduce_sum(pooled(ids, training=True))

    train(sgd, [layer, pooled], loss)
    assert layer.table.size() == 1
    assert layer(ids).numpy().tolist() == [[[-1.0, -1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]
    assert pooled(ids).numpy().tolist() == [[-1.0, -1.0], [0.0, 0.0]]


def test_without_padding_id_minus_one_is_an_ordinary_id(sgd):
    layer = DynamicEmbedding(2, initializer=Constant(1.0))
    train(sgd, [layer], lambda: tf.reduce_sum(layer([-1, 5], training=True)))
    assert layer.table.lookup([-1]).numpy().tolist() == [[0.0, 0.0]]


def test_the_mask_of_padded_ids_reaches_the_layers_behind():
    ids = tf.keras.Input((3,), dtype=tf.int64)
    vectors = DynamicEmbedding(2, padding_id=0, default=6.0)(ids)
    model = tf.keras.Model(ids, tf.keras.layers.GlobalAveragePooling1D()(vectors))
    batch = np.array([[5, 0, 0], [5, 6, 7]])
    assert model(batch).numpy().tolist() == [[6.0, 6.0], [6.0, 6.0]]  # unmasked: 2 and 6
    layer = model.layers[1]
    assert layer.compute_mask(tf.constant([[5, 0]])).numpy().tolist() == [[True, False]]
    assert layer.compute_mask(tf.ragged.constant([[5, 0]])) is None
    assert DynamicEmbedding(2).compute_mask(tf.constant([[5, 0]])) is None
    pooled = DynamicEmbedding(2, combiner="sum", padding_id=0)
    assert pooled.compute_mask(tf.constant([[5, 0]])) is None


# Copies.


def two_towers():
    items = tfs.Table("items", 2, optimizer=tfs.optimizers.SGD(1.0), initializer=Constant(3.0))
    item = tf.keras.Input((), dtype=tf.int64, name="item")
    history = tf.keras.Input((None,), dtype=tf.int64, ragged=True, name="history")
    user = tf.keras.Input((), dtype=tf.string, name="user")
    vectors = [
        DynamicEmbedding(items, name="of_item")(item),
        DynamicEmbedding(items, combiner="mean", padding_id=0, name="of_history")(history),
        DynamicEmbedding(2, seed=4, name="of_user")(user),
    ]
    return tf.keras.Model([item, history, user], tf.keras.layers.Concatenate()(vectors))


def tables(model):
    return [model.get_layer(name).table for name in ("of_item", "of_history", "of_user")]


COPIES = {
    "clone_model": tf.keras.models.clone_model,
    "from_config": lambda model: tf.keras.Model.from_config(model.get_config()),
    "from_json": lambda model: tf.keras.models.model_from_json(model.to_json()),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_of_a_model_shares_as_the_model_does_but_not_with_it(way, sgd):
    model = two_towers()
    copies = [COPIES[way](model) for _ in range(2)]
    for one in (model, *copies):
        of_item, of_history, of_user = tables(one)
        assert of_item is of_history
        assert of_item is not of_user
    assert len({tables(one)[0] for one in (model, *copies)}) == 3
    assert len({tables(one)[2] for one in (model, *copies)}) == 3
    ids = [tf.constant([1]), tf.ragged.constant([[1, 0, 2]]), tf.constant(["a"])]
    for one in (model, *copies):
        np.testing.assert_array_equal(one(ids, training=True), model(ids, training=True))
    layer = copies[0].get_layer("of_item")
    train(sgd, [layer], lambda: tf.reduce_sum(layer([1], training=True)))
    assert [tables(one)[0].size() for one in (model, *copies)] == [0, 1, 0]


def test_a_layer_survives_its_config():
    table = tfs.Table(
        "t", 3, optimizer=tfs.optimizers.Adam(0.5), initializer=Constant(2.0), default=0.25, seed=9
    )
    layer = DynamicEmbedding(
        table, combiner="sqrtn", padding_id=-5, name="users", trainable=False, dtype="float16"
    )
    again = DynamicEmbedding.from_config(layer.get_config())
    assert again.get_config() == {
        **layer.get_config(),
        "dim_or_table": {**table.get_config(), "uid": again.table_config.uid},
    }
    assert again.table_config is not table
    assert again.compute_dtype == "float16"
    assert again.trainable is False


# Types.


@pytest.mark.parametrize(
    "policy, wanted",
    [
        ("float32", tf.float32),
        ("mixed_float16", tf.float16),
        ("mixed_bfloat16", tf.bfloat16),
        ("float64", tf.float64),
    ],
)
@pytest.mark.parametrize("combiner", [None, "mean"])
def test_output_has_the_compute_type_and_rows_stay_float32(policy, wanted, combiner, sgd):
    layer = DynamicEmbedding(2, combiner=combiner, dtype=policy, initializer=Constant(1.0))
    assert layer([[1, 2]], training=True).dtype == wanted
    train(sgd, [layer], lambda: tf.reduce_sum(layer([[1, 1, 1, 1]], training=True)))
    row = layer.table.lookup([1])
    assert row.dtype == tf.float32
    assert row.numpy().tolist() == ([[0.0, 0.0]] if combiner else [[-3.0, -3.0]])


def test_output_follows_the_global_policy():
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        layer = DynamicEmbedding(2)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    assert layer([1]).dtype == tf.float16
    assert layer.anchor.dtype == tf.float32


# Refusals.


def test_an_unknown_combiner_is_refused():
    with pytest.raises(ValueError, match="`combiner` must be one of .*combiner='max' in layer 'u'"):
        DynamicEmbedding(2, combiner="max", name="u")


def test_options_beside_a_table_are_refused():
    with pytest.raises(ValueError, match="got a tfs.Table and also \\['seed'\\]"):
        DynamicEmbedding(tfs.Table("t", 2), seed=1)


def test_options_without_a_table_are_checked_like_a_table():
    with pytest.raises(ValueError, match="Table 'users': `dim` must be"):
        DynamicEmbedding(0, name="users")
    with pytest.raises(TypeError, match="sede"):
        DynamicEmbedding(2, sede=1)


def test_a_strategy_is_refused():
    layer = DynamicEmbedding(2, name="users")
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        with pytest.raises(ValueError, match="'users': .*does not run under tf.distribute"):
            layer([1])


def test_the_table_of_a_layer_that_is_not_built_is_an_error():
    with pytest.raises(ValueError, match="'users' has no rows before it is built or called"):
        DynamicEmbedding(2, name="users").table  # noqa: B018


def test_a_padding_id_beyond_int32_pads_nothing_of_int32_ids():
    layer = DynamicEmbedding(2, padding_id=2**40, default=1.0, name="wide_padding")
    vectors = layer(tf.constant([[0, 1]], tf.int32))
    np.testing.assert_array_equal(vectors, np.ones((1, 2, 2)))
