"""From row gradients to updates, on one rank: collecting, clipping, checking."""

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tfsparse.embedding import gradients
from tfsparse.embedding.table import SAMPLES_OFFSET, shard_of


@pytest.fixture
def shard():
    return shard_of(tfs.Table("users", 2, optimizer=tfs.optimizers.SGD(1.0)))


def slices(keys, values, samples=2):
    shape = tf.constant([SAMPLES_OFFSET + samples, 2], tf.int64)
    return tf.IndexedSlices(tf.constant(values), tf.constant(keys, tf.int64), shape)


def reduce(grads_and_vars, **limits):
    clip = gradients.Clip(**limits)
    return gradients.reduce(
        grads_and_vars, clip, "test", after=tf.constant(0), rate=tf.constant(0.1)
    )


def plain(gradient):
    """A gradient as a list, or as `{key: list}`."""
    if isinstance(gradient, tf.IndexedSlices):
        keys = gradient.indices.numpy().tolist()
        return dict(zip(keys, gradient.values.numpy().tolist()))
    return gradient.numpy().tolist()


def test_gradients_of_all_lookups_of_a_table_become_one_sum_per_key(shard):
    dense = tf.Variable([0.0])
    reduced = reduce(
        [
            (slices([1, 2], [[1.0, 2.0], [3.0, 4.0]]), shard.anchor),
            (tf.constant([7.0]), dense),
            (slices([2, 2], [[10.0, 20.0], [30.0, 40.0]]), shard.anchor),
            (None, tf.Variable([1.0])),
        ]
    )
    assert [variable.ref() for _, variable in reduced] == [dense.ref(), shard.anchor.ref()]
    assert plain(reduced[0][0]) == [7.0]
    assert plain(reduced[1][0]) == {1: [1.0, 2.0], 2: [43.0, 64.0]}


def test_tables_keep_apart(shard):
    other = shard_of(tfs.Table("items", 2, optimizer=tfs.optimizers.SGD(1.0)))
    reduced = reduce(
        [
            (slices([1], [[1.0, 2.0]]), shard.anchor),
            (slices([1], [[3.0, 4.0]]), other.anchor),
            (tf.constant([7.0]), tf.Variable([0.0])),
        ]
    )
    assert [plain(gradient) for gradient, _ in reduced] == [[7.0], {1: [1.0, 2.0]}, {1: [3.0, 4.0]}]


@pytest.mark.parametrize(
    "limits, dense_wanted, row_wanted",
    [
        # The key occurs twice, with 0, -1 and 6, 9: its gradient is [6, 8] and its norm 10.
        ({}, [24.0], [6.0, 8.0]),
        ({"clipnorm": 5.0}, [5.0], [3.0, 4.0]),
        ({"clipnorm": 12.0}, [12.0], [6.0, 8.0]),
        ({"global_clipnorm": 13.0}, [12.0], [3.0, 4.0]),  # sqrt(24^2 + 10^2) = 26
        ({"global_clipnorm": 27.0}, [24.0], [6.0, 8.0]),
        ({"clipvalue": 7.0}, [7.0], [6.0, 7.0]),
    ],
)
def test_clipping_counts_a_key_once_with_its_sum(shard, limits, dense_wanted, row_wanted):
    (dense, _), (rows, _) = reduce(
        [
            (tf.constant([24.0]), tf.Variable([0.0])),
            (slices([5, 5], [[0.0, -1.0], [6.0, 9.0]]), shard.anchor),
        ],
        **limits,
    )
    np.testing.assert_allclose(plain(dense), dense_wanted, rtol=1e-6)
    np.testing.assert_allclose(plain(rows)[5], row_wanted, rtol=1e-6)


def test_a_global_norm_is_that_of_all_tables_together(shard):
    other = shard_of(tfs.Table("items", 2, optimizer=tfs.optimizers.SGD(1.0)))
    _, (one, _), (two, _) = reduce(
        [
            (slices([1, 2], [[2.0, 0.0], [0.0, 4.0]]), shard.anchor),
            (slices([1], [[4.0, 0.0]]), other.anchor),
            (tf.constant([0.0]), tf.Variable([0.0])),
        ],
        global_clipnorm=3.0,  # of 6
    )
    assert plain(one) == {1: [1.0, 0.0], 2: [0.0, 2.0]}
    assert plain(two) == {1: [2.0, 0.0]}


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
@pytest.mark.parametrize("poisoned", ["dense", "rows"])
def test_a_value_that_is_not_finite_is_noticed_wherever_it_is(shard, poisoned, bad):
    reduced = reduce(
        [
            (tf.constant([bad if poisoned == "dense" else 1.0]), tf.Variable([0.0])),
            (slices([5], [[1.0, bad if poisoned == "rows" else 1.0]]), shard.anchor),
        ]
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="NaN or infinite .*on some rank"):
        gradients.check_sound(reduced)


@pytest.mark.parametrize("value, sound", [(1e12, True), (1.1e12, False), (-1.1e12, False)])
def test_row_gradients_beyond_a_limit_count_as_infinite(shard, value, sound):
    # Their sum, or its square, could overflow where only the owner of the row would notice.
    reduced = reduce([(slices([5, 6], [[1.0, value], [1.0, 1.0]]), shard.anchor)])
    if sound:
        gradients.check_sound(reduced)
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="of a row, beyond 1e12"):
            gradients.check_sound(reduced)


def test_a_model_of_tables_only_is_checked_too_and_gains_no_row(shard):
    for values, finite in ([[1.0, 2.0]], True), ([[1.0, float("inf")]], False):
        reduced = reduce([(slices([5], values), shard.anchor)])
        if finite:
            gradients.check_sound(reduced)
            gradients.apply_rows(reduced[0][0], shard, 1.0)
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match="NaN or infinite"):
                gradients.check_sound(reduced)
    assert shard.size() == 1
