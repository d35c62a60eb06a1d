"""How much memory this process has, and had at most."""

import contextlib
import ctypes
import gc
import os
from pathlib import Path

MB = 1 << 20


def rss_bytes():
    """Memory in use: what the C library keeps of TensorFlow's small blocks is handed back first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def added():
    """Yields a function: the bytes that the block had at most beyond what was in use before it.

    A little below 0 is what was freed meanwhile.
    """
    before = rss_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # makes the high-water mark the size of now
    yield lambda: _high_water_mark() - before


def _high_water_mark():
    (line,) = [n for n in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in n]
    return int(line.split()[1]) * 1024
