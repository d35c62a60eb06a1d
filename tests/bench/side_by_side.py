"""Compares ways to do the same work, fairly: in one process, by turns, by medians."""

import statistics
import time


def interleave(ways, pairs):
    """Runs `ways` A B A B ... and returns the figures of each.

    Args:
        ways: `{name: function that does the work once and returns its figure}`.
        pairs: rounds that count; one more goes first and does not.

    Returns:
        `{name: [figure]}`.
    """
    figures = {name: [] for name in ways}
    for round_number in range(pairs + 1):
        for name, work in ways.items():
            figure = work()
            if round_number > 0:
                figures[name].append(figure)
    return figures


def per_second(count, work):
    """Wraps `work` so that it returns how many of `count` things it does a second."""

    def timed():
        start = time.perf_counter()
        work()
        return count / (time.perf_counter() - start)

    return timed


def report(title, unit, figures, ours="tfsparse"):
    """Prints a line for each way: median, range, and the ratio of ours to it, by pairs."""
    print(f"\n{title}")
    for name, values in figures.items():
        median = statistics.median(values)
        line = f"  {name:<22} {median:10.3f} {unit}  ({min(values):.3f} to {max(values):.3f})"
        if name != ours:
            ratio = statistics.median(a / b for a, b in zip(figures[ours], values))
            line += f"   {ours} is {ratio:.2f}x"
        print(line, flush=True)
