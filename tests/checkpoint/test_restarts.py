"""A job one of whose ranks was killed goes on from its last checkpoint, in the README's loop."""

import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoint.models import assert_same
from tests.multi.launch import STALL_SHUTDOWN_S, run_ranks

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("ranks_callback.py")
LOOP = re.search(r"```bash\n(tries=5\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]

pytestmark = [pytest.mark.multi, pytest.mark.slow]


def run_in_loop(num_ranks, *arguments):
    """Runs the program in the README's loop; returns what is printed."""
    program = shlex.join(["horovodrun", "-np", str(num_ranks), *map(str, arguments)])
    done = subprocess.run(
        ["bash", "-c", LOOP.replace("horovodrun -np 2 python train.py", program)],
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(STALL_SHUTDOWN_S),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def result(folder, name):
    return pickle.loads((folder / f"{name}.pkl").read_bytes())


def steps_in(folder):
    return sorted(int(path.name[len("step-") :]) for path in folder.iterdir())


def test_a_job_whose_rank_is_killed_ends_as_if_nothing_had_been(tmp_path):
    env = {"PYTHONPATH": str(ROOT)}
    status, output = run_ranks(2, PROGRAM, tmp_path, "straight", env=env)
    assert status == 0, output[-5000:]
    output = run_in_loop(2, sys.executable, PROGRAM, tmp_path, "killed", 19)
    assert output.count("Terminating remaining workers after failure of Process 1") == 1
    assert (tmp_path / "killed.died").exists()
    straight, killed = result(tmp_path, "straight"), result(tmp_path, "killed")
    assert (straight["resumed"], killed["resumed"]) == (None, 15)
    assert_same(killed["state"], straight["state"])
    assert steps_in(tmp_path / "killed") == steps_in(tmp_path / "straight") == [30, 35, 36]

    # Three ranks go on behind batch 11 of the 12 of epoch 2: they have 8, and did 7 of them.
    (tmp_path / "straight").rename(tmp_path / "three")
    shutil.rmtree(tmp_path / "three" / "step-36")
    status, output = run_ranks(3, PROGRAM, tmp_path, "three", env=env)
    assert status == 0, output[-5000:]
    three = result(tmp_path, "three")
    assert three["resumed"] == 35
    assert three["state"]["rows"]["table"].keys() == straight["state"]["rows"]["table"].keys()
    assert steps_in(tmp_path / "three") == [30, 35, 36]
