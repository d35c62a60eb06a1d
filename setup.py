"""Packages tfsparse and builds its op library with CMake, for the TensorFlow that is installed."""

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent

# The TensorFlows that the op library is built for and tested with, and what each needs beside it.
STACKS = {
    "2.15.1": [],
    "2.16.2": ["tf-keras==2.16.*"],  # TensorFlow brings Keras 3; our layers are of Keras 2
}

# One kernel takes about 1 GB to compile; without a limit, hosts with many cores run out of memory.
MAX_COMPILE_JOBS = 8


def installed_tensorflow():
    """The version to build for; ends the build when there is none, or one that is not supported."""
    supported = " or ".join(f"tensorflow=={version}" for version in STACKS)
    try:
        version = metadata.version("tensorflow")
    except metadata.PackageNotFoundError:
        version = "none"
    if version not in STACKS:
        sys.exit(
            f"tfsparse is compiled for the TensorFlow that is installed, and supports {supported}. "
            f"Installed: {version}. Install one of them and build again."
        )
    return version


TENSORFLOW = installed_tensorflow()
VERSION = re.search(
    r'^__version__ = "(.+)"$', (ROOT / "tfsparse" / "version.py").read_text(), re.MULTILINE
).group(1)


class Build(build):
    """Builds into an empty folder."""

    def run(self):
        """Removes what an earlier build left, or the wheel would contain that too."""
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildOps(build_ext):
    """Builds custom_ops in build/ with CMake and Ninja; takes a second when nothing changed."""

    def get_ext_filename(self, fullname):
        """Names the library by TensorFlow's version, and not by Python's ABI, which it ignores."""
        return os.path.join(*fullname.split(".")) + f"_tf{TENSORFLOW}.so"

    def build_extension(self, ext):
        """Compiles the library and copies it to where setuptools expects it."""
        build_dir = ROOT / "build" / f"ops-tf{TENSORFLOW}"
        # cmake and ninja are installed beside this Python, which need not be on PATH.
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
        env = dict(os.environ, PATH=path)
        cmake = shutil.which("cmake", path=path) or "cmake"
        ninja = shutil.which("ninja", path=path) or "ninja"
        jobs = min(len(os.sched_getaffinity(0)), MAX_COMPILE_JOBS)
        configure = [cmake, "-G", "Ninja", "-S", str(ROOT / "custom_ops"), "-B", str(build_dir)]
        configure += [f"-DPython3_EXECUTABLE={sys.executable}", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        compile_ops = [cmake, "--build", str(build_dir), "-j", str(jobs)]
        compile_ops += ["--target", "_tfsparse_ops"]
        subprocess.run(configure, env=env, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(compile_ops, env=env, check=True)

        library = Path(self.get_ext_fullpath(ext.name))
        library.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build_dir / "_tfsparse_ops.so", library)


def below(package, folder):
    """The names of the packages in a folder that is installed as `package`."""
    return [package] + [f"{package}.{name}" for name in find_packages(folder)]


setup(
    name="tfsparse",
    version=f"{VERSION}+tf{TENSORFLOW}",  # so that wheels for two TensorFlows cannot be confused
    description="Dynamic embedding tables for TensorFlow and Keras, trained in step with Horovod",
    license="Apache-2.0",
    packages=find_packages(include=["tfsparse", "tfsparse.*"], exclude=["tfsparse.cli*"])
    + below("tfsparse.keras_layers", "keras_layers")
    + below("tfsparse_cli", "tfsparse/cli"),
    package_dir={"tfsparse.keras_layers": "keras_layers", "tfsparse_cli": "tfsparse/cli"},
    entry_points={"console_scripts": ["tfsparse = tfsparse_cli.main:main"]},
    ext_modules=[Extension("tfsparse.ops._tfsparse_ops", sources=[])],
    cmdclass={"build": Build, "build_ext": BuildOps},
    zip_safe=False,
    python_requires=">=3.9,<3.12",
    install_requires=[
        f"tensorflow=={TENSORFLOW}",  # the op library loads into this one only
        *STACKS[TENSORFLOW],
        "horovod==0.28.1",  # the last release, and the one whose names and order we rely on
        "numpy<2",  # these TensorFlows are compiled for the numpy 1 ABI
        "safetensors>=0.4,<1",  # reads pretrained vectors
    ],
    extras_require={
        "test": [
            "pytest>=8,<10",  # pytest 9 has left Python 3.9
            "pytest-xdist>=3.8,<4",  # two test files at a time
            "ruff==0.17.6",  # formatting differs from release to release
            "clang-format==23.1.5",  # as above
        ],
    },
)
