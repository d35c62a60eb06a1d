"""Every command and program in the README runs.

Each command is checked by the first pattern that fits; one that fits none fails the test.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
SCRIPTS = Path(sys.executable).parent


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands():
    """One a line, or one a block where that is a loop."""
    for block in blocks("bash"):
        if "done" in block.split():
            yield block
            continue
        lines = [line.split(" #")[0].split() for line in block.replace("\\\n", "").splitlines()]
        yield from (" ".join(words) for words in lines if words)


def run(command, folder):
    """Runs a shell command as a user whose PATH has this environment first."""
    environment = {**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-5000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the README's program, and with what its first run has left."""
    folder = tmp_path_factory.mktemp("readme")
    program = "\n".join(blocks("python"))
    (folder / "program.py").write_text(program)
    run("python program.py", folder)
    return folder


def installs_what_is_here(command, folder):
    """What it names is what these tests run on. `make test` builds and installs the wheel."""
    words = shlex.split(command)
    for word in words[words.index("pip") + 2 :]:
        if not re.match(r"--|\.$|dist", word):
            required = Requirement(word)
            installed = metadata.version(required.name)
            assert required.specifier.contains(installed) or word in FIRST_STACK, word


def dry_run(command, folder):
    """What takes long, or the network: `make train` and `make test` are what CI runs."""
    run(command.replace("make", "make --dry-run", 1), ROOT)


def on_this_machine(command, folder):
    """This machine stands for all hosts, and a program that says its rank for the README's."""
    elsewhere = folder / str(len(list(folder.iterdir())))
    elsewhere.mkdir()
    (elsewhere / "program.py").write_text("import os; print('rank', os.environ['HOROVOD_RANK'])")
    command = re.sub(r"-np \d+ -H \S+", "-np 2 -H localhost:2", command)
    command = re.sub(r"--network-interfaces \S+", "--network-interfaces lo", command)
    printed = run(command, elsewhere)
    assert "rank 0" in printed and "rank 1" in printed, printed


def in_a_new_folder(command, folder):
    """An export overwrites nothing."""
    elsewhere = folder / str(len(list(folder.iterdir())))
    elsewhere.mkdir()
    shutil.copy(folder / "program.py", elsewhere)
    run(command, elsewhere)


def as_it_stands(command, folder):
    run(command, folder)


# Where the tests run on the other stack, the README's install commands still are for this one.
FIRST_STACK = ["tensorflow==2.15.1"]


def starts_again(command, folder):
    """A program whose ranks fail in the first try and not in the second."""
    elsewhere = folder / "again"
    elsewhere.mkdir()
    (elsewhere / "train.py").write_text(
        "import os, sys\n"
        "name = 'tried-by-' + os.environ['HOROVOD_RANK']\n"
        "sys.exit(0) if os.path.exists(name) else open(name, 'w').close()\n"
        "sys.exit(1)\n"
    )
    printed = run(command, elsewhere)
    assert "processes exited with non-zero" in printed, printed


CHECKS = [
    (r"(HOROVOD_\w+=1 )*pip (install|wheel) ", installs_what_is_here),
    (r"tfsparse doctor$", as_it_stands),
    (r"(HOROVOD_\w+=\S+ )*make( \w+| STACK=\w+)+$", dry_run),
    (r"horovodrun -np 2 python program.py$", in_a_new_folder),
    (r"horovodrun -np 8 .*python program.py$", on_this_machine),
    (r"tries=5\nuntil horovodrun -np 2 python train.py", starts_again),
    (r"horovodrun --check-build$", as_it_stands),
    (r"saved_model_cli show --dir served_model --all$", as_it_stands),
]


@pytest.mark.slow
@pytest.mark.parametrize("command", list(commands()))
def test_the_command_runs(command, folder):
    checks = [check for pattern, check in CHECKS if re.match(pattern, command)]
    assert checks, f"nothing checks {command!r}"
    checks[0](command, folder)


def test_the_program_serves_what_it_says(folder):
    serve = (
        "import tensorflow as tf\n"
        "serve = tf.saved_model.load('served_model').signatures['serving_default']\n"
        "assert sorted(serve.structured_outputs) == ['score'], serve.structured_outputs\n"
    )
    run(f"python -c {shlex.quote(serve)}", folder)


def test_every_link_leads_to_a_file():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).is_file(), target
