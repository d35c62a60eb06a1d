"""Exports on two ranks; test_ranks.py starts it. `ranks_export.py FOLDER`.

Leaves in FOLDER what rank 0 exported and, in `asked`, what has to come out of it.
"""

import pickle
import resource
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import tfsparse as tfs
from tests.export import models
from tfsparse.export import aside, streaming
from tfsparse.keras_layers import DynamicEmbedding

FOLDER = Path(sys.argv[1])
jobs, expected = {}, {}


def add(name, model, feeds, outputs):
    path = tfs.export(model, FOLDER / name)
    jobs[name] = {"path": path, "calls": feeds}
    expected[name] = outputs


def numbers(name, **options):
    return models.table_of_numbers(name, 2, **options)


def check_predictions_and_dense_weights_are_those_of_rank_0():
    keras = models.keras
    history = keras.Input((None,), dtype=tf.int64, ragged=True, name="history")
    pooled = DynamicEmbedding(numbers("history", default=0.25), combiner="mean")(history)
    model = keras.Model(history, keras.layers.Dense(1, name="score")(pooled))
    optimizer = tfs.DistributedOptimizer(keras.optimizers.SGD(0.5))
    model.compile(optimizer, "mse", run_eagerly=True)
    mine = tf.ragged.constant([[1, 2 + tfs.rank()], [5 * tfs.rank()]], dtype=tf.int64)
    model.train_on_batch(mine, np.ones([2, 1]))
    if tfs.rank() == 1:
        for weight in model.get_layer("score").trainable_variables:
            weight.assign(weight + 1.0)
    call = tf.ragged.constant([[1, 2, 3], [], [0, 5, 99]], dtype=tf.int64)
    feeds = models.fed({"history": call})
    add("dense", model, [feeds], [{"score": model(call, training=False).numpy()}])


def check_rows_of_all_ranks_are_there():
    mixed, one_sided, none = numbers("mixed"), numbers("one_sided", default=0.5), numbers("none")
    model = models.reads(mixed, one_sided, none)
    ids = np.array([*range(100, 20_000), *models.EDGES])
    mine = ids[tfs.rank() :: 2]
    models.fill(mixed, mine, np.full([len(mine), 2], 3.0))
    # Ids that rank 0 owns: their mixed values begin with a 0.
    owned = [models.hash_inverse(number) for number in range(1000, 1050)]
    mine = owned if tfs.rank() == 0 else []
    models.fill(one_sided, mine, np.full([len(mine), 2], 7.0))
    rows = {
        "row_0": [3.0] * len(ids) + [0.0] * 51,
        "row_1": [0.5] * len(ids) + [7.0] * 50 + [0.5],
        "row_2": [0.0] * (len(ids) + 51),
    }
    rows = {name: np.stack([row, row], 1).astype(np.float32) for name, row in rows.items()}
    kept = streaming.BLOCK_BYTES, streaming.SLICE_BYTES
    streaming.BLOCK_BYTES, streaming.SLICE_BYTES = 10_000, 20_000  # many slices of each rank
    add("rows", model, [{"ids": np.array([*ids, *owned, -77])}], [rows])
    streaming.BLOCK_BYTES, streaming.SLICE_BYTES = kept


def refusal(model, target, error, match):
    try:
        tfs.export(model, target)
    except error as caught:
        assert match in str(caught), caught
    else:
        raise AssertionError("no error")


def small():
    table = numbers("small")
    model = models.reads(table)
    models.fill(table, np.arange(2000), np.ones([2000, 2]))
    return model


def nothing_left():
    tfs.runtime.allgather_object(None, "test.barrier")
    assert not [path for path in FOLDER.iterdir() if "broken" in path.name]


def check_a_rank_that_cannot_write_fails_all():
    model = small()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if tfs.rank() == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
        refusal(model, FOLDER / "broken", tf.errors.OpError, "")
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    else:
        refusal(model, FOLDER / "broken", RuntimeError, "rank 1")
    nothing_left()


def check_an_existing_directory_is_refused_by_all():
    refusal(small(), FOLDER / "dense", FileExistsError, "exists")
    nothing_left()


def check_different_directories_are_refused():
    refusal(small(), FOLDER / f"broken-{tfs.rank()}", ValueError, "one directory")
    nothing_left()


def check_a_file_system_of_one_rank_is_refused():
    isdir = aside.os.path.isdir
    if tfs.rank() == 1:
        aside.os.path.isdir = lambda path: False
    error, match = (FileNotFoundError, "share") if tfs.rank() else (RuntimeError, "rank 1")
    refusal(small(), FOLDER / "broken", error, match)
    aside.os.path.isdir = isdir
    nothing_left()


def main():
    tfs.init()
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check()
            print(f"passed {name} on rank {tfs.rank()}", flush=True)
    if tfs.rank() == 0:
        (FOLDER / "asked").write_bytes(pickle.dumps((jobs, expected)))
    tfs.shutdown()


if __name__ == "__main__":
    main()
