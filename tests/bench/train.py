"""How fast do known keys train? The Keras layer's lookup, its gradient, and Adam.

python -m tests.bench.train [KEYS] [DIM]
"""

import numpy as np

from tests.bench import side_by_side, workload
from tests.bench.benchmark import Benchmark


def prepare(contender, keys, dim):
    """Trains every key once; the work is 10 batches of steps."""
    all_keys = workload.distinct_keys(keys)
    table = contender.Table(dim, "adam", capacity=keys)
    rng = np.random.default_rng(2)
    gradients = table.floats(rng.normal(size=(workload.BATCH, dim)).astype(np.float32))
    for block in workload.batches(all_keys):
        table.step(table.ids(block), gradients[: len(block)])
    batches = [table.ids(batch) for batch in workload.drawn(all_keys, 10)]

    def work():
        for batch in batches:
            table.step(batch, gradients)

    return workload.per_second(len(batches) * workload.BATCH / 1e6, work)


BENCHMARK = Benchmark(
    name="train",
    title="train step of known keys (lookup, gradient, Adam)",
    unit="Mkeys/s",
    contenders=("tfsparse", "tfra"),
    arguments={"keys": 4_000_000, "dim": 16},
    prepare=prepare,
)

if __name__ == "__main__":
    side_by_side.main(BENCHMARK)
