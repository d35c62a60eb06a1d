"""Where in its data a training stands: epochs, batches, and the state of each rank's iterator."""

import dataclasses
import os
from typing import Any

import tensorflow as tf

from tfsparse import runtime
from tfsparse.checkpoint import dense

PREFIX = "position-"


@dataclasses.dataclass
class Position:
    """A place in the data of `model.fit`.

    Args:
        fit: which `fit` it is of, 0 for the first of a program.
        epoch: how many epochs of it are complete.
        batch: how many batches of the next one were trained.
        taken: how many batches were taken from `iterator`, maybe in several epochs.
        iterator: this rank's `tf.data.Iterator`; None if the next one begins anew.
    """

    fit: int
    epoch: int
    batch: int
    taken: int
    iterator: Any


def write(position, new):
    """Writes the state of this rank's iterator into a `NewCheckpoint`.

    Returns:
        What the manifest says of the files; none where tf.data cannot save the state, as that of
        a Python generator.
    """
    if position.iterator is None:
        return []
    checkpoint = tf.train.Checkpoint(iterator=position.iterator)
    try:
        return dense.write_variables(checkpoint, _prefix_of(runtime.rank()), new)
    except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError):
        return []


def describe(position, files_of_ranks):
    """What the manifest says of a position; `files_of_ranks` are those of `write`."""
    return {
        "fit": position.fit,
        "epoch": position.epoch,
        "batch": position.batch,
        "taken": position.taken,
        "iterators": [bool(files) for files in files_of_ranks],
    }


def fit_of(content):
    """Which `fit` of a program a checkpoint is of, by its manifest; 0 for the first."""
    return content.get("position", {}).get("fit", 0)


def epoch_of(content):
    """How many epochs are complete, by a manifest."""
    return content["position"]["epoch"] if "position" in content else 0


def scaled(content, num_ranks):
    """`(batch, taken)` of a manifest's position, for another number of ranks.

    With that a batch of each rank is another part of the data; what all have taken is the same.
    """
    then = content["num_ranks"]
    return tuple(content["position"][name] * then // num_ranks for name in ("batch", "taken"))


def without_iterators(content, num_ranks):
    """What a manifest says, for another number of ranks, which have no use for the iterators."""
    batch, taken = scaled(content, num_ranks)
    return {
        "position": {
            **content["position"],
            "batch": batch,
            "taken": taken,
            "iterators": [False] * num_ranks,
        },
        "dense": [f for f in content["dense"] if PREFIX not in os.path.basename(f["file"])],
    }


def advance(iterator, content, path):
    """Moves this rank's new iterator to where it was when a checkpoint was saved.

    Its state is restored if it was saved, on as many ranks; otherwise batches are taken from it and
    dropped, which is the same place if the dataset yields the same batches again.

    Args:
        iterator: a `tf.data.Iterator`.
        content: the manifest, with a position.
        path: of the checkpoint.
    """
    described = content["position"]
    same_ranks = content["num_ranks"] == runtime.size()
    if same_ranks and described["iterators"][runtime.rank()]:
        prefix = os.path.join(path, content["folder"], _prefix_of(runtime.rank()))
        try:
            tf.train.Checkpoint(iterator=iterator).read(prefix).assert_consumed()
            return
        except (tf.errors.OpError, AssertionError, ValueError) as error:
            tf.get_logger().warning(
                f"The data are not those of '{path}': {error} As many batches are skipped instead."
            )
    _, taken = scaled(content, runtime.size())
    for _ in range(taken):
        if next(iterator, None) is None:
            return


def _prefix_of(rank):
    return f"{PREFIX}{rank:05}"
