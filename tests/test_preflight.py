"""`make` says what a machine lacks before it downloads anything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def preflight(*arguments, **environment):
    return subprocess.run(
        ["sh", str(ROOT / "tools" / "preflight.sh"), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def base_python():
    """A Python outside of any virtual environment."""
    return getattr(sys, "_base_executable", sys.executable)


def test_a_machine_that_has_everything_passes():
    done = preflight(base_python())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == base_python()


def test_a_named_python_that_does_not_fit_is_not_replaced(tmp_path):
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    done = preflight(str(other))
    assert done.returncode != 0
    assert "no Python 3.9, 3.10 or 3.11" in done.stderr


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_a_missing_or_broken_compiler_is_named(compiler):
    done = preflight(base_python(), CXX=compiler)
    assert done.returncode != 0
    assert f"no working C++17 compiler (tried '{compiler}')" in done.stderr
    assert "apt-get install g++" in done.stderr


def test_a_full_disk_is_named(tmp_path):
    df = tmp_path / "df"
    df.write_text("#!/bin/sh\necho Filesystem\necho disk 100 90 1024 90% /\n")
    df.chmod(0o755)
    done = preflight(base_python(), PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode != 0
    assert "need 6 GB, have 0.0 GB" in done.stderr
