"""How fast are tfs.save and tfs.restore, beside what the disk and the page cache can do?

python -m tests.bench.checkpoint [KEYS] [DIM] [FOLDER]

One process, two threads, a table with Adam's slots. By turns, five times: `dd` writes as many
bytes with fsync, tfs.save saves, each to a place where nothing was; `dd` reads the cached files;
in new processes NumPy fills as much memory, which any table has to be read into, and tfs.restore
restores. Shown are medians, and the memory that a save and a restore add at their peak.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROUNDS = 5
GB = 1e9


def seconds(work):
    """How long `work()` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def resident_bytes():
    """Of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_growth(work):
    """The most that this process grows by while `work()` runs, looked at every 5 ms."""
    before = most = resident_bytes()
    done = threading.Event()

    def watch():
        nonlocal most
        while not done.wait(0.005):
            most = max(most, resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return most - before


def dd(*arguments):
    """Copies with dd, and is quiet."""
    subprocess.run(["dd", "bs=1M", *arguments], check=True, stderr=subprocess.DEVNULL)


def make_model(dim):
    """A table that Adam trains, and nothing else."""
    import tensorflow as tf

    import tfsparse as tfs
    from tfsparse.keras_layers import DynamicEmbedding

    ids = tf.keras.Input((), dtype=tf.int64)
    model = tf.keras.Model(ids, DynamicEmbedding(dim, name="table")(ids))
    model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
    return model


def fill(model, keys, dim):
    """Trains each key once."""
    import numpy as np

    import tfsparse as tfs
    from tests.bench import workload
    from tfsparse import ops

    table = model.layers[1].table
    table.bind(tfs.optimizers.Adam())
    for block in workload.batches(workload.distinct_keys(keys)):
        ops.apply(table.handle, block, np.ones((len(block), dim), np.float32), 0.01)


def restore_once(folder, dim):
    """In a process of its own: prints the seconds and the growth in bytes of one restore."""
    import tfsparse as tfs

    model = make_model(dim)
    took = []
    grown = peak_growth(lambda: took.append(seconds(lambda: tfs.restore(model, folder))))
    print(took[0], grown)


def fill_once(size):
    """In a process of its own: prints the seconds that filling `size` bytes of memory takes."""
    import numpy as np

    print(seconds(lambda: np.ones(size, np.uint8)))


def in_new_process(*arguments):
    """Calls this program; returns the numbers that it printed."""
    command = [sys.executable, "-m", "tests.bench.checkpoint", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [float(word) for word in done.stdout.splitlines()[-1].split()]


def main():
    """Prints the figures."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["restore"]:
        restore_once(arguments[1], int(arguments[2]))
        return
    if arguments[:1] == ["fill"]:
        fill_once(int(arguments[1]))
        return
    keys = int(float(arguments[0])) if arguments else 14_000_000
    dim = int(arguments[1]) if len(arguments) > 1 else 16
    root = Path(tempfile.mkdtemp(dir=arguments[2] if len(arguments) > 2 else None))
    import tfsparse as tfs

    model = make_model(dim)
    fill(model, keys, dim)
    folder, copy = root / "checkpoint", root / "dd"
    times = {"dd write": [], "save": [], "dd read": [], "fill memory": [], "restore": []}
    growth = {}
    try:
        tfs.save(model, folder)
        files = sorted(folder.glob("data-*/table-*"))
        size = sum(file.stat().st_size for file in files)
        growth["save"] = peak_growth(lambda: tfs.save(model, folder))
        for _ in range(ROUNDS):
            blocks = f"count={-(-size // (1 << 20))}"
            write = seconds(lambda: dd("if=/dev/zero", f"of={copy}", "conv=fsync", blocks))  # noqa: B023
            times["dd write"].append(write)
            copy.unlink()
            shutil.rmtree(folder)
            times["save"].append(seconds(lambda: tfs.save(model, folder)))
            files = sorted(folder.glob("data-*/table-*"))
            read = seconds(lambda: [dd(f"if={file}", "of=/dev/null") for file in files])  # noqa: B023
            times["dd read"].append(read)
            times["fill memory"] += in_new_process("fill", size)
            took, growth["restore"] = in_new_process("restore", folder, dim)
            times["restore"].append(took)
    finally:
        shutil.rmtree(root)
    print(f"checkpoint of {keys:,} keys, dim {dim}, Adam: {size / GB:.2f} GB in {len(files)} files")
    for name, values in times.items():
        rates = sorted(size / GB / value for value in values)
        print(f"  {name:<12}{statistics.median(rates):6.2f} GB/s  ({rates[0]:.2f}-{rates[-1]:.2f})")
    pairs = [("save", "dd write"), ("restore", "dd read"), ("restore", "fill memory")]
    for ours, theirs in pairs:
        ratios = [b / a for a, b in zip(times[ours], times[theirs])]
        print(f"  {ours} is {statistics.median(ratios):.2f}x {theirs}")
    stats = model.layers[1].table.stats()
    held = stats["page_bytes"] + stats["index_bytes"]
    print(f"  a save adds {growth['save'] / (1 << 20):.0f} MiB at its peak")
    print(f"  a restore grows the process to {growth['restore'] / held:.2f}x the table")


if __name__ == "__main__":
    main()
