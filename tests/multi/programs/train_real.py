"""Trains on real data by every way a user may, and writes what came out.

    train_real.py OUT DATA VARIANT...

A batch has the same samples whatever the number of ranks. Rank r writes OUT/rank<r>.pkl:
{variant: {"tables": {name: state}, "dense": [arrays], "losses": [floats], "iterations": int}}.
With TFSPARSE_TEST_JITTER set, batches arrive after random delays that differ by rank and run.
"""

import os
import pickle
import random
import sys
import time
from pathlib import Path

import job
import numpy as np
import tensorflow as tf

import tfsparse as tfs
from tfsparse.keras_layers import DynamicEmbedding

K = tf.keras
STEPS, SAMPLES = 50, 96


class Gowalla:
    """Check-ins: user, candidate item, and a ragged history on the item's table."""

    def __init__(self, folder):
        pairs = np.load(folder / "gowalla" / "gowalla_pairs.npz")["train"]
        rng = np.random.default_rng(0)
        n = STEPS * SAMPLES
        pairs = pairs[rng.permutation(len(pairs))]
        self.user, self.item = pairs[:n, 0].astype(np.int64), pairs[:n, 1].astype(np.int64)
        lengths = rng.integers(0, 6, n)
        splits = np.concatenate([[0], np.cumsum(lengths)])
        self.history = tf.RaggedTensor.from_row_splits(
            pairs[rng.integers(0, len(pairs), splits[-1]), 1].astype(np.int64), splits
        )
        self.label = rng.integers(0, 2, (n, 1)).astype(np.float32)

    def inputs(self, rows):
        history = tf.gather(self.history, rows)
        return (tf.constant(self.user[rows]), tf.constant(self.item[rows]), history)

    def model(self):
        items = tfs.Table("items", 8, seed=3)
        user = K.Input((), dtype=tf.int64)
        item = K.Input((), dtype=tf.int64)
        history = K.Input((None,), dtype=tf.int64, ragged=True)
        parts = [
            DynamicEmbedding(8, name="users")(user),
            DynamicEmbedding(items)(item),
            DynamicEmbedding(items, combiner="mean")(history),
        ]
        return _tower([user, item, history], parts)


class MovieLens:
    """Ratings: user and movie ids, genres as ragged strings."""

    def __init__(self, folder):
        folder = folder / "ml_latest_small"
        ratings = np.loadtxt(folder / "ratings.csv", delimiter=",", skiprows=1)
        rng = np.random.default_rng(0)
        ratings = ratings[rng.permutation(len(ratings))[: STEPS * SAMPLES]]
        genres = {}
        for line in (folder / "movies.csv").read_text().splitlines()[1:]:
            genres[int(line.split(",", 1)[0])] = line.rsplit(",", 1)[1].split("|")
        self.user, self.item = ratings[:, 0].astype(np.int32), ratings[:, 1].astype(np.int64)
        self.genres = tf.ragged.constant([genres[item] for item in self.item.tolist()])
        self.label = (ratings[:, 2:3] >= 4).astype(np.float32)

    def inputs(self, rows):
        genres = tf.gather(self.genres, rows)
        return (tf.constant(self.user[rows]), tf.constant(self.item[rows]), genres)

    def model(self):
        user = K.Input((), dtype=tf.int32)
        item = K.Input((), dtype=tf.int64)
        genres = K.Input((None,), dtype=tf.string, ragged=True)
        parts = [
            DynamicEmbedding(8, name="users")(user),
            DynamicEmbedding(8, name="items")(item),
            DynamicEmbedding(4, combiner="sum", name="genres")(genres),
        ]
        return _tower([user, item, genres], parts)


def _tower(inputs, parts):
    x = K.layers.Concatenate()(parts)
    x = K.layers.Dense(16, "relu", kernel_regularizer=K.regularizers.L2(1e-3))(x)
    return K.Model(inputs, K.layers.Dense(1)(x))


def batches(data):
    """This rank's batches, a dataset of unknown length."""
    jitter = random.Random(os.urandom(8)) if "TFSPARSE_TEST_JITTER" in os.environ else None

    def generate():
        for batch in range(STEPS):
            if jitter and jitter.random() < 0.3:
                time.sleep(jitter.random() * 0.02)
            rows = job.part_of_batch(batch, SAMPLES)
            yield data.inputs(rows), tf.constant(data.label[rows])

    spec = tf.nest.map_structure(_any_length, next(generate()))
    return tf.data.Dataset.from_generator(generate, output_signature=spec)


def _any_length(value):
    spec = tf.type_spec_from_value(value)
    shape = [None, *spec.shape[1:]]
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec(shape, spec.dtype, row_splits_dtype=spec.row_splits_dtype)
    return tf.TensorSpec(shape, spec.dtype)


def fit(model, data, optimizer, **options):
    steps = {"steps_per_epoch": STEPS} if "steps_per_execution" in options else {}
    model.compile(optimizer, K.losses.BinaryCrossentropy(from_logits=True), **options)
    losses = []
    record = K.callbacks.LambdaCallback(on_train_batch_end=lambda _, logs: losses.append(logs))
    callbacks = [tfs.callbacks.GlobalMetrics(), tfs.callbacks.Broadcast(), record]
    history = model.fit(batches(data), verbose=0, callbacks=callbacks, **steps)
    return history.history["loss"]


def tape_loop(model, data, optimizer):
    """A training loop as users write it, gradient step in a tf.function inside another."""
    loss_of = K.losses.BinaryCrossentropy(from_logits=True)

    @tf.function
    def forward(inputs):
        return model(inputs, training=True)

    @tf.function(reduce_retracing=True)
    def step(inputs, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, forward(inputs)) + tf.add_n(model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for inputs, labels in batches(data):
        step(inputs, labels)
    return []


NEW, OLD = K.optimizers, K.optimizers.legacy
VARIANTS = {
    "sgd": lambda: (fit, NEW.SGD(0.5), {}),
    "adagrad": lambda: (fit, NEW.Adagrad(0.1), {}),
    "adam": lambda: (fit, NEW.Adam(0.01), {}),
    "legacy_sgd": lambda: (fit, OLD.SGD(0.5), {}),
    "legacy_adagrad": lambda: (fit, OLD.Adagrad(0.1), {}),
    "legacy_adam": lambda: (fit, OLD.Adam(0.01), {}),
    "clipnorm": lambda: (fit, NEW.Adam(0.01, clipnorm=0.02), {}),
    "global_clipnorm": lambda: (fit, NEW.SGD(0.5, global_clipnorm=0.1), {}),
    "clipvalue": lambda: (fit, NEW.SGD(0.5, clipvalue=0.01), {}),
    "loss_scale": lambda: (fit, K.mixed_precision.LossScaleOptimizer(NEW.SGD(0.5)), {}),
    "schedule": lambda: (
        fit, NEW.SGD(NEW.schedules.ExponentialDecay(0.5, 10, 0.9)), {"steps_per_execution": 5},
    ),
    "tape": lambda: (tape_loop, NEW.Adagrad(0.1), {}),
    "legacy_tape": lambda: (tape_loop, OLD.Adam(0.01), {}),
}  # fmt: skip


def main():
    out, data_folder, variants = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    tfs.init()
    results = {}
    for variant in variants:
        name, _, source = variant.partition("@")
        data = MovieLens(data_folder) if source == "movielens" else Gowalla(data_folder)
        # Ranks start from different dense weights: Broadcast must make them equal. The tape
        # loop has no callback.
        train, optimizer, options = VARIANTS[name]()
        own_seed = 1 if train is tape_loop or tfs.rank() == 0 else 1 + tfs.rank()
        K.utils.set_random_seed(own_seed)
        model = data.model()
        losses = train(model, data, tfs.DistributedOptimizer(optimizer), **options)
        readers = [layer for layer in model.layers if isinstance(layer, DynamicEmbedding)]
        results[variant] = {
            "tables": {reader.table.name: job.table_state(reader.table) for reader in readers},
            "sizes": {reader.table.name: reader.table.size() for reader in readers},
            "dense": [w.numpy() for layer in model.layers[-2:] for w in layer.weights],
            "losses": losses,
            "iterations": int(optimizer.iterations),
        }
    (out / f"rank{tfs.rank()}.pkl").write_bytes(pickle.dumps(results))


main()
