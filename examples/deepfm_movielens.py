"""DeepFM on MovieLens-100K: train on all ranks, evaluate, export, serve.

    python examples/deepfm_movielens.py                     # one process
    horovodrun -np 2 python examples/deepfm_movielens.py    # two ranks, the same model

Every feature value is an id of one table, written as "field=value". A row holds the value's
weight in the linear part and its vector, which the factorisation machine and the deep part
share (Guo et al. 2017).
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import movielens_data
import numpy as np
import tensorflow as tf

import tfsparse as tfs
from tfsparse.keras_layers import DynamicEmbedding

FIELDS = ("user_id", "item_id", "age", "gender", "occupation", "zip_code", "release_year")


def features_and_labels(path):
    """`{"fields": [n, 7] strings, "genres": ragged strings}` and labels: rated 4 or better."""
    data = movielens_data.load(path)
    fields = np.stack([_tagged(name, data[name]) for name in FIELDS], axis=1)
    genres, row_splits = data["genres"]
    genres = tf.RaggedTensor.from_row_splits(_tagged("genre", genres), row_splits)
    labels = (data["rating"] >= 4).astype(np.float32)
    return {"fields": fields, "genres": genres}, labels


def _tagged(name, values):
    values = values.astype("S") if values.dtype.kind != "S" else values
    return np.char.add(f"{name}=".encode(), values)


def deepfm(dim=16):
    """The Keras model; only its two embedding layers know of tfsparse."""
    table = tfs.Table("features", dim=dim + 1)
    fields = tf.keras.Input((len(FIELDS),), dtype=tf.string, name="fields")
    genres = tf.keras.Input((None,), dtype=tf.string, ragged=True, name="genres")
    rows = tf.keras.layers.Concatenate(axis=1)(
        [
            DynamicEmbedding(table)(fields),  # [B, 7, dim + 1]
            DynamicEmbedding(table, combiner="mean")(genres)[:, tf.newaxis, :],
        ]
    )
    vectors, linear = rows[..., :-1], tf.reduce_sum(rows[..., -1], axis=1, keepdims=True)
    sum_of_squares = tf.reduce_sum(tf.square(vectors), axis=1)
    square_of_sum = tf.square(tf.reduce_sum(vectors, axis=1))
    pairs = 0.5 * tf.reduce_sum(square_of_sum - sum_of_squares, axis=1, keepdims=True)
    deep = tf.keras.layers.Flatten()(vectors)
    for units in (128, 64):
        deep = tf.keras.layers.Dense(units, "relu")(deep)
        deep = tf.keras.layers.Dropout(0.3)(deep)
    logit = tf.keras.layers.Dense(1)(deep) + linear + pairs
    click = tf.keras.layers.Activation("sigmoid", name="click")(logit)
    return tf.keras.Model({"fields": fields, "genres": genres}, {"click": click})


def share(features, labels, rows):
    """This rank's part of `rows`; equally many on every rank, so all take the same steps."""
    rows = np.array(tfs.shard(rows[: len(rows) // tfs.size() * tfs.size()]))
    return {name: tf.gather(values, rows) for name, values in features.items()}, labels[rows]


def train(model, train_data, test_data, batch_size, epochs, checkpoints):
    """Fits and returns the AUC of the test samples of all ranks."""
    batches = tf.data.Dataset.from_tensor_slices(train_data)
    batches = batches.shuffle(len(train_data[1])).batch(batch_size).prefetch(2)
    test_batches = tf.data.Dataset.from_tensor_slices(test_data).batch(4096)
    model.compile(
        tfs.DistributedOptimizer(tf.keras.optimizers.Adam(1e-3)),
        "binary_crossentropy",
        metrics=[tf.keras.metrics.AUC(name="auc")],
    )
    metrics = tfs.callbacks.GlobalMetrics()
    callbacks = [metrics, tfs.callbacks.Broadcast()]
    initial_epoch = 0
    if checkpoints:
        callbacks.append(tfs.callbacks.Checkpoint(checkpoints))
        initial_epoch = callbacks[-1].initial_epoch
    model.fit(
        batches,
        epochs=epochs,
        initial_epoch=initial_epoch,
        validation_data=test_batches,
        callbacks=callbacks,
        verbose=1 if tfs.rank() == 0 else 0,
    )
    return metrics.results["auc"]


def serve(model, features, directory):
    """Exports the next version, and compares a fresh process of plain TensorFlow with this one."""
    versions = [int(path.name) for path in Path(directory).glob("[0-9]*")]
    path = tfs.export(model, directory, version=max(versions, default=0) + 1)
    sample = {name: values[:1000] for name, values in features.items()}
    (expected,) = model.predict(sample, verbose=0).values()  # every rank predicts its own sample
    if tfs.rank() > 0:
        return
    print(f"exported to {path}", flush=True)
    genres = sample["genres"]  # a signature takes ragged inputs as values and row splits
    requests = {"fields": sample["fields"], "genres": genres.values}
    requests = {name: values.numpy().astype("S") for name, values in requests.items()}
    requests["genres_row_splits"] = genres.row_splits
    server = Path(__file__).with_name("serve_saved_model.py")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "requests.npz"
        np.savez(file, expected=expected, **requests)
        subprocess.run([sys.executable, server, path, file], check=True)


def main():
    """Trains, evaluates, exports and serves."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", metavar="PATH", help="folder of MovieLens-100K; else fetched")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=1024, help="of all ranks together")
    parser.add_argument("--export", metavar="DIR", default=str(movielens_data.DATA_DIR / "deepfm"))
    parser.add_argument("--checkpoints", metavar="DIR", help="save here, and resume from here")
    options = parser.parse_args()

    tfs.init()
    tf.keras.utils.set_random_seed(tfs.rank())
    features, labels = features_and_labels(options.data)
    rows = np.random.default_rng(0).permutation(len(labels))
    cut = len(rows) * 8 // 10
    train_data, test_data = share(features, labels, rows[:cut]), share(features, labels, rows[cut:])

    model = deepfm()
    batch_size = options.batch_size // tfs.size()
    auc = train(model, train_data, test_data, batch_size, options.epochs, options.checkpoints)
    if tfs.rank() == 0:
        print(f"test AUC {auc:.4f}", flush=True)
    serve(model, test_data[0], options.export)


if __name__ == "__main__":
    main()
