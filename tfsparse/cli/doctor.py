"""`tfsparse doctor`: what is installed, what is wrong with it, and what to do."""

import json
import os
import platform
import signal
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from tfsparse_cli import host

# In the order in which they are told; each has a function in probe.py.
CHECKS = {"tensorflow": "TensorFlow", "op_library": "op library", "horovod": "Horovod"}
DISTRIBUTIONS = ("tfsparse", "tensorflow", "keras", "tf-keras", "horovod", "numpy")
TIMEOUT_S = 300  # two cores with a load of nine took 79 s


def add_to(commands):
    """Adds the command to argparse's `commands`."""
    text = "check this installation: exit status 0 when all is well, 1 when something is wrong"
    commands.add_parser("doctor", help=text, description=text).set_defaults(run=run)


def run(_):
    """Prints what is installed and what is wrong with it; returns the exit status."""
    answers = examine()
    _tell("Python", f"{platform.python_version()}, {sys.executable}")
    _tell("installed", ", ".join(f"{name} {_version(name)}" for name in DISTRIBUTIONS))
    for check, title in CHECKS.items():
        _tell(title, answers[check].get("found", "see below"))
    _tell("CPU", host.cpu())
    _tell("host", host.memory())
    if any(f"{way} yes" in answers["horovod"].get("found", "") for way in ("mpi", "nccl")):
        _tell("shared memory", host.shared_memory())

    problems = {}  # by text: without TensorFlow all checks have the same
    for check, title in CHECKS.items():
        if "problem" in answers[check]:
            problems.setdefault(answers[check]["problem"], title)
    for text, title in problems.items():
        what, fix, *more = text.splitlines()
        print("", title, f"  problem: {what}", f"  to do: {fix}", sep="\n")
        for line in more:
            print(f"  {line}")
    if not problems:
        print("\nNo problem was found.")
    return 1 if problems else 0


def examine():
    """Runs all checks at once, each in an interpreter of its own, and returns their answers."""
    package = Path(find_spec("tfsparse").submodule_search_locations[0])
    arguments = [json.dumps(sys.path), str(package / "stack.py")]
    probe = str(Path(__file__).with_name("probe.py"))
    processes = {
        check: subprocess.Popen(
            [sys.executable, probe, check, *arguments],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for check in CHECKS
    }
    return {check: _answer_of(process) for check, process in processes.items()}


def _answer_of(process):
    try:
        printed, errors = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"problem": f"No answer within {TIMEOUT_S} s.\nRun it again on a quieter machine."}
    if process.returncode == 0:
        return json.loads(printed.splitlines()[-1])
    status = process.returncode
    ended = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
    last = errors.strip().splitlines()[-1:] or ["nothing was printed"]
    return {
        "problem": f"The check ended {ended}: {last[0]}\n"
        "Install TensorFlow, Horovod and tfsparse anew, in this order."
    }


def _version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "(none)"


def _tell(title, text):
    print(f"{title:<14}{text}")
