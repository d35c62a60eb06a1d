"""A table's rows: where they come from, when they exist, how they are looked at."""

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.embedding.one_table import OneTable
from tests.hash_order import hash_of
from tfsparse.embedding.table import shard_of

# First values.


def first_values(keys, seed=0, low=-0.05, high=0.05, dim=8):
    table = OneTable(initializer=tfs.initializers.Uniform(low, high), seed=seed, dim=dim)
    return table.forward(keys).numpy()


def test_first_values_depend_on_seed_and_key_only():
    keys = np.array([0, -1, 7, 2**63 - 1, -(2**63), 12345])
    values = first_values(keys)
    np.testing.assert_array_equal(first_values(keys[::-1])[::-1], values)
    np.testing.assert_array_equal(first_values([99, *keys.tolist(), 7])[1:-1], values)
    table = OneTable(initializer=tfs.initializers.Uniform(), dim=8)
    one_by_one = np.concatenate([table.forward([key]).numpy() for key in keys])
    np.testing.assert_array_equal(one_by_one, values)
    table.train([7], np.zeros((1, 8), np.float32))
    np.testing.assert_array_equal(table.shard.lookup([7]).numpy(), values[2:3])


def test_other_keys_and_other_seeds_get_other_values():
    values = first_values(np.arange(100))
    other = first_values(np.arange(100), seed=1)
    assert len(np.unique(np.concatenate([values, other]))) > 1590  # of 1600


def test_uniform_values_fill_their_range_evenly():
    values = first_values(np.arange(5000), low=-3.0, high=1.0)
    assert -3.0 <= values.min() < -2.999
    assert 0.999 < values.max() < 1.0
    assert abs(values.mean() - -1.0) < 0.02  # standard deviation of the mean: 0.006
    assert abs(values.std() - 4.0 / np.sqrt(12.0)) < 0.02
    assert np.abs(values.mean(axis=0) - -1.0).max() < 0.07


# What inserts, and what does not.


def test_evaluation_inserts_nothing_and_reads_the_default():
    table = OneTable()
    assert table.forward([1, 2, 1], training=False).numpy().tolist() == [[-1.0, -1.0]] * 3
    assert table.rows([1]) == [[-1.0, -1.0]]
    assert table.shard.size() == 0
    assert table.shard.stats()["provisional_rows"] == 0


def test_a_training_forward_alone_changes_nothing_that_others_see():
    table = OneTable()
    for start in range(0, 100, 5):
        rows = table.forward([start, start + 1, start, start + 2, start + 3, start + 4])
        assert rows.numpy().tolist() == [[5.0, 5.0]] * 6
        assert table.shard.stats()["provisional_rows"] <= 4 * 5
    assert table.shard.size() == 0
    assert table.all_rows() == {}
    assert table.rows([1]) == [[-1.0, -1.0]]


def test_two_forward_passes_read_the_same_new_row():
    table = OneTable(initializer="uniform")
    np.testing.assert_array_equal(table.forward([1, 2]).numpy(), table.forward([1, 2]).numpy())


def test_apply_commits_the_rows_of_the_step():
    table = OneTable()
    table.train([1, 2], [[1.0, 2.0], [0.0, 0.0]])
    assert table.shard.size() == 2
    assert table.shard.stats()["provisional_rows"] == 0
    assert table.rows([1, 2, 3]) == [[4.0, 3.0], [5.0, 5.0], [-1.0, -1.0]]
    assert table.forward([1], training=False).numpy().tolist() == [[4.0, 3.0]]


def test_a_key_that_repeats_gets_the_sum_of_its_gradients():
    table = OneTable()
    table.train([7, 8, 7], [[1.0, 0.0], [10.0, 10.0], [2.0, 5.0]])
    assert table.rows([7, 8]) == [[2.0, 0.0], [-5.0, -5.0]]


def test_empty_batches_train_nothing_and_are_no_error():
    table = OneTable()
    table.train([], np.zeros((0, 2), np.float32))
    assert table.forward([]).shape == (0, 2)
    assert table.shard.size() == 0
    assert int(table.optimizer.iterations) == 1


# Looking inside.


def test_export_yields_every_row_once_with_slots_in_the_order_of_hashes():
    table = OneTable(tfs.optimizers.Adagrad(0.0, initial_accumulator_value=0.5))
    keys = [2**63 - 1, -(2**63), -1, 0, *range(100, 140)]
    upstream = np.repeat(np.arange(len(keys), dtype=np.float32)[:, np.newaxis], 2, axis=1)
    table.train(keys, upstream)
    wanted = sorted(keys, key=hash_of)
    for block_rows in (1, 43, 44, 1000):
        blocks = list(table.shard.export(block_rows))
        assert [len(block[0]) for block in blocks[:-1]] == [block_rows] * (len(blocks) - 1)
        exported, rows, slots = (np.concatenate(part) for part in zip(*blocks))
        assert exported.tolist() == wanted
        assert (exported.dtype, rows.dtype, slots.dtype) == (np.int64, np.float32, np.float32)
        np.testing.assert_array_equal(rows, np.full((44, 2), 5.0))
        squares = [[0.5 + keys.index(key) ** 2] * 2 for key in wanted]
        np.testing.assert_array_equal(slots, squares)


def test_export_of_an_empty_table_yields_nothing():
    assert list(OneTable().shard.export()) == []


def test_export_of_a_table_without_slots_has_slots_of_no_width():
    table = OneTable()
    table.train([1], [[1.0, 1.0]])
    ((keys, rows, slots),) = table.shard.export()
    assert (keys.shape, rows.shape, slots.shape) == ((1,), (1, 2), (1, 0))


def test_stats_are_plain_numbers():
    table = OneTable(tfs.optimizers.Adam(), dim=3)
    table.train([1, 2], np.zeros((2, 3), np.float32))
    table.forward([3])
    stats = table.shard.stats()
    assert (stats["rows"], stats["provisional_rows"]) == (2, 1)
    assert stats["row_bytes"] == (3 + 3 + 3 + 1) * 4
    assert all(type(value) is int for value in stats.values())
    assert set(stats) == {"rows", "provisional_rows", "row_bytes", "index_bytes", "page_bytes"}


@pytest.mark.parametrize(
    "keys", [[1, 9], (1, 9), np.array([1, 9], np.int32), tf.constant([[1], [9]], tf.int64)]
)
def test_lookup_takes_integers_of_any_kind(keys):
    table = OneTable()
    table.train([1], [[1.0, 1.0]])
    assert table.rows(keys) == [[4.0, 4.0], [-1.0, -1.0]]


def test_lookup_takes_strings_by_their_fingerprints():
    table = OneTable()
    table.train([-5528939962900187677], [[1.0, 1.0]])  # of "a", by FarmHash
    assert table.rows(["a", "b"]) == [[4.0, 4.0], [-1.0, -1.0]]
    assert table.rows(tf.constant([], tf.string)) == []


def test_lookup_of_floats_is_refused():
    with pytest.raises(TypeError, match="'users': ids are integers or strings"):
        OneTable().shard.lookup([1.0, 2.0])


def test_configs_and_shards_belong_together():
    config = tfs.Table("users", 2)
    assert shard_of(config) is shard_of(config)
    assert shard_of(config) is not shard_of(tfs.Table("users", 2))
