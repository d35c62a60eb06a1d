"""Tables that TFRA saved become a checkpoint, whose rows go on as TFRA's would."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.checkpoint.make_tfra_dumps import CASES, DIMS, RATE, STEPS
from tests.checkpoint.tfra_dumps import GOLDEN, copy_of, drop_key, rename, spoil_value
from tests.keras_layers.models import OPTIMIZERS, all_rows, linear_loss
from tests.multi.launch import run_ranks
from tfsparse.checkpoint import inspecting, placing
from tfsparse.checkpoint.tfra import Training, import_dump
from tfsparse.keras_layers import DynamicEmbedding

ROOT = Path(__file__).resolve().parents[2]
TFRA_PYTHON = ROOT / ".venv-bench/tfra/bin/python"
COMMAND = Path(sys.executable).with_name("tfsparse")
SLOTS = {"Adam": ["m", "v"], "Adagrad": ["accumulator"], "SGD": []}
TRAINED = Training(iterations=STEPS)


def make_model(optimizer, names=tuple(DIMS)):
    """One table each, in the order of DIMS; the optimizer's name is as in CASES."""
    inputs = [tf.keras.Input((), dtype=tf.int64) for _ in DIMS]
    outputs = [
        DynamicEmbedding(dim, name=name)(ids)
        for ids, name, dim in zip(inputs, names, DIMS.values())
    ]
    model = tf.keras.Model(inputs, outputs)
    generation, _, rule = optimizer.rpartition(".")
    keras_optimizer = getattr(OPTIMIZERS[generation or "new"], rule)(RATE)
    model.compile(tfs.DistributedOptimizer(keras_optimizer), linear_loss)
    return model


def rows_in(model):
    readers = [layer for layer in model.layers if isinstance(layer, DynamicEmbedding)]
    return {layer.name: all_rows(layer.table) for layer in readers}


def what_tfra_had(folder, table, name):
    """An array of all ranks of a golden dump."""
    return np.concatenate([np.load(f)[f"{table}/{name}"] for f in sorted(folder.glob("*.npz"))])


def wanted_rows(folder, rule):
    wanted = {}
    for table in DIMS:
        columns = [what_tfra_had(folder, table, c) for c in ["parameter", *SLOTS[rule]]]
        if rule == "Adam":
            columns.append(np.full([len(columns[0]), 1], STEPS, np.float32))
        keys = what_tfra_had(folder, table, "keys").tolist()
        wanted[table] = dict(zip(keys, np.concatenate(columns, axis=1)))
    return wanted


def assert_same_rows(got, wanted, atol=0.0):
    assert got.keys() == wanted.keys()
    for table in wanted:
        assert sorted(got[table]) == sorted(wanted[table])
        for key, row in wanted[table].items():
            np.testing.assert_allclose(got[table][key], row, rtol=0, atol=atol)


def check_rows_and_next_step(folder, target, optimizer):
    """Restores `target` and compares it, and one step from it, with a dump and its arrays."""
    model = make_model(optimizer)
    assert tfs.restore(model, target, partial=True) is None
    rule = optimizer.rpartition(".")[2]
    assert_same_rows(rows_in(model), wanted_rows(folder, rule))

    num_ranks = len(list(folder.glob("*.npz")))  # each had a mean over samples of its own
    ids = [what_tfra_had(folder, table, "ids") for table in DIMS]
    gradients = [num_ranks * what_tfra_had(folder, table, "gradients") for table in DIMS]
    model.train_on_batch(ids, gradients)
    for table, dim in DIMS.items():
        keys = what_tfra_had(folder, table, "next_keys").tolist()
        wanted = dict(zip(keys, what_tfra_had(folder, table, "next")))
        before = what_tfra_had(folder, table, "parameter")
        assert np.abs(what_tfra_had(folder, table, "next") - before).max() > 1e-3
        got = {key: row[:dim] for key, row in rows_in(model)[table].items()}
        assert_same_rows({table: got}, {table: wanted}, atol=1e-6)


@pytest.mark.parametrize("generation", ["", "legacy."])
@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_of_tfra_and_go_on_as_there(case, generation, tmp_path, monkeypatch):
    monkeypatch.setattr(placing, "BLOCK_BYTES", 100)
    training = Training(iterations=STEPS, legacy=bool(generation))
    import_dump(copy_of(case, tmp_path), tmp_path / "out", training)
    rule = CASES[case][0].rpartition(".")[2]
    check_rows_and_next_step(GOLDEN / case, tmp_path / "out", generation + rule)


@pytest.mark.skipif(not TFRA_PYTHON.exists(), reason="make bench-tfra makes what this needs")
@pytest.mark.slow
def test_what_tfra_writes_now_is_imported(tmp_path):
    program = Path(__file__).with_name("make_tfra_dumps.py")
    subprocess.run([TFRA_PYTHON, program, tmp_path, "adam"], check=True, capture_output=True)
    import_dump(copy_of("adam", tmp_path, golden=tmp_path), tmp_path / "out", TRAINED)
    check_rows_and_next_step(tmp_path / "adam", tmp_path / "out", "Adam")


def test_the_command_says_what_it_made_and_how_to_use_it(tmp_path):
    dump = copy_of("legacy-adam", tmp_path)
    options = ["--table", "users-parameter=people", "--iterations", str(STEPS), "--beta-2", "0.99"]
    done = subprocess.run(
        [COMMAND, "import-tfra", dump, "out", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = len(what_tfra_had(GOLDEN / "legacy-adam", "users", "keys"))
    for told in (
        "table 'people'  of 'users-parameter'\n",
        f"rows          {rows} of dim 4\n",
        "optimizer     adam(1 - beta_1=0.1, 1 - beta_2=0.01, epsilon=1e-07)\n",
        "tfs.restore(model, 'out', partial=True)\n",
        "tf.keras.optimizers.Adam(beta_1=0.9, beta_2=0.99, epsilon=1e-07)",
    ):
        assert told in done.stdout
    _, content = inspecting.open_checkpoint(tmp_path / "out")
    assert [of_table["name"] for of_table in content["tables"]] == ["people"]


def test_the_command_says_what_is_wrong_in_a_line(tmp_path):
    dump = copy_of("adam", tmp_path)
    done = subprocess.run(
        [COMMAND, "import-tfra", dump, tmp_path / "out"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1 and "Give `--iterations N`" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.multi
def test_two_ranks_write_what_one_does(tmp_path):
    dump = copy_of("legacy-adagrad", tmp_path)
    status, output = run_ranks(2, COMMAND, "import-tfra", dump, tmp_path / "out")
    assert status == 0, output
    assert output.count("tfs.restore(") == 1
    _, content = inspecting.open_checkpoint(tmp_path / "out")
    assert content["num_ranks"] == 2
    for of_table in content["tables"]:
        assert all(file["rows"] > 0 for file in of_table["files"])
    check_rows_and_next_step(GOLDEN / "legacy-adagrad", tmp_path / "out", "Adagrad")


@pytest.mark.multi
def test_what_one_of_two_ranks_cannot_read_is_told_and_nothing_stays(tmp_path):
    dump = copy_of("legacy-adagrad", tmp_path)
    spoil_value(dump, "items-parameter_mht_1of1_rank1_size3", np.inf)
    status, output = run_ranks(2, COMMAND, "import-tfra", dump, tmp_path / "new/out")
    assert status != 0
    assert "rank1_size3-values' has values that are not finite" in output
    assert "in _import" not in output  # no trace of the program
    assert not (tmp_path / "new").exists()


def imported(dump, optimizer="Adam", training=TRAINED, **options):
    """The rows of a model that takes what is imported."""
    made = import_dump(dump, dump.parent / "out", training, **options)
    model = make_model(optimizer)
    tfs.restore(model, dump.parent / "out", partial=True)
    return rows_in(model), made


def test_slots_are_found_by_their_keys_in_any_order(tmp_path):
    dump = copy_of("adam", tmp_path)
    for slot in "mv":
        name = f"users-parameter_DynamicEmbedding_users-shadow_{slot}_mht_1of1_rank0_size1"
        keys = np.fromfile(dump / f"{name}-keys", np.int64)
        values = np.fromfile(dump / f"{name}-values", np.float32).reshape(len(keys), -1)
        order = np.random.default_rng(0).permutation(len(keys))
        keys[order].tofile(dump / f"{name}-keys")
        values[order].tofile(dump / f"{name}-values")
    assert_same_rows(imported(dump)[0], wanted_rows(GOLDEN / "adam", "Adam"))


def test_a_key_without_slots_begins_with_new_ones(tmp_path):
    for case, rule, slots, new in (
        ("adam", "Adam", "mv", [0] * 9),
        ("legacy-adagrad", "Adagrad", ["accumulator"], [np.float32(0.3)] * 4),
    ):
        dump = copy_of(case, tmp_path / rule)
        for slot in slots:
            name = f"users-parameter_DynamicEmbedding_users-shadow_{slot}_mht_1of1_rank0_size"
            (name,) = {f.name.partition("-keys")[0] for f in dump.glob(f"{name}*-keys")}
            keys = np.fromfile(dump / f"{name}-keys", np.int64).tolist()
            key = drop_key(dump, name, keys.index(max(keys)))
        training = Training(iterations=STEPS, initial_accumulator_value=0.3)
        made = import_dump(dump, dump.parent / "out", training)
        assert {part.variable: part.rows_without_slots for part in made if part.described} == {
            "items-parameter": 0,
            "users-parameter": 1,
        }
        model = make_model(rule)
        if rule == "Adagrad":
            optimizer = OPTIMIZERS["new"].Adagrad(RATE, initial_accumulator_value=0.3)
            model.compile(tfs.DistributedOptimizer(optimizer), linear_loss)
        tfs.restore(model, dump.parent / "out", partial=True)
        row = rows_in(model)["users"][key]
        np.testing.assert_array_equal(row[4:], new)
        np.testing.assert_array_equal(row[:4], wanted_rows(GOLDEN / case, rule)["users"][key][:4])


def test_files_of_an_older_save_are_left_when_the_size_is_given(tmp_path):
    dump = copy_of("adam", tmp_path)
    for file in copy_of("legacy-adam", tmp_path / "other").iterdir():
        shutil.copy(file, dump)
    rows, _ = imported(dump, size=1, names={"users-parameter": "users", "items-parameter": "items"})
    assert_same_rows(rows, wanted_rows(GOLDEN / "adam", "Adam"))


def test_a_table_without_rows_is_left_out(tmp_path):
    made = import_dump(copy_of("legacy-adam", tmp_path), tmp_path / "out", TRAINED)
    assert [of.variable for of in made if of.described is None] == ["no_rows"]


def test_slots_of_a_lookup_by_hand_are_found_and_what_policies_keep_is_left(tmp_path):
    dump = copy_of("adam", tmp_path)
    rename(dump, "-parameter_DynamicEmbedding_users-shadow_", "_look_")
    rename(dump, "users-parameter", "users")
    for part in ("keys", "values"):
        shutil.copy(
            dump / "users_mht_1of1_rank0_size1-keys",
            dump / f"users_timestamp_mht_1of1_rank0_size1-{part}",
        )
    assert_same_rows(imported(dump)[0], wanted_rows(GOLDEN / "adam", "Adam"))


def test_what_looks_like_a_slot_can_be_a_table(tmp_path):
    dump = copy_of("sgd", tmp_path)
    slot = "users-parameter_DynamicEmbedding_users-shadow_m"
    for names in ({slot: "users"}, {slot: "users", "users-parameter": "other"}):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        rows, made = imported(dump, "SGD", Training(), names=names)
        assert [of.slots_left for of in made] == [()] * len(names)
        keys, values = (what_tfra_had(GOLDEN / "sgd", "users", name) for name in ("keys", "m"))
        assert_same_rows({"users": rows["users"]}, {"users": dict(zip(keys.tolist(), values))})


def test_slots_can_be_left(tmp_path):
    dump = copy_of("adam", tmp_path)
    rename(dump, "shadow_v_", "shadow_linear_")
    rows, _ = imported(dump, "SGD", Training(), with_slots=False)
    assert_same_rows(rows, wanted_rows(GOLDEN / "adam", "SGD"))


def test_a_checkpoint_of_tables_alone_is_restored_in_part_only(tmp_path):
    import_dump(copy_of("adam", tmp_path), tmp_path / "out", TRAINED)
    with pytest.raises(ValueError, match="tables alone.*`partial=True` restores"):
        tfs.restore(make_model("Adam"), tmp_path / "out")
    other = make_model("Adam", names=["a", "b"])
    with pytest.raises(ValueError, match=r"\['items', 'users'\] alone.*\['a', 'b'\]: none of one"):
        tfs.restore(other, tmp_path / "out", partial=True)
