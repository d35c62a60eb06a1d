"""Empty and skewed batches on several ranks train what a dict of numpy rows says."""

from pathlib import Path

import pytest

from tests.keras_layers import odd_batches
from tests.multi.launch import run_ranks

pytestmark = [pytest.mark.multi, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=[2, 3])
def ran(request):
    status, output = run_ranks(request.param, "odd_ranks.py", env={"PYTHONPATH": str(ROOT)})
    return request.param, status, output


@pytest.mark.parametrize("check", [*odd_batches.CASES, "features_of_one_table"])
def test_rows_are_those_of_a_dict(ran, check):
    num_ranks, _, output = ran
    for rank in range(num_ranks):
        assert f"passed check_{check} on rank {rank}\n" in output, output[-5000:]


def test_the_program_ends_well(ran):
    assert ran[1] == 0, ran[2][-5000:]
