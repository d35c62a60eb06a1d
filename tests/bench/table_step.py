"""How long does a table take for one step? Forward, backward and update of 106,496 Zipf ids.

python -m tests.bench.table_step [DIM] [OPTIMIZER]     OPTIMIZER: sgd or adagrad
"""

import time

import numpy as np

from tests.bench import side_by_side, workload
from tests.bench.benchmark import Benchmark

FEATURES, VOCABULARY, SAMPLES, STEPS = 26, 100_000, 4096, 10


def prepare(contender, dim, optimizer):
    """The work is 10 steps; the round that does not count makes the rows of all their ids."""
    rng = np.random.default_rng(0)
    table = contender.Table(dim, optimizer, capacity=FEATURES * VOCABULARY)
    gradients = rng.normal(size=(SAMPLES, FEATURES, dim)).astype(np.float32)
    gradients = table.floats(gradients)
    batches = [
        table.ids(workload.features(rng, SAMPLES, FEATURES, VOCABULARY)) for _ in range(STEPS)
    ]

    def work():
        start = time.perf_counter()
        for batch in batches:
            table.step(batch, gradients)
        return (time.perf_counter() - start) / STEPS * 1e3

    return work


BENCHMARK = Benchmark(
    name="table_step",
    title=f"table step, {SAMPLES * FEATURES:,} Zipf ids",
    unit="ms",
    contenders=("tfsparse", "fbgemm", "tfra"),
    arguments={"dim": 16, "optimizer": "adagrad"},
    prepare=prepare,
    less_is_better=True,
)

if __name__ == "__main__":
    side_by_side.main(BENCHMARK)
