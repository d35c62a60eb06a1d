"""The golden dumps of TFRA, and what can be changed in a copy of one."""

import shutil
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).resolve().parents[1] / "golden/tfra-0.7.2"


def copy_of(case, folder, golden=GOLDEN):
    shutil.unpack_archive(golden / case / "dump.zip", folder / "dump")
    return folder / "dump"


def spoil_value(dump, name, value):
    values = np.fromfile(dump / f"{name}-values", np.float32)
    values[1] = value
    values.tofile(dump / f"{name}-values")


def drop_key(dump, name, number=0):
    """Removes a key and its value; returns the key."""
    keys = np.fromfile(dump / f"{name}-keys", np.int64)
    values = np.fromfile(dump / f"{name}-values", np.float32).reshape(len(keys), -1)
    np.delete(keys, number).tofile(dump / f"{name}-keys")
    np.delete(values, number, axis=0).tofile(dump / f"{name}-values")
    return int(keys[number])


def rename(dump, pattern, replacement):
    files = list(dump.glob(f"*{pattern}*"))
    assert files
    for file in files:
        file.rename(dump / file.name.replace(pattern, replacement))
