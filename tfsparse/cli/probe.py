"""One check of `tfsparse doctor`, run as a program: a library that does not fit can end it.

    python probe.py CHECK SYS_PATH STACK

CHECK is a function below, SYS_PATH what the asking process has, as JSON, and STACK the path of
`tfsparse/stack.py`. Prints one line of JSON: what it found, or its problem.
"""

import importlib
import json
import runpy
import sys
from importlib import metadata


def tensorflow(stack):
    """Whether TensorFlow loads, and what `tf.keras` is."""
    keras = stack["check_keras"]()
    return f"{stack['tf'].__version__}, tf.keras is {keras}"


def op_library(stack):
    """Whether there is an op library for this TensorFlow that loads."""
    stack["load_op_library"]()
    return f"{stack['op_library']()} loads"


def horovod(stack):
    """What Horovod was built for and with."""
    stack["check_horovod"]()
    # By name: the one module of ours that imports Horovod can be imported only when all is well.
    try:
        hvd = importlib.import_module("horovod.tensorflow")
    except Exception as error:
        raise stack["horovod_failure"](error) from None
    ways = {"gloo": hvd.gloo_built(), "mpi": hvd.mpi_built(), "nccl": hvd.nccl_built()}
    told = ", ".join(f"{way} {'yes' if built else 'no'}" for way, built in ways.items())
    return f"loads, built for TensorFlow {stack['tf'].__version__}: {told}"


def main():
    """Runs one check and prints its answer."""
    check, path, stack = sys.argv[1:]
    sys.path[:] = json.loads(path)
    try:
        answer = {"found": globals()[check](_run(stack))}
    except ImportError as error:
        answer = {"problem": str(error)}
    print(json.dumps(answer))


def _run(stack):
    try:
        return runpy.run_path(stack)
    except ImportError as error:
        needed = [name for name in metadata.requires("tfsparse") if name.startswith("tensorflow=")]
        raise ImportError(
            "TensorFlow cannot be imported.\n"
            f"Install it: pip install --force-reinstall {needed[0]}\nReceived: {error}"
        ) from error


if __name__ == "__main__":
    main()
