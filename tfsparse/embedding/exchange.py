"""The three ways rows and keys travel between ranks, for one table.

    keys        askers -> owners    int64, behind a header
    rows        owners -> askers    float32 [., dim]
    values      anyone -> owners    keys and values in one message: gradients, or rows to be loaded

With one rank each returns its input. Collectives of one name must not overlap: each stands
between two ops on the table's handle, and TensorFlow runs those one after another, in nested
functions and retraces too. They never stand under a condition.

The header of a message of keys tells the others what this rank is about: which table, and whether
it trains. One whose input is bad
still takes part, and then all of them fail at the same step.
"""

import hashlib

import tensorflow as tf

from tfsparse import ops, runtime


class Exchange:
    """The collectives of one table.

    Args:
        name: the table's name, part of the names of the collectives.
    """

    def __init__(self, name):
        self._table_name = name
        self._name = runtime.unique_name(f"table.{name}")
        number = hashlib.blake2b(self._name.encode(), digest_size=7).digest()
        self._header = int.from_bytes(number, "big") << ops.HEADER_BITS

    def keys_to_owners(self, keys, counts, training, checks):
        """Asks the owners for rows.

        Args:
            keys: int64 `[u]`, grouped by owner.
            counts: int32 `[size()]`, keys for each owner.
            training: Python bool, the same on all ranks.
            checks: `[(condition, message)]` of this rank's input, boolean scalars and what is
                wrong where they are False.

        Returns:
            int64 `[m]`, the keys this rank is asked for, and int32 `[size()]`, by which rank.

        Raises:
            tf.errors.InvalidArgumentError: when run, on every rank: a check of some rank does not
                hold, or some ranks train while others read.
        """
        if runtime.size() > 1:
            sound = tf.reduce_all([True, *(condition for condition, _ in checks)])
            refused = tf.where(sound, tf.constant(0, tf.int64), ops.REFUSED)
            header = refused + self._header + (ops.TRAINS if training else 0)
            message, counts = ops.write_messages(keys, counts, header)
            message, counts = runtime.alltoall(message, counts, f"{self._name}.keys")
            keys, counts = ops.read_messages(message, counts, header, self._table_name)
        return checked(keys, checks), counts

    def rows_to_askers(self, rows, counts):
        """Answers: float32 `[m, dim]` for `keys_to_owners`' keys -> `[u, dim]` for its own."""
        received, _ = runtime.alltoall(rows, counts, f"{self._name}.rows")
        return received

    def values_to_owners(self, keys, values, counts):
        """Sends gradients, or rows, home.

        Args:
            keys: int64 `[u]`, grouped by owner.
            values: float32 `[u, any]`.
            counts: int32 `[size()]`, keys for each owner.

        Returns:
            The same for the keys this rank owns, from all ranks in rank order: a key may repeat.
        """
        if runtime.size() == 1:
            return keys, values
        # One message instead of two: the 64 bits of a key travel as two more floats.
        packed = tf.concat([values, tf.bitcast(keys, tf.float32)], axis=1)
        packed, _ = runtime.alltoall(packed, counts, f"{self._name}.values")
        return tf.bitcast(packed[:, -2:], tf.int64), packed[:, :-2]


def checked(tensor, checks):
    """`tensor`, once it is there and the conditions of `[(condition, message)]` hold."""
    if tf.executing_eagerly():
        for condition, message in checks:
            if not condition:
                raise tf.errors.InvalidArgumentError(None, None, message)
        return tensor
    with tf.control_dependencies([tensor]):
        asserts = [tf.debugging.Assert(condition, [message]) for condition, message in checks]
    with tf.control_dependencies(asserts):
        return tf.identity(tensor)
