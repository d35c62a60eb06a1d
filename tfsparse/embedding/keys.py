"""From ids to keys."""

import tensorflow as tf


def as_keys(ids):
    """Ids of any shape as int64 keys.

    An integer is its own key. A string's key is its 64-bit FarmHash fingerprint, a stock op, so
    training and serving agree; two of a billion strings share a key with probability 0.03.
    """
    if ids.dtype == tf.string:
        return tf.bitcast(tf.fingerprint(ids, "farmhash64"), tf.int64)
    return tf.cast(ids, tf.int64)
