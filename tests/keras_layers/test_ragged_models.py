"""Functional and subclassed models train on datasets of ragged ids, and are served."""

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.keras_layers.models import all_rows
from tfsparse.keras_layers import DynamicEmbedding

keras = tf.keras
HISTORIES = [[1, 2], [], [7], [3, 3, 9], [2], [-1]]
LABELS = np.array([[1.0], [0.0], [1.0], [0.0], [1.0], [1.0]], np.float32)


def embedding():
    return DynamicEmbedding(4, combiner="mean", name="table")


def dense():
    return keras.layers.Dense(1, kernel_initializer="ones", name="score")


def functional():
    history = keras.Input((None,), dtype=tf.int64, ragged=True, name="history")
    return keras.Model(history, dense()(embedding()(history)))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.table, self.score = embedding(), dense()

    def call(self, history):
        return self.score(self.table(history))


def trained(model):
    histories = tf.ragged.constant(HISTORIES, tf.int64)
    data = tf.data.Dataset.from_tensor_slices((histories, LABELS)).batch(4)  # 4, then 2
    model.compile(tfs.DistributedOptimizer(keras.optimizers.Adagrad(0.1)), "mse")
    model.fit(data, epochs=3, verbose=0)
    return model.get_layer("table").table, model.predict(histories, verbose=0)


@pytest.mark.parametrize("make", [functional, Subclassed])
def test_a_model_of_ragged_ids_trains_and_is_served(make, tmp_path):
    model = make()
    table, scores = trained(model)
    assert sorted(all_rows(table)) == [-1, 1, 2, 3, 7, 9]
    assert np.abs(scores[1]).item() < np.abs(scores[[0, 2, 5]]).min()  # an empty list reads zeros
    served = tf.saved_model.load(tfs.export(model, tmp_path / "served"))
    signature = served.signatures["serving_default"]
    (name,) = {key.split("_row_splits")[0] for key in signature.structured_input_signature[1]}
    histories = tf.ragged.constant(HISTORIES, tf.int64)
    fed = {name: histories.flat_values, f"{name}_row_splits": histories.row_splits}
    (got,) = signature(**fed).values()
    np.testing.assert_allclose(got, scores, atol=1e-6)


def test_both_kinds_of_models_learn_the_same():
    (one, scores), (other, other_scores) = trained(functional()), trained(Subclassed())
    rows, other_rows = all_rows(one), all_rows(other)
    for key, row in rows.items():
        np.testing.assert_allclose(row, other_rows[key], rtol=1e-5)
    np.testing.assert_allclose(scores, other_scores, rtol=1e-5)
