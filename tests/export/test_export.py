"""`tfs.export` on one process, and what a process with plain TensorFlow makes of it."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.export import models
from tests.memory import MB, added
from tfsparse.embedding.protocol import tables_of
from tfsparse.export import streaming
from tfsparse.keras_layers import DynamicEmbedding

keras = tf.keras
CLI = Path(sys.executable).with_name("saved_model_cli")

LARGE_ROWS = 200_000


def rows_like(ids, dim):
    """Rows that tell their ids: exact in float32 below 2**24."""
    return (np.asarray(ids)[:, None] % 2**24 + np.arange(dim)).astype(np.float32)


class Subclassed(keras.Model):
    """Its inputs are known from its first call; it has layers in lists, and Python control flow."""

    def __init__(self, inner):
        super().__init__()
        self.inner = {"scores": [inner]}
        self.embedding = DynamicEmbedding(2, combiner="sum", name="own", default=1.0)

    def call(self, inputs, scale=None, training=None):
        pooled = self.embedding(inputs["ids"], training=training)
        if tf.reduce_sum(scale) > 10.0:  # a graph has to decide this anew in each call
            pooled = -pooled
        return {"out": pooled * scale[:, None], "inner": self.inner["scores"][0](inputs["ids"])}


def lookups(folder):
    """A model with every stock lookup layer in front of embeddings."""
    vocabulary = folder / "vocabulary.txt"
    vocabulary.write_text("red\ngreen\nblue\n")
    layers = keras.layers
    word = keras.Input((1,), dtype=tf.string, name="word")
    number = keras.Input((1,), dtype=tf.int64, name="number")
    age = keras.Input((1,), name="age")
    listed = layers.StringLookup(vocabulary=["red", "blue"])
    filed = layers.StringLookup(vocabulary=str(vocabulary))
    integers = layers.IntegerLookup(vocabulary=[5, 6])
    ages = np.array([[1.0], [2.0], [3.0], [40.0]])
    normal, bins = layers.Normalization(), layers.Discretization(num_bins=3)
    normal.adapt(ages), bins.adapt(ages)
    text = layers.TextVectorization(output_sequence_length=2)
    text.adapt(["red green", "blue"])
    table = tfs.Table("shared", 2)
    ids = [listed(word), filed(word), integers(number), layers.Hashing(7)(word), bins(age)]
    parts = [DynamicEmbedding(table, combiner="sum")(part) for part in [*ids, text(word)]]
    return keras.Model([word, number, age], layers.Concatenate()([*parts, normal(age)]))


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Exports every model, serves all in one process: name -> inputs, predictions, results."""
    folder = tmp_path_factory.mktemp("exports")
    jobs, predicted = {}, {}

    def add(name, model, calls, feeds, predict=None):
        predict = predict or (lambda call: model.predict(call, verbose=0))
        path = tfs.export(model, folder / name, version=1)
        jobs[name] = {"path": path, "calls": feeds}
        predicted[name] = [predict(call) for call in calls]

    many = models.many_inputs()
    models.train(many, steps=3)
    calls = [models.batch(6, 40, 7), models.batch(1, 20, 8), models.batch(2, 20, 9)]
    nothing = {name: value[:0] for name, value in models.batch(2, 3, 1).items() if name != "words"}
    nothing["words"] = tf.SparseTensor(np.zeros([0, 2], np.int64), tf.zeros([0], tf.string), [0, 5])
    feeds = [models.fed(call) for call in [*calls, nothing]]
    # predict() cannot take sparse and ragged tensors together with others in one dict.
    direct = lambda call: [part.numpy() for part in many(call, training=False)]  # noqa: E731
    add("many", many, calls, feeds, direct)

    # One model of ids reads five tables; blocks are small, so that there are many.
    edges, same = (models.table_of_numbers("same", dim, default=0.5) for dim in (3, 1))
    none = tfs.Table("none", 2, default=0.25)
    large, strided = models.table_of_numbers("large", 16), models.table_of_numbers("strided", 1)
    reading = models.reads(edges, same, none, large, strided)
    models.fill(edges, models.EDGES, rows_like(range(len(models.EDGES)), 3))
    models.fill(same, [3], [[3.0]])
    for part in np.array_split(np.arange(LARGE_ROWS), 4):
        models.fill(large, part, rows_like(part, 16))
    models.fill(strided, np.arange(100_000) << 40, rows_like(np.arange(100_000), 1))
    some = np.random.default_rng(0).integers(-1000, LARGE_ROWS + 1000, 5000)
    feeds = [np.array([*models.EDGES, 2, 3]), some, np.arange(-10, 100_000) << 40]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "BLOCK_BYTES", 1 << 20)
        patch.setattr(streaming, "SLICE_BYTES", 1 << 20)
        add("reading", reading, [], [{"ids": ids} for ids in feeds])

    sequential = keras.Sequential([DynamicEmbedding(2, combiner="sum"), keras.layers.Dense(1)])
    call = np.array([[1, 2], [3, 4]])
    sequential.compile(run_eagerly=True)
    sequential.predict(call, verbose=0)
    add("sequential", sequential, [call], [{sequential.input_names[0]: call}])

    inner = keras.Sequential([keras.Input((2,), dtype=tf.int64), DynamicEmbedding(1)])
    subclassed = Subclassed(inner)
    call = [(np.array([[1, 2], [3, 4]]), np.array([1.0, scale], np.float32)) for scale in (2, 20)]
    predict = lambda c: subclassed({"ids": c[0]}, scale=tf.constant(c[1]))  # noqa: E731
    predict(call[0])
    feeds = [{"ids": ids, "scale": scale} for ids, scale in call]
    add(
        "subclassed", subclassed, call, feeds, lambda c: tf.nest.map_structure(np.array, predict(c))
    )

    looking = lookups(folder)
    looking.compile(tfs.DistributedOptimizer(keras.optimizers.SGD(1.0)), "mse", run_eagerly=True)
    call = [tf.constant([["red"], ["blue"]]), tf.constant([[5], [9]], tf.int64), tf.ones([2, 1])]
    looking.train_on_batch(call, np.ones([2, 13]))
    named = dict(zip(["word", "number", "age"], [part.numpy() for part in call]))
    add("lookups", looking, [call], [named])

    served = models.serve(folder, jobs)
    return {name: {**jobs[name], **served[name], "predicted": predicted[name]} for name in jobs}


def outputs_of(export):
    """The outputs of all calls, by the Python loader and by a session, which have to agree."""
    for by_python, by_session in zip(export["outputs"], export["session_outputs"]):
        assert set(by_python) == set(by_session)
        for name in by_python:
            np.testing.assert_array_equal(by_python[name], by_session[name])
    return export["outputs"]


@pytest.mark.parametrize("call", range(3))
def test_predictions_are_those_of_the_model(exports, call):
    served = outputs_of(exports["many"])[call]
    assert set(served) == {"score", "two"}
    for name, predicted in zip(["score", "two"], exports["many"]["predicted"][call]):
        np.testing.assert_allclose(served[name], predicted, atol=1e-6)


def test_a_batch_of_nothing_is_served(exports):
    served = outputs_of(exports["many"])[3]
    assert served["score"].shape == (0, 1) and served["two"].shape == (0, 2)


@pytest.mark.parametrize("name", ["sequential", "lookups"])
def test_other_models_agree(exports, name):
    (served,) = outputs_of(exports[name])
    (output,) = served.values()
    np.testing.assert_allclose(output, exports[name]["predicted"][0], atol=1e-6)


def test_subclassed_models_agree_and_decide_in_the_graph(exports):
    for served, predicted in zip(
        outputs_of(exports["subclassed"]), exports["subclassed"]["predicted"]
    ):
        assert set(served) == set(predicted) == {"out", "inner"}
        for name in served:
            np.testing.assert_allclose(served[name], predicted[name], atol=1e-6)


def test_no_id_is_lost(exports):
    count = len(models.EDGES)
    served = outputs_of(exports["reading"])[0]["row_0"]
    np.testing.assert_array_equal(served[:count], rows_like(range(count), 3))
    np.testing.assert_array_equal(served[count:], np.full([2, 3], 0.5))


def test_ids_without_a_row_read_the_default(exports):
    served = outputs_of(exports["reading"])[0]["row_1"]
    np.testing.assert_array_equal(served[:-1], np.full([len(models.EDGES) + 1, 1], 0.5))


def test_tables_of_one_name_stay_apart(exports):
    served = outputs_of(exports["reading"])[0]
    assert served["row_1"][-1] == 3.0 and served["row_0"][-1][0] == 0.5


def test_an_empty_table_reads_the_default(exports):
    served = outputs_of(exports["reading"])[1]["row_2"]
    np.testing.assert_array_equal(served, np.full([5000, 2], 0.25))


def test_rows_are_in_the_checkpoint_and_not_in_the_graph(exports):
    assert exports["reading"]["pb_bytes"] < 5e6
    ids = exports["reading"]["calls"][1]["ids"]
    expected = np.where((0 <= ids) & (ids < LARGE_ROWS), 1.0, 0.0)[:, None] * rows_like(ids, 16)
    np.testing.assert_array_equal(outputs_of(exports["reading"])[1]["row_3"], expected)
    files = os.listdir(os.path.join(exports["reading"]["path"], "variables"))
    assert len(files) > 10  # or the blocks were not small


def test_ids_that_differ_in_high_bits_only_load_in_seconds(exports):
    served = outputs_of(exports["reading"])[2]["row_4"][:, 0]
    np.testing.assert_array_equal(served, [0.0] * 10 + list(range(100_000)))
    assert exports["reading"]["seconds"] < 20


def test_one_process_serves_two_copies_and_two_versions(tmp_path):
    """Resources have names that a process shares; those of two loaded models must not meet."""
    paths = [tfs.export(small_model(rows=rows), tmp_path / "m", version=rows) for rows in (2, 3)]
    loaded = [tf.saved_model.load(path) for path in [paths[0], paths[0], paths[1]]]
    ids = tf.constant([1, 2], tf.int64)
    last = [float(model.signatures["serving_default"](ids=ids)["row_0"][1, 0]) for model in loaded]
    assert last == [0.0, 0.0, 2.0]


def test_graphs_hold_stock_ops_only(exports):
    assert {name: export["foreign_ops"] for name, export in exports.items()} == dict.fromkeys(
        exports, []
    )


def test_parameters_only(exports):
    """Keys and rows of five tables, the dense weights, TensorFlow's description, and no more."""
    names = exports["many"]["checkpoint"]
    weights = [name for name in names if name.startswith("used/")]
    assert len(weights) == 10  # three dense layers, four variables of the normalization
    assert len([name for name in names if name.startswith("tables/")]) == 2 * 5
    assert len(names) == 10 + 2 * 5 + 1


def test_the_version_is_a_folder_and_stands_alone_in_its_parent(exports, tmp_path):
    assert all(export["path"].endswith(f"{name}/1") for name, export in exports.items())
    assert os.listdir(os.path.dirname(exports["many"]["path"])) == ["1"]
    assert sorted(os.listdir(exports["many"]["path"])) == ["assets", "saved_model.pb", "variables"]


def test_tables_are_found_in_all_kinds_of_models(exports):
    tables = [tfs.Table(f"t{i}", 1) for i in range(4)]
    inner = keras.Sequential([keras.Input((1,), dtype=tf.int64), DynamicEmbedding(tables[0])])
    ids = keras.Input((1,), dtype=tf.int64)
    functional = keras.Model(ids, [inner(ids), DynamicEmbedding(tables[1])(ids)])

    class Outer(keras.Model):
        def __init__(self):
            super().__init__()
            self.parts = {"a": [functional]}
            self.more = (DynamicEmbedding(tables[2]),)

    assert set(tables_of(inner)) == set(tables[:1])
    assert set(tables_of(functional)) == set(tables[:2])
    assert set(tables_of(Outer())) == set(tables[:3])


def small_model(name="small", rows=3):
    table = models.table_of_numbers(name, 2)
    model = models.reads(table)
    models.fill(table, np.arange(rows), rows_like(np.arange(rows), 2))
    return model


def test_saved_model_cli_shows_and_runs(exports, tmp_path):
    run = [str(CLI), "run", "--dir", exports["many"]["path"], "--tag_set", "serve"]
    run += ["--signature_def", "serving_default", "--outdir", str(tmp_path)]
    feed = []
    for name, array in exports["many"]["calls"][0].items():
        np.save(tmp_path / f"{name}.npy", array.astype("S") if array.dtype == object else array)
        feed.append(f"{name}={tmp_path / name}.npy")
    show = [str(CLI), "show", "--all", "--dir", exports["many"]["path"]]
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    both = [
        subprocess.Popen(
            command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for command in (show, [*run, "--inputs", ";".join(feed)])
    ]
    shown, ran = (process.communicate(timeout=100)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0], shown[-2000:] + ran[-2000:]
    served = re.search(r"signature_def\['serving_default'\].*?Method name", shown, re.DOTALL)[0]
    inputs = set(re.findall(r"inputs\['(\w+)'\]", served))
    assert {"history", "history_row_splits", "sessions_row_splits_1", "words_indices"} <= inputs
    np.testing.assert_allclose(
        np.load(tmp_path / "score.npy"), exports["many"]["predicted"][0][0], atol=1e-6
    )


def test_memory_is_bounded(tmp_path):
    """300 MB of rows are exported in less than half of that."""
    dim, rows = 64, 1_200_000
    table = models.table_of_numbers("heavy", dim)
    model = models.reads(table)
    for part in np.array_split(np.arange(rows), 12):
        models.fill(table, part, rows_like(part, dim))
    with added() as grown:
        path = tfs.export(model, tmp_path / "heavy")
        assert grown() < 150 * MB, f"grew by {grown() / MB:.0f} MB"
    written = sum(file.stat().st_size for file in Path(path, "variables").iterdir()) / 1e6
    assert written > 300


def test_an_existing_directory_is_refused_and_left_alone(tmp_path):
    target = tmp_path / "taken"
    target.mkdir()
    with pytest.raises(FileExistsError, match="taken"):
        tfs.export(small_model(), target)
    assert list(tmp_path.iterdir()) == [target] and list(target.iterdir()) == []


def test_a_disk_that_is_full_is_told_and_nothing_is_left(tmp_path):
    """A limit on the size of files takes the place of the disk's."""
    model = small_model(rows=3000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
    try:
        with pytest.raises(Exception, match="File too large|ResourceExhausted|too large"):
            tfs.export(model, tmp_path / "new" / "model", version=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    tfs.export(model, tmp_path / "new" / "model", version=1)


KILLED = """
import os, signal, sys
os.rename = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
import tfsparse as tfs
from tests.export.test_export import small_model
tfs.export(small_model(), sys.argv[1])
"""


def test_a_process_killed_at_the_last_moment_leaves_no_target(tmp_path):
    target = tmp_path / "model"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(target)],
        cwd=Path(__file__).resolve().parents[2],
        timeout=100,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -9, done.stderr[-3000:]
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".model.tmp-") and (left / "saved_model.pb").exists()
    tfs.export(small_model(), target)  # what was left is in nobody's way
    assert target.is_dir()


class Unbuilt(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding, self.never_called = DynamicEmbedding(2), DynamicEmbedding(2, name="never")

    def call(self, ids):
        return self.embedding(ids)


def test_errors_tell_what_to_do(tmp_path):
    model = Unbuilt()
    with pytest.raises(ValueError, match="Call it, or fit it"):
        tfs.export(model, tmp_path / "a")
    model(tf.constant([1]))
    with pytest.raises(ValueError, match=r"\['never'\].*never been called"):
        tfs.export(model, tmp_path / "a")
    with pytest.raises(TypeError, match="tf.keras.Model"):
        tfs.export(tf.Module(), tmp_path / "a")
    with pytest.raises(ValueError, match="version"):
        tfs.export(small_model(), tmp_path / "a", version=-1)
    with pytest.raises(ValueError, match="mounted"):
        tfs.export(small_model(), "gs://bucket/model")
    assert list(tmp_path.iterdir()) == []
