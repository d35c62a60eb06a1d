"""`make bench`: runs every comparison and writes the figures to RESULTS.md.

python -m tests.bench.run
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("RESULTS.md")

COMMANDS = [
    "lookup 4e6 16",
    "lookup 1e6 64",
    "insert 4e6 16",
    "train 4e6 16",
    "table_step 16",
    "table_step 64",
    "fit 1e6",
    "memory 1e6",
    "memory 2e6",
    "memory 4e6",
    "save 4e6 16",
    "restore 4e6 16",
    "checkpoint 14e6 16",
    "movielens",
    "wire",
]

HEADER = """# Results

Written by `make bench`. Each block is one run of the command above it. Contenders have a process
and an environment each, do the same work on the same ids and take turns; one round goes first and
five count. Shown are the median, the range, and the median over rounds of the ratio of ours to
theirs. Memory cannot be measured twice in one process: one round. Absolute figures are of one
small shared machine ({machine}); the ratios are what to quote.
Other work of the machine blurs them too: its load average was {load:.1f} when this began.

Not compared: DeepRec (a fork of TensorFlow 1.15) and Monolith (built for TensorFlow 2.4) have no
wheels, and HugeCTR runs on GPUs only.
"""


def machine():
    """Cores and CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "CPU")
    return f"{os.cpu_count()} cores, {model}"


def write_results(path, header, commands):
    """Runs `{command to show: arguments}` and writes what they print, or nothing if one fails.

    Raises:
        SystemExit: one of them failed; its error is on standard error.
    """
    text = header
    for shown, command in commands.items():
        print(f"\n$ {shown}", flush=True)
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"error: {shown} failed; {path.name} stays as it was")
        print(done.stdout.strip(), flush=True)
        text += f"\n`{shown}`\n\n```\n{done.stdout.strip()}\n```\n"
    aside = path.with_name(f".{path.name}.part")
    aside.write_text(text)
    aside.replace(path)
    print(f"\nwritten to {path}")


def main():
    """Runs the list."""
    commands = {
        f"python -m tests.bench.{words}": [sys.executable, "-m", *f"tests.bench.{words}".split()]
        for words in COMMANDS
    }
    write_results(RESULTS, HEADER.format(machine=machine(), load=os.getloadavg()[0]), commands)


if __name__ == "__main__":
    main()
