"""Any number of ranks restores what any number has saved, and trains on as if nothing had been."""

import json
import pickle
from pathlib import Path

import pytest

from tests.checkpoint.models import assert_same
from tests.multi.launch import run_ranks
from tfsparse.checkpoint.resharding import reshard

PROGRAM = Path(__file__).with_name("ranks_checkpoint.py")
ROOT = Path(__file__).resolve().parents[2]
# (ranks, the numbers of ranks whose checkpoints they load)
LAUNCHES = [(1, [1]), (4, []), (2, [1, 2, 4]), (3, [1, 2, 3, 4]), (1, [2, 3, 4]), (5, [1, 2, 3, 4])]
LOADED = sorted({(ranks, load) for ranks, loads in LAUNCHES for load in loads})

pytestmark = [pytest.mark.multi, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    for ranks, loads in LAUNCHES:
        status, output = run_ranks(ranks, PROGRAM, folder, *loads, env={"PYTHONPATH": str(ROOT)})
        assert status == 0, output[-5000:]
    return folder


def result(folder, name):
    return pickle.loads((folder / f"{name}.pkl").read_bytes())


@pytest.mark.parametrize("ranks,load", LOADED)
def test_restored_is_what_was_saved_and_goes_on_like_it(folder, ranks, load):
    saved, loaded = result(folder, load), result(folder, f"{ranks}-{load}")
    assert_same(loaded["ten"]["state"], saved["ten"]["state"])
    exact = ranks == load
    assert_same(loaded["twenty"]["state"], saved["twenty"]["state"], 0 if exact else 5e-6)
    if exact:
        assert loaded["twenty"]["losses"] == saved["twenty"]["losses"]


@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_ranks_train_what_one_does(folder, ranks):
    assert_same(
        result(folder, ranks)["twenty"]["state"], result(folder, 1)["twenty"]["state"], 5e-6
    )


def files_of(checkpoint):
    """What its manifest says of the files of rows, their folder left out."""
    tables = json.loads((checkpoint / "manifest.json").read_text())["tables"]
    for of_table in tables:
        for file in of_table["files"]:
            file["file"] = Path(file["file"]).name
    return tables


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_checkpoint_resharded_there_and_back_is_what_the_ranks_have_saved(
    folder, ranks, tmp_path
):
    reshard(folder / str(ranks), tmp_path / "one", 1)
    reshard(tmp_path / "one", tmp_path / "back", ranks)
    assert files_of(tmp_path / "back") == files_of(folder / str(ranks))
    assert files_of(tmp_path / "one") != files_of(folder / str(ranks))
