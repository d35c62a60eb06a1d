"""Saves over an older checkpoint, with a fault at every file operation in turn.

    faulty_saves.py FOLDER

Run with file_faults.cc preloaded. Prints `passed <fault> <operations>` for each kind of fault.
"""

import ctypes
import os
import shutil
import signal
import sys
from pathlib import Path

import tfsparse as tfs
from tests.checkpoint.models import assert_same, make_model, state_of, train

FULL, KILLED, HALF_DONE = 0, 1, 2
FAULTS = ctypes.CDLL(None)


def fault_at(number, kind, folder):
    return FAULTS.fault_at(ctypes.c_long(number), kind, str(folder).encode())


def killed(model, folder, number, kind):
    """Whether a fork of this process is killed by the fault while it saves."""
    child = os.fork()
    if child == 0:
        fault_at(number, kind, folder)
        tfs.save(model, folder)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return status == signal.SIGKILL


def refused(model, folder, number, kind):
    """Whether the save fails by the fault."""
    fault_at(number, kind, folder)
    try:
        tfs.save(model, folder)
    except Exception as error:
        assert "No space left" in str(error), error
        return True
    finally:
        fault_at(-1, kind, "")
    return False


def check(kind, fails, root, most=sys.maxsize):
    folder = root / f"fault {kind}"
    model, reader = make_model("SGD"), make_model("SGD")
    train(model, range(2))
    older = state_of(model)
    tfs.save(model, folder)
    train(model, range(2, 4))
    newer = state_of(model)
    number, replaced, failed = 0, False, True
    while (failed or kind == HALF_DONE) and number < most:
        failed = fails(model, folder, number, kind)
        step = tfs.restore(reader, folder)
        assert step == 4 if replaced else step in (2, 4), (number, step)
        replaced = step == 4
        assert_same(state_of(reader), newer if replaced else older)
        number += 1
        if fails is refused and failed and not replaced:
            assert len(list(folder.iterdir())) == 2, number  # nothing is left of it
    assert replaced
    assert_same(state_of(model), newer)  # a failed save changes nothing, and training goes on
    train(model, range(4, 5))
    tfs.save(model, folder)
    assert len(list(folder.iterdir())) == 2  # what was half written is gone
    shutil.rmtree(folder)
    print(f"passed {kind} {number}", flush=True)
    return number


def main():
    root = Path(sys.argv[1])
    tfs.init()
    check(FULL, refused, root)
    operations = check(KILLED, killed, root)
    check(HALF_DONE, killed, root, operations)


main()
