"""A checkpoint while it is written: it appears when it is complete, or leaves nothing behind."""

import contextlib
import os
import re
import shutil
import uuid

from tfsparse import runtime
from tfsparse.checkpoint import manifest

_FOLDER = "data-"  # with an id behind it; one for each save


class NewCheckpoint:
    """A checkpoint that is being written, by all ranks together.

    Its files go into a folder of their own, beside those of a checkpoint that is in the directory
    already and stays one until `finish`. If the block of the `with` fails on any rank, it must fail
    on all, as in `runtime.together`; what was made is then removed. Another process that would save
    to the directory meanwhile is refused, where the file system can lock.

    Args:
        path: the directory, absolute, on a file system that all ranks see. It is made if missing.

    Attributes:
        path: as given.
        folder: the name of the folder in it.
    """

    def __init__(self, path):
        self.path, self.folder = path, None
        self._made = []  # by rank 0: folders, innermost first
        self._lock = None  # of rank 0, on the directory

    def __enter__(self):
        """Makes the folder."""
        self.folder = runtime.allgather_object(_FOLDER + uuid.uuid4().hex[:12], "new.folder")[0]
        full = os.path.join(self.path, self.folder)
        try:
            with runtime.together("new.begin"):
                if runtime.rank() == 0:
                    self._made = runtime.missing_folders(self.path)
                    if self._made:
                        os.makedirs(self.path, exist_ok=True)
                    self._lock = runtime.lock(self.path)
                    os.mkdir(full)
            with runtime.together("new.seen"):
                if not os.path.isdir(full):
                    raise FileNotFoundError(
                        f"Rank {runtime.rank()} does not see '{full}', which rank 0 has made. The "
                        "directory must be on a file system that all ranks share."
                    )
        except BaseException:
            self._discard()
            self._unlock()
            raise
        return self

    def __exit__(self, kind, error, traceback):
        """Removes everything if something has failed."""
        if kind is not None:
            self._discard()
        self._unlock()

    def finish(self, content):
        """Makes the checkpoint appear, in the place of one that was there.

        Args:
            content: of the manifest, that of rank 0; see `manifest.describe`.
        """
        with runtime.together("new.finish"):
            if runtime.rank() == 0:
                runtime.sync(os.path.join(self.path, self.folder))
                for folder in self._made:
                    runtime.sync(os.path.dirname(folder))
                manifest.write({**content, "folder": self.folder}, self.path)
        if runtime.rank() == 0:
            with contextlib.suppress(OSError):  # the next save tries again
                self._remove_others()

    def _remove_others(self):
        """Removes what earlier saves to the directory have left, whether they ended well or not."""
        for name in os.listdir(self.path):
            if _is_of_a_save(name) and name != self.folder:
                shutil.rmtree(os.path.join(self.path, name), ignore_errors=True)

    def _discard(self):
        """Removes what was made, unless it is a checkpoint, whose very last sync has failed."""
        if runtime.rank() != 0 or self._lock is None or self._is_complete():
            return
        shutil.rmtree(os.path.join(self.path, self.folder), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.remove(os.path.join(self.path, manifest.ASIDE))
        for folder in self._made:
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def _unlock(self):
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _is_complete(self):
        try:
            return manifest.read(self.path)["folder"] == self.folder
        except (manifest.CheckpointError, OSError):
            return False


def require_empty(path):
    """Raises if a directory has something in it; it may be missing.

    Raises:
        ValueError: it has, or is no directory.
    """
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise ValueError(f"'{path}' must not exist, or be an empty folder.")


def has_only_ours(path):
    """Whether something is a directory, and no link to one, with nothing but what saves write."""
    if os.path.islink(path) or not os.path.isdir(path):
        return False
    names = set(os.listdir(path)) - {manifest.NAME, manifest.ASIDE}
    return all(_is_of_a_save(name) for name in names)


def _is_of_a_save(name):
    return re.fullmatch(_FOLDER + "[0-9a-f]{12}", name) is not None
