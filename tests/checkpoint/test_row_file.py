"""Where the rows of buckets are in a file."""

import numpy as np
import pytest

from tests.hash_order import hash_of
from tfsparse.checkpoint.row_file import RowFile
from tfsparse.embedding.ownership import NUM_BUCKETS, buckets_of, buckets_of_rank


def test_buckets_are_those_of_the_core():
    rng = np.random.default_rng(0)
    keys = rng.integers(-(1 << 63), (1 << 63) - 1, 1000, endpoint=True)
    keys = np.concatenate([keys, [0, -1, 1, -(1 << 63), (1 << 63) - 1]])
    assert buckets_of(keys).tolist() == [hash_of(key) >> 48 for key in keys]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5, 8, 1000, NUM_BUCKETS])
def test_ranks_own_all_buckets_in_order(num_ranks):
    bounds = [buckets_of_rank(rank, num_ranks) for rank in range(num_ranks)]
    assert (bounds[0][0], bounds[-1][1]) == (0, NUM_BUCKETS)
    assert all(a[1] == b[0] for a, b in zip(bounds, bounds[1:]))


@pytest.mark.parametrize("num_rows", [0, 1, 7, 500, 20_000])
@pytest.mark.parametrize("buckets", [(0, NUM_BUCKETS), (100, 101), (13_107, 26_215), (1, 4)])
def test_rows_of_any_buckets_are_found(tmp_path, buckets, num_rows):
    # A span of consecutive keys has hashes everywhere; those of other buckets are left out.
    share = (buckets[1] - buckets[0]) / NUM_BUCKETS
    keys = np.arange(min(int(num_rows / share) + 1, 400_000) if num_rows else 0)
    of_keys = buckets_of(keys)
    keys = keys[(of_keys >= buckets[0]) & (of_keys < buckets[1])]
    hashes = np.array([hash_of(key) for key in keys], np.uint64)
    keys = keys[np.argsort(hashes)]
    of_keys = buckets_of(keys)

    file = RowFile("t", buckets, len(keys), {"parameter": 1})
    counts = np.bincount(of_keys - buckets[0], minlength=buckets[1] - buckets[0])
    path = tmp_path / "rows"
    path.write_bytes(file.prefix(counts) + keys.astype("<i8").tobytes() + b"\0" * 4 * len(keys))
    assert path.stat().st_size == file.bytes
    assert file.offsets["keys"] < 1000 + 16 * len(keys) / 2  # offsets cost less than keys

    rng = np.random.default_rng(1)
    cuts = rng.integers(buckets[0], buckets[1], 20, endpoint=True).tolist()
    for first, last in [buckets, *zip(cuts, map(max, cuts, reversed(cuts)))]:
        wanted = np.flatnonzero((of_keys >= first) & (of_keys < last))
        begin, end = file.rows_of_buckets(path, first, last)
        assert end - begin == len(wanted)
        assert not len(wanted) or begin == wanted[0]
