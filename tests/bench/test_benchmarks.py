"""Every benchmark can be loaded by all contenders, and our side of it works."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import side_by_side
from tests.bench.benchmark import Benchmark
from tests.bench.run import COMMANDS

FOLDER = Path(__file__).parent
SMALL = {
    "lookup": ["70000", "4"],
    "insert": ["70000", "4"],
    "train": ["70000", "4"],
    "table_step": ["4", "sgd"],
    "fit": [],
    "memory": ["70000", "4"],
    "save": ["70000", "4"],
    "restore": ["70000", "4"],
}


def test_benchmarks_need_no_framework_to_be_loaded():
    modules = ", ".join(f"tests.bench.{name}" for name in SMALL)
    check = (
        "found = {'tensorflow', 'tfsparse', 'torch'} & set(sys.modules); assert not found, found"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {modules}; {check}"],
        cwd=side_by_side.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_make_bench_runs_every_benchmark():
    assert {command.split()[0] for command in COMMANDS} == {
        *SMALL,
        "checkpoint",
        "movielens",
        "wire",
    }


def test_every_rival_is_compared_and_has_a_module():
    contenders = set()
    for name in SMALL:
        benchmark = importlib.import_module(f"tests.bench.{name}").BENCHMARK
        assert benchmark.name == name
        assert benchmark.contenders[0] == "tfsparse"
        contenders.update(benchmark.contenders)
    lists = (side_by_side.ROOT / "tools").glob("requirements-bench-*.txt")
    rivals = {path.stem[len("requirements-bench-") :] for path in lists}
    assert rivals == {"tfra", "fbgemm"}
    assert rivals <= contenders
    assert contenders <= {path.stem for path in (FOLDER / "contenders").glob("*.py")}


# An epoch of `fit` takes too long for a test.
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*SMALL} - {"fit"}))
def test_our_side_works(name):
    command = [sys.executable, "-m", "tests.bench.worker", name, "tfsparse", *SMALL[name]]
    settings, figures = side_by_side.interleave({"tfsparse": command}, pairs=1, limit_s=300)
    assert "tensorflow 2." in settings["tfsparse"]
    (figure,) = figures["tfsparse"]
    if name == "memory":
        assert figure > 8 + 4 * 4 * 3  # a key, a row of 4 and Adam's two slots


def test_a_rival_without_its_environment_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "requirements-bench-other.txt").touch()
    monkeypatch.setattr(side_by_side, "ROOT", tmp_path)
    assert side_by_side.python_of("ours") == sys.executable
    with pytest.raises(side_by_side.Failed, match="make bench-other"):
        side_by_side.python_of("other")


def test_arguments_default_and_keep_their_types():
    arguments = {"keys": 4, "rule": "sgd"}
    benchmark = Benchmark("name", "title", "unit", ("tfsparse",), arguments, prepare=None)
    assert benchmark.parse([]) == {"keys": 4, "rule": "sgd"}
    assert benchmark.parse(["2e6", "adam"]) == {"keys": 2_000_000, "rule": "adam"}
    with pytest.raises(SystemExit, match="name takes"):
        benchmark.parse(["1", "2", "3"])


@pytest.mark.slow
def test_checkpoints_are_compared_with_dd(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.checkpoint", "70000", "4", str(tmp_path)],
        cwd=side_by_side.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for line in ("save is", "restore is", "a save adds", "a restore grows"):
        assert f"  {line} " in done.stdout
    assert not list(tmp_path.iterdir())
