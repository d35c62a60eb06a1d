"""Starts programs on several ranks, as users do: with horovodrun, on this machine."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"

# A rank that waits this long for another ends the job, so a hang is an error.
STALL_SHUTDOWN_S = 60


def start_ranks(num_ranks, program, *arguments, env=None):
    """Starts a program in a session of its own; its output, errors included, is a pipe of text.

    Args:
        num_ranks: 1 runs it by itself, without horovodrun.
        program: file name in `programs/`, or a path.
        *arguments: of the program.
        env: further environment variables.
    """
    command = [sys.executable, str(PROGRAMS / program), *map(str, arguments)]
    if num_ranks > 1:
        horovodrun = str(Path(sys.executable).with_name("horovodrun"))
        command = [sys.executable, horovodrun, "-np", str(num_ranks), *command]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(STALL_SHUTDOWN_S),
        **(env or {}),
    }
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run_ranks(num_ranks, program, *arguments, timeout_s=400, env=None):
    """Runs a program as `start_ranks` does; returns `(exit status, output of all ranks)`.

    After `timeout_s` the whole job is killed and the test fails.
    """
    process = start_ranks(num_ranks, program, *arguments, env=env)
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"no end after {timeout_s} s:\n{output[-5000:]}") from None
    return process.returncode, output


def checks_of(program):
    """The names of the `check_...` functions in a program, without importing it."""
    tree = ast.parse((PROGRAMS / program).read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in names if name.startswith("check_")]
