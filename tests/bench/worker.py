"""One contender in a process of its own: it sets itself up, then works when it is told to.

    python -m tests.bench.worker BENCHMARK CONTENDER [ARGUMENT ...]

Each answer is a line of JSON on standard output: `{"ready": what it runs with}`, and from then on
`{"figure": number}` for each line "run" on standard input. Its end is the end of the input. An
exception ends it too, with the traceback on standard error; `side_by_side` shows that.
"""

import importlib
import json
import os
import sys
from importlib.metadata import version


def main():
    """Serves the benchmark and the contender of the command line."""
    benchmark_name, contender_name, *arguments = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    benchmark = importlib.import_module(f"tests.bench.{benchmark_name}").BENCHMARK
    contender = importlib.import_module(f"tests.bench.contenders.{contender_name}")
    contender.use_threads(benchmark.threads)
    work = benchmark.prepare(contender, **benchmark.parse(arguments))
    packages = [f"{package} {version(package)}" for package in contender.PACKAGES]
    packages.append(f"Python {sys.version.split()[0]}")
    ready = f"{contender.SETTINGS} ({', '.join(packages)})"
    print(json.dumps({"ready": ready}), file=answers, flush=True)
    for _ in sys.stdin:
        print(json.dumps({"figure": work()}), file=answers, flush=True)


if __name__ == "__main__":
    main()
