"""Whether what tfsparse stands on fits together: TensorFlow, the op library, Keras and Horovod.

The op library and Horovod are compiled for one TensorFlow each. Loaded into another they end in
undefined symbols at best, so versions are compared first. An `ImportError` raised here has two
lines: what is wrong, and what to do; what the loader said may follow. `tfsparse doctor` runs this
file by itself, for `import tfsparse` may be what fails: it imports no other part of tfsparse.
"""

import importlib
import json
from importlib.util import find_spec
from pathlib import Path

import tensorflow as tf

# Horovod's build needs older tools than pip would choose, and pip's cache would hand out a wheel
# that was built for another TensorFlow.
BUILD_HOROVOD = (
    "pip install 'setuptools<70' wheel packaging cloudpickle psutil pyyaml 'cmake<4' && "
    "HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 "
    "HOROVOD_WITH_GLOO=1 pip install --no-cache-dir --no-build-isolation --no-deps "
    "--force-reinstall horovod==0.28.1"
)

_BUILD_TFSPARSE = "in a checkout of tfsparse: pip install --no-build-isolation . (or make venv)"


def op_library():
    """The path of the op library that was built for the running TensorFlow.

    Libraries for several TensorFlows may lie side by side, as they do in a checkout that is
    installed (editable) in several environments.

    Raises:
        ImportError: there is none.
    """
    folder = Path(__file__).parent / "ops"
    prefix = "_tfsparse_ops_tf"
    path = folder / f"{prefix}{tf.__version__}.so"
    if path.is_file():
        return str(path)
    built_for = sorted(other.stem[len(prefix) :] for other in folder.glob(f"{prefix}*.so"))
    if not built_for:
        raise ImportError(f"The op library of tfsparse is not built.\nBuild it, {_BUILD_TFSPARSE}.")
    raise ImportError(
        f"tfsparse is built for TensorFlow {' and '.join(built_for)}, but this is TensorFlow "
        f"{tf.__version__}.\nInstall the one it is built for (pip install "
        f"tensorflow=={built_for[-1]}), or build it for this one, {_BUILD_TFSPARSE}."
    )


def load_op_library():
    """Loads the op library into TensorFlow and returns the module of its ops.

    Raises:
        ImportError: there is none for this TensorFlow, or it does not load.
    """
    path = op_library()
    try:
        return tf.load_op_library(path)
    except (tf.errors.OpError, OSError) as error:
        # Without `from error`: a traceback that begins with a mangled symbol helps nobody.
        raise ImportError(
            f"The op library {path} was built for a TensorFlow that calls itself "
            f"{tf.__version__} as this one does, but it does not load: the file is damaged, or "
            "one of the two TensorFlows was compiled otherwise.\nBuild it for this TensorFlow, "
            f"{_BUILD_TFSPARSE}.\nReceived: {error}"
        ) from None


def check_keras():
    """The version of Keras that `tf.keras` is, such as `"keras 2.15.0"`.

    Raises:
        ImportError: it is Keras 3, or another that does not belong to this TensorFlow, or missing.
    """
    minor = ".".join(tf.__version__.split(".")[:2])
    if tuple(map(int, minor.split("."))) < (2, 16):
        needed, fix = f"keras {minor}", f"pip install 'keras=={minor}.*', without "
        fix += "TF_USE_LEGACY_KERAS in the environment."
    else:
        needed, fix = f"tf-keras {minor}", f"pip install 'tf-keras=={minor}.*', and set "
        fix += "TF_USE_LEGACY_KERAS=1 in the environment before TensorFlow is imported."
    try:
        name = tf.keras.Model.__module__.split(".")[0]
    except ImportError as error:
        raise ImportError(
            f"TensorFlow {tf.__version__} finds no Keras to be tf.keras; the layers of tfsparse "
            f"need {needed}.\n{fix}\nReceived: {error}"
        ) from None
    version = importlib.import_module(name).__version__
    if version.split(".")[:2] != minor.split("."):
        raise ImportError(
            f"tf.keras is {name} {version}, but with TensorFlow {tf.__version__} the layers of "
            f"tfsparse need {needed}.\n{fix}"
        )
    return f"{name} {version}"


def check_horovod():
    """Compares the TensorFlow that Horovod was built for with the running one.

    Horovod itself loads before it compares, and dies of an undefined symbol.

    Raises:
        ImportError: it was built for another TensorFlow, or is missing.
    """
    spec = find_spec("horovod")
    if spec is None or spec.origin is None:  # none, or a mere folder of that name
        raise ImportError(f"Horovod is not installed.\nBuild it: {BUILD_HOROVOD}")
    metadata = Path(spec.origin).with_name("metadata.json")
    built_for = json.loads(metadata.read_text()).get("tensorflow", "(none)")
    if built_for != tf.__version__:
        raise ImportError(
            f"Horovod is built for TensorFlow {built_for}, but this is TensorFlow "
            f"{tf.__version__}.\nBuild it for this one: {BUILD_HOROVOD}"
        )


def horovod_failure(error):
    """The `ImportError` to raise for what importing Horovod raised, although versions agree."""
    return ImportError(
        f"Horovod is built for TensorFlow {tf.__version__} but does not load.\n"
        f"Build it anew: {BUILD_HOROVOD}\nReceived: {error}"
    )
