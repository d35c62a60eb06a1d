"""Compares contenders fairly: a process and an environment each, by turns, by medians.

Only one works at a time: A B A B, one round that does not count and five that do. When one of
them fails there are no ratios, only its error.

A new benchmark is a module here with a `BENCHMARK`. A new rival is a module in `contenders` and,
if it has an environment of its own, a list of what to install: tools/requirements-bench-NAME.txt.
"""

import contextlib
import json
import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 900  # for one answer; setting up 4M keys takes a minute
_SHOWN_LINES = 30


class Failed(Exception):
    """A contender failed, so there is nothing to compare."""


class Worker:
    """A contender's process; see `worker` for what is said. Start it where nothing else works.

    Args:
        name: of the contender.
        command: starts the process.
        limit_s: how long an answer may take.

    Raises:
        Failed: it does not say that it is ready. The other methods raise it too.
    """

    def __init__(self, name, command, limit_s):
        self.name = name
        self._limit_s = limit_s
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
        )
        try:
            self.settings = self._answer("ready")
        except BaseException:
            self.close()
            raise

    def run(self):
        """Lets it do the work once and returns the figure."""
        if select.select([self._process.stdout], [], [], 0)[0]:
            said = os.read(self._process.stdout.fileno(), 200)
            if said:
                raise self._failure(f"it spoke without being asked: {said!r}")
        with contextlib.suppress(BrokenPipeError):  # it is gone; `_answer` says why
            self._process.stdin.write(b"run\n")
        figure = self._answer("figure")
        number = isinstance(figure, (int, float)) and not isinstance(figure, bool)
        if not (number and math.isfinite(figure) and figure > 0):
            raise self._failure(f"its figure must be a positive number. Received: {figure!r}")
        return figure

    def close(self):
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def _answer(self, key):
        line = b""
        deadline = time.monotonic() + self._limit_s
        while not line.endswith(b"\n"):
            left_s = max(0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], left_s)[0]:
                raise self._failure(f"no answer in {self._limit_s} s")
            part = os.read(self._process.stdout.fileno(), 65536)
            if not part:
                raise self._failure(f"it ended with status {self._process.wait()}")
            line += part
        try:
            return json.loads(line)[key]
        except (ValueError, TypeError, KeyError):
            raise self._failure(f'expected {{"{key}": ...}}. Received: {line!r}') from None

    def _failure(self, what):
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        shown = "\n".join(["", *lines[-_SHOWN_LINES:]])
        return Failed(f"{self.name} failed, so nothing is compared: {what}{shown}")


def interleave(commands, pairs, limit_s=LIMIT_S):
    """Runs contenders A B A B ...

    Args:
        commands: `{name: command that starts its worker}`.
        pairs: rounds that count; one more goes first if there is more than one.
        limit_s: how long an answer may take. Defaults to 900.

    Returns:
        `{name: what it runs with}` and `{name: [figure]}`.

    Raises:
        Failed: one of them did.
    """
    with contextlib.ExitStack() as stack:
        workers = []
        for name, command in commands.items():
            workers.append(stack.enter_context(contextlib.closing(Worker(name, command, limit_s))))
        figures = {name: [] for name in commands}
        for round_number in range(pairs if pairs == 1 else pairs + 1):
            for worker in workers:
                figure = worker.run()
                if round_number > 0 or pairs == 1:
                    figures[worker.name].append(figure)
        return {worker.name: worker.settings for worker in workers}, figures


def report(title, unit, settings, figures, less_is_better=False):
    """The text for people: medians, ranges, ratios by pairs of the first to each other."""
    ours, *_ = figures
    lines = [title]
    for name, values in figures.items():
        median = statistics.median(values)
        line = f"  {name:<14} {median:10.3f} {unit}  ({min(values):.3f} to {max(values):.3f})"
        if name != ours:
            ratio = statistics.median(a / b for a, b in zip(figures[ours], values))
            line += f"   {ours} {'takes' if less_is_better else 'is'} {ratio:.2f}x"
        lines.append(line)
    return "\n".join(lines + [f"  {name}: {text}" for name, text in settings.items()])


def python_of(contender):
    """The Python of a contender's environment: `.venv-bench/NAME`, or this one if it needs none."""
    if not (ROOT / "tools" / f"requirements-bench-{contender}.txt").is_file():
        return sys.executable
    python = ROOT / ".venv-bench" / contender / "bin" / "python"
    if not python.is_file():
        raise Failed(f"{contender} has no environment. Make it with: make bench-{contender}")
    return str(python)


def main(benchmark):
    """Runs a benchmark with the arguments of the command line and prints the report."""
    values = benchmark.parse(sys.argv[1:])
    arguments = [str(value) for value in values.values()]
    try:
        commands = {
            name: [python_of(name), "-m", "tests.bench.worker", benchmark.name, name, *arguments]
            for name in benchmark.contenders
        }
        settings, figures = interleave(commands, benchmark.pairs)
    except Failed as error:
        sys.exit(f"error: {error}")
    told = [f"{name} {v:,}" if isinstance(v, int) else f"{name} {v}" for name, v in values.items()]
    title = f"{benchmark.title}; {', '.join(told)}; threads {benchmark.threads}"
    print(report(title, benchmark.unit, settings, figures, benchmark.less_is_better))
