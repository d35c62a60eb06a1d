"""A directory of checkpoints, `step-<n>`, of one training."""

import os
import re
import shutil
import threading

from tfsparse.checkpoint import manifest
from tfsparse.checkpoint.new_checkpoint import has_only_ours


def path_of(directory, step):
    """The checkpoint of a step."""
    return os.path.join(directory, f"step-{step}")


def steps_of(directory):
    """The steps of the checkpoints in a directory, in order; without what is half-written."""
    return sorted(step for step in _folders(directory) if _is_complete(directory, step))


def prune(directory, keep):
    """Removes all but the newest `keep` checkpoints (None: none), and those never completed.

    One to which somebody has added something stays, and one that is a link.

    Returns:
        A running `threading.Thread`, to be joined: a disk may take long to give space back.
    """
    complete = steps_of(directory)
    kept = complete if keep is None else complete[-keep:]
    outdated = []
    for step in sorted(set(_folders(directory)) - set(kept)):
        path = path_of(directory, step)
        if not has_only_ours(path):
            continue
        if step in complete:  # first that which makes it one: what is half-removed is none
            os.remove(os.path.join(path, manifest.NAME))
        outdated.append(path)
    removal = threading.Thread(target=_remove, args=(outdated,))
    removal.start()
    return removal


def _remove(folders):
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _folders(directory):
    found = (re.fullmatch(r"step-(0|[1-9]\d*)", name) for name in os.listdir(directory))
    return [int(match[1]) for match in found if match]


def _is_complete(directory, step):
    return os.path.isfile(os.path.join(path_of(directory, step), manifest.NAME))
