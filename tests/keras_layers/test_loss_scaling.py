"""Mixed precision: a step that overflows is skipped whole, and the next one trains."""

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.keras_layers.models import OPTIMIZERS, all_rows, linear_loss, table_of
from tfsparse.keras_layers import DynamicEmbedding

LossScaleOptimizer = tf.keras.mixed_precision.LossScaleOptimizer


@pytest.fixture
def mixed_float16():
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    yield
    tf.keras.mixed_precision.set_global_policy("float32")


def make_model(with_dense):
    ids = tf.keras.Input((1,), dtype=tf.int64)
    vectors = DynamicEmbedding(2, combiner="sum", initializer="zeros", name="table")(ids)
    if with_dense:
        vectors = tf.keras.layers.Dense(2, kernel_initializer="identity", name="dense")(vectors)
    output = tf.keras.layers.Activation("linear", dtype="float32")(vectors)
    return tf.keras.Model(ids, output)


def state_of(model, with_dense):
    rows = {key: row.tolist() for key, row in all_rows(table_of(model)).items()}
    dense = [w.tolist() for w in model.get_layer("dense").get_weights()] if with_dense else []
    return rows, dense


@pytest.mark.parametrize("with_dense", [True, False], ids=["with_dense", "tables_only"])
@pytest.mark.parametrize("generation", OPTIMIZERS)
def test_a_step_that_overflows_is_skipped_and_the_next_one_trains(
    generation, with_dense, mixed_float16
):
    model = make_model(with_dense)
    inner = tfs.DistributedOptimizer(OPTIMIZERS[generation].Adagrad(1.0, 1.0))
    optimizer = LossScaleOptimizer(inner, initial_scale=1024.0)
    model.compile(optimizer, linear_loss)
    one = np.array([[1.0, 2.0]])
    model.train_on_batch(np.array([[7]]), one)
    before = state_of(model, with_dense)
    assert set(before[0]) == {7}
    assert float(optimizer.loss_scale) == 1024.0

    # 1024 times 100 is beyond float16. The batch has a new key too.
    model.train_on_batch(np.array([[7], [8]]), np.concatenate([one, 200 * one]))
    assert state_of(model, with_dense) == before
    assert float(optimizer.loss_scale) == 512.0

    model.train_on_batch(np.array([[7]]), one)
    rows, dense = state_of(model, with_dense)
    assert set(rows) == {7}
    assert int(optimizer.iterations) == 3  # Keras counts skipped steps too
    assert rows[7][0] < before[0][7][0]
    if not with_dense:
        # Adagrad from accumulator 1: w -= g / sqrt(1 + g^2), then g / sqrt(1 + 2 g^2).
        g = np.array([1.0, 2.0])
        wanted = -g / np.sqrt(1 + g**2) - g / np.sqrt(1 + 2 * g**2)
        np.testing.assert_allclose(rows[7][:2], wanted, rtol=1e-3)
        np.testing.assert_allclose(rows[7][2:], 1 + 2 * g**2, rtol=1e-3)
    else:
        assert dense != before[1]


def test_compile_scales_losses_of_a_wrapped_optimizer_under_the_policy(mixed_float16):
    model = make_model(with_dense=True)
    optimizer = tfs.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))
    model.compile(optimizer, linear_loss)
    assert isinstance(model.optimizer, LossScaleOptimizer)
    assert model.optimizer.inner_optimizer is optimizer
    # The first scale is 2^15: what is scaled must stay below float16's 65504.
    model.fit(np.array([[7]] * 4), np.array([[0.5, 0.25]] * 4), verbose=0)
    assert all_rows(table_of(model))[7].tolist() == [-0.5, -0.25]


@pytest.mark.parametrize("with_dense", [True, False], ids=["with_dense", "tables_only"])
def test_without_loss_scaling_such_a_step_is_an_error_and_changes_nothing(with_dense):
    model = make_model(with_dense)
    model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adagrad(1.0)), linear_loss)
    model.train_on_batch(np.array([[7]]), np.array([[1.0, 2.0]]))
    before = state_of(model, with_dense)
    with pytest.raises(tf.errors.InvalidArgumentError, match="A gradient is NaN or infinite"):
        model.train_on_batch(np.array([[7], [8]]), np.array([[1.0, 2.0], [1.0, np.nan]]))
    assert state_of(model, with_dense) == before
    model.train_on_batch(np.array([[8]]), np.array([[1.0, 2.0]]))
    assert set(state_of(model, with_dense)[0]) == {7, 8}
