"""What the programs of these tests share."""

import os
import sys
import traceback

import numpy as np
import tensorflow as tf

import tfsparse as tfs


def run_checks(namespace):
    """Runs the `check_...` functions of a program on all ranks; the first failure ends the job."""
    tfs.init()
    for name, check in list(namespace.items()):
        if not name.startswith("check_"):
            continue
        tf.keras.utils.set_random_seed(1)
        try:
            check()
        except BaseException:
            traceback.print_exc()
            print(f"FAILED {name} on rank {tfs.rank()}", flush=True)
            sys.exit(1)
        print(f"passed {name} on rank {tfs.rank()}", flush=True)


def wait_at_gate(path):
    """Waits until the test opens a `watch.Gate`."""
    os.close(os.open(path, os.O_RDONLY))


def table_state(table):
    """This rank's `{"keys", "rows", "slots"}`, whole arrays."""
    blocks = list(table.export())
    if not blocks:
        return {"keys": np.zeros(0, np.int64), "rows": np.zeros((0, 0)), "slots": np.zeros((0, 0))}
    return dict(zip(("keys", "rows", "slots"), map(np.concatenate, zip(*blocks))))


def expect(error, message, function, *arguments):
    """Calls `function`, which must raise."""
    try:
        function(*arguments)
    except error as raised:
        assert message in str(raised), raised
    else:
        raise AssertionError(f"must raise {error}: {message}")


def mine(of_rank_0, of_rank_1):
    """What this one of two ranks takes."""
    return of_rank_1 if tfs.rank() else of_rank_0


def built(layer, *shape):
    """A layer for ids `[None, *shape]`, built before its first call."""
    layer.build(tf.TensorShape([None, *shape]))
    return layer


def part_of_batch(batch, num_samples):
    """The rows of batch number `batch` that this rank takes: unequal, together everything."""
    first = batch * num_samples
    cuts = {
        1: [0, num_samples],
        2: [0, num_samples * 3 // 5, num_samples],
        3: [0, num_samples // 4, num_samples * 3 // 4, num_samples],
    }[tfs.size()]
    return np.arange(first + cuts[tfs.rank()], first + cuts[tfs.rank() + 1])
