"""How fast are known keys looked up, on one thread? tfsparse, TFRA, and a dense variable.

python -m tests.bench.lookup [KEYS] [DIM]     defaults: 4e6 16
"""

import sys

import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)

from tensorflow_recommenders_addons import dynamic_embedding as tfra  # noqa: E402

import tfsparse as tfs  # noqa: E402
from tests.bench.side_by_side import interleave, per_second, report  # noqa: E402
from tfsparse import ops  # noqa: E402
from tfsparse.embedding.table import ShardedTable  # noqa: E402

BATCH, BATCHES = 65536, 20


def main():
    """Fills three tables with the same keys and compares lookups of the same batches."""
    num_keys = int(float(sys.argv[1])) if len(sys.argv) > 1 else 4_000_000
    dim = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    rng = np.random.default_rng(0)
    keys = rng.permutation(np.arange(num_keys, dtype=np.int64) * 2654435761 % (1 << 61))

    table = ShardedTable(tfs.Table("bench", dim, optimizer=tfs.optimizers.SGD()))
    rival = tfra.get_variable(
        "bench", tf.int64, tf.float32, dim=dim, devices=["/CPU:0"], init_size=num_keys
    )
    variable = tf.Variable(tf.random.normal((num_keys, dim)))
    for start in range(0, num_keys, BATCH):
        block = tf.constant(keys[start : start + BATCH])
        zeros = tf.zeros((len(block), dim))
        ops.apply(table.handle, block, zeros, 0.0)
        rival.upsert(block, zeros)

    @tf.function
    def ours(batch):
        return ops.lookup(table.handle, batch, dim)

    @tf.function
    def theirs(batch):
        return rival.lookup(batch)

    @tf.function
    def dense(rows):
        return tf.gather(variable, rows)

    rows = [rng.integers(0, num_keys, BATCH) for _ in range(BATCHES)]
    batches = [tf.constant(keys[row]) for row in rows]
    rows = [tf.constant(row) for row in rows]
    count = BATCH * BATCHES / 1e6
    figures = interleave(
        {
            "tfsparse": per_second(count, lambda: [ours(batch) for batch in batches]),
            "TFRA": per_second(count, lambda: [theirs(batch) for batch in batches]),
            "tf.gather, dense": per_second(count, lambda: [dense(row) for row in rows]),
        },
        pairs=5,
    )
    report(f"lookup, dim {dim}, {num_keys:,} keys, 1 thread", "Mkeys/s", figures)


main()
