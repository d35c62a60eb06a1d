"""How many samples a second does `model.fit` train? A click model with Adam.

python -m tests.bench.fit [VOCABULARY]     ids of a feature
"""

import numpy as np

from tests.bench import side_by_side, workload
from tests.bench.benchmark import Benchmark

BATCH, FEATURES, DIM, STEPS = 4096, 26, 16, 60


def prepare(contender, vocabulary):
    """The work is an epoch of 60 batches, from a cache."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    samples = BATCH * STEPS
    ids = workload.features(rng, samples, FEATURES, vocabulary)
    dense = rng.normal(size=(samples, 13)).astype(np.float32)
    labels = (rng.random(samples) < 0.25).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices(((ids, dense), labels))
    data = data.batch(BATCH, drop_remainder=True).cache().prefetch(4)
    # Its thread sleeps 10 ms, 20, 40, ... and the end of an epoch waits for it to wake up: every
    # time measured would be 2.55 s, or 5.11 s, or 10.23 s.
    options = tf.data.Options()
    options.autotune.enabled = False
    data = data.with_options(options)

    keras = tf.keras
    inputs = keras.Input((FEATURES,), dtype=tf.int64), keras.Input((13,))
    vectors = contender.embedding(DIM, capacity=1 << 20)(inputs[0])
    x = keras.layers.Concatenate()([keras.layers.Flatten()(vectors), inputs[1]])
    for units in (256, 128):
        x = keras.layers.Dense(units, "relu")(x)
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(x))
    model.compile(contender.optimizer("adam"), "binary_crossentropy")
    return workload.per_second(samples / 1e3, lambda: model.fit(data, verbose=0))


BENCHMARK = Benchmark(
    name="fit",
    title=f"model.fit, {FEATURES} features x dim {DIM}, batch {BATCH}, Adam",
    unit="thousand samples/s",
    contenders=("tfsparse", "tfra", "no_embedding"),
    arguments={"vocabulary": 1_000_000},
    prepare=prepare,
    threads=2,
)

if __name__ == "__main__":
    side_by_side.main(BENCHMARK)
