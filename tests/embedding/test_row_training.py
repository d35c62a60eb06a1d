"""What changes rows: gradients that are applied, by the rule of the table, or nothing."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.embedding.one_table import OneTable

# Gradients are values: taking one does nothing.


def test_the_gradient_of_a_lookup_names_keys_and_samples():
    table = OneTable()
    gradient = table.gradient([7, 8, 7], [[1.0, 0.0], [10.0, 20.0], [2.0, 5.0]])
    assert isinstance(gradient, tf.IndexedSlices)
    assert gradient.indices.numpy().tolist() == [7, 8]
    assert gradient.values.numpy().tolist() == [[3.0, 5.0], [10.0, 20.0]]
    assert gradient.dense_shape.numpy().tolist() == [2**40 + 3, 2]


def test_gradients_that_are_not_applied_train_nothing():
    table = OneTable()
    for _ in range(3):
        gradient = table.gradient([1, 2], [[1.0, 1.0], [1.0, 1.0]])
    assert table.shard.size() == 0
    table.apply(gradient)
    assert table.rows([1, 2]) == [[4.0, 4.0], [4.0, 4.0]]


def test_a_persistent_tape_gives_the_same_gradient_again():
    table = OneTable()
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(table.forward([1, 2, 1]))
        doubled = 2.0 * loss
    gradients = [tape.gradient(target, table.shard.anchor) for target in (loss, loss, doubled)]
    del tape
    assert [g.values.numpy().sum() for g in gradients] == [6.0, 6.0, 12.0]
    assert table.shard.size() == 0
    table.apply(gradients[2])
    assert table.rows([1, 2]) == [[1.0, 1.0], [3.0, 3.0]]


def test_a_gradient_may_be_applied_twice_or_late():
    table = OneTable()
    gradient = table.gradient([1], [[1.0, 2.0]])
    for start in range(10, 30, 2):  # the plan of the forward pass is long gone
        table.forward([start, start + 1])
    table.apply(gradient)
    table.apply(gradient)
    assert table.rows([1]) == [[3.0, 1.0]]
    assert table.shard.size() == 1


def test_two_lookups_of_a_step_are_one_update():
    # Adagrad shows it: two updates of 3 and 4 move the accumulator to 26, one of 7 to 50.
    table = OneTable(tfs.optimizers.Adagrad(1.0, initial_accumulator_value=1.0, epsilon=1e-30))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(3.0 * table.forward([1])) + tf.reduce_sum(4.0 * table.forward([1]))
    table.apply(tape.gradient(loss, table.shard.anchor))
    ((row, slots),) = table.all_rows().values()
    assert slots == [50.0, 50.0]
    np.testing.assert_allclose(row, [5 - 7 / np.sqrt(50.0)] * 2, rtol=1e-6)


def test_training_works_inside_nested_functions():
    table = OneTable()
    inner = tf.function(lambda keys: table.forward(keys))

    @tf.function
    def step(keys):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(inner(keys)) + tf.reduce_sum(inner(keys))
        table.apply(tape.gradient(loss, table.shard.anchor))

    for _ in range(2):
        step(tf.constant([1, 2], tf.int64))
    assert table.rows([1, 2]) == [[1.0, 1.0], [1.0, 1.0]]
    assert table.shard.size() == 2


# Rules.


def test_a_table_with_a_rule_of_its_own_has_its_own_rate():
    table = OneTable(tfs.optimizers.SGD(0.5), keras=tf.keras.optimizers.Adam(123.0))
    table.train([1], [[1.0, 2.0]])
    assert table.rows([1]) == [[4.5, 4.0]]


def test_binding_gives_slots_to_rows_that_wait_for_their_first_step():
    table = OneTable(keras=tf.keras.optimizers.Adagrad(1.0, 0.25))
    gradient = table.gradient([1, 2], np.zeros((2, 2), np.float32))  # no rule is known yet
    assert table.shard.stats()["row_bytes"] == 2 * 4
    table.apply(gradient)
    assert table.shard.stats()["row_bytes"] == 4 * 4
    assert table.all_rows() == {1: ([5.0, 5.0], [0.25, 0.25]), 2: ([5.0, 5.0], [0.25, 0.25])}


def test_a_second_optimizer_of_the_same_rule_goes_on_with_the_slots():
    table = OneTable(keras=tf.keras.optimizers.Adagrad(1.0, 1.0))
    table.train([1], [[1.0, 2.0]])
    table.optimizer = tfs.DistributedOptimizer(tf.keras.optimizers.legacy.Adagrad(1.0, 1.0))
    table.train([1], [[1.0, 2.0]])
    assert table.all_rows()[1][1] == [3.0, 9.0]


def test_another_rule_is_an_error_and_changes_nothing():
    table = OneTable()
    table.train([1], [[1.0, 1.0]])
    table.optimizer = tfs.DistributedOptimizer(tf.keras.optimizers.Adam())
    message = '\'users\': its rows carry the slots of "sgd" and cannot change to "adam"'
    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
        table.train([1], [[1.0, 1.0]])
    assert table.rows([1]) == [[4.0, 4.0]]


# What must fail loudly.


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_fails_and_changes_nothing(value, compiled):
    table, dense = OneTable(), tf.Variable([1.0])

    def step(keys, upstream):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(table.forward(keys) * upstream) + tf.reduce_sum(dense)
        variables = [dense, table.shard.anchor]
        table.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    step = tf.function(step) if compiled else step
    keys = tf.constant([1, 2], tf.int64)
    step(keys, tf.ones([2, 2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="A gradient is NaN or infinite"):
        step(keys + 1, tf.constant([[1.0, value], [1.0, 1.0]]))
    assert table.all_rows() == {1: ([4.0, 4.0], []), 2: ([4.0, 4.0], [])}
    assert dense.numpy().tolist() == [0.0]
    assert int(table.optimizer.iterations) == 1
    step(keys, tf.ones([2, 2]))
    assert table.rows([1, 2]) == [[3.0, 3.0]] * 2


def test_a_gradient_that_is_made_dense_fails():
    table = OneTable(dim=1024)  # dense it would be 4 PiB: more than any machine can address
    gradient = table.gradient([1], np.ones((1, 1024), np.float32))
    with pytest.raises(tf.errors.ResourceExhaustedError, match="OOM"):
        tf.convert_to_tensor(gradient)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda slices: tf.ones([3, 2]),
        lambda slices: tf.IndexedSlices(slices.values, slices.indices),
    ],
)
def test_a_gradient_that_lost_its_form_is_refused_by_the_optimizer(spoil):
    table = OneTable()
    gradient = table.gradient([1], [[1.0, 1.0]])
    message = "The gradient of table 'users' must stay a tf.IndexedSlices"
    with pytest.raises(ValueError, match=message):
        table.apply(spoil(gradient))
    assert table.shard.size() == 0


IN_CONTROL_FLOW = {
    "cond": lambda f, keys: tf.cond(tf.size(keys) > 0, lambda: f(keys), lambda: tf.zeros([2, 2])),
    "while_loop": lambda f, keys: tf.while_loop(
        lambda i, total: i < 2, lambda i, total: (i + 1, total + f(keys)), (0, tf.zeros([2, 2]))
    )[1],
    "map_fn": lambda f, keys: tf.map_fn(
        lambda key: f(key[tf.newaxis])[0], keys, fn_output_signature=tf.TensorSpec([2])
    ),
}


@pytest.mark.parametrize("kind", IN_CONTROL_FLOW)
def test_training_inside_control_flow_is_refused_in_words(kind):
    table = OneTable()

    @tf.function
    def step(keys):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(IN_CONTROL_FLOW[kind](table.forward, keys))
        table.apply(tape.gradient(loss, table.shard.anchor))

    message = "'users' cannot be trained from inside tf.cond, tf.while_loop or tf.map_fn"
    with pytest.raises(NotImplementedError, match=message):
        step(tf.constant([1, 2], tf.int64))
    assert table.shard.size() == 0


@pytest.mark.parametrize("kind", IN_CONTROL_FLOW)
def test_evaluation_inside_control_flow_works(kind):
    table = OneTable()
    table.train([1, 2], [[0.0, 0.0], [1.0, 1.0]])
    read = tf.function(
        lambda keys: IN_CONTROL_FLOW[kind](lambda k: table.forward(k, training=False), keys)
    )
    times = 2.0 if kind == "while_loop" else 1.0
    rows = read(tf.constant([1, 2], tf.int64)).numpy()
    assert rows.tolist() == [[5.0 * times, 5.0 * times], [4.0 * times, 4.0 * times]]


def test_a_table_ends_with_the_last_that_holds_it():
    def train():
        table = OneTable()
        step = tf.function(table.train)
        step(tf.constant([1, 2], tf.int64), tf.ones([2, 2]))
        table.train([3], [[1.0, 1.0]])
        assert table.shard.size() == 3
        return weakref.ref(table.shard)

    # TensorFlow 2.16 looks at the caller's frame, which then holds its locals until it returns.
    shard = train()
    gc.collect()
    assert shard() is None
