"""Builds and runs the C++ tests of custom_ops/core, which need no TensorFlow."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "core_tests"


def run(*command):
    # cmake and ninja are installed beside this Python, which need not be on PATH.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run(
        [str(word) for word in command],
        env=dict(os.environ, PATH=path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{command} exited with {done.returncode}:\n{done.stdout}"


def test_core_tests_pass():
    options = ["-DTFS_BUILD_OPS=OFF", "-DTFS_BUILD_TESTS=ON"]
    run("cmake", "-G", "Ninja", "-S", ROOT / "custom_ops", "-B", BUILD, *options)
    run("cmake", "--build", BUILD)
    run(BUILD / "core_tests")
