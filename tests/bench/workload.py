"""The ids that all contenders work on, and the clock. Numpy only: every environment imports it."""

import time

import numpy as np

BATCH = 65536
_SPREAD = 2654435761  # spreads row numbers over 2^61


def distinct_keys(num_keys):
    """int64 `[num_keys]`, each once, in random order."""
    rows = np.random.default_rng(0).permutation(num_keys)
    return rows.astype(np.int64) * _SPREAD


def row_numbers(keys):
    """The place of each key in `[0, num_keys)`, for contenders that are arrays."""
    return keys // _SPREAD


def batches(keys):
    """`keys` in parts of at most `BATCH`."""
    return [keys[start : start + BATCH] for start in range(0, len(keys), BATCH)]


def drawn(keys, num_batches):
    """`num_batches` batches drawn from `keys`, no key twice in one."""
    rng = np.random.default_rng(1)
    return [rng.choice(keys, BATCH, replace=False, shuffle=False) for _ in range(num_batches)]


def zipf(rng, shape, vocabulary, exponent=1.05):
    """int64 ids in `[0, vocabulary)`, frequent ones first (bounded Zipf by its inverse CDF)."""
    power = 1 - exponent
    x = ((vocabulary**power - 1) * rng.random(shape) + 1) ** (1 / power)
    return np.minimum(x.astype(np.int64), vocabulary - 1)


def features(rng, samples, num_features, vocabulary):
    """int64 `[samples, num_features]`; feature f has the ids from `f * vocabulary` on."""
    first = np.arange(num_features, dtype=np.int64) * vocabulary
    return zipf(rng, (samples, num_features), vocabulary) + first


def per_second(count, work):
    """Wraps `work` so that it returns how many of `count` things it does a second."""

    def timed():
        start = time.perf_counter()
        work()
        return count / (time.perf_counter() - start)

    return timed
