"""Until tables are part of checkpoints, no way of saving may drop their rows silently."""

import copy
import json
import pickle

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.keras_layers.models import all_rows, table_of
from tfsparse.keras_layers import DynamicEmbedding

IDS = np.arange(8).reshape(4, 2)
LABELS = np.ones((4, 1))
callbacks = tf.keras.callbacks


@pytest.fixture(scope="module")
def model():
    ids = tf.keras.Input((2,), dtype=tf.int64)
    vectors = DynamicEmbedding(3, combiner="sum", name="table")(ids)
    model = tf.keras.Model(ids, tf.keras.layers.Dense(1)(vectors))
    model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
    model.fit(IDS, LABELS, verbose=0)
    return model


def fit(model, *others):
    model.fit(IDS, LABELS, epochs=2, verbose=0, callbacks=list(others))


def set_own_weights(model):
    """What a program does that kept a copy of each weight."""
    weights = [np.zeros(weight.shape) for weight in model.weights]
    model.set_weights(weights)


OURS = {
    "save_weights": lambda m, d: m.save_weights(d / "weights"),
    "save_weights.weights.h5": lambda m, d: m.save_weights(d / "m.weights.h5"),
    "save_savedmodel": lambda m, d: m.save(d / "model"),
    "save_keras": lambda m, d: m.save(d / "m.keras"),
    "saved_model.save": lambda m, d: tf.saved_model.save(m, str(d / "model")),
    "Checkpoint": lambda m, d: tf.train.Checkpoint(model=m).save(d / "checkpoint"),
    "Checkpoint_of_layer": lambda m, d: tf.train.Checkpoint(l=m.get_layer("table")).write(d / "c"),
    "CheckpointManager": lambda m, d: tf.train.CheckpointManager(
        tf.train.Checkpoint(model=m), d, 1
    ).save(),
    "ModelCheckpoint": lambda m, d: fit(m, callbacks.ModelCheckpoint(str(d / "m.keras"))),
    "ModelCheckpoint_weights": lambda m, d: fit(
        m, callbacks.ModelCheckpoint(str(d / "w"), save_weights_only=True)
    ),
    "BackupAndRestore": lambda m, d: fit(m, callbacks.BackupAndRestore(str(d))),
    "EarlyStopping": lambda m, d: fit(
        m, callbacks.EarlyStopping("loss", restore_best_weights=True)
    ),
    "get_weights": lambda m, d: m.get_weights(),
    "get_weights_of_layer": lambda m, d: m.get_layer("table").get_weights(),
    "set_weights": lambda m, d: set_own_weights(m),
    "set_weights_of_layer": lambda m, d: set_own_weights(m.get_layer("table")),
    "pickle": lambda m, d: pickle.dumps(m),
    "deepcopy": lambda m, d: copy.deepcopy(m),
}

# Keras itself refuses here, because a weight is no tf.Variable; it prints the weight, and that
# is our advice.
KERASES = {
    "save_weights_h5": lambda m, d: m.save_weights(d / "m.h5"),
    "save_h5": lambda m, d: m.save(d / "m.h5"),
    "ModelCheckpoint_h5": lambda m, d: fit(m, callbacks.ModelCheckpoint(str(d / "m.h5"))),
}


def assert_nothing_loads(folder):
    """What a refused way of saving has left behind is no model."""
    no_model = (OSError, ValueError, KeyError, NotImplementedError, tf.errors.OpError)
    for path in folder.iterdir():
        with pytest.raises(no_model):
            tf.keras.models.load_model(path)


@pytest.mark.parametrize("way", OURS)
def test_saving_is_refused_with_advice(way, model, tmp_path):
    with pytest.raises(NotImplementedError) as refusal:
        OURS[way](model, tmp_path)
    assert "table 'table'" in str(refusal.value)
    assert "tfs.export(model, dir)" in str(refusal.value)
    assert "layer.table.export()" in str(refusal.value)
    assert_nothing_loads(tmp_path)


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize("way", KERASES)
def test_saving_in_legacy_h5_is_refused(way, model, tmp_path):
    with pytest.raises(NotImplementedError) as refusal:
        KERASES[way](model, tmp_path)
    assert "table 'table'" in str(refusal.value)
    assert "tfs.export(model, dir)" in str(refusal.value)
    assert_nothing_loads(tmp_path)


def test_a_refusal_leaves_rows_and_weights_as_they_were(model, tmp_path):
    before, dense = all_rows(table_of(model)), model.layers[-1].get_weights()
    for way in ("save_weights", "save_keras", "Checkpoint", "set_weights", "get_weights"):
        with pytest.raises(NotImplementedError):
            OURS[way](model, tmp_path)
    after = all_rows(table_of(model))
    assert set(after) == set(before)
    for key, row in after.items():
        np.testing.assert_array_equal(row, before[key])
    np.testing.assert_array_equal(model.layers[-1].get_weights()[0], dense[0])


@pytest.mark.filterwarnings("ignore:You are saving a model that has not yet been built")
def test_a_model_that_was_never_called_is_refused_in_the_same_words(tmp_path):
    with pytest.raises(NotImplementedError, match="rows of table 'unbuilt' are not part of"):
        tf.keras.Sequential([DynamicEmbedding(2, name="unbuilt")]).save(tmp_path / "m.keras")


def test_a_dense_part_alone_can_be_saved(model, tmp_path):
    dense = model.layers[-1]
    path = tf.train.Checkpoint(dense=dense).save(tmp_path / "dense")
    kernel = dense.get_weights()[0]
    dense.set_weights([kernel + 1.0, dense.get_weights()[1]])
    tf.train.Checkpoint(dense=dense).restore(path).assert_consumed()
    np.testing.assert_array_equal(dense.get_weights()[0], kernel)


# What only looks at a model goes on working.


def test_summary_and_counts_work(model):
    lines = []
    model.summary(print_fn=lines.append)
    assert any("table (DynamicEmbedding)" in line for line in lines)
    # Of variables: the anchor, three kernels, a bias. Rows are no parameters to Keras.
    assert model.count_params() == 1 + 3 + 1
    assert len(model.trainable_weights) == 3


def test_json_works(model):
    config = json.loads(model.to_json())
    names = [layer["config"]["name"] for layer in config["config"]["layers"]]
    assert "table" in names


def test_tensorboard_with_histograms_works(model, tmp_path):
    fit(model, callbacks.TensorBoard(tmp_path, histogram_freq=1, write_graph=True))
    (events,) = (tmp_path / "train").glob("events*")
    tags = {
        value.tag
        for record in tf.data.TFRecordDataset(str(events))
        for value in tf.compat.v1.Event.FromString(record.numpy()).summary.value
    }
    assert any(tag.startswith("dense") and "kernel" in tag for tag in tags), tags
    assert "epoch_loss" in tags


def test_callbacks_that_do_not_save_work(model, tmp_path):
    fit(
        model,
        callbacks.EarlyStopping("loss"),
        callbacks.CSVLogger(tmp_path / "log.csv"),
        callbacks.TerminateOnNaN(),
    )
    assert (tmp_path / "log.csv").read_text().startswith("epoch,loss")
