"""A save that ends in the middle, at any operation, leaves the checkpoint before it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
def test_a_fault_at_any_file_operation_leaves_a_whole_checkpoint(tmp_path):
    shim = tmp_path / "file_faults.so"
    compiler = shutil.which("c++") or shutil.which("g++")
    command = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-o", shim]
    subprocess.run([*command, HERE / "file_faults.cc", "-ldl"], check=True)
    done = subprocess.run(
        [sys.executable, HERE / "faulty_saves.py", tmp_path],
        env={
            **os.environ,
            "LD_PRELOAD": str(shim),
            "PYTHONPATH": str(HERE.parents[1]),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    passed = [line.split() for line in done.stdout.splitlines() if line.startswith("passed")]
    assert [kind for _, kind, _ in passed] == ["0", "1", "2"]
    # Two tables and the weights: created, written, synced, and the manifest renamed.
    assert all(int(operations) > 15 for _, _, operations in passed), passed
