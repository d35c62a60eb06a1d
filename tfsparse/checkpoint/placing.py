"""Rows from elsewhere into tables, whichever ranks have them at hand and whichever own them."""

import numpy as np

from tfsparse import ops, runtime

# Of rows that a rank sends at a time. What it sends and what it receives are in memory for each.
BLOCK_BYTES = 32 << 20


def block_rows(floats):
    """Rows of a block, if a row has so many floats."""
    return max(1, BLOCK_BYTES // (4 * floats + 8))


def place(shard, blocks):
    """Gives rows of a table the values that ranks bring; either all of them or, on errors, none.

    Every rank calls it. Keys that the table does not have appear; rows of others stay.

    Args:
        shard: the `ShardedTable`.
        blocks: iterable of `(keys, rows)`, int64 `[n]` and float32 `[n, dim]`, whose slots begin
            anew, or `[n, floats of a row]`, slots included: numpy arrays of keys of any rank, any
            number of blocks. A key may come more than once, with the same values.

    Raises:
        ValueError: a key comes with different values, or values are not finite.
        tf.errors.ResourceExhaustedError: there is no memory for the rows.
    """
    keys, rows = _collect(shard, blocks)
    with runtime.together("rows.stage"):  # all that can fail on one rank
        repeated = _repeated(shard, keys, rows)
        once = [
            ~np.isin(np.arange(len(block)), repeated.get(number, []))
            for number, block in enumerate(keys)
        ]
        plans = [ops.stage(shard.handle, k[o], distinct=True) for k, o in zip(keys, once)]
    for plan, floats, chosen in zip(plans, rows, once):
        ops.set_rows(shard.handle, plan, floats[chosen])


def _collect(shard, blocks):
    """What all ranks bring for this one: a list of arrays of keys, and one of rows."""
    blocks = iter(blocks)
    empty = np.empty([0], np.int64), None
    all_keys, all_rows = [], []
    while True:
        with runtime.together("rows.read"):
            keys, rows = next(blocks, empty)
            if rows is not None:
                _check_finite(shard, keys, rows)
        widths = {width for width in runtime.allgather_object(_width(rows), "rows.widths") if width}
        if not widths:
            return all_keys, all_rows
        if rows is None:
            rows = np.empty([0, max(widths)], np.float32)
        keys, rows = shard.rows_to_owners(keys, rows)
        all_keys.append(keys)
        all_rows.append(rows)


def _width(rows):
    return None if rows is None else rows.shape[1]


def _check_finite(shard, keys, rows):
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise ValueError(
            f"Table '{shard.name}': the row of key {keys[bad][0]}, and {bad.sum() - 1} others of "
            f"its block, have values that are not finite. Replace or leave them out."
        )


def _repeated(shard, all_keys, all_rows):
    """Where keys come again: `{block: [positions]}`."""
    numbers = np.repeat(np.arange(len(all_keys)), [len(keys) for keys in all_keys])
    positions = np.concatenate([np.arange(len(keys)) for keys in all_keys] or [np.empty(0, int)])
    keys = np.concatenate(all_keys or [np.empty(0, np.int64)])
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    again = np.flatnonzero(keys[1:] == keys[:-1])
    repeated = {}
    for key, first, second in zip(keys[again], order[again], order[again + 1]):
        one, other = (all_rows[numbers[i]][positions[i]] for i in (first, second))
        if not np.array_equal(one, other):
            raise ValueError(
                f"Table '{shard.name}': key {key} comes with two rows that differ. Bring one of "
                "them."
            )
        repeated.setdefault(numbers[second], []).append(positions[second])
    return repeated
