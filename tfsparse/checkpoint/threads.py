"""Work on several files at once."""

import os
from concurrent.futures import ThreadPoolExecutor

from tfsparse import runtime

MOST_THREADS = 8


def run_all(work, arguments):
    """`[work(*a) for a in arguments]`, some at a time.

    When one fails no more are begun, and its error is raised when those under way have ended.

    Args:
        work: called from several threads.
        arguments: tuples.
    """
    with ThreadPoolExecutor(_threads()) as pool:
        begun = [pool.submit(work, *a) for a in arguments]
        try:
            return [task.result() for task in begun]
        except BaseException:
            for task in begun:
                task.cancel()
            raise


def _threads():
    """This rank's part of the host's cores, two at least: one computes while the other waits."""
    return min(MOST_THREADS, max(2, len(os.sched_getaffinity(0)) // runtime.local_size()))
