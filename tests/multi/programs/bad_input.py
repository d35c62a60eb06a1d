"""Bad input on one of two ranks, or ranks that differ: both fail, change nothing, and go on."""

import job
import numpy as np
import tensorflow as tf
from job import built, expect, mine

import tfsparse as tfs
from tfsparse.keras_layers import DynamicEmbedding

K = tf.keras
INVALID = tf.errors.InvalidArgumentError


def step_of(layer):
    """A training step: SGD with rate 1 on the mean of all numbers of the vectors."""
    optimizer = tfs.DistributedOptimizer(K.optimizers.SGD(1.0))

    def step(ids, weights=None):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(layer(ids, weights=weights, training=True))
        gradients = tape.gradient(loss, layer.trainable_variables)
        optimizer.apply_gradients(zip(gradients, layer.trainable_variables))

    return step


def ragged(*splits):
    values = tf.range(4, dtype=tf.int64)
    return tf.RaggedTensor.from_row_splits(values, tf.constant(splits, tf.int64), validate=False)


def nothing_reserved(table):
    """No row that a failed step has reserved is left on this rank."""
    return table.stats()["provisional_rows"] == 0


def check_bad_row_splits_on_one_rank_fail_both():
    for graph in (False, True):
        layer = built(DynamicEmbedding(1, combiner="sum", initializer="zeros", name=f"s{graph}"))
        step = step_of(layer)
        if graph:
            spec = tf.RaggedTensorSpec([None, None], tf.int64)
            step = tf.function(step, input_signature=[spec])
        step(ragged(0, 1, 4))
        before = job.table_state(layer.table)
        message = mine("bad input on rank 1; the error there", f"Layer s{graph}: the row_splits")
        expect(INVALID, message, step, mine(ragged(0, 1, 4), ragged(0, 3, 2, 4)))
        np.testing.assert_equal(job.table_state(layer.table), before)
        assert nothing_reserved(layer.table)
        step(ragged(0, 1, 4))
        np.testing.assert_array_equal(layer.table.lookup(tf.range(4)), [[-1.0]] * 4)


def check_bad_row_splits_on_both_ranks_fail_both_in_words_of_their_own():
    layer = built(DynamicEmbedding(1, combiner="sum", name="both_bad"))
    expect(INVALID, "Layer both_bad: the row_splits", step_of(layer), ragged(0, 3, 2, 4))
    assert layer.table.size() == 0


def check_weights_that_do_not_fit_on_one_rank_fail_both():
    layer = built(DynamicEmbedding(1, combiner="mean", padding_id=-1, name="weighted"))
    dense = tf.TensorSpec([None, None])
    step = step_of(layer)
    signed = tf.function(step, [tf.TensorSpec([None, None], tf.int64), dense])
    message = mine("Layer weighted: `weights` must have", "bad input on rank 0")
    ids = tf.constant([[1, -1]], tf.int64)
    for way in (step, tf.function(step), signed):
        expect(INVALID, message, way, ids, mine(tf.ones((1, 3)), tf.ones((1, 2))))
    assert layer.table.size() == 0
    assert nothing_reserved(layer.table)


def check_bad_input_fails_evaluation_on_both():
    layer = built(DynamicEmbedding(1, combiner="sum", name="evaluated"))
    message = mine("bad input on rank 1", "Layer evaluated: the row_splits")
    expect(INVALID, message, layer, mine(ragged(0, 4), ragged(0, 5)))


def check_training_on_one_rank_beside_evaluation_on_the_other_fails_both():
    layer = built(DynamicEmbedding(1, name="validated"))
    ids = tf.range(3, dtype=tf.int64)
    message = "training on rank 0, evaluation (or lookup) on rank 1"
    expect(INVALID, message, lambda: layer(ids, training=mine(True, False)))
    assert layer.table.size() == 0
    assert nothing_reserved(layer.table)


def check_validation_on_rank_0_only_ends_in_an_error():
    model = K.Sequential([K.Input((), dtype=tf.int64), DynamicEmbedding(1, name="rank_0_only")])
    model.compile(tfs.DistributedOptimizer(K.optimizers.SGD(0.1)), "mse")
    data = tf.data.Dataset.from_tensors((tf.range(3), tf.ones([3, 1]))).repeat(2)
    validation = mine(data.take(1), None)
    expect(INVALID, "Is validation done", lambda: model.fit(
        data, validation_data=validation, epochs=2, verbose=0))  # fmt: skip


DIFFERENT_TABLES = {
    "dim": lambda: mine(tfs.Table("t", 2), tfs.Table("t", 3)),
    "seed": lambda: tfs.Table("t", 2, seed=tfs.rank()),
    "initializer": lambda: tfs.Table("t", 2, initializer=mine("zeros", "uniform")),
    "default": lambda: tfs.Table("t", 2, default=mine(0.0, 1.0)),
    "optimizer": lambda: tfs.Table("t", 2, optimizer=tfs.optimizers.SGD(mine(0.1, 0.2))),
    "name": lambda: tfs.Table(mine("t", "u"), 2),
}


def check_a_table_that_differs_by_rank_is_refused_on_both():
    for table in DIFFERENT_TABLES.values():
        layer = DynamicEmbedding(table())
        expect(ValueError, "All ranks must make the same tables", built, layer)
        expect(ValueError, "no rows before it is built", lambda layer=layer: layer.table)


def check_tables_made_in_another_order_are_refused_on_both():
    names = mine(["user", "item"], ["item", "user"])
    expect(ValueError, "rank 0: table 'user'", built, DynamicEmbedding(tfs.Table(names[0], 2)))


def model_of(*tables, units=1):
    ids = K.Input((), dtype=tf.int64)
    vectors = [DynamicEmbedding(table)(ids) for table in tables]
    x = K.layers.Concatenate()(vectors) if len(vectors) > 1 else vectors[0]
    model = K.Model(ids, K.layers.Dense(units)(x))
    model.compile(tfs.DistributedOptimizer(K.optimizers.SGD(0.1)), "mse")
    return model


def fit(model, callbacks=()):
    model.fit(tf.range(4), tf.ones([4, 1]), batch_size=4, verbose=0, callbacks=list(callbacks))


def check_a_table_that_one_rank_alone_makes_is_refused_on_both():
    def build_and_fit():
        fit(model_of(*mine([tfs.Table("a", 2), tfs.Table("b", 2)], [tfs.Table("a", 2)])))

    expect(ValueError, "rank 1: first step of SGD", build_and_fit)


def check_dense_variables_that_differ_by_rank_are_refused_on_both():
    message = "All ranks must make the same tables, train the same"
    for callbacks in ([], [tfs.callbacks.Broadcast()]):
        model = model_of(tfs.Table("a", 2), units=mine(1, 2))
        expect(ValueError, message, fit, model, callbacks)
        assert model.layers[1].table.size() == 0


def check_layers_connected_in_another_order_are_refused_on_both():
    a, b = tfs.Table("a", 2), tfs.Table("b", 2)
    for table in (a, b):
        built(DynamicEmbedding(table))
    expect(ValueError, "tables ['b', 'a']", fit, model_of(*mine([a, b], [b, a])))


def check_another_clipping_by_rank_is_refused_on_both():
    model = model_of(tfs.Table("clipped", 2))
    inner = K.optimizers.SGD(0.1, clipnorm=mine(1.0, None))
    model.compile(tfs.DistributedOptimizer(inner), "mse")
    expect(ValueError, "clipnorm=1.0", fit, model)


def check_a_rate_that_differs_by_rank_fails_both_and_changes_nothing():
    for optimizers in (K.optimizers, K.optimizers.legacy):
        model = model_of(tfs.Table("rates", 2))
        model.compile(tfs.DistributedOptimizer(optimizers.Adam(0.1)), "mse")
        fit(model)
        before = [job.table_state(model.layers[1].table), model.layers[-1].get_weights()]
        for rates in ((0.1, 0.05), (0.1, -0.1), (-1.0, -1.0), (0.1, np.nan)):
            model.optimizer.learning_rate = mine(*rates)
            expect(INVALID, "The learning rate must be", fit, model)
            after = [job.table_state(model.layers[1].table), model.layers[-1].get_weights()]
            np.testing.assert_equal(after, before)
        model.optimizer.learning_rate = 0.1
        fit(model)


def check_a_schedule_that_differs_by_rank_or_falls_below_0_changes_nothing():
    decay = K.optimizers.schedules.PiecewiseConstantDecay
    for number, rates in enumerate([(0.1, 0.2), (-0.1, -0.1)]):
        for optimizers in (K.optimizers, K.optimizers.legacy):
            model = model_of(tfs.Table(f"scheduled_{number}", 2))
            schedule = decay([0], [0.1, mine(*rates)])  # another rate from the second step on
            model.compile(tfs.DistributedOptimizer(optimizers.SGD(schedule)), "mse")
            fit(model)
            before = [job.table_state(model.layers[1].table), model.layers[-1].get_weights()]
            expect(INVALID, "The learning rate must be", fit, model)
            after = [job.table_state(model.layers[1].table), model.layers[-1].get_weights()]
            np.testing.assert_equal(after, before)


def check_eager_lookups_of_different_tables_are_an_error_on_both():
    tables = [built(DynamicEmbedding(2, name=name)).table for name in ("one_table", "another")]
    message = "look up another table"
    expect(INVALID, message, lambda: mine(*tables).lookup(tf.range(4)))


def check_two_tables_of_one_name_are_refused_on_both():
    model = model_of(tfs.Table("one", 2), tfs.Table("one", 3))
    expect(ValueError, "2 tables of one model are named 'one'", fit, model)


def check_ranks_still_train_after_all_that():
    layer = built(DynamicEmbedding(1, initializer="zeros", name="after_all"))
    step_of(layer)(mine(tf.constant([1, 2]), tf.constant([2, 3])))
    np.testing.assert_allclose(layer.table.lookup([1, 2, 3]), [[-0.25], [-0.5], [-0.25]])


job.run_checks(globals())
