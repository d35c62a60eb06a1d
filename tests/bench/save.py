"""How fast is a table with Adam's slots saved, until it is on the disk?

python -m tests.bench.save [KEYS] [DIM]

Files that a contender has not synced are synced after it. In a TMPDIR that is memory, /dev/shm say,
it shows the work without the disk.
"""

import os
import tempfile
from pathlib import Path

import numpy as np

from tests.bench import side_by_side, workload
from tests.bench.benchmark import Benchmark


def trained(contender, keys, dim):
    """A table of which every key was trained once."""
    table = contender.Table(dim, "adam", capacity=keys)
    gradients = np.ones((workload.BATCH, dim), np.float32)
    for block in workload.batches(workload.distinct_keys(keys)):
        table.step(table.ids(block), table.floats(gradients[: len(block)]))
    return table


def prepare(contender, keys, dim):
    """The work is one save, over the one before."""
    table = trained(contender, keys, dim)
    folder = tempfile.TemporaryDirectory(prefix="tfsparse-bench-")

    def save():
        table.save(folder.name)
        for path in Path(folder.name).rglob("*"):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)  # which costs nothing where it was done
            os.close(descriptor)

    return workload.per_second(keys / 1e6, save)


BENCHMARK = Benchmark(
    name="save",
    title="save of all rows and slots (Adam)",
    unit="Mrows/s",
    contenders=("tfsparse", "tfra"),
    arguments={"keys": 4_000_000, "dim": 16},
    prepare=prepare,
    threads=2,
)

if __name__ == "__main__":
    side_by_side.main(BENCHMARK)
