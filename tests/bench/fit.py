"""How many samples a second does model.fit train? tfsparse, TFRA, and no embedding at all.

26 features of a vocabulary each in one table, dim 16, a dense tower, batch 4096, Adam.

python -m tests.bench.fit [VOCABULARY]     default: 1e6 a feature
"""

import sys

import numpy as np
import tensorflow as tf

THREADS = 2
tf.config.threading.set_intra_op_parallelism_threads(THREADS)
tf.config.threading.set_inter_op_parallelism_threads(THREADS)

from tensorflow_recommenders_addons import dynamic_embedding as tfra  # noqa: E402

import tfsparse as tfs  # noqa: E402
from tests.bench.side_by_side import interleave, per_second, report  # noqa: E402
from tfsparse.keras_layers import DynamicEmbedding  # noqa: E402

K = tf.keras
BATCH, FEATURES, DIM, STEPS = 4096, 26, 16, 60


def zipf(rng, n, vocabulary, exponent=1.05):
    """`n` ids in [0, vocabulary), frequent ones first (bounded Zipf by its inverse CDF)."""
    power = 1 - exponent
    x = ((vocabulary**power - 1) * rng.random(n) + 1) ** (1 / power)
    return np.minimum(x.astype(np.int64), vocabulary - 1)


def dataset(vocabulary):
    """The same batches for every model, cached."""
    rng = np.random.default_rng(0)
    n = BATCH * STEPS
    ids = np.stack([zipf(rng, n, vocabulary) + f * vocabulary for f in range(FEATURES)], 1)
    dense = rng.normal(size=(n, 13)).astype(np.float32)
    labels = (rng.random(n) < 0.25).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices(((ids, dense), labels))
    return data.batch(BATCH, drop_remainder=True).cache().prefetch(4)


def model_of(kind):
    """The click model with one kind of embedding, compiled with its best optimizer form."""
    ids, dense = K.Input((FEATURES,), dtype=tf.int64), K.Input((13,))
    optimizer = K.optimizers.legacy.Adam(1e-3)
    if kind == "tfsparse":
        vectors = DynamicEmbedding(DIM)(ids)
        optimizer = tfs.DistributedOptimizer(K.optimizers.Adam(1e-3))
    elif kind == "TFRA":
        vectors = tfra.keras.layers.Embedding(
            DIM,
            key_dtype=tf.int64,
            value_dtype=tf.float32,
            initializer=K.initializers.RandomNormal(0, 0.01),
            devices=["/CPU:0"],
            init_capacity=1 << 20,
            name="tfra",
        )(ids)
        optimizer = tfra.DynamicEmbeddingOptimizer(optimizer)
    else:
        vectors = K.layers.RepeatVector(FEATURES)(K.layers.Dense(DIM)(dense))
    x = K.layers.Concatenate()([K.layers.Flatten()(vectors), dense])
    for units in (256, 128):
        x = K.layers.Dense(units, "relu")(x)
    model = K.Model([ids, dense], K.layers.Dense(1, "sigmoid")(x))
    model.compile(optimizer, "binary_crossentropy")
    return model


def main():
    """Trains the models by turns, an epoch at a time."""
    vocabulary = int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000
    data = dataset(vocabulary)
    ways = {}
    for kind in ("tfsparse", "TFRA", "no embedding"):
        model = model_of(kind)
        train = lambda model=model: model.fit(data, verbose=0)  # noqa: E731
        ways[kind] = per_second(BATCH * STEPS / 1e3, train)
    figures = interleave(ways, pairs=5)
    title = f"fit, {FEATURES} features x dim {DIM}, vocabulary {vocabulary:,}, batch {BATCH}"
    report(f"{title}, Adam, {THREADS} threads", "thousand samples/s", figures)


main()
