"""What `tfsparse doctor` says of the machine."""

import os
import platform
from pathlib import Path

GIB = 1 << 30


def cpu():
    """Which version of its hot loops the op library uses on this processor.

    The loops are compiled for AVX-512F, AVX2 and plain x86-64, and chosen when the library is
    loaded, in this order. All give the same bits.
    """
    machine = platform.machine()
    if machine != "x86_64":
        return f"{machine}, the loops as compiled: they have several versions on x86-64 only"
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    has = {name: name in flags for name in ("avx512f", "avx2")}
    used = next((name for name in has if has[name]), "plain x86-64")
    told = ", ".join(f"{name} {_yes(has[name])}" for name in has)
    return f"x86_64 with {told}: the loops for {used} are used"


def memory():
    """Cores that this process may use, memory, and memory that is free for use."""
    amounts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(amounts[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {total / GIB:.1f} GiB of memory, {free / GIB:.1f} of them available"


def shared_memory():
    """Free space of /dev/shm, through which MPI and NCCL move data between ranks of one host."""
    try:
        space = os.statvfs("/dev/shm")
    except OSError as error:
        return f"none: {error}"
    return f"{space.f_bavail * space.f_frsize / GIB:.2f} GiB free in /dev/shm"


def _yes(is_so):
    return "yes" if is_so else "no"
