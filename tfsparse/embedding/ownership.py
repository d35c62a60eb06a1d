"""Which rank owns which keys: that of `custom_ops/core/ownership.h`."""

NUM_BUCKETS = 1 << 16


def buckets_of_rank(rank, num_ranks):
    """The buckets [first, last) that a rank owns."""
    first, last = (-(-r * NUM_BUCKETS // num_ranks) for r in (rank, rank + 1))
    return first, last
