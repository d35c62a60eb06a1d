"""What tfs.save writes, tfs.restore brings back; in one process."""

import json

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

import tfsparse as tfs
from tests.checkpoint.models import (
    another_process_in,
    assert_same,
    batch,
    make_model,
    state_of,
    tables_of,
    train,
)
from tests.hash_order import hash_of
from tests.keras_layers.models import all_rows

OPTIMIZERS = ["SGD", "Adagrad", "Adam", "legacy.SGD", "legacy.Adagrad", "legacy.Adam"]


def row_files(directory):
    return sorted(directory.glob("data-*/table-*.safetensors"))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_ten_steps_save_restore_and_ten_more_are_twenty(tmp_path, optimizer):
    straight = make_model(optimizer)
    losses = train(straight, range(20))
    saved = make_model(optimizer)
    assert train(saved, range(10)) == losses[:10]
    at_ten = state_of(saved)
    tfs.save(saved, tmp_path)
    assert_same(state_of(saved), at_ten)

    restored = make_model(optimizer)
    assert tfs.restore(restored, tmp_path) == 10
    assert state_of(restored)["rows"].keys() == at_ten["rows"].keys()
    assert train(restored, range(10, 20)) == losses[10:]
    assert_same(state_of(restored), state_of(straight))
    assert int(restored.optimizer.iterations) == 20


def test_a_roll_back_removes_what_came_after(tmp_path):
    model = make_model()
    train(model, range(3))
    at_three = state_of(model)
    tfs.save(model, tmp_path)
    losses = train(model, range(3, 6))
    assert tables_of(model)["users"].size() > len(at_three["rows"]["users"])
    tfs.restore(model, tmp_path)
    assert_same(state_of(model), at_three)
    assert train(model, range(3, 6)) == losses


def test_rows_reserved_by_a_pass_that_was_not_applied_are_neither_saved_nor_kept(tmp_path):
    model = make_model()
    train(model, range(2))
    before = state_of(model)
    inputs, _ = batch(99)
    model(inputs, training=True)
    tfs.save(model, tmp_path)
    assert tables_of(model)["users"].stats()["provisional_rows"] > 0
    tfs.restore(model, tmp_path)
    assert tables_of(model)["users"].stats()["provisional_rows"] == 0
    assert_same(state_of(model), before)


def test_gradients_of_before_a_restore_are_applied_to_the_restored_rows(tmp_path):
    model = make_model()
    train(model, range(2))
    tfs.save(model, tmp_path)
    inputs, labels = batch(2)
    variables = model.trainable_variables

    def step(between):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs, training=True) - labels) ** 2)
        gradients = tape.gradient(loss, variables)
        between()
        model.optimizer.apply_gradients(zip(gradients, variables))
        return state_of(model)

    wanted = step(lambda: None)
    tfs.restore(model, tmp_path)
    assert_same(step(lambda: tfs.restore(model, tmp_path)), wanted)


def test_a_checkpoint_from_before_the_first_step_goes_with_any_optimizer(tmp_path):
    tfs.save(make_model("Adam"), tmp_path)
    for optimizer in ("Adam", "SGD", "Adagrad"):
        model = make_model(optimizer)
        losses = train(model, range(3))
        if optimizer == "Adam":
            assert tfs.restore(model, tmp_path) == 0
        else:
            tfs.restore(model, tmp_path, partial=True)
            model.optimizer.iterations.assign(0)
        assert tables_of(model)["users"].size() == 0
        assert train(model, range(3))[0] == losses[0]


def test_a_legacy_optimizer_too_goes_back_to_before_its_first_step(tmp_path):
    model = make_model("legacy.Adam")
    tfs.save(model, tmp_path)
    losses = train(model, range(3))
    assert tfs.restore(model, tmp_path) == 0
    assert train(model, range(3)) == losses


def test_a_save_touches_nothing_that_is_not_its_own(tmp_path):
    model = make_model("SGD")
    for name in ("data-train", "data-2024", "data-0123456789ab.bak"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine")
    for _ in range(2):
        tfs.save(model, tmp_path)
    assert len(list(tmp_path.glob("*/mine"))) == 3
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match="is not of a checkpoint"):
        tfs.save(model, foreign)
    assert (foreign / "manifest.json").read_text() == "{}"


def test_a_model_without_optimizer_takes_rows_and_weights(tmp_path):
    trained = make_model()
    train(trained, range(4))
    tfs.save(trained, tmp_path)
    reader = make_model(optimizer=None)
    tfs.restore(reader, tmp_path)
    inputs, _ = batch(1)
    np.testing.assert_array_equal(reader(inputs), trained(inputs))
    # And its rows, which have Adam's slots, go on being trained by Adam.
    reader.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
    train(reader, range(4, 5))


def test_a_second_save_takes_the_place_of_the_first(tmp_path):
    model = make_model()
    for steps in (range(2), range(2, 4), range(4, 6)):
        train(model, steps)
        tfs.save(model, tmp_path)
        assert len(list(tmp_path.iterdir())) == 2  # the manifest and one folder
    wanted = state_of(model)
    again = make_model()
    assert tfs.restore(again, tmp_path) == 6
    assert_same(state_of(again), wanted)


def test_odd_paths_are_paths(tmp_path):
    model = make_model("SGD")
    for step, name in enumerate(["a-b", "a b", "50%", "%s", "ä/deep/er", "a:b", ".hidden"]):
        train(model, [step])
        saved = state_of(model)
        tfs.save(model, tmp_path / name)
        train(model, [99])
        assert tfs.restore(model, str(tmp_path / name)) == step + 1
        assert_same(state_of(model), saved)


def test_metrics_of_an_epoch_come_back(tmp_path):
    model = make_model("SGD")
    model.compile(model.optimizer, "mse", metrics=["mae"])
    train(model, range(2))
    wanted = {metric.name: metric.result().numpy() for metric in model.metrics}
    tfs.save(model, tmp_path)
    model.train_on_batch(*batch(5), reset_metrics=False)
    tfs.restore(model, tmp_path)
    assert {metric.name: metric.result().numpy() for metric in model.metrics} == wanted


def test_any_tool_reads_the_rows(tmp_path):
    model = make_model("Adam")
    train(model, range(3))
    tfs.save(model, tmp_path)
    users, items = map(load_file, row_files(tmp_path))
    assert {name: (t.shape[1:], t.dtype) for name, t in users.items()} == {
        "bucket_offsets": ((), np.int64),
        "keys": ((), np.int64),
        "parameter": ((8,), np.float32),
        "m": ((8,), np.float32),
        "v": ((8,), np.float32),
        "updates": ((1,), np.float32),
    }
    for tensors, table in ((users, tables_of(model)["users"]), (items, tables_of(model)["items"])):
        columns = [tensors[name] for name in ("parameter", "m", "v", "updates")]
        rows = dict(zip(tensors["keys"].tolist(), np.concatenate(columns, axis=1)))
        wanted = all_rows(table)
        assert sorted(rows) == sorted(wanted)
        assert all(np.array_equal(rows[key], wanted[key]) for key in rows)
        hashes = np.array([hash_of(key) for key in tensors["keys"]], np.uint64)
        assert (hashes[1:] > hashes[:-1]).all()
        groups = len(tensors["bucket_offsets"]) - 1
        counts = np.bincount((hashes >> np.uint64(48)).astype(int) * groups >> 16, minlength=groups)
        np.testing.assert_array_equal(np.diff(tensors["bucket_offsets"]), counts)


def test_a_table_is_split_into_files_and_read_by_threads(tmp_path, monkeypatch):
    monkeypatch.setattr("tfsparse.checkpoint.table_files.FILE_ROWS", 20)
    model = make_model()
    train(model, range(4))
    tfs.save(model, tmp_path)
    assert len(row_files(tmp_path)) > 10
    again = make_model()
    tfs.restore(again, tmp_path)
    assert state_of(again)["rows"].keys() == state_of(model)["rows"].keys()
    assert_same({**state_of(again), "optimizer": []}, {**state_of(model), "optimizer": []})


def test_the_manifest_says_what_is_in_the_checkpoint(tmp_path):
    model = make_model("Adagrad", seed=7)
    train(model, range(3))
    tfs.save(model, tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["format"] == "tfsparse checkpoint"
    assert (manifest["version"], manifest["step"], manifest["num_ranks"]) == (1, 3, 1)
    users, items = manifest["tables"]
    assert (users["name"], users["dim"], users["seed"]) == ("users", 8, 7)
    assert users["columns"] == {"parameter": 8, "accumulator": 8}
    assert users["optimizer"]["rule"] == "adagrad"
    assert users["rows"] == tables_of(model)["users"].size()
    for file in users["files"] + items["files"] + manifest["dense"]:
        assert (tmp_path / file["file"]).stat().st_size == file["bytes"]


@pytest.mark.parametrize("name", ["run[lr=0.1]", "a\\b"])
def test_a_path_that_tensorflow_would_read_as_a_pattern_is_refused(tmp_path, name):
    model = make_model()
    train(model, [0])
    for refused in (tfs.save, tfs.restore, tfs.export):
        with pytest.raises(ValueError, match=r"must have no '\[' and no backslash"):
            refused(model, tmp_path / name)
    with pytest.raises(ValueError, match="no backslash"):
        tfs.callbacks.Checkpoint(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_two_processes_do_not_save_to_one_directory(tmp_path):
    model = make_model()
    train(model, [0])
    tfs.save(model, tmp_path)
    saved = sorted(tmp_path.rglob("*"))
    with another_process_in(tmp_path):
        with pytest.raises(RuntimeError, match="Another process is saving to"):
            tfs.save(model, tmp_path)
    assert sorted(tmp_path.rglob("*")) == saved
    train(model, [1])
    tfs.save(model, tmp_path)
    assert tfs.restore(model, tmp_path) == 2
