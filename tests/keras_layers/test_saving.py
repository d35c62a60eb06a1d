"""Keras's and TensorFlow's own ways of saving carry the rows, in one process."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.checkpoint.models import assert_same, batch, make_model, state_of, tables_of, train
from tests.keras_layers.models import all_rows, table_of
from tfsparse.keras_layers import DynamicEmbedding

callbacks = tf.keras.callbacks
load_model = tf.keras.models.load_model


@pytest.fixture(scope="module")
def trained():
    model = make_model()
    train(model, range(3))
    return model


def into(model, load):
    """`model` after `load(model)`."""
    load(model)
    return model


def fresh():
    model = make_model()
    model.optimizer.build(model.trainable_variables)
    return model


def manager(model, folder):
    return tf.train.CheckpointManager(tf.train.Checkpoint(model=model), folder, 1)


# name: (save(model, folder), load(folder) -> model)
WAYS = {
    "save_weights": (
        lambda m, d: m.save_weights(d / "weights"),
        lambda d: into(fresh(), lambda m: m.load_weights(d / "weights")),
    ),
    "weights.h5": (
        lambda m, d: m.save_weights(d / "m.weights.h5"),
        lambda d: into(fresh(), lambda m: m.load_weights(d / "m.weights.h5")),
    ),
    "keras": (lambda m, d: m.save(d / "m.keras"), lambda d: load_model(d / "m.keras")),
    "Checkpoint": (
        lambda m, d: tf.train.Checkpoint(model=m).write(d / "c"),
        lambda d: into(fresh(), lambda m: tf.train.Checkpoint(model=m).read(d / "c")),
    ),
    "CheckpointManager": (
        lambda m, d: manager(m, d).save(),
        lambda d: into(fresh(), lambda m: manager(m, d).restore_or_initialize()),
    ),
    "pickle": (
        lambda m, d: (d / "m").write_bytes(pickle.dumps(m)),
        lambda d: pickle.loads((d / "m").read_bytes()),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_slots_and_weights_come_back_and_train_on(way, tmp_path):
    save, load = WAYS[way]
    model = make_model()
    train(model, range(3))
    before = state_of(model)
    save(model, tmp_path)
    assert_same(state_of(model), before)
    loaded = load(tmp_path)
    assert_same(state_of(loaded), before)
    assert train(loaded, range(3, 6)) == train(model, range(3, 6))
    assert_same(state_of(loaded), state_of(model))


def test_a_saved_model_brings_rows_and_weights_back(trained, tmp_path):
    """Keras starts the slots of dense variables afresh, as for its own layers."""
    trained.save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert_same({**state_of(loaded), "optimizer": []}, {**state_of(trained), "optimizer": []})
    train(loaded, range(3, 5))
    served = tf.saved_model.load(str(tmp_path / "m"))
    inputs, _ = batch(1)
    np.testing.assert_allclose(served(list(inputs)), trained(list(inputs)), atol=1e-6)


def test_a_copy_has_rows_of_its_own(trained):
    copied = copy.deepcopy(trained)
    before = state_of(trained)
    assert_same(state_of(copied), before)
    train(copied, range(3, 5))
    assert_same(state_of(trained), before)


def test_a_new_process_loads_what_this_one_saved(trained, tmp_path):
    trained.save(tmp_path / "m.keras")
    trained.save_weights(tmp_path / "weights")
    inputs, _ = batch(1)
    (tmp_path / "expected").write_bytes(
        pickle.dumps((state_of(trained)["rows"], trained(list(inputs)).numpy()))
    )
    code = (
        "import pickle, sys, numpy as np, tensorflow as tf\n"
        "from pathlib import Path\n"
        "import tfsparse\n"
        "from tests.checkpoint.models import batch, make_model, state_of\n"
        "d = Path(sys.argv[1]); rows, outputs = pickle.loads((d / 'expected').read_bytes())\n"
        "loaded = tf.keras.models.load_model(d / 'm.keras'); model = make_model()\n"
        "model.load_weights(d / 'weights')\n"
        "for m in (loaded, model):\n"
        "    np.testing.assert_array_equal(m(list(batch(1)[0])), outputs)\n"
        "    got = state_of(m)['rows']\n"
        "    for name in rows:\n"
        "        assert sorted(got[name]) == sorted(rows[name])\n"
        "        for k, row in rows[name].items():\n"
        "            np.testing.assert_array_equal(got[name][k], row)\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_loading_removes_rows_that_came_after(tmp_path):
    model = make_model()
    train(model, range(2))
    before = state_of(model)
    model.save_weights(tmp_path / "weights")
    train(model, range(2, 4))
    model.load_weights(tmp_path / "weights")
    assert_same(state_of(model), before)


def test_model_checkpoint_saves_rows_of_each_epoch(tmp_path):
    model = make_model()
    inputs, labels = batch(0)
    keeps = [
        callbacks.ModelCheckpoint(str(tmp_path / "{epoch}.keras")),
        callbacks.ModelCheckpoint(str(tmp_path / "{epoch}-weights"), save_weights_only=True),
    ]
    states = []
    keeps.append(callbacks.LambdaCallback(on_epoch_end=lambda *_: states.append(state_of(model))))
    model.fit(list(inputs), labels, epochs=2, verbose=0, callbacks=keeps)
    for epoch, state in enumerate(states, 1):
        assert_same(state_of(load_model(tmp_path / f"{epoch}.keras")), state)
        weights = into(fresh(), lambda m, n=epoch: m.load_weights(tmp_path / f"{n}-weights"))
        assert_same(state_of(weights), state)


def test_early_stopping_restores_the_rows_of_the_best_epoch():
    model = make_model("SGD")
    model.optimizer.learning_rate.assign(0.05)
    states = []

    def worsen(epoch, logs):
        states.append(state_of(model))
        if epoch == 1:
            model.optimizer.learning_rate.assign(20.0)

    watch = callbacks.LambdaCallback(on_epoch_end=worsen)
    stop = callbacks.EarlyStopping("loss", patience=1, restore_best_weights=True)
    inputs, labels = batch(0)
    model.fit(list(inputs), labels, epochs=6, verbose=0, callbacks=[watch, stop])
    assert stop.best_epoch < len(states) - 1
    best = states[stop.best_epoch]
    assert_same({**state_of(model), "optimizer": []}, {**best, "optimizer": []})


def test_backup_and_restore_goes_on_where_fit_was_interrupted(tmp_path):
    def interrupt(epoch, logs):
        if epoch == 1:
            raise KeyboardInterrupt

    def fit(model, *more):
        inputs, labels = batch(0)
        keep = callbacks.BackupAndRestore(str(tmp_path / "backup"))
        model.fit(list(inputs), labels, epochs=4, shuffle=False, verbose=0, callbacks=[keep, *more])

    straight = make_model()
    inputs, labels = batch(0)
    straight.fit(list(inputs), labels, epochs=4, shuffle=False, verbose=0)
    with pytest.raises(KeyboardInterrupt):
        fit(make_model(), callbacks.LambdaCallback(on_epoch_begin=interrupt))
    resumed = make_model()
    fit(resumed)
    assert_same(state_of(resumed), state_of(straight))


def test_set_weights_gives_rows_back(trained):
    model = copy.deepcopy(trained)
    before = state_of(model)
    weights = model.get_weights()
    train(model, range(3, 5))
    model.set_weights(weights)
    assert_same({**state_of(model), "optimizer": []}, {**before, "optimizer": []})


def test_set_weights_refuses_what_are_no_rows(trained):
    before = state_of(trained)
    weights = trained.get_weights()
    layer = trained.get_layer("users")
    rows = layer.get_weights()[-1]
    for wrong in (np.zeros(0), np.zeros(7), rows[:-1], np.append(rows, 0), np.full(100, 1e9)):
        with pytest.raises(ValueError, match="table 'users'"):
            layer.set_weights([*layer.get_weights()[:-1], wrong])
    assert_same(state_of(trained), before)
    trained.set_weights(weights)


def test_layers_that_share_a_table_save_it_once(tmp_path):
    table = tfs.Table("shared", 2)
    ids = tf.keras.Input((), dtype=tf.int64)
    both = [DynamicEmbedding(table, name=name)(ids) for name in ("a", "b")]
    model = tf.keras.Model(ids, tf.keras.layers.Add()(both))
    model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    model.fit(np.arange(5), np.ones((5, 2)), verbose=0)
    model.save_weights(tmp_path / "w")
    stored = [name for name, _ in tf.train.list_variables(str(tmp_path / "w")) if "/rows" in name]
    assert len(stored) == 1
    model.save(tmp_path / "m.keras")
    loaded = load_model(tmp_path / "m.keras")
    assert loaded.get_layer("a").table is loaded.get_layer("b").table
    want, got = all_rows(table.shard), all_rows(loaded.get_layer("a").table)
    assert sorted(want) == sorted(got)
    assert all(np.array_equal(want[key], got[key]) for key in want)


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize(
    "save",
    [
        lambda m, d: m.save_weights(d / "m.h5"),
        lambda m, d: m.save(d / "m.h5"),
        lambda m, d: m.fit(
            list(batch(0)[0]), batch(0)[1], verbose=0,
            callbacks=[callbacks.ModelCheckpoint(str(d / "m.h5"))],
        ),
    ],
)  # fmt: skip
def test_legacy_h5_is_refused_and_another_form_named(save, trained, tmp_path):
    with pytest.raises(NotImplementedError) as refusal:
        save(trained, tmp_path)
    assert "', which legacy .h5 files cannot hold" in str(refusal.value)
    assert "'.keras'" in str(refusal.value)


@pytest.mark.filterwarnings("ignore:You are saving a model that has not yet been built")
def test_a_model_that_was_never_called_is_saved_without_rows(tmp_path):
    model = tf.keras.Sequential([DynamicEmbedding(2, name="unbuilt")])
    model.save(tmp_path / "m.keras")
    loaded = load_model(tmp_path / "m.keras")
    loaded(tf.constant([1, 2], tf.int64))
    assert table_of(loaded, "unbuilt").size() == 0


def test_another_optimizer_is_refused_and_changes_nothing(trained, tmp_path):
    trained.save_weights(tmp_path / "weights")
    other = make_model("Adagrad")
    train(other, range(1))
    before = all_rows(tables_of(other)["users"])
    with pytest.raises(Exception, match='carry the slots of "adagrad"'):
        other.load_weights(tmp_path / "weights")
    after = all_rows(tables_of(other)["users"])
    assert sorted(after) == sorted(before)
