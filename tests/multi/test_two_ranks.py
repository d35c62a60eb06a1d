"""Runs programs/two_ranks.py once; each of its checks is a test."""

import pytest

from tests.multi.launch import checks_of, run_ranks

PROGRAM = "two_ranks.py"


@pytest.fixture(scope="module")
def output():
    return run_ranks(2, PROGRAM, timeout_s=400)[1]


@pytest.mark.parametrize("check", checks_of(PROGRAM))
def test_two_ranks(output, check):
    for rank in (0, 1):
        assert f"passed {check} on rank {rank}" in output, output[-5000:]
