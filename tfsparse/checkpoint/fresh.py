"""A checkpoint in a directory that has nothing: complete, or all as it was before."""

import contextlib
import os
import shutil

from tfsparse.checkpoint import manifest


def require_empty(path):
    """Raises if a directory has something in it; it may be missing.

    Raises:
        ValueError: it has, or is no directory.
    """
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise ValueError(f"'{path}' must not exist, or be an empty folder.")


def discard(path, folder, made):
    """Removes what was written into a directory that was empty.

    Args:
        path: of the checkpoint.
        folder: name of the folder of its files.
        made: folders that were made for it, innermost first.
    """
    shutil.rmtree(os.path.join(path, folder), ignore_errors=True)
    for name in (manifest.NAME, manifest.ASIDE):
        with contextlib.suppress(OSError):
            os.remove(os.path.join(path, name))
    for path in made:
        with contextlib.suppress(OSError):
            os.rmdir(path)
