"""Directories that appear under their name when they are whole, written by all ranks."""

import contextlib
import os
import shutil
import uuid

from tfsparse import runtime


@contextlib.contextmanager
def written_aside(target):
    """Yields a new directory on a file system that all ranks see; it becomes `target` at the end.

    Every rank calls it. The directory stands beside the target as `.<name>.tmp-...`. If the block
    raises, which it must do on all ranks, it is removed. Only a process that is killed leaves it
    behind.

    Args:
        target: absolute path.

    Raises:
        FileExistsError: `target` exists.
        FileNotFoundError: a rank does not see what rank 0 has made.
        ValueError: the ranks have different targets.
    """
    proposals = runtime.allgather_object((target, uuid.uuid4().hex[:12]), "export.target")
    folder, name = os.path.split(target)
    aside = os.path.join(folder, f".{name}.tmp-{proposals[0][1]}")
    missing = []
    try:
        with runtime.together("export.begin"):
            if any(theirs != target for theirs, _ in proposals):
                raise ValueError(f"All ranks must export to one directory. Got: {proposals}")
            if os.path.lexists(target):
                raise FileExistsError(
                    f"'{target}' exists. An export goes to a new directory: remove that one, "
                    "choose another, or give `version=`."
                )
            if runtime.rank() == 0:
                missing = runtime.missing_folders(folder)
                os.makedirs(folder, exist_ok=True)
                os.mkdir(aside)
        with runtime.together("export.seen"):
            if not os.path.isdir(aside):
                raise FileNotFoundError(
                    f"Rank {runtime.rank()} does not see '{aside}', which rank 0 has made. "
                    "`directory` must be on a file system that all ranks share."
                )
        yield aside
        with runtime.together("export.end"):
            if runtime.rank() == 0:
                _sync_all(aside)
                os.rename(aside, target)
                runtime.sync(folder)
    except BaseException:
        if runtime.rank() == 0:
            shutil.rmtree(aside, ignore_errors=True)
            for made in missing:
                with contextlib.suppress(OSError):  # something else is in it by now
                    os.rmdir(made)
        raise


def _sync_all(folder):
    for path, _, files in os.walk(folder):
        for file in files:
            runtime.sync(os.path.join(path, file))
        runtime.sync(path)
