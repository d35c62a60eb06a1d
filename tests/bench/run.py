"""`make bench`: compares side by side and writes the figures to RESULTS.md.

python -m tests.bench.run
"""

import os
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")

HEADER = """# Results

Written by `make bench`. Each block is one run of the command above it: ways to do the same work in
one process, by turns, five rounds; the median, the range, and the median ratio of a round. Absolute
figures are of one small shared machine ({machine}); the ratios are what to quote.
"""

PROGRAMS = [
    ["tests.bench.lookup", "4e6", "16"],
    ["tests.bench.fit", "1e6"],
]


def machine():
    """Cores and CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "CPU")
    return f"{os.cpu_count()} cores, {model}"


def main():
    """Runs every program; a program that fails ends the run, and nothing is written."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    text = HEADER.format(machine=machine())
    for program in PROGRAMS:
        command = f"python -m {' '.join(program)}"
        print(f"\n$ {command}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", *program],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
        figures = done.stdout.strip()
        print(figures, flush=True)
        text += f"\n`{command}`\n\n```\n{figures}\n```\n"
    RESULTS.write_text(text)
    print(f"\nwritten to {RESULTS}")


if __name__ == "__main__":
    main()
