"""How fast are new keys inserted? Rows without optimizer slots, into an empty table.

python -m tests.bench.insert [KEYS] [DIM]
"""

import numpy as np

from tests.bench import side_by_side, workload
from tests.bench.benchmark import Benchmark


def prepare(contender, keys, dim):
    """The work is to fill a new table; making the table is not counted."""
    all_keys = workload.distinct_keys(keys)

    def work():
        table = contender.Table(dim, "sgd", capacity=keys)
        blocks = [
            (table.ids(block), table.floats(np.zeros((len(block), dim), np.float32)))
            for block in workload.batches(all_keys)
        ]

        def fill():
            for ids, rows in blocks:
                table.insert(ids, rows)

        return workload.per_second(keys / 1e6, fill)()

    return work


BENCHMARK = Benchmark(
    name="insert",
    title="insert of new keys, no slots",
    unit="Mkeys/s",
    contenders=("tfsparse", "tfra"),
    arguments={"keys": 4_000_000, "dim": 16},
    prepare=prepare,
)

if __name__ == "__main__":
    side_by_side.main(BENCHMARK)
