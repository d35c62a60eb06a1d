"""Models to export, and what the tests do with them."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import tfsparse as tfs
from tfsparse.embedding.table import shard_of
from tfsparse.keras_layers import DynamicEmbedding

HERE = Path(__file__).resolve().parent
MIN, MAX = -(2**63), 2**63 - 1

keras = tf.keras


def serve(folder, jobs):
    """Runs one serving process for all jobs; see serve.py."""
    asked, answered = folder / "jobs", folder / "results"
    asked.write_bytes(pickle.dumps(jobs))
    done = subprocess.run(
        [sys.executable, "-I", str(HERE / "serve.py"), str(asked), str(answered)],
        cwd=folder,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return pickle.loads(answered.read_bytes())


def table_of_numbers(name, dim, **options):
    """A table whose rows are what `fill` says."""
    return tfs.Table(name, dim, optimizer=tfs.optimizers.SGD(1.0), initializer="zeros", **options)


def fill(table, keys, rows):
    """Gives keys rows. Every rank calls it, with keys of its choice."""
    shard = shard_of(table)
    keys = tf.constant(keys, tf.int64)
    shard.gather(keys, tf.constant(1, tf.int64), training=True)
    owned, gradients = shard.sum_gradients(keys, -tf.constant(rows, tf.float32))
    shard.apply(owned, gradients, tf.constant(1.0))


def reads(*tables):
    """A model of ids `[B]` that gives the rows of each table, as outputs `row_0`, `row_1`, ..."""
    ids = keras.Input((), dtype=tf.int64, name="ids")
    rows = {f"row_{i}": DynamicEmbedding(table)(ids) for i, table in enumerate(tables)}
    return keras.Model(ids, rows)


def hash_inverse(number):
    """The id whose mixed value (custom_ops/core/mix.h) is `number`."""
    mask = 2**64 - 1
    number = ((number ^ number >> 31 ^ number >> 62) * 0x319642B2D24D8EC3) & mask
    number = ((number ^ number >> 27 ^ number >> 54) * 0x96DE1B173F119089) & mask
    number ^= number >> 30 ^ number >> 60
    return number - 2**64 if number > MAX else number


# -1, 0 and the limits; and ids whose mixed values have a single bit, which hash tables reserve.
EDGES = [-1, 1, MIN, MAX, 0] + [hash_inverse(1 << bits) for bits in range(40, 64)]


def many_inputs():
    """A model with every form of ids and every combiner, two layers on one table, two outputs."""
    items = tfs.Table("items", 4, default=0.25)
    inputs = {
        "item": keras.Input((), dtype=tf.int64, name="item"),
        "history": keras.Input((None,), dtype=tf.int64, ragged=True, name="history"),
        "sessions": keras.Input((None, None), dtype=tf.int32, ragged=True, name="sessions"),
        "tags": keras.Input((3,), dtype=tf.string, name="tags"),
        "words": keras.Input((None,), dtype=tf.string, sparse=True, name="words"),
        "padded": keras.Input((4,), dtype=tf.int64, name="padded"),
        "price": keras.Input((2,), name="price"),
    }
    sessions = DynamicEmbedding(items, combiner="sum")(inputs["sessions"])
    parts = [
        DynamicEmbedding(items)(inputs["item"]),
        DynamicEmbedding(items, combiner="mean")(inputs["history"]),
        keras.layers.Lambda(lambda ragged: tf.reduce_sum(ragged, 1))(sessions),
        DynamicEmbedding(3, combiner="sqrtn", name="tags_e")(inputs["tags"]),
        DynamicEmbedding(3, combiner="sum", name="words_e", default=-0.5)(inputs["words"]),
        DynamicEmbedding(3, combiner="mean", padding_id=0, name="pooled")(inputs["padded"]),
        keras.layers.Flatten()(DynamicEmbedding(2, padding_id=0, name="plain")(inputs["padded"])),
        keras.layers.BatchNormalization()(inputs["price"]),
    ]
    tower = keras.layers.Dense(5, "tanh", name="tower")(keras.layers.Concatenate()(parts))
    outputs = [keras.layers.Dense(1, name="score")(tower), keras.layers.Dense(2, name="two")(tower)]
    return keras.Model(inputs, outputs)


def batch(samples, largest_id, seed):
    """Inputs of `many_inputs`, with ids from 0 to `largest_id`."""
    rng = np.random.default_rng(seed)
    ids = lambda *shape: rng.integers(0, largest_id + 1, shape)  # noqa: E731
    words = lambda *shape: np.char.add("w", ids(*shape).astype(str)).astype(object)  # noqa: E731
    lengths = rng.integers(0, 4, samples)
    inner = rng.integers(0, 3, lengths.sum())
    of_lengths = tf.RaggedTensor.from_row_lengths
    sessions = of_lengths(ids(inner.sum()).astype(np.int32), inner)
    where = np.argwhere(rng.random([samples, 5]) < 0.5).reshape(-1, 2)
    return {
        "item": tf.constant(ids(samples)),
        "history": of_lengths(ids(lengths.sum()), lengths),
        "sessions": of_lengths(sessions, lengths),
        "tags": tf.constant(words(samples, 3), tf.string),
        "words": tf.SparseTensor(where, tf.constant(words(len(where)), tf.string), [samples, 5]),
        "padded": tf.constant(ids(samples, 4)),
        "price": tf.constant(rng.random([samples, 2]), tf.float32),
    }


def fed(inputs):
    """Inputs as a client of the signature feeds them, as docs of `tfs.export` say."""
    tensors = {}
    for name, value in inputs.items():
        if isinstance(value, tf.RaggedTensor):
            tensors[name] = value.flat_values
            splits = value.nested_row_splits
            for axis, split in enumerate(splits):
                suffix = "" if len(splits) == 1 else f"_{axis}"
                tensors[f"{name}_row_splits{suffix}"] = split
        elif isinstance(value, tf.SparseTensor):
            tensors[name] = value.values
            tensors[f"{name}_indices"] = value.indices
            tensors[f"{name}_dense_shape"] = value.dense_shape
        else:
            tensors[name] = tf.convert_to_tensor(value)
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def train(model, steps):
    """Trains `many_inputs` on ids from 0 to 20."""
    optimizer = tfs.DistributedOptimizer(keras.optimizers.Adagrad(0.5))
    model.compile(optimizer, "mse", run_eagerly=True)  # tracing takes longer than a few steps
    for seed in range(steps):
        inputs = batch(8, 20, seed)
        model.train_on_batch(inputs, [np.ones([8, 1]), np.zeros([8, 2])])
