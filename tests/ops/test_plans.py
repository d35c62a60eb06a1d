"""Plans: rows that a step under way holds, and what becomes of them."""

import numpy as np
import pytest
import tensorflow as tf

from tfsparse import ops

INVALID = tf.errors.InvalidArgumentError


def make_table(name="users", dim=1):
    table = ops.make_table(
        name,
        dim,
        rank=0,
        num_ranks=1,
        seed=0,
        initializer="constant",
        initializer_arguments=[5.0],
        default_value=-1.0,
    )
    ops.bind(table, "sgd", [])
    return table


def provisional_rows(table):
    return int(ops.stats(table)[1])


def forget_kept_plans(table):
    """The table keeps the plans of a few forward passes; as many newer ones push them out."""
    for _ in range(4):
        ops.stage(table, tf.zeros([0], tf.int64), distinct=True)


@pytest.mark.parametrize("distinct", [True, False])
def test_a_plan_reads_the_first_values_of_new_keys_and_shows_them_to_nobody_else(distinct):
    table = make_table()
    plan = ops.stage(table, [3, 4], distinct=distinct)
    assert ops.read_plan(table, plan, 1).numpy().tolist() == [[5.0], [5.0]]
    assert ops.lookup(table, [3], 1).numpy().tolist() == [[-1.0]]
    assert int(ops.size(table)) == 0
    assert ops.scan(table, 0, 10)[0].shape == (0,)
    assert provisional_rows(table) == 2


def test_keys_that_repeat_have_one_row_and_are_read_in_their_order():
    table = make_table()
    ops.apply(table, [8], [[1.0]], 2.0)
    plan = ops.stage(table, [9, 8, 9, 8], distinct=False)
    assert ops.read_plan(table, plan, 1).numpy().tolist() == [[5.0], [3.0], [5.0], [3.0]]
    assert provisional_rows(table) == 1


def test_a_plan_of_no_keys_reads_no_rows():
    table = make_table()
    for distinct in (True, False):
        plan = ops.stage(table, tf.zeros([0], tf.int64), distinct=distinct)
        assert ops.read_plan(table, plan, 1).shape == (0, 1)


def test_apply_commits_the_rows_of_a_plan():
    table = make_table()
    plan = ops.stage(table, [3, 4], distinct=True)
    ops.apply(table, [3, 4], [[1.0], [2.0]], 1.0)
    assert (int(ops.size(table)), provisional_rows(table)) == (2, 0)
    assert ops.read_plan(table, plan, 1).numpy().tolist() == [[4.0], [3.0]]


def test_dropping_a_plan_undoes_its_rows():
    table = make_table()
    plan = ops.stage(table, [3, 4], distinct=True)
    forget_kept_plans(table)
    assert provisional_rows(table) == 2  # the tensor still holds them
    del plan
    assert provisional_rows(table) == 0
    assert int(ops.size(table)) == 0


def test_a_row_that_two_plans_hold_goes_with_the_last_of_them():
    table = make_table()
    first = ops.stage(table, [3, 4], distinct=True)
    second = ops.stage(table, [4, 5], distinct=True)
    forget_kept_plans(table)
    assert provisional_rows(table) == 3
    del first
    assert provisional_rows(table) == 2
    assert ops.read_plan(table, second, 1).numpy().tolist() == [[5.0], [5.0]]
    del second
    assert provisional_rows(table) == 0


def test_forward_passes_that_are_never_applied_leave_a_bounded_number_of_rows():
    table = make_table()
    for start in range(0, 1000, 10):
        ops.stage(table, np.arange(start, start + 10), distinct=True)
        assert provisional_rows(table) <= 4 * 10
    assert int(ops.size(table)) == 0


def test_apply_of_other_keys_than_were_staged_commits_only_its_own():
    table = make_table()
    ops.stage(table, [1, 2, 3], distinct=True)
    ops.apply(table, [3, 9], [[1.0], [1.0]], 1.0)
    assert ops.lookup(table, [1, 2, 3, 9], 1).numpy().tolist() == [[-1.0], [-1.0], [4.0], [4.0]]
    assert int(ops.size(table)) == 2
    forget_kept_plans(table)
    assert provisional_rows(table) == 0


def test_a_first_value_comes_back_after_its_plan_was_dropped():
    table = ops.make_table(
        "users",
        4,
        rank=0,
        num_ranks=1,
        seed=3,
        initializer="uniform",
        initializer_arguments=[-1.0, 1.0],
        default_value=0.0,
    )
    values = []
    for _ in range(3):
        plan = ops.stage(table, [3, 4], distinct=True)
        values.append(ops.read_plan(table, plan, 4).numpy())
        del plan
        forget_kept_plans(table)
        assert provisional_rows(table) == 0
        ops.stage(table, np.arange(100, 120), distinct=True)  # takes the freed rows
    np.testing.assert_array_equal(values[1], values[0])
    np.testing.assert_array_equal(values[2], values[0])
    assert len(np.unique(values[0])) == 8


def test_binding_gives_slots_to_rows_that_plans_hold():
    table = ops.make_table(
        "users",
        1,
        rank=0,
        num_ranks=1,
        seed=0,
        initializer="constant",
        initializer_arguments=[5.0],
        default_value=-1.0,
    )
    plan = ops.stage(table, [3], distinct=True)
    ops.bind(table, "adagrad", [1.0, 0.0])
    assert ops.read_plan(table, plan, 1).numpy().tolist() == [[5.0]]
    ops.apply(table, [3], [[0.0]], 1.0)
    assert ops.scan(table, 0, 10)[1].numpy().tolist() == [[5.0, 1.0]]


def test_a_plan_of_another_table_is_refused():
    users, items = make_table("users"), make_table("items")
    plan = ops.stage(items, [3], distinct=True)
    message = "'users': `plan` must have been staged on this table. Received: a plan of table 'it"
    with pytest.raises(INVALID, match=message):
        ops.read_plan(users, plan, 1)
    assert ops.read_plan(items, plan, 1).numpy().tolist() == [[5.0]]


def test_a_variant_that_is_no_plan_is_refused():
    variant = tf.raw_ops.EmptyTensorList(
        element_shape=[1], max_num_elements=1, element_dtype=tf.float32
    )
    with pytest.raises(INVALID, match="`plan` must come from Tfsparse>Stage"):
        ops.read_plan(make_table(), variant, 1)


def test_several_plans_in_one_tensor_are_refused():
    table = make_table()
    plan = ops.stage(table, [3], distinct=True)
    with pytest.raises(INVALID, match=r"must be a scalar. Received: shape \[2\]"):
        ops.read_plan(table, tf.stack([plan, plan]), 1)


def test_a_plan_outlives_the_handle_of_its_table():
    table = make_table()
    plan = ops.stage(table, [3], distinct=True)
    del table
    copy = tf.identity(plan)
    del plan
    with pytest.raises(INVALID, match="of table 'users'"):
        ops.read_plan(make_table("items"), copy, 1)
