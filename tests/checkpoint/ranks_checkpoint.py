"""Saves on some ranks what others, on as many or more or fewer, have saved and go on from.

    ranks_checkpoint.py FOLDER LOAD...

Trains ten steps, saves FOLDER/<ranks>, and trains ten more, unless as many ranks did so before.
LOAD are numbers of ranks: what they saved is restored and trained for ten more steps. Rank 0 writes
the states after ten and twenty steps to FOLDER/<ranks>.pkl, and FOLDER/<ranks>-<LOAD>.pkl.
"""

import pickle
import sys
from pathlib import Path

import numpy as np

import tfsparse as tfs
from tests.checkpoint.models import SAMPLES, make_model, train, whole_state


def rows_of_rank():
    """A share of each batch: an unequal one, and none for the last of five."""
    cuts = np.linspace(0, SAMPLES, tfs.size() + 1).astype(int)
    if tfs.size() == 5:
        cuts[4] = SAMPLES
    return slice(cuts[tfs.rank()], cuts[tfs.rank() + 1])


def go_on(model, first):
    losses = train(model, range(first, first + 10), rows_of_rank())
    return {"state": whole_state(model), "losses": losses}


def main():
    folder, loads = Path(sys.argv[1]), sys.argv[2:]
    tfs.init()
    own = str(tfs.size())
    results = {}
    model = make_model(every_rule=True)  # one for all: to trace a step takes most of the time
    if not (folder / f"{own}.pkl").exists():
        ten = go_on(model, 0)
        tfs.save(model, folder / own)
        results[own] = {"ten": ten, "twenty": go_on(model, 10)}
    for load in loads:
        assert tfs.restore(model, folder / load) == 10
        ten = {"state": whole_state(model)}
        results[f"{own}-{load}"] = {"ten": ten, "twenty": go_on(model, 10)}
    if tfs.rank() == 0:
        for name, result in results.items():
            (folder / f"{name}.pkl").write_bytes(pickle.dumps(result))
    print(f"all done on rank {tfs.rank()}", flush=True)


main()
