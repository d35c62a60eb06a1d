"""The wheel says what it needs and holds what it should; the tests run on what it installed."""

import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import tensorflow as tf

import tfsparse as tfs
import tfsparse.keras_layers

ROOT = Path(__file__).resolve().parents[2]
CODE = [tfs, tfsparse.keras_layers, tfsparse.ops]


@pytest.fixture(scope="module")
def wheel():
    folder = os.environ.get("TFSPARSE_TEST_WHEEL")
    if folder is None:
        pytest.skip("`make test` builds the wheel and runs this")
    (path,) = Path(folder).glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_the_installed_wheel_is_what_is_tested(wheel):
    for module in CODE:
        assert Path(module.__file__).is_relative_to(sys.prefix), module
    assert not (ROOT / "tfsparse").exists()


def test_it_requires_the_tensorflow_it_was_built_for(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    told = Parser().parsestr(wheel.read(name).decode())
    assert told["Version"] == f"{tfs.__version__}+tf{tf.__version__}"
    required = [text.replace(" ", "") for text in told.get_all("Requires-Dist")]
    assert f"tensorflow=={tf.__version__}" in required
    assert "horovod==0.28.1" in required
    assert ("tf-keras==2.16.*" in required) == tf.__version__.startswith("2.16.")


def test_it_holds_the_code_and_one_library_and_no_tests(wheel):
    names = [name for name in wheel.namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in names} == {"tfsparse", "tfsparse_cli"}
    assert [name for name in names if name.endswith(".so")] == [
        f"tfsparse/ops/_tfsparse_ops_tf{tf.__version__}.so"
    ]
    expected = {"tfsparse/keras_layers/embedding.py", "tfsparse_cli/doctor.py"}
    assert expected <= set(names)
    assert not [name for name in names if name.startswith("tfsparse/cli")]


def test_it_is_not_built_for_a_tensorflow_that_is_not_supported(tmp_path):
    other = tmp_path / "tensorflow-2.99.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow\nVersion: 2.99.0\n")
    done = subprocess.run(
        [sys.executable, "setup.py", "bdist_wheel"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "supports tensorflow==2.15.1 or tensorflow==2.16.2" in done.stderr
    assert "Installed: 2.99.0" in done.stderr


def test_the_editable_form_imports_from_the_checkout(tmp_path):
    finders = [path for folder in sys.path for path in Path(folder).glob("__editable__*tfsparse*")]
    if not finders:
        pytest.skip("tfsparse is not installed in its editable form in this environment")
    environment = finders[0].parents[3]  # above lib/python3.x/site-packages
    program = "import tfsparse, tfsparse.keras_layers, tfsparse_cli.doctor\n"
    program += "print(tfsparse.__file__, tfsparse.keras_layers.__file__, tfsparse_cli.__file__)"
    done = subprocess.run(
        [environment / "bin" / "python", "-c", program],
        cwd=tmp_path,
        env={name: text for name, text in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    package, layers, cli = map(Path, done.stdout.split()[-3:])
    assert package.parts[-2:] == ("tfsparse", "__init__.py")
    assert layers == package.parents[1] / "keras_layers" / "__init__.py"
    assert cli == package.parent / "cli" / "__init__.py"
