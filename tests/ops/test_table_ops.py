"""The ops that make a table, look into it and change it."""

import os

import numpy as np
import pytest
import tensorflow as tf

from tests.hash_order import hash_of, owner_of
from tfsparse import ops

INVALID = tf.errors.InvalidArgumentError


def make_table(name="users", dim=2, **options):
    return ops.make_table(
        name,
        dim,
        **{
            "rank": 0,
            "num_ranks": 1,
            "seed": 0,
            "initializer": "constant",
            "initializer_arguments": [5.0],
            "default_value": -1.0,
            **options,
        },
    )


def sgd_table(**options):
    table = make_table(**options)
    ops.bind(table, "sgd", [])
    return table


def insert(table, keys, dim=2):
    """Rows for keys, with their first values."""
    ops.apply(table, keys, tf.zeros([len(keys), dim]), 0.0)


def scan_all(table, max_rows):
    blocks, start, done = [], 0, False
    while not done:
        keys, rows, start, done = ops.scan(table, start, max_rows)
        blocks.append((keys.numpy(), rows.numpy()))
    return blocks


def test_absent_keys_read_the_default_and_stay_absent():
    table = make_table()
    rows = ops.lookup(table, [3, 4, 3], 2)
    assert rows.numpy().tolist() == [[-1.0, -1.0]] * 3
    assert int(ops.size(table)) == 0
    assert ops.stats(table).numpy()[:2].tolist() == [0, 0]


def test_apply_makes_a_row_from_its_first_value_and_updates_it():
    table = sgd_table()
    ops.apply(table, [3, 4], [[1.0, 2.0], [10.0, 20.0]], 0.5)
    assert ops.lookup(table, [4, 9, 3], 2).numpy().tolist() == [
        [0.0, -5.0],
        [-1.0, -1.0],
        [4.5, 4.0],
    ]
    assert int(ops.size(table)) == 2


def test_apply_changes_the_rows_of_its_keys_only():
    table = sgd_table()
    insert(table, [1, 2, 3])
    ops.apply(table, [2], [[1.0, 1.0]], 1.0)
    assert ops.lookup(table, [1, 2, 3], 2).numpy().tolist() == [[5.0, 5.0], [4.0, 4.0], [5.0, 5.0]]


def test_adagrad_follows_its_formula_over_two_steps():
    table = make_table(dim=1)
    ops.bind(table, "adagrad", [1.0, 0.0])
    ops.apply(table, [7], [[0.0]], 1.0)  # accumulator 1 + 0
    ops.apply(table, [7], [[np.sqrt(3.0)]], 2.0)  # accumulator 4: w = 5 - 2 * sqrt(3) / 2
    keys, rows, _, _ = ops.scan(table, 0, 10)
    assert keys.numpy().tolist() == [7]
    np.testing.assert_allclose(rows.numpy(), [[5 - np.sqrt(3.0), 4.0]], rtol=1e-6)


def test_adam_keeps_moments_and_a_step_count_of_its_own_in_each_row():
    table = make_table(dim=1, initializer_arguments=[0.0])
    ops.bind(table, "adam", [0.5, 0.25, 1e-8])  # 1 - beta_1, 1 - beta_2
    ops.apply(table, [1], [[4.0]], 1.0)
    ops.apply(table, [1, 2], [[4.0], [4.0]], 1.0)
    keys, rows, _, _ = ops.scan(table, 0, 10)
    by_key = dict(zip(keys.numpy().tolist(), rows.numpy().tolist()))
    # Row 2: m = .5 * 4, v = .25 * 16, step = sqrt(.25) / .5 = 1: w = -2 / 2. Row 1 is a step on:
    # m = 2 + .5 * 2, v = 4 + .25 * 12, step = sqrt(.4375) / .75: w = -1 - step * 3 / sqrt(7).
    np.testing.assert_allclose(by_key[2], [-1.0, 2.0, 4.0, 1.0], rtol=1e-6)
    second = np.sqrt(0.4375) / 0.75 * 3 / np.sqrt(7)
    np.testing.assert_allclose(by_key[1], [-1.0 - second, 3.0, 7.0, 2.0], rtol=1e-6)


def test_apply_needs_an_optimizer():
    with pytest.raises(tf.errors.FailedPreconditionError, match="'users': has no optimizer yet"):
        ops.apply(make_table(), [1], [[1.0, 1.0]], 1.0)


def test_binding_the_same_optimizer_again_changes_nothing():
    table = sgd_table()
    ops.apply(table, [1], [[1.0, 1.0]], 1.0)
    ops.bind(table, "sgd", [])
    assert ops.lookup(table, [1], 2).numpy().tolist() == [[4.0, 4.0]]


@pytest.mark.parametrize("optimizer, arguments", [("adagrad", [0.1, 1e-7]), ("adam", [0.9] * 3)])
def test_binding_another_optimizer_is_refused_by_name(optimizer, arguments):
    table = make_table()
    ops.bind(table, "adagrad", [0.5, 1e-7])
    message = f'\'users\'.*slots of "adagrad" and cannot change to "{optimizer}"'
    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
        ops.bind(table, optimizer, arguments)
    insert(table, [1])
    assert ops.scan(table, 0, 1)[1].numpy().tolist() == [[5.0, 5.0, 0.5, 0.5]]


@pytest.mark.parametrize("optimizer, arguments", [("lion", []), ("sgd", [1.0]), ("adam", [0.9])])
def test_unknown_optimizers_are_refused_with_the_known_ones(optimizer, arguments):
    message = f'"adagrad" {{.*}}.*Received: "{optimizer}" with {len(arguments)} arguments'
    with pytest.raises(INVALID, match=message):
        ops.bind(make_table(), optimizer, arguments)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"dim": 0}, "'users': `dim` must be between 1 and 65536. Received: 0"),
        ({"dim": 65537}, "Received: 65537"),
        ({"dim": -1}, "`dim` must be"),
        ({"rank": 2, "num_ranks": 2}, "Received: rank 2 of 2"),
        ({"num_ranks": 0}, "Received: rank 0 of 0"),
        ({"initializer": "normal"}, 'Received: "normal" with 1 arguments'),
        ({"initializer_arguments": []}, 'Received: "constant" with 0 arguments'),
        ({"initializer": "uniform"}, 'Received: "uniform" with 1 arguments'),
    ],
)
def test_a_table_that_cannot_be_is_refused(options, message):
    with pytest.raises(INVALID, match=message):
        make_table(**options)


def test_keys_of_another_rank_are_refused():
    shards = [sgd_table(rank=rank, num_ranks=2) for rank in range(2)]
    key = 12345
    owner = owner_of(key, 2)
    insert(shards[owner], [key])
    stranger = shards[1 - owner]
    message = f"rank {1 - owner} of 2 was asked for keys that another rank owns"
    for call in (
        lambda: ops.lookup(stranger, [key], 2),
        lambda: ops.stage(stranger, [key], distinct=True),
        lambda: ops.stage(stranger, [key, key], distinct=False),
        lambda: insert(stranger, [key]),
    ):
        with pytest.raises(INVALID, match=message):
            call()
    assert [int(ops.size(shard)) for shard in shards] == [1 - owner, owner]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda t: ops.lookup(t, [[1]], 2), r"must have rank 1. Received: shape \[1,1\]"),
        (lambda t: ops.stage(t, [[1]], True), r"must have rank 1. Received: shape \[1,1\]"),
        (lambda t: ops.apply(t, [[1]], [[1.0, 1.0]], 1.0), "must have rank 1"),
        (lambda t: ops.apply(t, [1], [[1.0]], 1.0), r"must have shape \[1,2\].*\[1,1\]"),
        (lambda t: ops.apply(t, [1, 2], [[1.0, 1.0]], 1.0), r"must have shape \[2,2\].*\[1,2\]"),
        (lambda t: ops.apply(t, [1], [[1.0, 1.0]], [1.0, 1.0]), r"a scalar. Received: shape \[2\]"),
        (lambda t: ops.scan(t, [0, 0], 1), r"Input 1 .* a scalar. Received: shape \[2\]"),
        (lambda t: ops.scan(t, 0, [1]), r"Input 2 .* a scalar. Received: shape \[1\]"),
        (lambda t: ops.scan(t, 0, 0), "`max_rows` must be positive. Received: 0"),
    ],
)
def test_wrong_inputs_are_refused_and_change_nothing(call, message):
    table = sgd_table()
    with pytest.raises(INVALID, match=message):
        call(table)
    assert ops.stats(table).numpy()[:2].tolist() == [0, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda t: ops.lookup(t, tf.zeros([1, 1], tf.int64), 2),
        lambda t: ops.stage(t, tf.zeros([], tf.int64), True),
        lambda t: ops.apply(t, tf.zeros([1], tf.int64), tf.zeros([2]), 1.0),
        lambda t: ops.apply(t, tf.zeros([1], tf.int64), tf.zeros([1, 2]), [1.0]),
        lambda t: ops.scan(t, [0], 1),
    ],
)
def test_wrong_ranks_are_refused_when_a_function_is_traced(call):
    table = make_table()
    with pytest.raises(ValueError, match="Shape must be rank"):
        tf.function(lambda: call(table)).get_concrete_function()


def test_static_shapes_are_known_as_far_as_inputs_tell():
    table = sgd_table(dim=3)

    @tf.function(input_signature=[tf.TensorSpec([4], tf.int64)])
    def trace(keys):
        assert ops.lookup(table, keys, 3).shape.as_list() == [4, 3]
        plan = ops.stage(table, keys, distinct=True)
        assert plan.shape.as_list() == []
        assert ops.read_plan(table, plan, 3).shape.as_list() == [None, 3]
        assert ops.size(table).shape.as_list() == []
        assert ops.stats(table).shape.as_list() == [5]
        scanned = ops.scan(table, 0, 10)
        assert [part.shape.as_list() for part in scanned] == [[None], [None, None], [], []]
        return ops.size(table)

    assert int(trace(np.arange(4))) == 0


def test_scan_yields_every_row_once_in_the_order_of_hashes_whatever_the_block():
    table = make_table(dim=1)
    ops.bind(table, "adagrad", [0.5, 1e-7])
    keys = np.random.default_rng(3).integers(-(2**63), 2**63, 1000)
    keys[:3] = 0, 2**63 - 1, -(2**63)
    ops.apply(table, keys, tf.zeros([1000, 1]), 0.0)
    wanted = sorted(keys.tolist(), key=hash_of)
    for max_rows in (1, 7, 999, 1000, 10_000):
        blocks = scan_all(table, max_rows)
        assert all(len(block) == max_rows for block, _ in blocks[:-1])
        assert np.concatenate([block for block, _ in blocks]).tolist() == wanted
        np.testing.assert_array_equal(
            np.concatenate([rows for _, rows in blocks]), [[5.0, 0.5]] * 1000
        )


def test_scan_of_an_empty_table_is_done_at_once():
    keys, rows, _, done = ops.scan(make_table(), 0, 10)
    assert keys.shape == (0,)
    assert rows.shape == (0, 2)
    assert bool(done)


def test_scan_resumes_after_rows_came_in_behind_it():
    table = sgd_table()
    in_order = sorted(range(10), key=hash_of)
    insert(table, in_order[1::2])
    keys, _, start, done = ops.scan(table, 0, 2)
    assert keys.numpy().tolist() == in_order[1:5:2]
    assert not bool(done)
    insert(table, in_order[0::2])
    keys, _, _, done = ops.scan(table, start, 100)
    assert keys.numpy().tolist() == in_order[5:]
    assert bool(done)


def test_two_tables_of_one_name_have_nothing_in_common():
    one, other = sgd_table(), sgd_table(initializer_arguments=[8.0])
    ops.apply(one, [1], [[1.0, 1.0]], 1.0)
    assert int(ops.size(other)) == 0
    ops.apply(other, [1], [[2.0, 2.0]], 1.0)
    assert ops.lookup(one, [1], 2).numpy().tolist() == [[4.0, 4.0]]
    assert ops.lookup(other, [1], 2).numpy().tolist() == [[6.0, 6.0]]


def test_ops_of_one_table_run_in_the_order_they_were_written():
    table = sgd_table(dim=1)

    @tf.function
    def steps():
        ops.apply(table, [1], [[1.0]], 1.0)
        first = ops.lookup(table, [1], 1)
        ops.apply(table, [1], [[1.0]], 1.0)
        return first, ops.lookup(table, [1], 1), ops.size(table)

    for before in (5.0, 3.0, 1.0):
        first, second, size = steps()
        assert first.numpy().tolist() == [[before - 1]]
        assert second.numpy().tolist() == [[before - 2]]
        assert int(size) == 1


def test_stats_tell_rows_and_bytes():
    table = sgd_table()
    insert(table, list(range(100)))
    rows, provisional, row_bytes, index_bytes, page_bytes = ops.stats(table).numpy()
    assert (rows, provisional, row_bytes) == (100, 0, 8)
    assert index_bytes >= 100 * 12
    assert page_bytes >= 100 * 8


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_of_a_table_goes_back_with_its_last_handle():
    num_rows, dim = 50_000, 128
    table_bytes = num_rows * dim * 4
    for _ in range(2):
        table = sgd_table(dim=dim)
        for start in range(0, num_rows, 5000):
            insert(table, np.arange(start, start + 5000), dim)
        another = table
        del table
        assert int(ops.size(another)) == num_rows
        filled = resident_bytes()
        del another
        assert filled - resident_bytes() > 0.95 * table_bytes
