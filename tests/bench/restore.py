"""How fast is a table with Adam's slots restored, from files that were just saved?

python -m tests.bench.restore [KEYS] [DIM]
"""

import tempfile

from tests.bench import side_by_side, workload
from tests.bench.benchmark import Benchmark
from tests.bench.save import trained


def prepare(contender, keys, dim):
    """The work is one restore, into the table that was saved."""
    table = trained(contender, keys, dim)
    folder = tempfile.TemporaryDirectory(prefix="tfsparse-bench-")
    table.save(folder.name)

    def restore():
        table.restore(folder.name)

    return workload.per_second(keys / 1e6, restore)


BENCHMARK = Benchmark(
    name="restore",
    title="restore of all rows and slots (Adam)",
    unit="Mrows/s",
    contenders=("tfsparse", "tfra"),
    arguments={"keys": 4_000_000, "dim": 16},
    prepare=prepare,
    threads=2,
)

if __name__ == "__main__":
    side_by_side.main(BENCHMARK)
