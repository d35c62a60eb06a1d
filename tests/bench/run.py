"""`make bench`: prints the side-by-side figures, one program after the other."""

import subprocess
import sys

PROGRAMS = [
    ["tests.bench.lookup", "4e6", "16"],
    ["tests.bench.fit", "1e6"],
]


def main():
    """Runs every program; ends with an error if one fails."""
    for program in PROGRAMS:
        print(f"\n$ python -m {' '.join(program)}", flush=True)
        subprocess.run([sys.executable, "-m", *program], check=True)


if __name__ == "__main__":
    main()
