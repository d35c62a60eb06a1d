"""`tfs.save`: every rank writes its rows, rank 0 the rest."""

import os

from tfsparse import runtime
from tfsparse.checkpoint import dense, manifest, table_files
from tfsparse.checkpoint.new_checkpoint import NewCheckpoint
from tfsparse.checkpoint.position import describe as describe_position
from tfsparse.checkpoint.position import write as write_position
from tfsparse.embedding.protocol import named_tables_of


def save(model, directory):
    """Saves a model as a checkpoint: its tables, its weights, its optimizer and its metrics.

    Every rank calls it, between steps; any number of ranks can `tfs.restore` it. Each rank writes
    the rows that it owns, slots included, and rank 0 everything else. The checkpoint appears, or
    takes the place of one that was in the directory before, at once and when it is complete:
    a program that is killed, or a disk that is full, leaves the earlier one as it was.

    Args:
        model: a `tf.keras.Model` that has been called.
        directory: path on a file system that all ranks see. It is made if it is missing.

    Raises:
        TypeError: `model` is not a Keras model.
        ValueError: a table has no rows yet because its layer has not been called; or
            `directory` is a URL.
        OSError, tf.errors.OpError: something cannot be written.
        RuntimeError: another rank failed; it says which, and why. Or another process is saving to
            `directory`.

    Example:
        ```python
        tfs.save(model, "checkpoints/monday")
        ```
    """
    write(model, directory)


def write(model, directory, position=None):
    """`save`, and where in its data the training stands, a `Position`."""
    runtime.require_same(f"save a checkpoint to {os.path.abspath(str(directory))!r}")
    with runtime.together("save.check"):
        path = runtime.mounted_path(directory)
        tables = named_tables_of(model)
        if runtime.rank() == 0:
            _refuse_foreign_manifest(path)
        optimizer = dense.describe_optimizer(model)
    with NewCheckpoint(path) as new:
        with runtime.together("save.write"):
            files = [table_files.write_table(number, t, new) for number, t in enumerate(tables)]
            other_files = dense.write(model, new) if runtime.rank() == 0 else []
            position_files = write_position(position, new) if position else []
        files_of_ranks = runtime.allgather_object(files, "save.files")
        position_files = runtime.allgather_object(position_files, "save.position")
        with runtime.together("save.describe"):
            described = [
                table_files.describe_table(
                    table, [part for files in files_of_ranks for part in files[number]]
                )
                for number, table in enumerate(tables)
            ]
            content = manifest.describe(
                described,
                step=dense.step_of(model),
                optimizer=optimizer,
                weights=dense.describe_weights(model),
                dense=sum(position_files, other_files),
                position=position and describe_position(position, position_files),
            )
        new.finish(content)


def _refuse_foreign_manifest(path):
    """Raises if saving to `path` would replace something that is no checkpoint."""
    try:
        manifest.read(path)
    except manifest.CheckpointError as error:
        name = os.path.join(path, manifest.NAME)
        if os.path.lexists(name) and not manifest.is_ours(path):
            raise ValueError(
                f"'{name}' is there and is not of a checkpoint. Save to another directory."
            ) from error
