"""tfs.load_rows: pretrained vectors from every kind of file, and what is refused."""

import zipfile

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file

import tfsparse as tfs
from tests.checkpoint.models import make_model, tables_of, train
from tests.keras_layers.models import all_rows, linear_model, rows_of, samples, table_of
from tfsparse.checkpoint import placing
from tfsparse.keras_layers import DynamicEmbedding

DIM = 4


def make_table(**options):
    layer = DynamicEmbedding(DIM, name="words", **options)
    layer(tf.constant([[1]]))
    return layer.table


def vectors_of(n, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.choice(10 * n, n, replace=False) - n
    return ids, rng.normal(size=(n, DIM)).astype(np.float32)


def write(form, ids, vectors, folder):
    """Writes ids and vectors in some form; returns what load_rows takes."""
    path = str(folder / f"some vectors-100%.{form}")
    if form == "arrays":
        return ids, vectors
    if form == "lists":
        return ids.tolist(), vectors
    if form == "npy":
        np.save(folder / "ids.npy", ids)
        np.save(path, vectors)
        return folder / "ids.npy", path
    if form == "npz":
        np.savez(path, ids=ids, vectors=vectors)
    if form == "compressed.npz":
        np.savez_compressed(path, vectors, ids)
    if form == "three.npz":
        np.savez(path, keys=ids, parameter=vectors, other=vectors)
    if form == "safetensors":
        save_file({"ids": ids, "vectors": vectors}, path)
    return path


FORMS = "arrays lists npy npz compressed.npz three.npz safetensors".split()


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_loaded(form, tmp_path, monkeypatch):
    monkeypatch.setattr(placing, "BLOCK_BYTES", 1000)
    ids, vectors = vectors_of(300)
    table = make_table()
    assert tfs.load_rows(table, write(form, ids, vectors, tmp_path)) == 300
    assert table.size() == 300
    np.testing.assert_array_equal(table.lookup(ids), vectors)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("form", ["npy", "safetensors"])
def test_other_floats_are_rounded(form, dtype, tmp_path):
    ids, vectors = vectors_of(30)
    table = make_table()
    source = write(form, ids.astype(np.int32), vectors.astype(dtype), tmp_path)
    tfs.load_rows(table, source)
    np.testing.assert_array_equal(table.lookup(ids), vectors.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("form", ["arrays", "lists", "npy", "npz"])
def test_strings_are_ids(form, tmp_path):
    words = np.array(["a", "naïve", "b" * 50, ""])
    vectors = vectors_of(4)[1]
    layer = DynamicEmbedding(DIM)
    layer(tf.constant([["a"]]))
    tfs.load_rows(layer.table, write(form, words, vectors, tmp_path))
    np.testing.assert_array_equal(layer(tf.constant(words)), vectors)


def test_a_table_that_no_layer_uses_yet_can_be_loaded():
    table = tfs.Table("words", DIM)
    tfs.load_rows(table, vectors_of(5))
    layer = DynamicEmbedding(table)
    np.testing.assert_array_equal(layer(vectors_of(5)[0]), vectors_of(5)[1])


def test_a_file_of_a_checkpoint_is_loaded(tmp_path):
    model = make_model()
    train(model, range(2))
    tfs.save(model, tmp_path)
    wanted = all_rows(tables_of(model)["items"])
    table = make_table()
    for file in tmp_path.glob("data-*/table-1-*.safetensors"):
        tfs.load_rows(table, file)
    got = all_rows(table)
    assert sorted(got) == sorted(wanted)
    for key, row in got.items():
        np.testing.assert_array_equal(row, wanted[key][:DIM])


def test_rows_that_were_there_take_the_vector_and_lose_their_slots():
    model = make_model("Adagrad")
    train(model, range(2))
    table = tables_of(model)["items"]
    before = all_rows(table)
    known = sorted(before)[:3]
    vectors = vectors_of(4)[1]
    assert tfs.load_rows(table, ([*known, -5], vectors)) == 4
    after = all_rows(table)
    assert sorted(after) == sorted([*before, -5])
    for key, row in after.items():
        if key in (*known, -5):
            vector = vectors[[*known, -5].index(key)]
            np.testing.assert_array_equal(row, np.append(vector, np.full(4, 0.1, np.float32)))
        else:
            np.testing.assert_array_equal(row, before[key])
    train(model, range(2))


def test_training_goes_on_from_the_vectors():
    model = linear_model(tf.keras.optimizers.SGD(0.5), dim=DIM)
    model(tf.constant([7]))
    vectors = vectors_of(2)[1]
    tfs.load_rows(table_of(model), ([7, 8], vectors))
    model.fit(samples([7, 9], [[1, 2, 3, 4]] * 2), verbose=0)
    step = np.array([0.5, 1, 1.5, 2], np.float32)
    np.testing.assert_array_equal(rows_of(model, [7, 8, 9]), [vectors[0] - step, vectors[1], -step])


def test_an_id_that_comes_again_with_the_same_vector_is_loaded_once(monkeypatch):
    monkeypatch.setattr(placing, "BLOCK_BYTES", 100)
    ids, vectors = vectors_of(30)
    table = make_table()
    twice = np.concatenate([ids, ids[::3], ids[:1]])
    tfs.load_rows(table, (twice, np.concatenate([vectors, vectors[::3], vectors[:1]])))
    assert table.size() == 30
    np.testing.assert_array_equal(table.lookup(ids), vectors)


def test_nothing_at_all_can_be_loaded(tmp_path):
    table = make_table()
    empty = np.empty([0, DIM], np.float32)
    for form in ("arrays", "npz", "safetensors"):
        assert tfs.load_rows(table, write(form, np.empty(0, np.int64), empty, tmp_path)) == 0
    assert table.size() == 0


def with_nan(vectors):
    vectors = vectors.copy()
    vectors[17, 2] = np.nan
    return vectors


def odd(case, folder):
    """An input that is refused."""
    ids, vectors = vectors_of(30)
    path = folder / "x"
    if case == "dim":
        return ids, vectors[:, :3]
    if case == "fewer ids":
        return ids[:-1], vectors
    if case == "flat vectors":
        return ids, vectors[:, 0]
    if case == "float ids":
        return ids.astype(float), vectors
    if case == "uint64 ids":
        return ids.astype(np.uint64), vectors
    if case == "objects":
        return np.array([1, "a"], object), vectors
    if case == "integer vectors":
        return ids, vectors.astype(int)
    if case == "two vectors":
        return np.append(ids, ids[7]), np.append(vectors, vectors[:1], axis=0)
    if case == "nan":
        return ids, with_nan(vectors)
    if case == "number":
        return 7
    if case == "three":
        return ids, vectors, vectors
    if case == "text":
        path.write_text("1 0.5 0.5")
        return path
    if case == "npz of text":
        path = path.with_suffix(".npz")
        path.write_text("1 0.5 0.5")
        return path
    if case == "safetensors of text":
        path = path.with_suffix(".safetensors")
        path.write_text("1 0.5 0.5")
        return path
    if case == "truncated npy":
        write("npy", ids, vectors, folder)
        file = next(folder.glob("*%.npy"))
        file.write_bytes(file.read_bytes()[:-10])
        return folder / "ids.npy", file
    if case == "truncated npz":
        file = folder / "some vectors-100%.npz"
        write("npz", ids, vectors, folder)
        file.write_bytes(file.read_bytes()[:-10])
        return file
    if case == "flipped npz":
        file = folder / "some vectors-100%.npz"
        write("npz", ids, vectors, folder)
        content = bytearray(file.read_bytes())
        content[content.index(vectors.tobytes())] ^= 1
        file.write_bytes(content)
        return file
    if case == "npz for npy":
        return write("npz", ids, vectors, folder), vectors
    if case == "npz of other things":
        with zipfile.ZipFile(folder / "x.npz", "w") as archive:
            archive.writestr("readme.txt", "hello")
        return folder / "x.npz"
    if case == "mask":
        return np.ma.masked_equal(ids, ids[3]), vectors
    if case == "dict":
        return {"ids": ids, "vectors": vectors}
    assert case == "three arrays"
    np.savez(folder / "x.npz", a=ids, b=vectors, c=vectors)
    return folder / "x.npz"


REFUSED = {
    "dim": (ValueError, r"vectors of 4 floats, so 30 ids .*shape \(30, 4\). Received: \(30, 3\)"),
    "fewer ids": (ValueError, r"29 ids need vectors of shape \(29, 4\)"),
    "flat vectors": (ValueError, r"vectors \[n, dim\]. Received: vectors of shape \(30,\)"),
    "float ids": (TypeError, "Received: ids of type float64"),
    "uint64 ids": (TypeError, "integers that fit into int64.*ids of type uint64"),
    "objects": (TypeError, "Received: ids of type object"),
    "integer vectors": (TypeError, "vectors of type int64"),
    "two vectors": (ValueError, r"key -?\d+ comes with two rows that differ"),
    "nan": (ValueError, r"the row of key -?\d+, and 0 others of its block, .*not finite"),
    "number": (ValueError, "a pair .*Received: int"),
    "three": (ValueError, "a pair .*Received: tuple"),
    "text": (ValueError, "a .npz or .safetensors file, or a pair"),
    "npz of text": (ValueError, "x.npz' is not a whole .npz file"),
    "safetensors of text": (ValueError, "x.safetensors' is not a safetensors file"),
    "truncated npy": (ValueError, "100%.npy' is not a whole .npy file"),
    "truncated npz": (ValueError, "is not a whole .npz file"),
    "flipped npz": (ValueError, "100%.npz' is not a whole .npz file: Bad CRC-32"),
    "npz for npy": (ValueError, "100%.npz' is not a whole .npy file"),
    "npz of other things": (ValueError, "x.npz' is not a whole .npz file"),
    "mask": (TypeError, "have no mask"),
    "dict": (ValueError, "a pair .*Received: dict"),
    "three arrays": (ValueError, r"two arrays, .*Received: a \(30,\), b \(30, 4\), c \(30, 4\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_changes_nothing(case, tmp_path, monkeypatch):
    monkeypatch.setattr(placing, "BLOCK_BYTES", 100)
    table = make_table()
    tfs.load_rows(table, vectors_of(10, seed=1))
    before = all_rows(table)
    error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        tfs.load_rows(table, odd(case, tmp_path))
    after = all_rows(table)
    assert sorted(after) == sorted(before)
    assert all(np.array_equal(after[key], before[key]) for key in before)


def test_strings_as_pandas_has_them_are_ids():
    table, other = make_table(), make_table()
    words, (_, vectors) = ["rot", "grün", "blau"], vectors_of(3)
    tfs.load_rows(table, (np.array(words, object), vectors))
    tfs.load_rows(other, (tf.constant(words), vectors))
    for loaded in (table, other):
        np.testing.assert_array_equal(loaded.lookup(words), vectors)


@pytest.mark.parametrize("table", ["words", DynamicEmbedding(DIM)])
def test_something_that_is_no_table_is_refused(table):
    with pytest.raises(TypeError, match="`table` must be a `tfs.Table`, or `layer.table`"):
        tfs.load_rows(table, vectors_of(5))


def test_a_file_that_is_missing_is_named(tmp_path):
    for name in ("x.npz", "x.safetensors"):
        with pytest.raises(FileNotFoundError, match=name):
            tfs.load_rows(make_table(), tmp_path / name)
