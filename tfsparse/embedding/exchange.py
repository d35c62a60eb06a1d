"""The three ways rows and keys travel between ranks, for one table.

    keys        askers -> owners    int64
    rows        owners -> askers    float32 [., dim]
    gradients   askers -> owners    keys and sums in one message

With one rank each returns its input. Collectives of one name must not overlap: each stands
between two ops on the table's handle, and TensorFlow runs those one after another, in nested
functions and retraces too. They never stand under a condition.
"""

import tensorflow as tf

from tfsparse import runtime


class Exchange:
    """The collectives of one table.

    Args:
        name: the table's name, part of the names of the collectives.
    """

    def __init__(self, name):
        self._name = runtime.unique_name(f"table.{name}")

    def keys_to_owners(self, keys, counts):
        """Asks the owners for rows.

        Args:
            keys: int64 `[u]`, grouped by owner.
            counts: int32 `[size()]`, keys for each owner.

        Returns:
            int64 `[m]`, the keys this rank is asked for, and int32 `[size()]`, by which rank.
        """
        return runtime.alltoall(keys, counts, f"{self._name}.keys")

    def rows_to_askers(self, rows, counts):
        """Answers: float32 `[m, dim]` for `keys_to_owners`' keys -> `[u, dim]` for its own."""
        received, _ = runtime.alltoall(rows, counts, f"{self._name}.rows")
        return received

    def gradients_to_owners(self, keys, sums, counts):
        """Sends gradients home.

        Args:
            keys: int64 `[u]`, grouped by owner.
            sums: float32 `[u, dim]`.
            counts: int32 `[size()]`, keys for each owner.

        Returns:
            The same for the keys this rank owns, from all ranks in rank order: a key may repeat.
        """
        if runtime.size() == 1:
            return keys, sums
        # One message instead of two: the 64 bits of a key travel as two more floats.
        packed = tf.concat([sums, tf.bitcast(keys, tf.float32)], axis=1)
        packed, _ = runtime.alltoall(packed, counts, f"{self._name}.gradients")
        return tf.bitcast(packed[:, -2:], tf.int64), packed[:, :-2]
