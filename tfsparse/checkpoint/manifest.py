"""The manifest: what a checkpoint consists of, and that it is whole."""

import contextlib
import hashlib
import json
import os

import tensorflow as tf

from tfsparse import runtime
from tfsparse.version import __version__

NAME = "manifest.json"
ASIDE = NAME + ".tmp"  # while it is written
FORMAT, VERSION = "tfsparse checkpoint", 1


class CheckpointError(ValueError):
    """A directory is not a checkpoint, not whole, or not of this model."""


def describe(tables, *, step=None, optimizer=None, weights=(), dense=(), position=None):
    """What a manifest says of a checkpoint of these ranks.

    Args:
        tables: a list of `table_files.describe_table`.
        step: how many steps were applied; None without an optimizer.
        optimizer: of `dense.describe_optimizer`.
        weights: of `dense.describe_weights`.
        dense: files that are not of tables: of `dense.write` and `position.write`.
        position: of `position.describe`; None if it is not known.
    """
    content = {
        "tensorflow": tf.__version__,
        "num_ranks": runtime.size(),
        "step": step,
        "optimizer": optimizer,
        "weights": list(weights),
        "dense": list(dense),
        "tables": tables,
    }
    return content if position is None else {**content, "position": position}


def write(manifest, directory):
    """Makes `manifest`, a dict, the manifest of a directory, in the place of an older one.

    It is whole or absent, whenever the process ends.

    Args:
        manifest: of `describe`, and under `"folder"` the name of the folder of its files.
        directory: of the checkpoint.
    """
    ours = {"format": FORMAT, "version": VERSION, "tfsparse": __version__}
    manifest = {**ours, **manifest, **ours}
    manifest["sha256"] = digest(manifest)
    aside = os.path.join(directory, ASIDE)
    with open(aside, "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1, default=_plain)
        file.write("\n")
    runtime.sync(aside)
    os.rename(aside, os.path.join(directory, NAME))
    runtime.sync(directory)


def is_ours(directory):
    """Whether what stands in the place of a manifest is one, whole or not."""
    with open(os.path.join(directory, NAME), "rb") as file:
        return FORMAT.encode() in file.read(1 << 16)


def read(directory):
    """The manifest of a directory, as a dict.

    Raises:
        CheckpointError: there is none, it was altered, or it is of a version to come.
    """
    path = os.path.join(directory, NAME)
    try:
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
    except FileNotFoundError:
        raise CheckpointError(
            f"'{directory}' is not a checkpoint: it has no {NAME}, which a save writes when "
            "everything else is in place."
        ) from None
    except ValueError as error:
        raise CheckpointError(f"'{path}' is damaged: {error}. Use another checkpoint.") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(f"'{path}' is not the manifest of a tfsparse checkpoint.")
    if manifest.get("version") != VERSION:
        raise CheckpointError(
            f"'{path}' has version {manifest.get('version')!r} of the format; this tfsparse reads "
            f"version {VERSION}. Use the tfsparse that wrote it, or a newer one."
        )
    if manifest.get("sha256") != digest(manifest):
        raise CheckpointError(
            f"'{path}' was altered after it was written: its checksum is another one. Use another "
            "checkpoint."
        )
    return manifest


@contextlib.contextmanager
def not_replaced(directory, manifest):
    """Says of an error in the block that it came of a save to the directory, if it did.

    Args:
        directory: from which the block reads.
        manifest: what it had as its manifest when the reading began.

    Raises:
        CheckpointError: a save has replaced what is read.
    """
    try:
        yield
    except Exception as error:
        if _is_replaced(directory, manifest):
            raise CheckpointError(
                f"A save has replaced '{directory}' while it was read. Read it again."
            ) from error
        raise


def _is_replaced(directory, manifest):
    try:
        return read(directory)["folder"] != manifest["folder"]
    except (CheckpointError, OSError):
        return False


def _plain(number):
    """A number of numpy, as users may write into a table's options, as one of Python."""
    return number.item()


def digest(manifest):
    """The checksum of a manifest, over everything but itself."""
    content = {name: value for name, value in manifest.items() if name != "sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()
