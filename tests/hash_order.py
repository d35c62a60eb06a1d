"""Where a key stands, worked out apart from the code under test."""


def hash_of(key):
    """SplitMix64's finaliser.

    The order of rows in files and the owner of a key hang on it, so it must never change.
    """
    x = int(key) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def owner_of(key, num_ranks):
    """The rank whose share of the 65,536 buckets, the top 16 bits of hashes, has the key."""
    return (hash_of(key) >> 48) * num_ranks >> 16
