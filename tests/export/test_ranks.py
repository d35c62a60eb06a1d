"""Runs ranks_export.py once on two ranks, and serves what it exported."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.export import models
from tests.multi.launch import checks_of, run_ranks

PROGRAM = Path(__file__).with_name("ranks_export.py")
ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.multi


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    _, output = run_ranks(2, PROGRAM, folder, timeout_s=180, env={"PYTHONPATH": str(ROOT)})
    return folder, output


@pytest.mark.parametrize("check", checks_of(PROGRAM))
def test_on_two_ranks(ran, check):
    for rank in (0, 1):
        assert f"passed {check} on rank {rank}" in ran[1], ran[1][-5000:]


def test_what_two_ranks_export_is_served_by_one_process(ran):
    folder, output = ran
    assert (folder / "asked").exists(), output[-5000:]
    jobs, expected = pickle.loads((folder / "asked").read_bytes())
    served = models.serve(folder, jobs)
    assert set(served) == {"dense", "rows"}
    for name, outputs in expected.items():
        assert served[name]["foreign_ops"] == []
        for loader in ("outputs", "session_outputs"):
            for got, wanted in zip(served[name][loader], outputs):
                assert set(got) == set(wanted)
                for output_name in wanted:
                    np.testing.assert_allclose(got[output_name], wanted[output_name], atol=1e-6)
