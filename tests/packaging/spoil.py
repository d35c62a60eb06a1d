"""Copies of the installed tfsparse, and packages beside it, with something wrong."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tfsparse
import tfsparse.keras_layers

PACKAGE = Path(tfsparse.__file__).parent


def copy_tfsparse(folder):
    """Copies the package, without its op library, into a folder; returns that of the library."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "keras_layers")
    shutil.copytree(PACKAGE, folder / "tfsparse", ignore=ignored)
    layers = Path(tfsparse.keras_layers.__file__).parent
    shutil.copytree(layers, folder / "tfsparse" / "keras_layers", ignore=ignored)
    return folder / "tfsparse" / "ops"


def compile_library(path, source):
    """Compiles C++ to a shared library, undefined symbols and all."""
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)


def write_horovod(folder, built_for):
    """Writes a Horovod that does not load and says what TensorFlow it was built for."""
    (folder / "horovod").mkdir()
    (folder / "horovod" / "__init__.py").write_text("raise ImportError('undefined symbol: _Z1f')\n")
    (folder / "horovod" / "metadata.json").write_text(f'{{"tensorflow": "{built_for}"}}')


def python(folder, *arguments, **environment):
    """Runs Python in a folder whose packages come before the installed ones.

    An environment variable given as None is absent.
    """
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    changed = {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={name: text for name, text in {**os.environ, **changed}.items() if text is not None},
        capture_output=True,
        text=True,
        timeout=300,
    )
