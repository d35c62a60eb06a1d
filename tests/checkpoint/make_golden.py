"""Writes the golden checkpoint of the current version of the format; run it for a new version only.

    python -m tests.checkpoint.make_golden FOLDER

FOLDER/checkpoint is what tfs.save wrote, with several files a table; FOLDER/state.npz is what must
come back.
"""

import sys
from pathlib import Path

import numpy as np

import tfsparse as tfs
from tests.checkpoint.models import make_model, state_of, train
from tfsparse.checkpoint import table_files


def arrays_of(state):
    """A state of `models.state_of` as arrays with names."""
    arrays = {}
    for table, rows in state["rows"].items():
        arrays[f"{table}/keys"] = np.array(sorted(rows), np.int64)
        arrays[f"{table}/rows"] = np.stack([rows[key] for key in sorted(rows)])
    for part in ("weights", "optimizer"):
        arrays.update({f"{part}/{i}": value for i, value in enumerate(state[part])})
    return arrays


def main():
    """Writes both."""
    folder = Path(sys.argv[1])
    table_files.FILE_ROWS = 40
    model = make_model(every_rule=True)
    train(model, range(2))
    tfs.save(model, folder / "checkpoint")
    np.savez_compressed(folder / "state.npz", **arrays_of(state_of(model)))


if __name__ == "__main__":
    main()
