"""The tree keeps the shape that CONTRIBUTING.md draws; the rules are in `architecture_rules.py`."""

import subprocess
from pathlib import Path

import pytest

from tests import architecture_rules as rules

ROOT = Path(__file__).resolve().parents[1]
CPP = (".h", ".cc", ".cu", ".cuh")
SOURCES = (".py", ".sh") + CPP
PACKAGE = ("tfsparse/", "keras_layers/")
SHIPPED = PACKAGE + ("examples/",)


def project_files(folders=("",), suffixes=("",)):
    """Yields `(path, text)` of the text files in git, and of those that could be added to it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    for path in sorted(set(listed.decode().split("\0")) - {""}):
        if path.startswith(tuple(folders)) and path.endswith(tuple(suffixes)):
            if (ROOT / path).is_file():  # git also lists what was deleted but not committed
                content = (ROOT / path).read_bytes()
                if b"\0" not in content:
                    yield path, content.decode()


RULES = [
    (rules.include_violations, ("custom_ops/",), CPP),
    (rules.import_violations, SHIPPED, (".py",)),
    (rules.horovod_violations, SHIPPED, (".py",)),
    (rules.private_name_violations, SHIPPED, (".py",)),
    (rules.patching_violations, SHIPPED, (".py",)),
    (rules.docstring_violations, PACKAGE, (".py",)),
    (rules.default_violations, SHIPPED, (".py",)),
    (rules.length_violations, ("",), SOURCES),
    (rules.machine_path_violations, ("",), ("",)),
]


@pytest.mark.parametrize("rule, folders, suffixes", RULES, ids=[rule[0].__name__ for rule in RULES])
def test_tree_keeps_to_the_rules(rule, folders, suffixes):
    files = list(project_files(folders, suffixes))
    assert files, f"no files {suffixes} in {folders}: the rule looks at the wrong place"
    wrong = [f"{path}: {what}" for path, text in files for what in rule(path, text)]
    assert not wrong, "\n".join([rule.__doc__] + wrong)


def test_one_module_imports_horovod():
    files = project_files(SHIPPED, (".py",))
    importers = [path for path, text in files if rules.horovod_import_lines(path, text)]
    assert len(importers) <= 1, importers


@pytest.mark.parametrize("stack", ["tf215", "tf216"])
def test_pinned_versions_agree(stack):
    constraints = (ROOT / f"tools/constraints-{stack}.txt").read_text().splitlines()
    pins = dict(line.split("==", 1) for line in constraints if not line.startswith("#"))
    setup = (ROOT / "setup.py").read_text()
    assert f'"horovod=={pins["horovod"]}"' in setup
    assert f"horovod=={pins['horovod']}" in (ROOT / "tfsparse/stack.py").read_text()
    assert f'    "{pins["tensorflow"]}": [' in setup
    assert f"| {pins['tensorflow']} " in (ROOT / "README.md").read_text()
    if stack == "tf215":  # what builds in isolation are built for
        assert f'"tensorflow=={pins["tensorflow"]}"' in (ROOT / "pyproject.toml").read_text()


# From here on the rules themselves are tested: each must find what it is there to find.


@pytest.mark.parametrize(
    "path, include, allowed",
    [
        ("custom_ops/core/a.cc", "<vector>", True),
        ("custom_ops/core/a.cc", '"core/b.h"', True),
        ("custom_ops/core/a.cc", '"tiers/b.h"', False),
        ("custom_ops/core/a.cc", '"b.h"', False),
        ("custom_ops/core/a.cc", "<stdint.h>", False),
        ("custom_ops/core/a.cc", "<sys/mman.h>", False),
        ("custom_ops/core/system_memory.h", "<sys/mman.h>", True),
        ("custom_ops/kernels/a.cc", "<fcntl.h>", False),
        ("custom_ops/kernels/row_file.cc", "<fcntl.h>", True),
        ("custom_ops/core/a.cc", '"absl/types/span.h"', False),
        ("custom_ops/core/a.cc", '"tensorflow/core/framework/op.h"', False),
        ("custom_ops/tiers/ssd.cc", "<sys/mman.h>", True),
        ("custom_ops/tiers/ssd.cc", '"core/b.h"', True),
        ("custom_ops/tiers/ssd.cc", '"kernels/b.h"', False),
        ("custom_ops/tiers/ssd.cc", '"tensorflow/core/framework/op.h"', False),
        ("custom_ops/tiers/ssd.cc", "<cuda_runtime.h>", False),
        ("custom_ops/tiers/cuda/gather.cu", "<cuda_runtime.h>", True),
        ("custom_ops/tiers/cuda/gather.cu", "<cub/cub.cuh>", True),
        ("custom_ops/schema/a.cc", '"tensorflow/core/framework/op.h"', True),
        ("custom_ops/schema/a.cc", '"kernels/b.h"', False),
        ("custom_ops/kernels/a.cc", '"tensorflow/core/framework/op_kernel.h"', True),
        ("custom_ops/kernels/a.cc", '"tiers/b.h"', True),
        ("custom_ops/kernels/a.cc", "<cuda_runtime.h>", False),
        ("custom_ops/extras/a.cc", "<vector>", False),
    ],
)
def test_includes_go_down(path, include, allowed):
    assert bool(rules.include_violations(path, f"#include {include}\n")) != allowed


@pytest.mark.parametrize(
    "path, statement, allowed",
    [
        ("examples/a.py", "import tfsparse as tfs", True),
        ("examples/a.py", "from tfsparse.keras_layers import DynamicEmbedding", True),
        ("examples/a.py", "from tfsparse.embedding import Table", False),
        ("tfsparse/__init__.py", "from tfsparse.embedding.table import Table", True),
        ("tfsparse/__init__.py", "from examples import movielens_data", False),
        ("tfsparse/cli.py", "from tfsparse.keras_layers import Model", True),
        ("tfsparse/cli.py", "import tfsparse", False),
        ("keras_layers/model.py", "from tfsparse import pipeline", True),
        ("keras_layers/model.py", "from tfsparse.keras_layers import metrics", True),
        ("keras_layers/model.py", "from . import metrics", True),
        ("keras_layers/model.py", "from ..embedding import table", True),
        ("keras_layers/model.py", "from keras_layers import metrics", False),
        ("keras_layers/model.py", "from tfsparse import Table", False),
        ("tfsparse/online/feed.py", "from tfsparse import export", True),
        ("tfsparse/online/feed.py", "from tfsparse import keras_layers", False),
        ("tfsparse/export/saved.py", "import tfsparse.checkpoint", False),
        ("tfsparse/export/saved.py", "import tfsparse.embedding", True),
        ("tfsparse/export/saved.py", "def f():\n    from ..pipeline import stage", False),
        ("tfsparse/embedding/table.py", "from tfsparse.runtime import ranks", True),
        ("tfsparse/embedding/table.py", "from tfsparse.export import saved", False),
        ("tfsparse/ops/table_ops.py", "from tfsparse import runtime", False),
        ("tfsparse/ops/table_ops.py", "from tfsparse.version import __version__", True),
        ("tfsparse/ops/table_ops.py", "import tensorflow as tf", True),
        ("tfsparse/extras/a.py", "import os", False),
    ],
)
def test_imports_go_down(path, statement, allowed):
    assert bool(rules.import_violations(path, statement)) != allowed


@pytest.mark.parametrize(
    "statement", ["import horovod.tensorflow as hvd", "from horovod import tensorflow"]
)
def test_horovod_is_found(statement):
    assert rules.horovod_violations("tfsparse/embedding/exchange.py", statement)
    assert not rules.horovod_violations("tfsparse/runtime/collectives.py", statement)
    assert rules.horovod_import_lines("tfsparse/runtime/collectives.py", statement) == [1]


@pytest.mark.parametrize(
    "text, num_violations",
    [
        ("from tensorflow.python.framework import ops", 1),
        ("from tensorflow import python", 1),
        ("import keras.src.layers", 1),
        ("from keras.engine import base_layer", 1),
        ("from tensorflow.core.framework import graph_pb2", 1),
        ("import tensorflow as tf\ntf.python.framework.ops.Tensor", 1),
        ("import tensorflow as tf\ntf.keras.src.engine", 1),
        ("from tensorflow import keras\nkeras.layers.Layer._call", 1),
        ("import tensorflow as tf\ntf.keras.layers.Layer(tf.__version__)", 0),
        ("import tensorflow as tf\ntf.function(f).python_function", 0),
        ("self.core.engine", 0),
    ],
)
def test_private_names_are_found(text, num_violations):
    assert len(rules.private_name_violations("tfsparse/a.py", text)) == num_violations


@pytest.mark.parametrize(
    "text, num_violations",
    [
        ("import tensorflow as tf\ntf.keras.Model.fit = fit", 1),
        ("import tensorflow as tf\ntf.config.limit += 1", 1),
        ("import tensorflow as tf\ntf.__dict__['fit'] = fit", 1),
        ("import tensorflow as tf\nx, tf.ones = 1, 2", 1),
        ("import tensorflow as tf\ndel tf.ones", 1),
        ("import tensorflow as tf\nsetattr(tf.keras.Model, 'fit', fit)", 1),
        ("import horovod.tensorflow as hvd\nhvd.size = lambda: 1", 1),
        ("from keras import Model\nModel.fit: object = fit", 1),
        ("import tensorflow as tf\nx = tf.ones([2])\nself.tf = tf\nx.name = 'x'", 0),
        ("setattr(self, 'fit', fit)", 0),
    ],
)
def test_patching_is_found(text, num_violations):
    assert len(rules.patching_violations("tfsparse/a.py", text)) == num_violations


def test_long_files_are_found():
    assert not rules.length_violations("a.cc", "\n" * 600)
    assert rules.length_violations("a.cc", "\n" * 601)


@pytest.mark.parametrize("machine_path", rules.MACHINE_PATHS)
def test_machine_paths_are_found(machine_path):
    assert rules.machine_path_violations("a.md", f"see {machine_path}x") == [
        f"line 1: names {machine_path}"
    ]
    assert not rules.machine_path_violations("a.md", "the work/load of /tmp and root/cause")


@pytest.mark.parametrize(
    "text, names",
    [
        ("def f(): pass", ["f"]),
        ("async def f(): pass", ["f"]),
        ("class C:\n  def m(self): pass", ["C", "m"]),
        ("class C:\n  '''A.'''\n  @property\n  def m(self): pass", ["m"]),
        ("class C:\n  '''A.'''\n  @m.setter\n  def m(self, x): pass", []),
        ("class _C:\n  def m(self): pass", []),
        ("class C:\n  '''A.'''\n  def __init__(self): pass", []),
        ("def f():\n  '''A.'''\n  def inner(): pass", []),
    ],
)
def test_missing_docstrings_are_found(text, names):
    found = rules.docstring_violations("tfsparse/a.py", text)
    assert [what.split()[2] for what in found] == names


@pytest.mark.parametrize(
    "signature, description, agrees",
    [
        ("x=1", "Rows. Defaults to `1`.", True),
        ("x=1", "Rows. Defaults to `2`.", False),
        ("x=1", "Rows (default 2).", False),
        ("x=0.05", "Rows, default 0.05.", True),
        ("x=-1", "Rows. Defaults to\n        `-1`.", True),
        ("x=1", "Rows. Defaults to `True`.", False),
        ("x='sum'", 'Defaults to `"sum"`.', True),
        ("x='sum'", 'Defaults to "mean".', False),
        ("x=None", "Defaults to `None`: nothing.", True),
        ("x=(1, 2)", "Defaults to `(1, 2)`.", True),
        ("x=tf.float32", "Defaults to `tf.float32`.", True),
        ("x=tf.float16", "Defaults to `tf.float32`.", False),
        ("x=_BLOCK_ROWS", "Defaults to `1 << 16`.", True),
        ("x=_BLOCK_ROWS", "Defaults to 65536.", True),
        ("x=_BLOCK_ROWS", "Defaults to 65537.", False),
        ("*, x=3", "Defaults to `3`.", True),
        ("x", "Defaults to `3`.", False),
        ("y", "Defaults to `3`.", False),
        ("y, **others", "Defaults to `3`.", True),
        ("x=1", "By default all rows, or the default of the table.", True),
        ("x=1", "Defaults to `not an expression`.", False),
    ],
)
def test_told_defaults_are_compared(signature, description, agrees):
    arguments = f"Args:\n        y: Other.\n        x (int): {description}"
    function = f'def f({signature}):\n    """Does.\n\n    {arguments}\n    """\n'
    layer = f'class C:\n    """Is.\n\n    {arguments}\n    """\n'
    layer += f"    def __init__(self, {signature}):\n        pass\n"
    for text in (function, layer):
        text = "_BLOCK_ROWS = 2**16\n" + text
        assert bool(rules.default_violations("tfsparse/a.py", text)) != agrees


@pytest.mark.parametrize(
    "field, agrees",
    [
        ("x: int = 1", True),
        ("x: int = 2", False),
        ("x: int = field(default=1)", True),
        ("x: int = dataclasses.field(default=2)", False),
        ("x: int", False),
    ],
)
def test_told_defaults_of_dataclasses_are_compared(field, agrees):
    arguments = "Args:\n        x: Rows. Defaults to `1`."
    text = f'class C:\n    """Is.\n\n    {arguments}\n    """\n    {field}\n'
    assert bool(rules.default_violations("tfsparse/a.py", text)) != agrees
