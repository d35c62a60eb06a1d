"""How fast are known keys looked up?

python -m tests.bench.lookup [KEYS] [DIM]
"""

import numpy as np

from tests.bench import side_by_side, workload
from tests.bench.benchmark import Benchmark


def prepare(contender, keys, dim):
    """Fills a table; the work is 20 batches of lookups."""
    all_keys = workload.distinct_keys(keys)
    table = contender.Table(dim, "sgd", capacity=keys)
    for block in workload.batches(all_keys):
        table.insert(table.ids(block), table.floats(np.zeros((len(block), dim), np.float32)))
    batches = [table.ids(batch) for batch in workload.drawn(all_keys, 20)]

    def work():
        for batch in batches:
            table.lookup(batch)

    return workload.per_second(len(batches) * workload.BATCH / 1e6, work)


BENCHMARK = Benchmark(
    name="lookup",
    title="lookup of known keys",
    unit="Mkeys/s",
    contenders=("tfsparse", "tfra", "dense"),
    arguments={"keys": 4_000_000, "dim": 16},
    prepare=prepare,
)

if __name__ == "__main__":
    side_by_side.main(BENCHMARK)
