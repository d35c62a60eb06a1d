"""Each rank its own share of the data."""

import tensorflow as tf

from tfsparse import runtime


def shard(dataset_or_files):
    """This rank's share: every `size()`-th element, starting with number `rank()`.

    The shares are disjoint and together everything. Shard before shuffling and batching. A plain
    `tf.keras.Model` needs the same number of steps on all ranks; shares differ by up to one
    element.

    Args:
        dataset_or_files: a `tf.data.Dataset`, or a sequence of file names in an order that is
            the same on all ranks.

    Returns:
        The same kind: a dataset, or a list.
    """
    if isinstance(dataset_or_files, tf.data.Dataset):
        return dataset_or_files.shard(runtime.size(), runtime.rank())
    return list(dataset_or_files)[runtime.rank() :: runtime.size()]
