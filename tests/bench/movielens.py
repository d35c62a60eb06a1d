"""Does MovieLens-100K train as with `tf.keras.layers.Embedding`?

    python -m tests.bench.movielens [FOLDER]     of the data; else fetched

One DeepFM is built on a tfsparse table of strings and on a Keras embedding of vocabulary numbers,
which gets the table's first rows and dense weights, and trained on the same batches in the same
order. SGD and Adagrad must give the same losses. So must Adam where every id is in every batch;
where it is not, Keras's moves all rows of its embedding at every step, and a table only those of
the batch, with each row's own count of steps. Ids that no training sample has read zeros from the
table, and their first vectors from Keras's layer.

Training amplifies the last bit of a float. How much is shown by Keras's own model, trained again
from first rows that are one bit larger.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import tfsparse as tfs
from tfsparse.embedding.keys import as_keys
from tfsparse.embedding.table import shard_of
from tfsparse.keras_layers import DynamicEmbedding

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples"))
from deepfm_movielens import FIELDS, features_and_labels  # noqa: E402

DIM, BATCH, EPOCHS, SEEDS = 16, 512, 4, (0, 1, 2)
RULES = {
    "SGD": {"learning_rate": 0.5},
    "Adagrad": {"learning_rate": 0.2},
    "Adam": {"learning_rate": 2e-3},
}
MAX_LOSS_DIFFERENCE = 1e-4  # of a step of the first epoch
MAX_AUC_DIFFERENCE = 2e-3  # of the means over seeds


class Ratings:
    """Features as strings and as numbers in a vocabulary, labels, and a split into 80 and 20 %.

    Args:
        folder: of the data; None fetches it.
    """

    def __init__(self, folder):
        features, self.labels = features_and_labels(folder)
        fields, genres = features["fields"], features["genres"]
        values = genres.values.numpy().astype("S")
        self.vocabulary = np.unique(np.concatenate([fields.ravel(), values]))
        number = lambda strings: np.searchsorted(self.vocabulary, strings)  # noqa: E731
        self.strings = {"fields": tf.constant(fields), "genres": genres}
        numbers = genres.with_values(tf.constant(number(values)))
        self.numbers = {"fields": tf.constant(number(fields)), "genres": numbers}
        rows = np.random.default_rng(0).permutation(len(self.labels))
        self.train_rows, self.test_rows = np.split(rows, [len(rows) * 8 // 10])

    def batches(self, features, rows, batch):
        """A dataset of the samples `rows` in that order."""

        def gather(rows):
            chosen = {name: tf.gather(values, rows) for name, values in features.items()}
            return chosen, tf.gather(self.labels, rows)

        return tf.data.Dataset.from_tensor_slices(rows).batch(batch).map(gather)


class StepLosses(tf.keras.callbacks.Callback):
    """Collects the loss of each batch; what Keras shows is the mean of the epoch so far."""

    def __init__(self):
        super().__init__()
        self.values = []

    def on_train_batch_end(self, batch, logs=None):
        self.values.append(logs["loss"])
        self.model.reset_metrics()


def deepfm(dtype, embed, embed_mean):
    """The model of examples/deepfm_movielens.py without its random layers.

    Args:
        dtype: of ids.
        embed: `[B, 7]` ids to `[B, 7, DIM + 1]`: a vector and a weight each.
        embed_mean: ragged ids to the mean of their rows, `[B, DIM + 1]`.
    """
    fields = tf.keras.Input((len(FIELDS),), dtype=dtype, name="fields")
    genres = tf.keras.Input((None,), dtype=dtype, ragged=True, name="genres")
    rows = tf.concat([embed(fields), embed_mean(genres)[:, tf.newaxis, :]], axis=1)
    vectors, linear = rows[..., :-1], tf.reduce_sum(rows[..., -1], axis=1, keepdims=True)
    square_of_sum = tf.square(tf.reduce_sum(vectors, axis=1))
    sum_of_squares = tf.reduce_sum(tf.square(vectors), axis=1)
    pairs = 0.5 * tf.reduce_sum(square_of_sum - sum_of_squares, axis=1, keepdims=True)
    deep = tf.keras.layers.Flatten()(vectors)
    for units in (128, 64):
        deep = tf.keras.layers.Dense(units, "relu", name=f"dense_{units}")(deep)
    logit = tf.keras.layers.Dense(1, name="dense_1")(deep) + linear + pairs
    click = tf.keras.layers.Activation("sigmoid")(logit)
    return tf.keras.Model({"fields": fields, "genres": genres}, click)


def twins(ratings, seed):
    """The two models, equal before their first step: on a table, and Keras's own."""
    tf.keras.utils.set_random_seed(seed)
    table = tfs.Table("features", DIM + 1, seed=seed)
    ours = deepfm(tf.string, DynamicEmbedding(table), DynamicEmbedding(table, combiner="mean"))

    # A new row depends on seed and key only, so another table tells what this one will hold.
    other = shard_of(tfs.Table("first rows", DIM + 1, seed=seed))
    keys = as_keys(tf.constant(ratings.vocabulary))
    first_rows = other.gather(keys, tf.constant(0, tf.int64), training=True)
    embed = tf.keras.layers.Embedding(len(ratings.vocabulary), DIM + 1, name="embedding")
    keras = deepfm(tf.int64, embed, lambda genres: tf.reduce_mean(embed(genres), axis=1))
    embed.set_weights([first_rows.numpy()])
    for name in ("dense_128", "dense_64", "dense_1"):
        keras.get_layer(name).set_weights(ours.get_layer(name).get_weights())
    return ours, keras


def losses_of(model, data, rule):
    """Compiles and trains a model, and returns the losses of the steps."""
    optimizer = getattr(tf.keras.optimizers, rule)(**RULES[rule])
    has_table = any(isinstance(layer, DynamicEmbedding) for layer in model.layers)
    optimizer = tfs.DistributedOptimizer(optimizer) if has_table else optimizer
    model.compile(optimizer, "binary_crossentropy")
    losses = StepLosses()
    model.fit(data, verbose=0, callbacks=[losses])
    return np.array(losses.values)


def losses_of_twins(ratings, twins, rule, rows, batch):
    """Trains both on the samples `rows`, in that order."""
    features = (ratings.strings, ratings.numbers)
    return [
        losses_of(model, ratings.batches(features_of_model, rows, batch), rule)
        for model, features_of_model in zip(twins, features)
    ]


def add_one_bit(keras):
    """Makes each float of the embedding the next larger one."""
    embedding = keras.get_layer("embedding")
    embedding.set_weights([np.nextafter(embedding.get_weights()[0], np.float32(np.inf))])
    return keras


def auc(labels, scores):
    """The probability that a positive sample has a higher score than a negative one."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    positive = labels > 0
    p, n = positive.sum(), (~positive).sum()
    return (ranks[positive].sum() - p * (p + 1) / 2) / (p * n)


def auc_of_test(ratings, model, features):
    """Of the samples that were not trained on."""
    data = ratings.batches(features, ratings.test_rows, 4096)
    return auc(ratings.labels[ratings.test_rows], model.predict(data, verbose=0).ravel())


def epochs_of(ratings, seed):
    """The training samples in an order for each epoch, all in one array."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(ratings.train_rows) for _ in range(EPOCHS)])


def by_epoch(losses, others):
    """The largest difference of a step in each epoch."""
    return np.array([part.max() for part in np.array_split(np.abs(losses - others), EPOCHS)])


def rule_report(ratings, rule):
    """Trains with one rule; prints, and returns what is too far from Keras."""
    apart, ours_auc, keras_auc = [], [], []
    for seed in SEEDS:
        pair = twins(ratings, seed)
        ours, keras = losses_of_twins(ratings, pair, rule, epochs_of(ratings, seed), BATCH)
        apart.append(by_epoch(ours, keras))
        ours_auc.append(auc_of_test(ratings, pair[0], ratings.strings))
        keras_auc.append(auc_of_test(ratings, pair[1], ratings.numbers))
        if seed == SEEDS[0]:
            again = add_one_bit(twins(ratings, seed)[1])
            data = ratings.batches(ratings.numbers, epochs_of(ratings, seed), BATCH)
            one_bit = by_epoch(losses_of(again, data, rule), keras)
    apart = np.max(apart, axis=0)
    difference = np.mean(ours_auc) - np.mean(keras_auc)
    print(
        f"  {rule} {RULES[rule]['learning_rate']}\n"
        f"    loss of a step apart, by epoch   {_floats(apart, '.0e')}\n"
        f"    Keras and Keras + one bit        {_floats(one_bit, '.0e')}\n"
        f"    AUC, tfsparse {_floats(ours_auc, '.4f')}   mean {np.mean(ours_auc):.4f}\n"
        f"    AUC, Keras    {_floats(keras_auc, '.4f')}   mean {np.mean(keras_auc):.4f}",
        flush=True,
    )
    too_far = []
    if rule != "Adam" and apart[0] > MAX_LOSS_DIFFERENCE:
        too_far.append(f"{rule}'s losses")
    if abs(difference) > MAX_AUC_DIFFERENCE:
        too_far.append(f"{rule}'s AUC")
    return too_far


def _floats(values, form):
    return "  ".join(format(value, form) for value in values)


def main():
    """Trains, prints the table, and fails if what must be equal is not."""
    ratings = Ratings(sys.argv[1] if len(sys.argv) > 1 else None)
    seeds = ", ".join(map(str, SEEDS))
    print(f"MovieLens-100K, DeepFM dim {DIM}, batch {BATCH}, {EPOCHS} epochs, seeds {seeds}")
    too_far = [what for rule in RULES for what in rule_report(ratings, rule)]

    rows = np.tile(ratings.train_rows, 20)
    ours, keras = losses_of_twins(
        ratings, twins(ratings, SEEDS[0]), "Adam", rows, len(ratings.train_rows)
    )
    apart = np.abs(ours - keras).max()
    print(f"  Adam with every id in every batch, 20 steps\n    loss of a step apart  {apart:.0e}")
    if apart > MAX_LOSS_DIFFERENCE:
        too_far.append("Adam's losses with every id in every batch")
    if too_far:
        sys.exit(f"error: too far from Keras: {', '.join(too_far)}")


if __name__ == "__main__":
    main()
