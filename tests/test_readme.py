"""Every command and program in the README runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.multi.launch import run_ranks

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_the_program_runs_as_it_stands(tmp_path, num_ranks):
    (program,) = blocks("python")
    path = tmp_path / "program.py"
    path.write_text(f"import os\nos.chdir({str(tmp_path)!r})\n{program}")
    status, output = run_ranks(num_ranks, path)
    assert status == 0, output[-5000:]
    serve = (
        "import tensorflow as tf\n"
        "serve = tf.saved_model.load('served_model').signatures['serving_default']\n"
        "assert sorted(serve.structured_outputs) == ['score'], serve.structured_outputs\n"
    )
    subprocess.run([sys.executable, "-c", serve], cwd=tmp_path, check=True, timeout=120)


def test_every_make_target_exists():
    """`make train` and `make test` themselves are run by hand and by CI."""
    lines = "".join(blocks("bash")).splitlines()
    commands = [line.split("#")[0].split() for line in lines]
    targets = [command[1] for command in commands if command[:1] == ["make"]]
    assert targets, "the README names no make target"
    for target in [*targets, "bench"]:
        done = subprocess.run(
            ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr


def test_every_link_leads_to_a_file():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).is_file(), target
