"""`tfsparse doctor` runs where `import tfsparse` does not, and tells every problem and its fix."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import tensorflow as tf

import tfsparse
from tests.packaging import spoil

RUN = "import sys; from tfsparse_cli.main import main; sys.argv[0] = 'tfsparse'; main()"
LIBRARY = f"_tfsparse_ops_tf{tf.__version__}.so"


def doctor(folder, **environment):
    """Returns doctor's exit status and what it prints."""
    done = spoil.python(folder, "-c", RUN, "doctor", **environment)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def problems(report):
    """`{title: (problem, what to do)}` of a report."""
    found = re.findall(r"^(.+)\n  problem: (.+)\n  to do: (.+)$", report, re.MULTILINE)
    return {title: (what, fix) for title, what, fix in found}


def test_the_command_is_installed_and_finds_nothing_wrong(tmp_path):
    command = str(Path(sys.executable).with_name("tfsparse"))
    done = subprocess.run(
        [command, "doctor"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in (
        rf"TensorFlow +{re.escape(tf.__version__)}, tf.keras is (tf_)?keras 2\.1",
        rf"op library +.*/{re.escape(LIBRARY)} loads",
        rf"Horovod +loads, built for TensorFlow {re.escape(tf.__version__)}: .*gloo (yes|no)",
        r"CPU +x86_64 with .*: the loops for (avx512f|avx2|plain x86-64) are used|CPU +(?!x86_64)",
        r"host +\d+ cores, [\d.]+ GiB of memory",
        r"installed +tfsparse 0\..*tensorflow 2\..*keras .*horovod 0\.28\.1",
        r"\nNo problem was found\.",
    ):
        assert re.search(expected, done.stdout), (expected, done.stdout)


def test_the_command_tells_its_version(tmp_path):
    command = str(Path(sys.executable).with_name("tfsparse"))
    done = subprocess.run([command, "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.startswith(f"tfsparse {tfsparse.__version__}"), done.stderr


def test_every_problem_is_told_with_what_to_do(tmp_path):
    ops = spoil.copy_tfsparse(tmp_path)
    shutil.copy(spoil.PACKAGE / "ops" / LIBRARY, ops / "_tfsparse_ops_tf2.0.9.so")
    spoil.write_horovod(tmp_path, built_for="2.0.9")
    # Without Keras 2: TensorFlow 2.15 then finds none, later ones take Keras 3.
    legacy = "1" if tf.__version__.startswith("2.15.") else None
    status, report = doctor(tmp_path, TF_USE_LEGACY_KERAS=legacy)
    assert status == 1
    found = problems(report)
    assert set(found) == {"op library", "TensorFlow", "Horovod"}, report
    for title, wrong, fix in (
        (
            "op library",
            f"built for TensorFlow 2.0.9, but this is TensorFlow {tf.__version__}",
            "pip",
        ),
        ("TensorFlow", "tf.keras", "TF_USE_LEGACY_KERAS"),
        ("Horovod", f"for TensorFlow 2.0.9, but this is TensorFlow {tf.__version__}", "horovod=="),
    ):
        assert wrong in found[title][0] and fix in found[title][1], report


def test_libraries_that_do_not_load_end_their_checks_only(tmp_path):
    ops = spoil.copy_tfsparse(tmp_path)
    crash = "#include <cstdlib>\n__attribute__((constructor)) void crash() { abort(); }"
    spoil.compile_library(ops / LIBRARY, crash)
    spoil.write_horovod(tmp_path, built_for=tf.__version__)
    status, report = doctor(tmp_path)
    assert status == 1
    found = problems(report)
    assert set(found) == {"op library", "Horovod"}, report
    assert "ended by SIGABRT" in found["op library"][0]
    assert "does not load" in found["Horovod"][0]
    assert "Received: undefined symbol" in report


def test_without_tensorflow_that_alone_is_told(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('Traceback:\\n cut short')\n")
    status, report = doctor(tmp_path)
    assert status == 1
    ((title, (wrong, fix)),) = problems(report).items()
    assert (title, wrong) == ("TensorFlow", "TensorFlow cannot be imported.")
    assert "Received: Traceback:\n   cut short" in report
    assert "pip install --force-reinstall tensorflow==" in fix
