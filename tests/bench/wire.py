"""How many bytes does a step put on the wire? A table of ours, and a dense Keras embedding.

python -m tests.bench.wire

Two ranks on this machine, Gloo; the bytes are those that the loopback device counts. A dense
embedding is summed over ranks as a whole; of a table, what a batch uses travels.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

DIM, BATCH, WARM_UP, STEPS = 16, 4096, 3, 20
ROOT = Path(__file__).resolve().parents[2]
VOCABULARIES = (1_000, 10_000, 100_000, 1_000_000)


def loopback_bytes():
    """What the loopback device has sent since the machine started."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split()[9])
    raise RuntimeError("There is no loopback device in /proc/net/dev.")


def measure(vocabularies):
    """On each rank; rank 0 prints a line for each vocabulary."""
    import numpy as np
    import tensorflow as tf

    import tfsparse as tfs
    from tfsparse.keras_layers import DynamicEmbedding

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tfs.init()
    rng = np.random.default_rng(tfs.rank())

    def bytes_a_step(layer, vocabulary):
        model = tf.keras.Sequential([tf.keras.Input((), dtype=tf.int64), layer])
        model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
        ids = rng.integers(0, vocabulary, (WARM_UP + STEPS, BATCH))
        targets = np.zeros((BATCH, DIM), np.float32)
        for step, batch in enumerate(ids):
            if step == WARM_UP:
                start = loopback_bytes()
            model.train_on_batch(batch, targets)
        return (loopback_bytes() - start) / STEPS / tfs.size()

    for vocabulary in vocabularies:
        table = bytes_a_step(DynamicEmbedding(DIM), vocabulary)
        dense = bytes_a_step(tf.keras.layers.Embedding(vocabulary, DIM), vocabulary)
        if tfs.rank() == 0:
            print(f"wire {vocabulary}: {table / 1e6} {dense / 1e6}", flush=True)


def figures(vocabularies):
    """`{vocabulary: (MB of the table, MB of the dense embedding)}`, from two ranks."""
    horovodrun = Path(sys.executable).with_name("horovodrun")
    program = [sys.executable, "-m", "tests.bench.wire", *map(str, vocabularies)]
    done = subprocess.run(
        [sys.executable, str(horovodrun), "-np", "2", *program],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = re.findall(r"wire (\d+): (\S+) (\S+)", done.stdout)
    return {int(ids): (float(table), float(dense)) for ids, table, dense in found}


def main():
    """Prints what two ranks find; is a rank itself when it is started by horovodrun."""
    if "HOROVOD_RANK" in os.environ:
        measure([int(text) for text in sys.argv[1:]])
        return
    print(f"bytes a rank sends in a step, dim {DIM}, batch {BATCH} a rank, 2 ranks, SGD, in MB")
    print(f"  {'uniform ids':<16}{'table':>8}{'dense':>9}")
    for vocabulary, (table, dense) in figures(VOCABULARIES).items():
        print(f"  {vocabulary:<16,}{table:8.2f}{dense:9.2f}")


if __name__ == "__main__":
    main()
