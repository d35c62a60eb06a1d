"""N ranks with parts of a batch train what one rank trains with the whole batch."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.multi.launch import run_ranks

VARIANTS = [
    "sgd", "adagrad", "adam", "legacy_sgd", "legacy_adagrad", "legacy_adam", "clipnorm",
    "global_clipnorm", "clipvalue", "loss_scale", "schedule", "tape", "legacy_tape",
    "sgd@movielens", "adagrad@movielens", "adam@movielens",
]  # fmt: skip
# Three ranks share two cores of a small machine; the rules that differ most will do.
ON_THREE_RANKS = [
    "sgd", "adagrad", "adam", "legacy_adam", "global_clipnorm",
    "sgd@movielens", "adagrad@movielens", "adam@movielens",
]  # fmt: skip
REPEATED = ["adam", "adam@movielens"]
STEPS = 50


def variants_on(num_ranks):
    return ON_THREE_RANKS if num_ranks == 3 else VARIANTS


def data_folder():
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("TFSPARSE_TEST_DATA", default))


pytestmark = pytest.mark.skipif(
    not (data_folder() / "gowalla").is_dir(),
    reason="needs real data at ../shared/data or $TFSPARSE_TEST_DATA",
)


def train(folder, num_ranks, variants, env=None):
    folder.mkdir()
    status, output = run_ranks(
        num_ranks, "train_real.py", folder, data_folder(), *variants, env=env
    )
    assert status == 0, output[-5000:]
    return [pickle.loads((folder / f"rank{r}.pkl").read_bytes()) for r in range(num_ranks)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """`{1: [results of rank 0], 2: [of ranks 0, 1], 3: ...}`."""
    folder = tmp_path_factory.mktemp("results")
    return {n: train(folder / str(n), n, variants_on(n)) for n in (1, 2, 3)}


def merged(ranks, variant, table):
    """A table's `{"keys", "rows", "slots"}` over all ranks, sorted by key."""
    states = [rank[variant]["tables"][table] for rank in ranks]
    states = [state for state in states if len(state["keys"])]
    whole = {part: np.concatenate([s[part] for s in states]) for part in states[0]}
    order = np.argsort(whole["keys"])
    return {part: values[order] for part, values in whole.items()}


@pytest.mark.parametrize("num_ranks,variant", [(n, v) for n in (2, 3) for v in variants_on(n)])
def test_n_ranks_equal_one(results, num_ranks, variant):
    ranks, (one,) = results[num_ranks], results[1]
    for table in one[variant]["tables"]:
        got, wanted = merged(ranks, variant, table), merged(results[1], variant, table)
        np.testing.assert_array_equal(got["keys"], wanted["keys"])
        np.testing.assert_allclose(got["rows"], wanted["rows"], rtol=0, atol=5e-6)
        np.testing.assert_allclose(got["slots"], wanted["slots"], rtol=0, atol=5e-6)
        assert len(got["keys"]) == ranks[0][variant]["sizes"][table]
    for rank in ranks:
        for got, wanted in zip(rank[variant]["dense"], one[variant]["dense"]):
            np.testing.assert_allclose(got, wanted, rtol=0, atol=5e-6)
        np.testing.assert_allclose(rank[variant]["losses"], one[variant]["losses"], atol=5e-6)
        assert rank[variant]["iterations"] == STEPS


@pytest.mark.parametrize("variant", ON_THREE_RANKS)
def test_every_row_has_one_home(results, variant):
    for table in results[1][0][variant]["tables"]:
        homes = [rank[variant]["tables"][table]["keys"] for rank in results[3]]
        keys = np.concatenate(homes)
        assert len(np.unique(keys)) == len(keys)
        assert len(keys) < 100 or min(map(len, homes)) > 0.25 * len(keys)


@pytest.mark.parametrize("num_ranks,variant", [(n, v) for n in (2, 3) for v in variants_on(n)])
def test_dense_weights_are_bit_equal_on_all_ranks(results, num_ranks, variant):
    first, *others = results[num_ranks]
    for other in others:
        for a, b in zip(first[variant]["dense"], other[variant]["dense"]):
            np.testing.assert_array_equal(a, b)


def test_ways_to_train_agree(results):
    """new = legacy, fit = own loop."""
    (one,) = results[1]
    for a, b, atol in [
        ("sgd", "legacy_sgd", 1e-6),
        ("adagrad", "legacy_adagrad", 1e-6),
        ("adam", "legacy_adam", 5e-5),
        ("sgd", "loss_scale", 1e-6),
        ("adagrad", "tape", 1e-6),
    ]:
        for table in one[a]["tables"]:
            got, wanted = merged(results[1], a, table), merged(results[1], b, table)
            np.testing.assert_array_equal(got["keys"], wanted["keys"])
            np.testing.assert_allclose(got["rows"], wanted["rows"], rtol=0, atol=atol)


def test_two_runs_are_bit_equal_whatever_the_timing(results, tmp_path):
    again = train(tmp_path / "again", 3, REPEATED, env={"TFSPARSE_TEST_JITTER": "1"})
    for variant in REPEATED:
        for first, second in zip(results[3], again):
            for table, state in first[variant]["tables"].items():
                for part, values in state.items():
                    other = second[variant]["tables"][table][part]
                    np.testing.assert_array_equal(values, other, err_msg=f"{table} {part}")
            for a, b in zip(first[variant]["dense"], second[variant]["dense"]):
                np.testing.assert_array_equal(a, b)
            assert first[variant]["losses"] == second[variant]["losses"]
