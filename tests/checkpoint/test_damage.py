"""A checkpoint that is not whole, or not of this model, is refused by name and changes nothing."""

import json
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.checkpoint.models import assert_same, make_model, state_of, tables_of, train
from tests.keras_layers.models import all_rows
from tfsparse.checkpoint import checking
from tfsparse.checkpoint import manifest as manifests
from tfsparse.checkpoint.manifest import CheckpointError
from tfsparse.keras_layers import DynamicEmbedding


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint of several files a table."""
    folder = tmp_path_factory.mktemp("saved")
    model = make_model()
    train(model, range(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfsparse.checkpoint.table_files.FILE_ROWS", 100)
        tfs.save(model, folder)
    return folder


@pytest.fixture(scope="module")
def model():
    """Another state of the same model, which refused checkpoints must leave as it is."""
    model = make_model()
    train(model, range(10, 12))
    return model


@pytest.fixture
def copied(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "checkpoint")


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def assert_refused(model, folder, *words, **options):
    before = state_of(model)
    with pytest.raises(CheckpointError) as refusal:
        tfs.restore(model, folder, **options)
    for word in words:
        assert str(word) in str(refusal.value)
    assert_same(state_of(model), before)


def test_one_flipped_byte_anywhere_is_refused(model, copied):
    rng = random.Random(1)
    files = files_of(copied)
    assert len(files) > 5
    for path in files:
        whole = path.read_bytes()
        places = {0, 8, len(whole) // 2, len(whole) - 2, rng.randrange(len(whole))}
        for place in sorted(places):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged)
            assert_refused(model, copied, path)
        path.write_bytes(whole)
    tfs.restore(make_model(), copied)


def test_a_missing_or_truncated_file_is_refused(model, copied):
    for path in files_of(copied):
        whole = path.read_bytes()
        path.write_bytes(whole[:-2])
        assert_refused(model, copied, path)
        path.write_bytes(whole + b"\n" if path.name != manifests.NAME else b"")
        assert_refused(model, copied, path)
        path.unlink()
        assert_refused(model, copied, path if path.name != manifests.NAME else copied)
        path.write_bytes(whole)
    tfs.restore(make_model(), copied)


def test_a_foreign_file_is_refused(model, copied):
    (folder,) = copied.glob("data-*")
    (folder / "table-0-buckets-99999-99999.safetensors").write_bytes(b"")
    assert_refused(model, copied, "table-0-buckets-99999-99999.safetensors", folder)


def test_files_beside_the_checkpoint_are_nobodys_concern(copied):
    (copied / "notes.txt").write_text("mine")
    shutil.copytree(next(copied.glob("data-*")), copied / "data-000000000000")
    tfs.restore(make_model(), copied)


def change_manifest(folder, change):
    """Changes a manifest as a program would that means it."""
    content = json.loads((folder / manifests.NAME).read_text())
    change(content)
    content["sha256"] = manifests.digest(content)
    (folder / manifests.NAME).write_text(json.dumps(content))


def test_a_newer_version_is_refused(model, copied):
    change_manifest(copied, lambda content: content.update(version=2))
    assert_refused(model, copied, "version 2", "reads version 1", copied)


def test_files_of_a_table_must_be_all_of_its_buckets(model, copied):
    change_manifest(copied, lambda content: content["tables"][0]["files"].pop(1))
    assert_refused(model, copied, "table 'users'", "missing")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": "another"}', "\x00" * 50])
def test_what_is_no_manifest_is_refused(model, tmp_path, content):
    (tmp_path / manifests.NAME).write_text(content)
    assert_refused(model, tmp_path, tmp_path / manifests.NAME)


def test_what_is_no_checkpoint_is_refused(model, tmp_path):
    assert_refused(model, tmp_path, tmp_path, "not a checkpoint")
    assert_refused(model, tmp_path / "nowhere", "not a checkpoint")


def test_another_table_or_dim_is_refused(saved):
    other = make_model(dims=(8, 5))
    assert_refused(other, saved, "Table 'items'", "dim 4 -> 5")
    assert_refused(other, saved, "Table 'items'", "dim 4 -> 5", partial=True)
    ids = tf.keras.Input((), dtype=tf.int64)
    alone = tf.keras.Model(ids, DynamicEmbedding(8, name="users")(ids))
    renamed = tf.keras.Model(ids, DynamicEmbedding(8, name="visitors")(ids))
    for model, names in ((alone, "['users']"), (renamed, "['visitors']")):
        with pytest.raises(CheckpointError) as refusal:
            tfs.restore(model, saved)
        for words in ("['users', 'items']", names, "partial=True"):
            assert words in str(refusal.value)
        assert model.layers[-1].table.size() == 0


@pytest.mark.parametrize(
    "options, words",
    [
        ({"seed": 1}, "seed 0 -> 1"),
        ({"default": 1.0}, "default 0.0 -> 1.0"),
        ({"initializer": "zeros"}, "initializer"),
        ({"table_optimizer": tfs.optimizers.Adagrad(0.1)}, "optimizer adam(1 - beta_1=0.1"),
    ],
)
def test_another_configuration_is_refused_unless_partial(saved, options, words):
    other = make_model(**options)
    assert_refused(other, saved, "Table 'users'", words, "partial=True")
    tfs.restore(other, saved, partial=True)
    same = make_model()
    tfs.restore(same, saved)
    for name, table in tables_of(other).items():
        wanted = all_rows(tables_of(same)[name])
        got = all_rows(table)
        assert sorted(got) == sorted(wanted)
        for key, row in got.items():
            np.testing.assert_array_equal(row[: table.dim], wanted[key][: table.dim])


def test_another_optimizer_is_refused_unless_partial(saved):
    other = make_model("Adagrad")
    assert_refused(other, saved, "adam(", "adagrad(")
    assert tfs.restore(other, saved, partial=True) == 3
    assert int(other.optimizer.iterations) == 0
    same = make_model()
    tfs.restore(same, saved)
    for key, row in all_rows(tables_of(other)["users"]).items():
        wanted = all_rows(tables_of(same)["users"])[key]
        np.testing.assert_array_equal(row[:8], wanted[:8])
        np.testing.assert_allclose(row[8:], 0.1)  # Adagrad's first accumulator
    train(other, range(3, 5))


def test_a_refusal_that_comes_late_puts_everything_back(saved):
    inner = make_model(optimizer=None)
    # The same weights, at another place of the model: TensorFlow finds that out while it reads.
    tail = tf.keras.Sequential([tf.keras.layers.Dense(6, "relu"), tf.keras.layers.Dense(1)])
    other = tf.keras.Model(inner.inputs, tail(inner.layers[-2].input))
    other.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adam(0.25)), "mse")
    weights = [weight.numpy() for weight in tail.weights]
    with pytest.raises(CheckpointError, match="of another model"):
        tfs.restore(other, saved)
    assert float(other.optimizer.learning_rate) == 0.25
    assert int(other.optimizer.iterations) == 0
    for weight, before in zip(tail.weights, weights):
        np.testing.assert_array_equal(weight, before)


def test_other_dense_weights_are_refused(saved):
    inner = make_model(optimizer=None)
    other = tf.keras.Model(inner.inputs, tf.keras.layers.Dense(3)(inner.output))
    assert_refused(other, saved, "of another model", "['float32[1, 3]', 'float32[3]']")


def test_more_weights_than_the_model_has_are_refused(saved, tmp_path):
    inner = make_model(optimizer=None)
    frozen = tf.keras.layers.Dense(2, trainable=False, name="more")(inner.output)
    tfs.save(tf.keras.Model(inner.inputs, frozen), tmp_path)
    assert_refused(inner, tmp_path, "['float32[1, 2]', 'float32[2]']")
    tfs.restore(inner, tmp_path, partial=True)


@pytest.fixture
def warnings_logged(monkeypatch):
    """The texts of warnings of restores, as they come."""
    texts = []

    def warning(text, *_):
        if "Restored" in text:
            texts.append(text)

    monkeypatch.setattr(tf.get_logger(), "warning", warning)
    return texts


def test_partial_restores_the_tables_that_both_have(saved, warnings_logged):
    ids = tf.keras.Input((), dtype=tf.int64)
    parts = [DynamicEmbedding(8, name="users")(ids), DynamicEmbedding(2, name="new")(ids)]
    model = tf.keras.Model(ids, tf.keras.layers.Concatenate()(parts))
    model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
    model.fit(np.arange(4), np.zeros((4, 10)), verbose=0)
    tfs.restore(model, saved, partial=True)
    same = make_model()
    tfs.restore(same, saved)
    assert model.get_layer("users").table.size() == tables_of(same)["users"].size()
    assert model.get_layer("new").table.size() == 4
    (told,) = warnings_logged
    for words in (
        "table 'new' is not in it and stays as it is",
        "no tables ['items']",
        "no weights ['float32[12, 6]',",
        "its optimizer is Adam of ",
    ):
        assert words in told, told


def test_partial_tells_of_slots_that_begin_anew(saved, warnings_logged):
    tfs.restore(make_model("Adagrad"), saved, partial=True)
    (told,) = warnings_logged
    assert "table 'users' has optimizer adagrad(" in told
    assert "the slots of 'users' are those of new rows" in told


def test_partial_is_silent_where_nothing_is_left_out(saved, warnings_logged):
    tfs.restore(make_model(), saved, partial=True)
    assert not warnings_logged


@pytest.mark.parametrize("generation", [tf.keras.optimizers, tf.keras.optimizers.legacy])
def test_a_fixed_rate_becomes_a_schedule_by_partial(tmp_path, generation, warnings_logged):
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.01, 100, 0.5)

    def model_of(rate):
        model = make_model(optimizer=None)
        model.compile(tfs.DistributedOptimizer(generation.Adam(rate)), "mse")
        return model

    for then, now in ((0.01, schedule), (schedule, 0.01)):
        trained, other = model_of(then), model_of(now)
        train(trained, range(3))
        tfs.save(trained, tmp_path)
        assert tfs.restore(other, tmp_path, partial=True) == 3
        for variable, wanted in zip(slots_of(other), slots_of(trained)):
            np.testing.assert_array_equal(variable, wanted)
    assert not warnings_logged


def slots_of(model):
    """What the optimizer has of dense weights."""
    variables = model.optimizer.variables
    variables = variables() if callable(variables) else variables
    assert len(variables) > 8
    return [variable for variable in variables if variable.shape.rank > 0]


def test_a_checkpoint_that_is_replaced_while_it_is_read_says_so(copied, monkeypatch):
    writer, reader = make_model(), make_model()
    train(writer, range(5))
    require_files = checking.require_files

    def replaced_behind(path, content):
        require_files(path, content)
        tfs.save(writer, path)

    monkeypatch.setattr(checking, "require_files", replaced_behind)
    with pytest.raises(CheckpointError, match="has replaced .* Read it again"):
        tfs.restore(reader, copied)
    assert tables_of(reader)["users"].size() == 0
    monkeypatch.undo()
    assert tfs.restore(reader, copied) == 5


def test_a_model_that_was_never_called_is_refused_with_advice(saved, tmp_path):
    unbuilt = tf.keras.Sequential([DynamicEmbedding(2, name="unbuilt")])
    for call in (tfs.save, tfs.restore):
        with pytest.raises(ValueError, match="'unbuilt'.*never been called"):
            call(unbuilt, saved if call is tfs.restore else tmp_path / "new")
    assert not (tmp_path / "new").exists()
    for call in (tfs.save, tfs.restore):
        with pytest.raises(TypeError, match="tf.keras.Model"):
            call("model", tmp_path)
        with pytest.raises(ValueError, match="mounted"):
            call(make_model(), "gs://bucket/model")
