"""`tfsparse inspect`, `reshard` and `diff` on what tfs.save wrote."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file
from tfsparse_cli.main import main

import tfsparse as tfs
from tests.checkpoint.models import assert_same, make_model, state_of, tables_of, train
from tests.hash_order import hash_of, owner_of
from tfsparse import ops, runtime
from tfsparse.checkpoint import checking, comparing, inspecting, manifest
from tfsparse.checkpoint.inspecting import open_checkpoint
from tfsparse.checkpoint.manifest import CheckpointError
from tfsparse.checkpoint.resharding import reshard
from tfsparse.checkpoint.row_file import RowFile
from tfsparse.keras_layers import DynamicEmbedding

COMMAND = str(Path(sys.executable).with_name("tfsparse"))
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "checkpoint-v1" / "checkpoint"


def tfsparse(*arguments):
    """Runs the installed command; returns its exit status, what it prints, and its errors."""
    done = subprocess.run(
        [COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def call(monkeypatch, capsys):
    """A function that runs a command in this process; returns its exit status and both outputs."""
    monkeypatch.setattr(os, "environ", dict(os.environ))  # which commands change

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tfsparse", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return (ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Checkpoints of one model after three steps and after five, of many files a table."""
    folder = tmp_path_factory.mktemp("saved")
    model = make_model(every_rule=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfsparse.checkpoint.table_files.FILE_ROWS", 60)
        for name, steps in (("three", range(3)), ("five", range(3, 5))):
            train(model, steps)
            tfs.save(model, folder / name)
    return folder


@pytest.fixture(scope="module")
def trained(saved):
    """A model in the state after three steps."""
    model = make_model(every_rule=True)
    tfs.restore(model, saved / "three")
    return model


@pytest.fixture
def copied(saved, tmp_path):
    return shutil.copytree(saved / "three", tmp_path / "copied")


def table_files(folder, number=0):
    return sorted(folder.glob(f"data-*/table-{number}-*"))


def flip(path, place):
    whole = bytearray(path.read_bytes())
    whole[place] ^= 1
    path.write_bytes(whole)


def rewrite(folder, change):
    """Changes the tensors of the first file of a checkpoint, and its checksums with them."""
    content = json.loads((folder / manifest.NAME).read_text())
    of_table = content["tables"][0]
    described = of_table["files"][0]
    path = folder / described["file"]
    tensors = load_file(path)
    change(tensors)
    file = RowFile(of_table["name"], described["buckets"], described["rows"], of_table["columns"])
    with open(path, "r+b") as opened:
        for name, offset in file.offsets.items():
            opened.seek(offset)
            opened.write(tensors[name].tobytes())
    for part, place in file.parts.items():
        described["crc32c"][part] = int(ops.checksum(str(path), *place))
    manifest.write(content, folder)
    return path


def faults(folder):
    return checking.faults(*open_checkpoint(folder))


# inspect


def test_the_command_tells_what_is_in_a_checkpoint(saved, trained):
    status, told, errors = tfsparse("inspect", saved / "three", "--verify")
    assert (status, errors) == (0, "")
    for expected in (
        rf"^checkpoint +{re.escape(str(saved / 'three'))}$",
        rf"^format +version 1, written by tfsparse {tfs.__version__}, TensorFlow {tf.__version__}$",
        r"^saved +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d",
        r"^step +3$",
        r"^ranks +1$",
        r"^optimizer +Adam of int64\[\], ",
        r"^weights +7, with 106 values in all$",  # 15 * 6 + 6 + 6 + 1, and an anchor a table
        r"^size +[\d.]+ KiB in \d+ files$",
        r"^verified +every byte is as it was written$",
        r"^table +'users', dim 8$",
        r"^  optimizer +adam\(1 - beta_1=0.1, 1 - beta_2=0.001, epsilon=1e-07\)$",
        r"^  optimizer +adagrad\(initial_accumulator_value=0.1, epsilon=1e-07\)$",
        r"^  optimizer +sgd\(\)$",
        r"^  initializer +Uniform\(minval=-0.05, maxval=0.05\), seed 0, default 0.0$",
        rf"^  rows +{tables_of(trained)['users'].size()}, ",
        r"^  updates +1 ",
    ):
        assert re.search(expected, told, re.MULTILINE), (expected, told)


def test_statistics_are_those_of_the_rows(saved, trained):
    path, content = open_checkpoint(saved / "three")
    for of_table in content["tables"]:
        found = inspecting.column_statistics(path, of_table)
        rows = np.stack(list(state_of(trained)["rows"][of_table["name"]].values()))
        begin = 0
        for column, floats in of_table["columns"].items():
            values = rows[:, begin : begin + floats].astype(np.float64)
            begin += floats
            norm = np.linalg.norm(values, axis=1).mean()
            assert found[column].mean_norm == pytest.approx(norm, rel=1e-12)
            assert found[column][1:] == (values.min(), values.max(), 0)


def test_rows_with_nan_or_infinite_values_are_counted_and_no_fault(copied, call):
    def spoil(tensors):
        tensors["parameter"][0, 3] = np.nan
        tensors["parameter"][2, :] = np.inf
        tensors["m"][1, 1] = -np.inf

    rewrite(copied, spoil)
    path, content = open_checkpoint(copied)
    found = inspecting.column_statistics(path, content["tables"][0])
    assert [found[column].rows_not_finite for column in found] == [2, 1, 0, 0]
    assert all(np.isfinite(numbers).all() for numbers in found.values())
    status, told, _ = call("inspect", copied, "--verify")
    assert status == 0
    assert re.search(r"^  parameter .*  2 rows with NaN or infinite", told, re.MULTILINE)


def test_statistics_do_not_depend_on_blocks(saved, monkeypatch):
    path, content = open_checkpoint(saved / "three")
    whole = inspecting.column_statistics(path, content["tables"][0])
    monkeypatch.setattr("tfsparse.checkpoint.stored_table.BLOCK_BYTES", 7 * 8 * 4)
    blocks = inspecting.column_statistics(path, content["tables"][0])
    for column, found in whole.items():
        assert blocks[column].mean_norm == pytest.approx(found.mean_norm, rel=1e-12)
        assert blocks[column][1:] == found[1:]


def test_a_folder_of_steps_is_told_with_the_newest(saved, tmp_path, call):
    for step in (9, 10, 8):
        shutil.copytree(saved / "three", tmp_path / f"step-{step}")
    (tmp_path / "step-11").mkdir()  # a save that did not end
    for command in (["inspect"], ["diff", saved / "three"]):
        status, told, error = call(*command, tmp_path)
        assert (status, told) == (1 if command == ["inspect"] else 2, "")
        assert "the newest last: 8, 9, 10. " in error
        assert f"Use '{tmp_path / 'step-10'}'." in error


# --verify


def test_what_is_whole_has_no_faults(saved):
    assert faults(saved / "three") == []
    assert faults(GOLDEN) == []


def test_a_flipped_byte_of_any_file_is_found(copied):
    files = sorted(path for path in copied.glob("data-*/*"))
    assert len(files) > 10
    for path in files:
        whole = path.read_bytes()
        for place in (0, len(whole) // 2, len(whole) - 1):
            flip(path, place)
            (fault,) = faults(copied)
            assert str(path) in fault and "altered" in fault
            path.write_bytes(whole)
    assert faults(copied) == []


def test_every_fault_is_told_by_the_name_of_its_file(copied, call):
    first, second, third, *_ = table_files(copied)
    first.write_bytes(first.read_bytes()[:-4])
    second.unlink()
    flip(third, -1)
    (first.parent / "notes.txt").write_text("mine")
    status, told, errors = call("inspect", copied, "--verify")
    assert (status, errors) == (1, "")
    damaged = [line for line in told.splitlines() if line.startswith("damaged")]
    for path, word in (
        (first, "bytes and should have"),
        (second, "is missing"),
        (third, "altered after it was written (updates)"),
        (first.parent, "['notes.txt']"),
    ):
        assert any(f"'{path}'" in line and word in line for line in damaged), told
    assert len(damaged) == 4


@pytest.mark.parametrize(
    "change, told",
    [
        (lambda keys: keys[:2][::-1], "order of their hashes"),
        (lambda keys: keys[[0, 0]], "repeat"),
        (lambda keys: [1234567, 1234567], "other buckets"),
    ],
)
def test_keys_that_no_save_writes_are_found(copied, change, told):
    def spoil(tensors):
        tensors["keys"][:2] = change(tensors["keys"])

    assert hash_of(1234567) >> 48 > 30_000
    path = rewrite(copied, spoil)
    (fault,) = faults(copied)
    assert str(path) in fault and told in fault


def test_bucket_offsets_that_do_not_fit_the_keys_are_found(copied):
    def spoil(tensors):
        tensors["bucket_offsets"][1] += 1

    path = rewrite(copied, spoil)
    (fault,) = faults(copied)
    assert str(path) in fault and "offsets" in fault


@pytest.mark.parametrize("command", ["inspect", "reshard", "diff"])
def test_damage_is_one_line_and_a_status(saved, copied, tmp_path, call, command):
    arguments = {
        "inspect": [copied],
        "reshard": [copied, tmp_path / "new", "--ranks", "2"],
        "diff": [saved / "three", copied],
    }[command]
    path = table_files(copied)[1]
    path.write_bytes(path.read_bytes()[:100])
    for damaged in (path, copied / manifest.NAME):
        damaged.write_bytes(damaged.read_bytes()[:100])
        status, told, error = call(command, *arguments)
        assert (status, told) == (2 if command == "diff" else 1, "")
        assert error.startswith(f"tfsparse {command}: ") and str(damaged) in error
        assert error.count("\n") == 1
    assert not (tmp_path / "new").exists()


# reshard


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 200])
def test_a_resharded_checkpoint_is_restored_to_the_same_bits(
    saved, trained, tmp_path, monkeypatch, ranks
):
    monkeypatch.setattr("tfsparse.checkpoint.stored_table.BLOCK_BYTES", 1000)
    monkeypatch.setattr("tfsparse.checkpoint.table_files.FILE_ROWS", 50)
    content = reshard(saved / "three", tmp_path / "new", ranks)
    assert faults(tmp_path / "new") == []
    model = make_model(every_rule=True)
    assert tfs.restore(model, tmp_path / "new") == 3
    assert_same(state_of(model), state_of(trained))
    assert content["num_ranks"] == ranks
    for of_table in content["tables"]:
        assert {file["rank"] for file in of_table["files"]} == set(range(ranks))
        for file in of_table["files"]:
            keys = load_file(tmp_path / "new" / file["file"])["keys"]
            assert {owner_of(key, ranks) for key in keys} <= {file["rank"]}
            assert len(keys) <= 80


def test_files_are_those_of_a_save(saved, trained, tmp_path):
    tfs.save(trained, tmp_path / "saved")
    reshard(saved / "three", tmp_path / "three", 3)
    reshard(tmp_path / "three", tmp_path / "one", 1)
    for wanted in sorted((tmp_path / "saved").glob("data-*/table-*")):
        (got,) = (tmp_path / "one").glob(f"data-*/{wanted.name}")
        assert got.read_bytes() == wanted.read_bytes()


def test_a_model_trains_on_from_a_resharded_checkpoint(saved, tmp_path):
    reshard(saved / "three", tmp_path, 4)
    model = make_model(every_rule=True)
    tfs.restore(model, tmp_path)
    train(model, range(3, 5))
    after_five = make_model(every_rule=True)
    tfs.restore(after_five, saved / "five")
    assert_same(state_of(model), state_of(after_five))


def test_other_ranks_stand_at_the_same_place_in_the_data(copied, tmp_path):
    content = json.loads((copied / manifest.NAME).read_text())
    state = f"{content['folder']}/position-00000.index"
    (copied / state).write_bytes(b"state")
    crc = int(ops.checksum(str(copied / state), 0, 5))
    content["dense"].append({"file": state, "bytes": 5, "crc32c": crc})
    content["position"] = {"epoch": 1, "batch": 7, "taken": 19, "iterators": [True]}
    manifest.write(content, copied)
    same = reshard(copied, tmp_path / "same", 1)
    assert same["position"] == content["position"]
    assert len(same["dense"]) == len(content["dense"])
    other = reshard(copied, tmp_path / "other", 2)
    wanted = {"epoch": 1, "batch": 3, "taken": 9, "iterators": [False, False]}
    assert other["position"] == wanted
    assert len(other["dense"]) == len(content["dense"]) - 1
    assert faults(tmp_path / "same") == faults(tmp_path / "other") == []


def test_the_command_takes_odd_paths(saved, tmp_path):
    target = tmp_path / "-50% of\tit" / "deep"
    status, told, errors = tfsparse("reshard", saved / "three", target, "--ranks", 2)
    assert (status, errors) == (0, "")
    assert told.startswith(f"{target}: 2 ranks, 3 tables with ")
    status, told, _ = tfsparse("diff", saved / "three", target)
    assert status == 0 and " -> " not in told


def test_an_empty_table_is_resharded_inspected_and_compared(tmp_path, call):
    tfs.save(make_model(), tmp_path / "empty")
    reshard(tmp_path / "empty", tmp_path / "new", 3)
    assert call("diff", tmp_path / "empty", tmp_path / "new")[0] == 0
    status, told, _ = call("inspect", tmp_path / "new", "--verify")
    assert status == 0
    assert re.search(r"^  parameter +8( +-){3}$", told, re.MULTILINE), told
    model = make_model()
    train(model, range(1))
    tfs.restore(model, tmp_path / "new")
    assert all(table.size() == 0 for table in tables_of(model).values())


@pytest.mark.parametrize("ranks", [0, -1, 65537, 70000])
def test_more_ranks_than_buckets_and_fewer_than_one_are_refused(saved, tmp_path, ranks):
    with pytest.raises(ValueError, match=f"1 to 65536.*{ranks}"):
        reshard(saved / "three", tmp_path / "new", ranks)
    assert not (tmp_path / "new").exists()


def test_a_target_that_is_not_empty_is_refused_and_stays(saved, copied, tmp_path):
    (tmp_path / "file").write_text("mine")
    for target, words in (
        (tmp_path, "empty folder"),
        (tmp_path / "file", "empty folder"),
        (copied, "empty folder"),
        (next(copied.glob("data-*")) / "new", "in the checkpoint"),
    ):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(ValueError, match=words):
            reshard(copied, target, 2)
        assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "mine"


class FailsOnce:
    """A function of which call number `at` fails."""

    def __init__(self, works, at):
        self.works, self.left = works, at

    def __call__(self, *arguments):
        self.left -= 1
        if self.left == 0:
            raise OSError("no space is left")
        return self.works(*arguments)


@pytest.mark.parametrize("target", ["empty", "deep/new"])
def test_a_reshard_that_fails_anywhere_leaves_nothing(saved, tmp_path, monkeypatch, target):
    (tmp_path / "empty").mkdir()
    sync = runtime.sync  # called for each file and folder, the last times for the manifest
    for at in itertools.count(1):
        monkeypatch.setattr(runtime, "sync", FailsOnce(sync, at))
        with pytest.raises(OSError, match="no space is left"):
            reshard(saved / "three", tmp_path / target, 2)
        if (tmp_path / target / manifest.NAME).exists():
            break  # it was complete, and the last sync has failed
        assert list(tmp_path.rglob("*")) == [tmp_path / "empty"]
    assert at > 10
    assert faults(tmp_path / target) == []


# all


@pytest.mark.parametrize("command", ["inspect A", "diff A B"])
def test_who_reads_may_stop(saved, command):
    command = command.replace("A", str(saved / "three")).replace("B", str(saved / "five"))
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([COMMAND, *command.split()], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


# diff


def compare(a, b):
    both = [*open_checkpoint(a), *open_checkpoint(b)]
    return comparing.compare_tables(*both), comparing.compare_dense(*both)


def test_a_checkpoint_is_the_same_as_itself(saved, call):
    status, told, errors = call("diff", saved / "three", saved / "three")
    assert (status, errors) == (0, "")
    assert told.count("the same") == 4  # three tables and the weights


def test_another_step_of_training_differs_in_what_it_has_changed(saved, trained, monkeypatch):
    monkeypatch.setattr("tfsparse.checkpoint.comparing._BLOCK_ROWS", 10)
    after = make_model(every_rule=True)
    tfs.restore(after, saved / "five")
    rows_a, rows_b = (state_of(model)["rows"] for model in (trained, after))
    tables, dense = compare(saved / "three", saved / "five")
    for name, found in tables.items():
        keys = rows_a[name].keys() & rows_b[name].keys()
        assert found.settings == {}
        assert found.only_in_a == len(rows_a[name].keys() - keys) == 0
        assert found.only_in_b == len(rows_b[name].keys() - keys) > 0
        assert found.in_both == len(keys)
        differences = {key: abs(rows_a[name][key] - rows_b[name][key]) for key in keys}
        assert found.changed == sum(rows.any() for rows in differences.values()) > 0
        parameters = [rows[: tables_of(after)[name].dim].max() for rows in differences.values()]
        assert found.largest["parameter"] == pytest.approx(max(parameters), rel=1e-6)
    assert tables["users"].largest["updates"] > 0
    assert dense.largest["optimizer/_iterations"] == 2
    assert dense.shapes == {}
    backwards, _ = compare(saved / "five", saved / "three")
    assert backwards["users"].only_in_a == tables["users"].only_in_b


def test_the_command_tells_what_differs(saved):
    status, told, errors = tfsparse("diff", saved / "three", saved / "five")
    assert (status, errors) == (1, "")
    for expected in (
        r"^step +3 -> 5$",
        r"^table 'users'$",
        r"^  rows +0 only in A, \d+ only in B$",
        r"^ +\d+ in both, of which \d+ differ$",
        r"^  accumulator +differs by at most [\d.e-]+$",
        r"^dense variables: \d+ of \d+ in both differ$",
        r"^  model/layer-6/kernel differs by at most [\d.e-]+$",
    ):
        assert re.search(expected, told, re.MULTILINE), (expected, told)


def test_tables_and_optimizers_of_another_kind_are_told(saved, tmp_path, call):
    model = make_model(dims=(8, 5), seed=7)
    train(model, range(3))
    tfs.save(model, tmp_path)
    tables, dense = compare(saved / "three", tmp_path)
    assert list(tables) == ["users", "items"]
    assert tables["users"].settings == {"seed": (0, 7)}
    assert tables["users"].only_in_a == tables["users"].only_in_b == 0
    assert tables["items"].settings["dim"] == (4, 5)
    assert tables["items"].settings["optimizer"][0].startswith("adagrad(")
    assert tables["items"].largest == {}
    assert dense.shapes["model/layer-6/kernel"] == ("float32[15, 6]", "float32[6, 1]")
    assert dense.shapes["model/layer-4/anchor"] == ("float32[]", None)
    status, told, _ = call("diff", saved / "three", tmp_path)
    assert status == 1
    assert "tables          ['items', 'tags', 'users'] -> ['items', 'users']" in told


def test_common_columns_of_other_dims_are_compared(tmp_path):
    for dim in (2, 3):
        ids = tf.keras.Input((), dtype=tf.int64)
        model = tf.keras.Model(ids, DynamicEmbedding(dim, name="t")(ids))
        model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
        for _ in range(dim):
            model.train_on_batch(np.arange(4), np.ones((4, dim), np.float32))
        tfs.save(model, tmp_path / str(dim))
    tables, _ = compare(tmp_path / "2", tmp_path / "3")
    assert tables["t"].largest == {"updates": 1.0}
    assert (tables["t"].in_both, tables["t"].changed) == (4, 4)


def test_a_dense_variable_alone_differs(saved, trained, tmp_path, call):
    model = make_model(every_rule=True)
    tfs.restore(model, saved / "three")
    kernel = model.get_layer("score").kernel
    kernel.assign_add([[0.0], [-0.5], [0.25], [0.0], [0.0], [0.0]])
    tfs.save(model, tmp_path)
    tables, dense = compare(saved / "three", tmp_path)
    assert not any(tables.values())
    assert list(dense.largest) == ["model/layer-7/kernel"]
    assert dense.largest["model/layer-7/kernel"] == pytest.approx(0.5, abs=1e-6)
    assert call("diff", saved / "three", tmp_path)[0] == 1


def test_nan_equals_nan_and_differs_from_all_else(copied, tmp_path):
    def spoil(tensors):
        tensors["m"][:2, 0] = np.nan

    whole = shutil.copytree(copied, tmp_path / "whole")
    rewrite(copied, spoil)
    again = shutil.copytree(copied, tmp_path / "again")
    assert not compare(copied, again)[0]["users"]
    found = compare(whole, copied)[0]["users"]
    assert found.changed == 2
    assert np.isnan(found.largest["m"]) and found.largest["parameter"] == 0


def test_what_is_no_checkpoint_is_an_error(tmp_path, call):
    for command, status in (("inspect", 1), ("diff", 2)):
        arguments = [tmp_path] * (1 if command == "inspect" else 2)
        assert call(command, *arguments)[0] == status
    for path in (tmp_path / "nowhere", "gs://bucket/model"):
        with pytest.raises(ValueError):
            open_checkpoint(path)
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        open_checkpoint(tmp_path)
