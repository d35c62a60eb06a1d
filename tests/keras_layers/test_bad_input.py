"""Bad input gets one error that names the layer or table, and nothing is written."""

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tfsparse.keras_layers import DynamicEmbedding

K = tf.keras

IDS = tf.range(4, dtype=tf.int64)


def ragged(*splits):
    return tf.RaggedTensor.from_row_splits(IDS, tf.constant(splits, tf.int64), validate=False)


def nested(outer, inner):
    return tf.RaggedTensor.from_row_splits(
        ragged(*inner), tf.constant(outer, tf.int64), validate=False
    )


def sparse(rows, num_rows=2):
    indices = tf.constant([[row, 0] for row in rows], tf.int64)
    return tf.SparseTensor(indices, IDS[: len(rows)], tf.constant([num_rows, 4], tf.int64))


BAD_LISTS = {
    "first split is not 0": ragged(1, 4),
    "last split is missing": ragged(0, 3),
    "last split is beyond the ids": ragged(0, 5),
    "splits fall": ragged(0, 3, 2, 4),
    "a split is negative": ragged(0, -1, 4),
    "outer splits fall": nested([0, 2, 1, 2], [0, 1, 4]),
    "outer splits end early": nested([0, 1], [0, 1, 4]),
    "inner splits fall": nested([0, 2], [0, 5, 4]),
    "a row beyond dense_shape": sparse([0, 5]),
    "a negative row": sparse([-1, 0]),
    "rows out of order": sparse([1, 0]),
}


@pytest.mark.parametrize(
    "graph, training, combiner", [(False, True, None), (True, True, "mean"), (True, False, "sum")]
)
@pytest.mark.parametrize("what", BAD_LISTS)
def test_lists_that_are_none_are_refused_and_leave_no_rows(what, graph, training, combiner):
    layer = DynamicEmbedding(2, combiner=combiner, name="lists")
    layer.build(tf.TensorShape([None, None]))
    call = lambda ids: layer(ids, training=training)  # noqa: E731
    with pytest.raises(tf.errors.InvalidArgumentError, match="Layer lists: the .* of (rag|spar)"):
        (tf.function(call) if graph else call)(BAD_LISTS[what])
    assert layer.table.stats()["rows"] == layer.table.stats()["provisional_rows"] == 0


def test_the_last_row_may_be_empty_and_an_empty_batch_is_a_list():
    layer = DynamicEmbedding(2, combiner="sum", default=1.0)
    np.testing.assert_array_equal(layer(ragged(0, 1, 4, 4)), [[1, 1], [3, 3], [0, 0]])
    np.testing.assert_array_equal(layer(sparse([0, 1], num_rows=3)), [[1, 1], [1, 1], [0, 0]])
    nothing = tf.RaggedTensor.from_row_splits(IDS[:0], tf.constant([0], tf.int64))
    assert layer(nothing).shape == [0, 2]


@pytest.mark.parametrize("graph", [False, True])
def test_weights_that_turn_out_not_to_fit_leave_no_rows(graph):
    layer = DynamicEmbedding(2, combiner="sum", name="weighted")
    layer.build(tf.TensorShape([None, None]))

    def call(ids, weights):
        return layer(ids, weights=weights, training=True)

    unknown = tf.TensorSpec([None, None], tf.float32)
    if graph:
        call = tf.function(call, input_signature=[tf.TensorSpec([None, None], tf.int64), unknown])
    for weights in (tf.ones((2, 3)), tf.ones((4, 1)), tf.ones((1, 2))):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="Layer weighted: `weights` must have"
        ):
            call(tf.reshape(IDS, [2, 2]), weights)
    assert layer.table.stats()["rows"] == layer.table.stats()["provisional_rows"] == 0


def test_weights_of_unknown_rank_do_not_fit_by_broadcasting():
    layer = DynamicEmbedding(2, combiner="sum", name="weighted")
    signature = [tf.TensorSpec([None, None], tf.int64), tf.TensorSpec(None, tf.float32)]
    call = tf.function(lambda ids, weights: layer(ids, weights=weights), signature)
    assert call(tf.reshape(IDS, [2, 2]), tf.ones((2, 2))).shape == [2, 2]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Layer weighted: `weights` must have"):
        call(tf.reshape(IDS, [2, 2]), tf.ones(2))


def test_weights_that_are_no_numbers_are_refused():
    layer = DynamicEmbedding(2, combiner="sum", name="weighted")
    with pytest.raises(TypeError, match="'weighted': `weights` must be numbers. Received: string"):
        layer(tf.constant([[1]]), weights=tf.constant([["a"]]))


@pytest.mark.parametrize("padding_id", [0.5, 2**63, True, [0]])
def test_a_padding_id_that_is_no_id_is_refused(padding_id):
    with pytest.raises(ValueError, match="'padded': `padding_id` must be None, an int64 or a str"):
        DynamicEmbedding(2, padding_id=padding_id, name="padded")


def test_a_padding_id_of_another_type_than_the_ids_is_refused():
    wanted = "'padded': `padding_id` must be of the type of the ids. Received: padding_id="
    with pytest.raises(TypeError, match=wanted + "'' and ids of type int64"):
        DynamicEmbedding(2, padding_id="", name="padded")(IDS)
    with pytest.raises(TypeError, match=wanted + "0 and ids of type string"):
        DynamicEmbedding(2, padding_id=np.int64(0), name="padded")(tf.constant(["a"]))


def model_of(*tables):
    ids = K.Input((), dtype=tf.int64)
    x = K.layers.Concatenate()([DynamicEmbedding(table)(ids) for table in tables])
    return K.Model(ids, K.layers.Dense(1)(x))


def state(model):
    tables = [list(layer.table.export()) for layer in model.layers if hasattr(layer, "table")]
    return [model.layers[-1].get_weights(), tables]


def fit(model):
    model.fit(np.arange(4), np.ones((4, 1)), batch_size=2, verbose=0)


@pytest.mark.parametrize("generation", ["new", "legacy"])
@pytest.mark.parametrize("rate", [-0.1, float("nan"), float("inf"), 2e12])
def test_a_rate_that_cannot_be_meant_changes_nothing(generation, rate):
    optimizers = K.optimizers if generation == "new" else K.optimizers.legacy
    model = model_of(tfs.Table("t", 2), tfs.Table("own", 2, optimizer=tfs.optimizers.SGD(0.1)))
    model.compile(tfs.DistributedOptimizer(optimizers.Adam(0.1)), "mse")
    fit(model)
    before = state(model)
    model.optimizer.learning_rate = rate
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"must be in \[0, 1e\+12\]. Received"):
        fit(model)
    np.testing.assert_equal(state(model), before)


def test_two_tables_of_one_name_in_one_model_are_refused_before_the_first_step():
    model = model_of(tfs.Table("t", 2), tfs.Table("t", 3))
    model.compile(tfs.DistributedOptimizer(K.optimizers.SGD(0.1)), "mse")
    with pytest.raises(ValueError, match=r"2 tables of one model are named 't' \(of dims \[2, 3\]"):
        fit(model)
    assert all(layer.table.size() == 0 for layer in model.layers if hasattr(layer, "table"))
