"""Callbacks and input on one process, where they have nothing to add."""

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.keras_layers.models import linear_model, rows_of, samples


def classifier():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, "sigmoid", kernel_initializer="ones")])
    model.compile(
        tfs.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)),
        "binary_crossentropy",
        metrics=[tf.keras.metrics.AUC(name="auc"), "accuracy"],
    )
    return model


@pytest.fixture
def batches():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 2)).astype(np.float32)
    labels = (features[:, :1] + rng.normal(size=(40, 1)) > 0).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((features, labels))
    return data.take(30).batch(10), data.skip(30).batch(10)


def test_global_metrics_of_one_process_are_those_of_keras(batches):
    train, validation = batches
    histories = []
    for extra in ([], [tfs.callbacks.GlobalMetrics()]):
        model = classifier()
        history = model.fit(train, epochs=2, validation_data=validation, callbacks=extra, verbose=0)
        histories.append(history.history)
    assert set(histories[0]) == {"loss", "auc", "accuracy", "val_loss", "val_auc", "val_accuracy"}
    for name, values in histories[0].items():
        np.testing.assert_allclose(histories[1][name], values, rtol=1e-6, err_msg=name)
    assert histories[0]["loss"][0] != histories[0]["loss"][1]


def test_global_metrics_keep_the_results_of_the_last_evaluation(batches):
    train, validation = batches
    model, metrics = classifier(), tfs.callbacks.GlobalMetrics()
    model.fit(train, verbose=0, callbacks=[metrics])
    returned = model.evaluate(validation, callbacks=[metrics], verbose=0, return_dict=True)
    assert metrics.results == pytest.approx(returned)
    model.fit(train, validation_data=validation, callbacks=[metrics], verbose=0)
    again = model.evaluate(validation, verbose=0, return_dict=True)
    assert metrics.results == pytest.approx(again)
    assert again["loss"] != returned["loss"]


def test_callbacks_behind_global_metrics_see_its_values(batches):
    train, validation = batches
    seen = []

    class Sees(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(dict(logs))

    callbacks = [tfs.callbacks.GlobalMetrics(), Sees()]
    model = classifier()
    history = model.fit(train, validation_data=validation, callbacks=callbacks, verbose=0)
    assert seen == [{name: values[0] for name, values in history.history.items()}]


def test_broadcast_on_one_process_changes_nothing():
    rows = []
    for extra in ([], [tfs.callbacks.Broadcast()]):
        model = linear_model(tf.keras.optimizers.SGD(1.0))
        model.fit(samples([1, 2], [3.0, 4.0]), callbacks=extra, verbose=0)
        rows.append(rows_of(model, [1, 2]).tolist())
    assert rows == [[[-3.0], [-4.0]]] * 2


def test_the_share_of_one_process_is_everything():
    assert list(tfs.shard(tf.data.Dataset.range(5)).as_numpy_iterator()) == [0, 1, 2, 3, 4]
    assert tfs.shard(("b", "a", "c")) == ["b", "a", "c"]
    assert tfs.shard([]) == []


def test_a_program_that_was_not_launched_is_one_rank():
    tfs.init()
    tfs.init()
    assert (tfs.rank(), tfs.size(), tfs.local_rank()) == (0, 1, 0)
    tfs.shutdown()
    assert tfs.size() == 1
