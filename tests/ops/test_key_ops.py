"""The ops between ids and distinct keys: group, sum, expand, segment sum."""

import numpy as np
import pytest
import tensorflow as tf

from tests.hash_order import owner_of
from tfsparse import ops

INVALID = tf.errors.InvalidArgumentError


def make_table(dim=2, num_ranks=1):
    return ops.make_table(
        "users",
        dim,
        rank=0,
        num_ranks=num_ranks,
        seed=0,
        initializer="constant",
        initializer_arguments=[0.0],
        default_value=0.0,
    )


def test_group_keys_lists_each_key_once_in_the_order_of_first_appearance():
    unique, positions, counts = ops.group_keys(make_table(), np.array([7, -1, 7, 0, -1, 7]))
    assert unique.numpy().tolist() == [7, -1, 0]
    assert positions.numpy().tolist() == [0, 1, 0, 2, 1, 0]
    assert counts.numpy().tolist() == [3]


def test_group_keys_puts_the_keys_of_lower_ranks_first():
    keys = np.array([5, 11, -3, 5, 2**63 - 1, -(2**63), 0, 11, 42])
    unique, positions, counts = ops.group_keys(make_table(num_ranks=3), keys)
    unique = unique.numpy()
    assert sorted(unique) == sorted(set(keys.tolist()))
    assert unique[positions.numpy()].tolist() == keys.tolist()
    owners = [owner_of(int(key), 3) for key in unique]
    assert owners == sorted(owners)
    assert counts.numpy().tolist() == [owners.count(rank) for rank in range(3)]


def test_group_keys_of_nothing_is_nothing():
    unique, positions, counts = ops.group_keys(make_table(num_ranks=2), tf.zeros([0], tf.int64))
    assert unique.shape == positions.shape == (0,)
    assert counts.numpy().tolist() == [0, 0]


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000, 70_000])
def test_group_keys_agrees_with_a_python_dict(size):
    keys = np.random.default_rng(size).integers(-size // 3, size // 3 + 1, size)
    unique, positions, _ = ops.group_keys(make_table(), keys)
    assert unique.numpy().tolist() == list(dict.fromkeys(keys.tolist()))
    np.testing.assert_array_equal(unique.numpy()[positions.numpy()], keys)


def test_sum_by_key_adds_the_values_of_equal_keys():
    unique, sums, counts = ops.sum_by_key(
        make_table(), np.array([4, 9, 4]), [[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]]
    )
    assert unique.numpy().tolist() == [4, 9]
    assert sums.numpy().tolist() == [[101.0, 202.0], [10.0, 20.0]]
    assert counts.numpy().tolist() == [2]


def test_sum_by_key_leaves_distinct_keys_as_they_are():
    unique, sums, _ = ops.sum_by_key(make_table(), np.array([9, 4]), [[1.0, 2.0], [3.0, 4.0]])
    assert unique.numpy().tolist() == [9, 4]
    assert sums.numpy().tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_sum_by_key_groups_distinct_keys_by_owner_together_with_their_values():
    keys = np.arange(20)
    values = np.stack([keys, -keys], axis=1).astype(np.float32)
    unique, sums, counts = ops.sum_by_key(make_table(num_ranks=2), keys, values)
    unique = unique.numpy()
    assert counts.numpy().tolist() == [
        [owner_of(int(key), 2) for key in keys].count(rank) for rank in range(2)
    ]
    np.testing.assert_array_equal(sums.numpy(), np.stack([unique, -unique], axis=1))


def test_sum_by_key_adds_in_the_order_of_the_values():
    # In fp32 1e8 + 1 is 1e8, so another order gives another sum.
    keys = np.array([3, 3, 3])
    forward = ops.sum_by_key(make_table(dim=1), keys, [[1e8], [1.0], [-1e8]])[1]
    other = ops.sum_by_key(make_table(dim=1), keys, [[1e8], [-1e8], [1.0]])[1]
    assert forward.numpy().tolist() == [[0.0]]
    assert other.numpy().tolist() == [[1.0]]


def test_expand_repeats_rows_by_position():
    rows = [[1.0, 2.0], [3.0, 4.0]]
    values = ops.expand(make_table(), rows, [1, 0, 1])
    assert values.numpy().tolist() == [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    assert ops.expand(make_table(), rows, tf.zeros([0], tf.int32)).shape == (0, 2)


def test_segment_sum_is_the_reverse_of_expand():
    sums = ops.segment_sum([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]], [2, 0, 2], 4)
    assert sums.numpy().tolist() == [[10.0, 20.0], [0.0, 0.0], [101.0, 202.0], [0.0, 0.0]]


@pytest.mark.parametrize("num_sums", [1, 5, 3000])
def test_segment_sum_agrees_with_numpy(num_sums):
    rng = np.random.default_rng(1)
    positions = rng.integers(0, num_sums, 10_000).astype(np.int32)
    values = rng.integers(-8, 8, (10_000, 3)).astype(np.float32)  # sums of integers are exact
    wanted = np.zeros((num_sums, 3), np.float32)
    np.add.at(wanted, positions, values)
    np.testing.assert_array_equal(ops.segment_sum(values, positions, num_sums).numpy(), wanted)


def test_gradient_of_expand_adds_the_uses_of_a_row():
    table, rows = make_table(), tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    with tf.GradientTape() as tape:
        tape.watch(rows)
        values = ops.expand(table, rows, [1, 0, 1])
        loss = tf.reduce_sum(values * [[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]])
    assert tape.gradient(loss, rows).numpy().tolist() == [[10.0, 20.0], [101.0, 202.0], [0.0, 0.0]]


def test_gradient_of_expand_agrees_with_finite_differences():
    table = make_table(dim=3)
    rows = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)
    expand = lambda r: ops.expand(table, r, [3, 3, 0, 1, 3])  # noqa: E731
    (symbolic,), (numeric,) = tf.test.compute_gradient(expand, [rows], delta=2**-6)
    np.testing.assert_allclose(symbolic, numeric, atol=1e-4)


def test_anchored_rows_are_the_rows():
    rows = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    anchored = ops.anchored(tf.constant(0.0), rows, [7, 8], tf.constant(2, tf.int64), "users")
    assert anchored.numpy().tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_static_shapes_are_known_as_far_as_inputs_tell():
    table = make_table()

    @tf.function(
        input_signature=[
            tf.TensorSpec([5], tf.int64),
            tf.TensorSpec([5, 2], tf.float32),
            tf.TensorSpec([None, 2], tf.float32),
            tf.TensorSpec([5], tf.int32),
        ]
    )
    def trace(keys, values, rows, positions):
        unique, found, counts = ops.group_keys(table, keys)
        assert unique.shape.as_list() == [None]
        assert found.shape.as_list() == [5]
        assert counts.shape.as_list() == [None]
        unique, sums, counts = ops.sum_by_key(table, keys, values)
        assert unique.shape.as_list() == [None]
        assert sums.shape.as_list() == [None, 2]
        assert counts.shape.as_list() == [None]
        assert ops.expand(table, rows, positions).shape.as_list() == [5, 2]
        assert ops.segment_sum(values, positions, 7).shape.as_list() == [None, 2]
        anchored = ops.anchored(0.0, values, keys, tf.constant(1, tf.int64), "users")
        assert anchored.shape.as_list() == [5, 2]
        return found

    keys = np.array([8, 8, 1, 8, 1])
    found = trace(keys, np.zeros((5, 2)), np.zeros((2, 2)), np.zeros(5))
    assert found.numpy().tolist() == [0, 0, 1, 0, 1]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda t: ops.group_keys(t, [[1, 2]]), r"must have rank 1.*Received: shape \[1,2\]"),
        (lambda t: ops.group_keys(t, 1), r"must have rank 1.*Received: shape \[\]"),
        (lambda t: ops.group_keys(t, [1.5]), "float|int64"),
        (lambda t: ops.sum_by_key(t, [1, 2], [[1.0, 2.0]]), r"must have shape \[2,2\].*\[1,2\]"),
        (lambda t: ops.sum_by_key(t, [1], [[1.0]]), r"must have shape \[1,2\].*\[1,1\]"),
        (lambda t: ops.sum_by_key(t, [1], [1.0, 2.0]), r"must have shape \[1,2\].*\[2\]"),
        (lambda t: ops.expand(t, [[1.0]], [0]), r"must have shape \[1,2\].*\[1,1\]"),
        (lambda t: ops.expand(t, [1.0, 2.0], [0]), r"must have shape \[0,2\].*\[2\]"),
        (lambda t: ops.expand(t, [[1.0, 2.0]], [[0]]), r"must have rank 1.*\[1,1\]"),
        (lambda t: ops.expand(t, [[1.0, 2.0]], [0, 1]), r"in \[0, 1\). Received: 1"),
        (lambda t: ops.expand(t, [[1.0, 2.0]], [-1]), r"in \[0, 1\). Received: -1"),
        (lambda t: ops.expand(t, tf.zeros([0, 2]), [0]), r"in \[0, 0\). Received: 0"),
        (lambda t: ops.segment_sum([[1.0]], [3], 3), r"in \[0, 3\). Received: 3"),
        (lambda t: ops.segment_sum([[1.0]], [-5], 3), r"in \[0, 3\). Received: -5"),
        (lambda t: ops.segment_sum([[1.0]], [0, 1], 3), r"must have shape \[2,1\].*\[1,1\]"),
        (lambda t: ops.segment_sum([[1.0]], [0], [3, 3]), r"must be a scalar.*\[2\]"),
        (lambda t: ops.segment_sum([[1.0]], [0], -1), r"not be negative. Received: -1"),
    ],
)
def test_wrong_inputs_are_refused_and_told(call, message):
    with pytest.raises((INVALID, TypeError), match=message):
        call(make_table())


@pytest.mark.parametrize(
    "call",
    [
        lambda t: ops.group_keys(t, tf.zeros([2, 2], tf.int64)),
        lambda t: ops.sum_by_key(t, tf.zeros([2], tf.int64), tf.zeros([2])),
        lambda t: ops.expand(t, tf.zeros([2]), tf.zeros([2], tf.int32)),
        lambda t: ops.expand(t, tf.zeros([2, 2]), tf.zeros([], tf.int32)),
        lambda t: ops.segment_sum(tf.zeros([2, 2]), tf.zeros([2], tf.int32), [1, 1]),
    ],
)
def test_wrong_ranks_are_refused_when_a_function_is_traced(call):
    table = make_table()
    with pytest.raises(ValueError, match="Shape must be rank"):
        tf.function(lambda: call(table)).get_concrete_function()


def test_a_handle_of_something_else_is_refused():
    other = tf.Variable(1.0).handle
    with pytest.raises(INVALID, match="Trying to access a handle|type"):
        ops.group_keys(other, [1])
