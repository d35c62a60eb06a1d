"""Ends the job when a rank does not come to a collective in which others wait.

Horovod has a check of that kind, which reads the same environment variables. With Gloo, that of
0.28.1 finds nothing: with a limit of 6 s, a rank waited 40 s in an allreduce or alltoall until its
peer ended. (What it looks for is a rank of a list that only the MPI controller seems to fill in.)
"""

import hashlib
import os
import threading
import time

import tensorflow as tf

# A rank that does not come for this long ends the job. 0 waits for ever.
LIMIT = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
# How often the ranks are asked. The first time that they are found apart is where waiting begins,
# so the warning comes after one to two such times.
CHECK = "HOROVOD_STALL_CHECK_TIME_SECONDS"
# Set to 1, nobody is asked.
DISABLE = "HOROVOD_STALL_CHECK_DISABLE"


class Waits:
    """Who waits, from how often each rank has begun each collective.

    All ranks begin the same ones, and none ends before all have begun it. So where some ranks have
    begun one more often than others, they wait; and if no rank begins any more, something is wrong.
    A step that fails leaves behind what has begun and never ends: such a difference stays when the
    ranks that are ahead go on, and counts no more.

    Args:
        num_ranks: of the job.
    """

    def __init__(self, num_ranks):
        self._totals = [0] * num_ranks
        self._seen, self._since = {}, 0.0
        self._left_behind = {}

    def update(self, begun, now):
        """How long ranks have waited, in seconds, and where: `{collective: counts by rank}`.

        Args:
            begun: `{collective: counts by rank}`.
            now: seconds of a clock.
        """
        if begun != self._seen:
            totals = [sum(of_rank) for of_rank in zip(*begun.values())]
            for collective, counts in begun.items():
                ahead = [rank for rank, count in enumerate(counts) if count == max(counts)]
                gone_on = all(totals[rank] > self._totals[rank] for rank in ahead)
                if counts == self._seen.get(collective) and gone_on:
                    self._left_behind[collective] = _apart(counts)
            self._seen, self._since, self._totals = begun, now, totals
        apart = {
            collective: counts
            for collective, counts in begun.items()
            if any(_apart(counts)) and _apart(counts) != self._left_behind.get(collective)
        }
        if not apart:
            self._since = now
        return now - self._since, apart


def _apart(counts):
    return [count - min(counts) for count in counts]


class Watch:
    """Compares, on rank 0, which collectives the ranks have begun.

    A thread on each rank answers, whatever its program does meanwhile. Whether a rank waits could
    not be told from its own side.

    Args:
        rank, num_ranks: of this process, and of the job.
        allgather: function of int64 `[n, 3]` that returns the rows of all ranks.
        end: called on rank 0 to make all collectives, on all ranks, fail.
        check_s: seconds between two comparisons.
        limit_s: seconds after which `end` is called; 0 never calls it.
    """

    def __init__(self, rank, num_ranks, allgather, end, check_s, limit_s):
        self._rank, self._num_ranks, self._end = rank, num_ranks, end
        self._check_s, self._limit_s = check_s, limit_s
        # In a graph, because Horovod knows collectives that are run eagerly by their type only.
        rows = tf.TensorSpec([None, 3], tf.int64)
        self._allgather = tf.function(allgather).get_concrete_function(rows)
        # {name: how often it has begun}. Each has a variable of its own, because TensorFlow orders
        # what touches the same one, and collectives of different tables are to run side by side.
        self._begun = {}
        self._waits = Waits(num_ranks)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfsparse.watch", daemon=True)
        self._thread.start()

    def begins(self, tensor, name):
        """`tensor`, once it is counted that this rank begins the collective `name`."""
        if name not in self._begun:
            with tf.init_scope(), tf.device("CPU:0"):
                self._begun[name] = tf.Variable(0, trainable=False, dtype=tf.int64, name="begun")
        with tf.control_dependencies([tensor]):
            counted = self._begun[name].assign_add(1, read_value=False)
        with tf.control_dependencies([counted]):
            return tf.identity(tensor)

    def close(self):
        """Lets the thread begin nothing more."""
        self._closed.set()

    def join(self):
        """Waits for its end. Collectives must fail by now, because it may wait in one."""
        self._thread.join(10)

    def _run(self):
        while not self._closed.wait(self._check_s):
            own = [(self._rank, _hash(name), int(n)) for name, n in list(self._begun.items())]
            try:
                rows = self._allgather(tf.constant(own, tf.int64, [len(own), 3])).numpy()
            except tf.errors.OpError:  # Horovod has ended, and tells the program so
                return
            if self._rank == 0:
                self._compare(rows.tolist(), time.monotonic())

    def _compare(self, rows, now):
        begun = {}
        for rank, number, count in rows:
            begun.setdefault(number, [0] * self._num_ranks)[rank] = count
        waited_s, apart = self._waits.update(begun, now)
        waited_s = round(waited_s)
        if waited_s == 0:
            return
        message = f"Ranks wait for others for {waited_s} s: {self._places(apart)}."
        if self._limit_s and waited_s >= self._limit_s:
            tf.get_logger().error(
                f"{message} The job ends, as {LIMIT} is {self._limit_s}. Do all ranks take the "
                "same steps, and do all of them evaluate, predict and export?"
            )
            self._closed.set()
            self._end()
        else:
            limit = f"after {self._limit_s} s of it" if self._limit_s else "never for it"
            tf.get_logger().warning(f"{message} The job ends {limit} ({LIMIT}).")

    def _places(self, apart, at_most=3):
        names = {_hash(name): f"'{name}'" for name in list(self._begun)}
        places = []
        for number, counts in list(apart.items())[:at_most]:
            ahead = [rank for rank, count in enumerate(counts) if count == max(counts)]
            name = names.get(number, "a collective unknown to rank 0")
            places.append(f"ranks {ahead} in {name}")
        return ", ".join(places) + (", ..." if len(apart) > at_most else "")


def limits():
    """`(check_s, limit_s)` of the environment, which gets the defaults of what is missing.

    Raises:
        ValueError: a variable is not a number of seconds.
    """
    limit_s = _seconds(LIMIT, 600)
    return max(1, _seconds(CHECK, min(60, max(1, limit_s // 10)) if limit_s else 60)), limit_s


def _seconds(name, default):
    text = os.environ.setdefault(name, str(default))  # for Horovod's own check too
    if not text.isdecimal():
        raise ValueError(f"{name} must be a whole number of seconds. Received: {text!r}.")
    return int(text)


def _hash(name):
    return int.from_bytes(
        hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True
    )
