"""The rows of a dump of TensorFlow Recommenders-Addons, each with its slots, in blocks.

TFRA keeps a slot in a hash table of its own, so a file of slots has its keys in another order than
the file of the parameter of the same device and rank. While such files are read, the keys of their
slots are in memory, sorted, with 17 bytes for each and each slot; values are read when their block
needs them.
"""

import numpy as np

from tfsparse.checkpoint.placing import block_rows
from tfsparse.checkpoint.tfra_dump import DumpError

_WITHOUT_SLOTS = "Give `--without-slots`, and rows begin with new ones."


class DumpedRows:
    """Some rows of a table of a dump, as `placing.place` takes them.

    A key that has a parameter and no slots, as TFRA's `upsert` leaves it, gets the slots of a new
    row.

    Args:
        dumped: a `DumpedTable`.
        shards: those of `dumped.shards` to be read.
        columns: `{name: floats}` of a row; none but the parameter leaves slots unread.
        new_slots: `{column: float}` of new rows.
        updates: value of the column `updates`, if there is one, where slots are found.

    Attributes:
        num_without_slots: rows that got the slots of new ones, of those read so far.
    """

    def __init__(self, dumped, shards, columns, new_slots, updates):
        self._dumped, self._shards = dumped, shards
        self._columns, self._new_slots, self._updates = columns, new_slots, updates
        self.num_without_slots = 0

    def blocks(self):
        """Yields `(keys, rows)`, int64 `[n]` and float32 `[n, floats]`.

        Raises:
            DumpError: a value is not finite, or slots have other keys than they should.
        """
        for shard in self._shards:
            yield from self._blocks_of(shard)

    def _blocks_of(self, shard):
        parameter = shard["parameter"]
        names = [name for name in shard if name != "parameter" and name in self._columns]
        slots = {name: _Slot(shard[name], self._columns[name]) for name in names}
        floats = sum(self._columns.values())
        for begin in range(0, parameter.num_keys, block_rows(floats)):
            end = min(begin + block_rows(floats), parameter.num_keys)
            keys = _read(parameter.keys, "<i8", begin, end)
            values = {"parameter": _read(parameter.values, "<f4", begin, end, parameter.dim)}
            _check_finite(parameter, keys, values["parameter"])
            has_slots = self._take_slots(slots, keys, values)
            if "updates" in self._columns:
                values["updates"] = np.where(has_slots[:, np.newaxis], self._updates, 0)
            rows = [values[column] for column in self._columns]
            yield keys, np.concatenate(rows, axis=1, dtype=np.float32)
        for slot in slots.values():
            slot.check_all_taken(parameter)

    def _take_slots(self, slots, keys, values):
        """Adds the values of slots to `values`; returns which keys have any, bool `[n]`."""
        has_slots = np.ones(len(keys), bool)
        for number, (name, slot) in enumerate(slots.items()):
            found, values[name] = slot.take(keys, self._new_slots[name], self._columns[name])
            _check_finite(slot.pair, keys, values[name])
            if number and (found != has_slots).any():
                raise DumpError(
                    f"Key {keys[found != has_slots][0]} of '{self._dumped.variable}' has some of "
                    f"the slots {list(slots)} and not the others. {_WITHOUT_SLOTS}"
                )
            has_slots = found
        self.num_without_slots += int((~has_slots).sum())
        return has_slots


class _Slot:
    """Values of a pair of files, found by their keys."""

    def __init__(self, pair, dim):
        self.pair = pair
        keys = _read(pair.keys, "<i8", 0, pair.num_keys)
        self._order = np.argsort(keys)
        self._keys = keys[self._order]
        again = self._keys[1:][self._keys[1:] == self._keys[:-1]]
        if len(again):
            raise DumpError(f"'{pair.keys}' has key {again[0]} twice. Take another save.")
        self._taken = np.zeros(pair.num_keys, bool)
        shape = pair.num_keys, dim
        self._values = np.memmap(pair.values, "<f4", "r", shape=shape) if len(keys) else keys

    def take(self, keys, new, dim):
        """Which keys are there, bool `[n]`, and their values, else `new`, float32 `[n, dim]`."""
        places = np.searchsorted(self._keys, keys)
        found = places < len(self._keys)
        found[found] = self._keys[places[found]] == keys[found]
        places = places[found]
        self._taken[places] = True
        values = np.full([len(keys), dim], new, np.float32)
        if len(places):
            values[found] = self._values[self._order[places]]
        return found, values

    def check_all_taken(self, parameter):
        """Raises if there are keys that no row of the parameter, a `Pair`, had."""
        left = self._keys[~self._taken]
        if len(left):
            raise DumpError(
                f"'{self.pair.keys}' has key {left[0]}, and {len(left) - 1} others, which "
                f"'{parameter.keys}' does not have. Take both from one save. {_WITHOUT_SLOTS}"
            )


def _read(path, dtype, begin, end, *floats):
    """The keys or rows [begin, end) of a file."""
    per_row = int(np.prod(floats))
    dtype = np.dtype(dtype)
    offset = begin * per_row * dtype.itemsize
    values = np.fromfile(path, dtype, (end - begin) * per_row, offset=offset)
    return values.reshape(-1, *floats)


def _check_finite(pair, keys, values):
    bad = ~np.isfinite(values).all(axis=1)
    if bad.any():
        raise DumpError(
            f"'{pair.values}' has values that are not finite: those of key {keys[bad][0]}, "
            f"{values[bad][0]}, and of {bad.sum() - 1} others of its block. Take an earlier save."
        )
