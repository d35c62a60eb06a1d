"""Every combination that cannot work is told by one error, which names the versions and the fix."""

import re
import runpy
import shutil
import sys

import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.packaging import spoil

KERAS_3_IS_DEFAULT = tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 16)


def library(version=tf.__version__):
    return f"_tfsparse_ops_tf{version}.so"


def load_op_library(folder):
    return runpy.run_path(str(folder / "tfsparse" / "stack.py"))["load_op_library"]()


def test_importing_under_another_tensorflow_names_both(tmp_path):
    ops = spoil.copy_tfsparse(tmp_path)
    shutil.copy(spoil.PACKAGE / "ops" / library(), ops / library("2.0.9"))
    done = spoil.python(tmp_path, "-c", "import tfsparse")
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert "undefined symbol" not in done.stderr
    wrong, fix = done.stderr.strip().splitlines()[-2:]
    assert wrong == (
        "ImportError: tfsparse is built for TensorFlow 2.0.9, but this is TensorFlow "
        f"{tf.__version__}."
    )
    assert "pip install tensorflow==2.0.9" in fix
    assert "pip install --no-build-isolation ." in fix


def test_libraries_for_several_tensorflows_lie_side_by_side(tmp_path):
    ops = spoil.copy_tfsparse(tmp_path)
    for version in ("2.0.9", tf.__version__):
        shutil.copy(spoil.PACKAGE / "ops" / library(), ops / library(version))
    done = spoil.python(tmp_path, "-c", "import tfsparse; print(tfsparse.__file__)")
    assert done.stdout.strip() == str(tmp_path / "tfsparse" / "__init__.py"), done.stderr


def test_a_missing_library_says_how_to_build_it(tmp_path):
    spoil.copy_tfsparse(tmp_path)
    with pytest.raises(ImportError, match="The op library of tfsparse is not built") as caught:
        load_op_library(tmp_path)
    assert "pip install --no-build-isolation ." in str(caught.value)
    assert "make venv" in str(caught.value)


@pytest.mark.parametrize("damage", ["undefined symbol", "not a library"])
def test_a_library_that_does_not_load_is_told_in_words(tmp_path, damage):
    ops = spoil.copy_tfsparse(tmp_path)
    if damage == "not a library":
        (ops / library()).write_text("an empty disk\n")
    else:
        spoil.compile_library(ops / library(), "void absent(); void call() { absent(); }")
    with pytest.raises(ImportError) as caught:
        load_op_library(tmp_path)
    wrong, fix, received = str(caught.value).split("\n", 2)
    assert f"built for a TensorFlow that calls itself {tf.__version__}" in wrong
    assert "_Z" not in wrong
    assert "pip install --no-build-isolation ." in fix
    assert received.startswith("Received: ")
    assert caught.value.__cause__ is None  # or the traceback begins with the symbol
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("built_for", ["2.0.9", tf.__version__])
def test_horovod_that_does_not_fit_is_told_in_words(tmp_path, monkeypatch, built_for):
    spoil.write_horovod(tmp_path, built_for)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "horovod", raising=False)
    monkeypatch.setenv("HOROVOD_RANK", "0")
    with pytest.raises(ImportError) as caught:
        tfs.init()
    wrong, fix, *received = str(caught.value).splitlines()
    if built_for == tf.__version__:
        assert wrong == f"Horovod is built for TensorFlow {built_for} but does not load."
        assert received == ["Received: undefined symbol: _Z1f"]
        assert caught.value.__cause__ is None  # or the traceback begins with the symbol
        assert caught.value.__suppress_context__
    else:
        assert wrong == (
            f"Horovod is built for TensorFlow 2.0.9, but this is TensorFlow {tf.__version__}."
        )
        assert not received  # it was not even loaded
    assert "--no-cache-dir --no-build-isolation --no-deps --force-reinstall horovod==0.28.1" in fix


def test_missing_horovod_says_how_to_build_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod", None)  # as if it were not installed
    monkeypatch.setenv("HOROVOD_RANK", "0")
    with pytest.raises(ImportError, match=r"not installed.\nBuild it: .*'cmake<4'.* horovod=="):
        tfs.init()


def test_missing_keras_says_which_to_install():
    program = "import sys; sys.modules['tf_keras'] = None; import tfsparse"
    done = spoil.python(spoil.PACKAGE.parent, "-c", program, TF_USE_LEGACY_KERAS="1")
    assert done.returncode == 1
    assert f"ImportError: TensorFlow {tf.__version__} finds no Keras to be tf.keras" in done.stderr
    name = "tf-keras" if KERAS_3_IS_DEFAULT else "keras"
    assert re.search(rf"pip install '{name}==2\.1\d\.\*'", done.stderr)


@pytest.mark.skipif(not KERAS_3_IS_DEFAULT, reason="this TensorFlow does not bring Keras 3")
def test_keras_3_is_refused_once_and_clearly():
    done = spoil.python(spoil.PACKAGE.parent, "-c", "import tfsparse", TF_USE_LEGACY_KERAS=None)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    wrong, fix = done.stderr.strip().splitlines()[-2:]
    assert re.match(r"ImportError: tf.keras is keras 3\.\d+\.\d+, but with TensorFlow 2\.", wrong)
    assert "need tf-keras 2." in wrong
    assert re.search(r"pip install 'tf-keras==2\.\d+\.\*', and set TF_USE_LEGACY_KERAS=1", fix)
