"""Which rank owns which keys: that of `custom_ops/core/{mix,ownership}.h`."""

import numpy as np

NUM_BUCKETS = 1 << 16


def buckets_of_rank(rank, num_ranks):
    """The buckets [first, last) that a rank owns."""
    first, last = (-(-r * NUM_BUCKETS // num_ranks) for r in (rank, rank + 1))
    return first, last


def owners_of(keys, num_ranks):
    """The rank that owns each key, int64 `[n]` -> int64 `[n]`."""
    first_buckets = [buckets_of_rank(rank, num_ranks)[0] for rank in range(num_ranks)]
    return np.searchsorted(first_buckets, buckets_of(keys), side="right") - 1


def buckets_of(keys):
    """The bucket of each key, int64 `[n]` -> int64 `[n]`: the top 16 bits of its hash."""
    return (hashes_of(keys) >> np.uint64(48)).astype(np.int64)


def hashes_of(keys):
    """The hash of each key, another for each, int64 `[n]` -> uint64 `[n]`."""
    x = keys.astype(np.int64).view(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
