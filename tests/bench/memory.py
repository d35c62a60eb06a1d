"""How much memory does a key take? Growth of the process while new keys train with Adam.

Nobody is told how many keys will come: TFRA takes more when it is.

python -m tests.bench.memory [KEYS] [DIM]
"""

import os

import numpy as np

from tests.bench import side_by_side, workload
from tests.bench.benchmark import Benchmark


def _resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def prepare(contender, keys, dim):
    """Trains a small table, for the memory of the framework; the work is to train another once."""
    small = contender.Table(dim, "adam", capacity=None)
    gradients = small.floats(np.ones((workload.BATCH, dim), np.float32))
    blocks = workload.batches(workload.distinct_keys(keys))

    def work():
        small.step(small.ids(blocks[0]), gradients)
        before = _resident_bytes()
        table = contender.Table(dim, "adam", capacity=None)
        for block in blocks:
            table.step(table.ids(block), gradients[: len(block)])
        return (_resident_bytes() - before) / keys

    return work


BENCHMARK = Benchmark(
    name="memory",
    title="memory of a key and its Adam slots",
    unit="bytes",
    contenders=("tfsparse", "tfra"),
    arguments={"keys": 4_000_000, "dim": 16},
    prepare=prepare,
    pairs=1,
    less_is_better=True,
)

if __name__ == "__main__":
    side_by_side.main(BENCHMARK)
