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
# How often the ranks are asked, and so after which time there is a warning.
CHECK = "HOROVOD_STALL_CHECK_TIME_SECONDS"
# Set to 1, nobody is asked.
DISABLE = "HOROVOD_STALL_CHECK_DISABLE"


class Watch:
    """Compares, on rank 0, which collectives the ranks have begun.

    All ranks begin the same ones in the same order, and one ends when all have begun it. So who has
    begun less than others is waited for, and if that stays so, something is wrong. A thread on
    each rank answers, whatever the program does meanwhile. Whether a rank waits could not be told
    from its own side: a step that fails leaves collectives behind that have begun and never end.

    Args:
        rank: of this process.
        allgather: function of int64 `[3]` that returns those of all ranks, `[num_ranks, 3]`.
        end: called on rank 0 to make all collectives, on all ranks, fail.
        check_s: seconds between two comparisons.
        limit_s: seconds after which `end` is called; 0 never calls it.
    """

    def __init__(self, rank, allgather, end, check_s, limit_s):
        self._rank, self._end = rank, end
        self._check_s, self._limit_s = check_s, limit_s
        # In a function, because Horovod knows collectives that are run eagerly by their type only.
        self._allgather = tf.function(allgather)
        # Of the collectives that this rank has begun: int64 [2], their number and the sum of their
        # names' hashes; and int64, the hash of the last one's name.
        self._begun, self._last = None, None
        self._names = {}
        self._seen, self._since = None, None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfsparse.watch", daemon=True)
        self._thread.start()

    def begins(self, tensor, name):
        """`tensor`, once it is counted that this rank begins the collective `name`."""
        if self._begun is None:
            with tf.init_scope(), tf.device("CPU:0"):
                self._last = tf.Variable(0, trainable=False, dtype=tf.int64, name="last")
                self._begun = tf.Variable([0, 0], trainable=False, dtype=tf.int64, name="begun")
        number = _hash(name)
        self._names[number] = name
        with tf.control_dependencies([tensor]):
            counted = self._begun.assign_add([1, number], read_value=False)
            named = self._last.assign(number, read_value=False)
        with tf.control_dependencies([counted, named]):
            return tf.identity(tensor)

    def close(self):
        """Ends the thread. Collectives must fail by now, because it may wait in one."""
        self._closed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(10)

    def _run(self):
        while not self._closed.wait(self._check_s):
            own = tf.zeros([3], tf.int64)
            if self._begun is not None:
                own = tf.concat([self._begun, [self._last]], 0)
            try:
                begun = self._allgather(own).numpy().tolist()
            except tf.errors.OpError:  # Horovod has ended, and tells the program so
                return
            if self._rank == 0:
                self._compare(begun, time.monotonic())

    def _compare(self, begun, now):
        ranks_at = {}
        for rank, (count, names, last) in enumerate(begun):
            ranks_at.setdefault((count, names), (last, []))[1].append(rank)
        behind = min(ranks_at)
        seen = behind, ranks_at[behind]
        if len(ranks_at) == 1 or seen != self._seen:
            self._seen, self._since = seen, now
            return
        groups = [
            f"ranks {ranks} have begun {count} collectives, the last {self._name(last)}"
            for (count, _), (last, ranks) in sorted(ranks_at.items())
        ]
        waited_s = round(now - self._since)
        message = f"Ranks wait for others for {waited_s} s: {'; '.join(groups)}."
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

    def _name(self, number):
        return f"'{self._names[number]}'" if number in self._names else "unknown to rank 0"


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
