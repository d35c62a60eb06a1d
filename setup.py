"""Packages tfsparse and builds its op library with CMake."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
VERSION = re.search(
    r'^__version__ = "(.+)"$', (ROOT / "tfsparse" / "version.py").read_text(), re.MULTILINE
).group(1)

# One kernel takes about 1 GB to compile; without a limit, hosts with many cores run out of memory.
MAX_COMPILE_JOBS = 8


class BuildOps(build_ext):
    """Builds custom_ops in build/ops with CMake and Ninja; takes a second when nothing changed."""

    def get_ext_filename(self, fullname):
        """Leaves Python's ABI tag out of the name: the library does not use Python's ABI."""
        return os.path.join(*fullname.split(".")) + ".so"

    def build_extension(self, ext):
        """Compiles the library and copies it to where setuptools expects it."""
        build_dir = ROOT / "build" / "ops"
        # cmake and ninja are installed beside this Python, which need not be on PATH.
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
        env = dict(os.environ, PATH=path)
        cmake = shutil.which("cmake", path=path) or "cmake"
        ninja = shutil.which("ninja", path=path) or "ninja"
        jobs = min(len(os.sched_getaffinity(0)), MAX_COMPILE_JOBS)
        configure = [cmake, "-G", "Ninja", "-S", str(ROOT / "custom_ops"), "-B", str(build_dir)]
        configure += [f"-DPython3_EXECUTABLE={sys.executable}", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        build = [cmake, "--build", str(build_dir), "--target", "_tfsparse_ops", "-j", str(jobs)]
        subprocess.run(configure, env=env, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(build, env=env, check=True)

        library = Path(self.get_ext_fullpath(ext.name))
        library.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build_dir / "_tfsparse_ops.so", library)


keras_layers = ["tfsparse.keras_layers"] + [
    f"tfsparse.keras_layers.{name}" for name in find_packages("keras_layers")
]

setup(
    name="tfsparse",
    version=VERSION,
    description="Dynamic embedding tables for TensorFlow and Keras, trained in step with Horovod",
    license="Apache-2.0",
    packages=find_packages(include=["tfsparse", "tfsparse.*"]) + keras_layers,
    package_dir={"tfsparse.keras_layers": "keras_layers"},
    ext_modules=[Extension("tfsparse.ops._tfsparse_ops", sources=[])],
    cmdclass={"build_ext": BuildOps},
    zip_safe=False,
    python_requires=">=3.9,<3.12",
    install_requires=[
        "tensorflow==2.15.1",  # the op library loads into the TensorFlow it was compiled for only
        "horovod==0.28.1",  # the last release, and the one whose names and order we rely on
        "numpy<2",  # TensorFlow 2.15 is compiled for the numpy 1 ABI
    ],
    extras_require={
        "test": [
            "pytest>=8,<10",  # pytest 9 has left Python 3.9
            "ruff==0.17.6",  # formatting differs from release to release
            "clang-format==23.1.5",  # as above
        ],
        "bench": [
            "tensorflow-recommenders-addons==0.7.2",  # the rival; 0.8 does not load on 2.15
        ],
    },
)
