"""Runs the programs for two ranks once each; each of their checks is a test."""

import functools

import pytest

from tests.multi.launch import checks_of, run_ranks

PROGRAMS = ["two_ranks.py", "bad_input.py", "checkpoints.py"]

pytestmark = pytest.mark.multi


@functools.cache
def output_of(program):
    return run_ranks(2, program, timeout_s=400)[1]


@pytest.mark.parametrize(
    "program, check", [(program, check) for program in PROGRAMS for check in checks_of(program)]
)
def test_two_ranks(program, check):
    output = output_of(program)
    for rank in (0, 1):
        assert f"passed {check} on rank {rank}" in output, output[-5000:]
