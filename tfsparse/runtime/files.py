"""What ranks need to write one directory together."""

import contextlib
import fcntl
import os
import time

from tfsparse.runtime.ranks import agree


@contextlib.contextmanager
def together(name):
    """Runs the block on every rank; if it fails on one, it fails on all.

    Args:
        name: of the block, the same on all ranks. There is no collective in it.
    """
    error = None
    try:
        yield
    except Exception as caught:
        error = caught
    agree(error, name)


def mounted_path(directory):
    """`directory` as an absolute path.

    Args:
        directory: path, a string, bytes or `os.PathLike`.

    Raises:
        ValueError: it is a URL: what is written is renamed into place when it is complete, and
            stores of objects cannot rename. Or there is a `[` or a backslash in its absolute path:
            TensorFlow, which reads names as patterns, would write files there and never find them.
    """
    directory = os.fsdecode(directory)
    if "://" in directory:
        raise ValueError(
            "`directory` must be on a mounted file system, because what is written there is "
            f"renamed into place when it is complete. Received: {directory!r}."
        )
    path = os.path.abspath(directory)
    if "[" in path or "\\" in path:
        raise ValueError(
            "`directory` must have no '[' and no backslash in its path: TensorFlow reads names of "
            f"files as patterns, and would not find what it has written. Received: {path!r}."
        )
    return path


def missing_folders(path):
    """The folders on the way to `path`, and itself, that are not there; innermost first."""
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def lock(directory, wait_s=0.0):
    """Takes a directory for this process, until what is returned is closed or the process ends.

    A file system that cannot lock, as some shared ones, gives it to everybody.

    Args:
        directory: path; it must exist.
        wait_s: how long another process may still have it.

    Returns:
        A descriptor, for `os.close`.

    Raises:
        RuntimeError: another process has it.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            os.close(descriptor)
            raise RuntimeError(
                f"Another process is saving to '{directory}'. Wait for its end, or end it, or save "
                "to another directory."
            ) from None
        except OSError:
            pass
        return descriptor


def sync(path):
    """Waits until a file or directory is on the disk. To be called where it was written."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
