"""What TensorFlow Recommenders-Addons has saved in a folder, by the names and sizes of its files.

Its FileSystemSaver writes each variable as `<variable>_mht_<i>of<n>_rank<r>_size<s>-keys` and
`-values`, a pair for each of the n devices of each of s ranks: int64 keys and float32 rows, in
little endian and nothing else. A name has `_` for `/`. The slots of an optimizer are variables of
their own, spread as their parameter is: `users-parameter_DynamicEmbedding_users-shadow_m` for the
Keras layer `users`, and `<variable>_<op>_m` for a lookup by hand. Of a table without rows the dim
is not known.
"""

import os
import re
from typing import NamedTuple, Optional

_FILE = re.compile(r"(.+)_mht_(\d+)of(\d+)_rank(\d+)_size(\d+)-(keys|values)", re.DOTALL)
_SLOT_OF_A_LAYER = re.compile(r"_.*(?:-shadow|ShadowVariable)_(.+)", re.DOTALL)
_SLOT_OF_A_LOOKUP = re.compile(r"_.+_(m|v|vhat|accumulator|linear|momentum)", re.DOTALL)
_STATUS = re.compile(r"_(timestamp|frequency)")  # of TFRA's restrict policies
_LAYER_SUFFIX = "-parameter"  # what its Keras layers add to their own name


class DumpError(ValueError):
    """A folder is not what TFRA wrote, or not whole."""


class Pair(NamedTuple):
    """Two files: the keys of one device of one rank, and their values.

    Attributes:
        keys: path.
        values: path.
        num_keys: in both.
        dim: floats of a value; None without keys.
    """

    keys: str
    values: str
    num_keys: int
    dim: Optional[int]


class DumpedTable(NamedTuple):
    """A variable of TFRA with its slots.

    Attributes:
        variable: its name in the files.
        name: what the table will be called.
        dim: floats of a row; None without rows.
        slots: the names of its slots, sorted.
        shards: `[{column: Pair}]`, a dict for each device of each rank; columns are `"parameter"`
            and the slots.
    """

    variable: str
    name: str
    dim: Optional[int]
    slots: tuple
    shards: list


def open_dump(directory, names=None, size=None, with_slots=True):
    """Finds the tables of a dump; contents are not read.

    Args:
        directory: with the files.
        names: `{variable: what its table is called}` of those to be taken; None takes all, by
            their own names.
        size: of how many ranks the files to be taken are; None if there are of one number alone.
        with_slots: whether slots are looked at.

    Returns:
        `[DumpedTable]` in the order of their variables.

    Raises:
        DumpError: something is missing, or does not fit together.
    """
    variables = _find_files(directory)
    names = names and {variable.replace("/", "_"): name for variable, name in names.items()}
    slots = _find_slots(variables, names or ())
    names = _choose(directory, variables, slots, names)
    columns = {variable: {"parameter": variable} for variable in names}
    for variable, (parameter, slot) in slots.items() if with_slots else ():
        if parameter in columns and columns[parameter].setdefault(slot, variable) != variable:
            raise DumpError(
                f"'{parameter}' has two slots '{slot}', '{columns[parameter][slot]}' and "
                f"'{variable}'. Give `--table` for each that is a table, or `--without-slots`."
            )
    taken = {v: variables[v] for of_table in columns.values() for v in of_table.values()}
    size = _only_size(directory, taken, size)
    pairs = {v: _pairs_of(directory, v, saves, size) for v, saves in taken.items()}
    return [_table(variable, name, columns[variable], pairs) for variable, name in names.items()]


def _find_files(directory):
    """`{variable: {(size, devices): {(device, rank): {part: path}}}}`."""
    if not os.path.isdir(directory):
        raise DumpError(f"'{directory}' is not a folder.")
    variables = {}
    for file in sorted(os.listdir(directory)):
        match = _FILE.fullmatch(file)
        if match:
            device, devices, rank, size = map(int, match.groups()[1:5])
            of_save = variables.setdefault(match[1], {}).setdefault((size, devices), {})
            of_save.setdefault((device, rank), {})[match[6]] = os.path.join(directory, file)
    if not variables:
        raise DumpError(
            f"'{directory}' has no files that TFRA's FileSystemSaver writes, as in "
            f"'users-parameter_mht_1of1_rank0_size1-keys'.{_elsewhere(directory)}"
        )
    return variables


def _elsewhere(directory):
    """A hint where the files are, if they are in a folder below."""
    folders = [
        folder
        for folder, _, files in os.walk(directory)
        if folder != directory and any(map(_FILE.fullmatch, files))
    ]
    if not folders:
        return " Save the model in TFRA with `kv_creator=...(saver=de.FileSystemSaver())`."
    return f" There are some in {sorted(folders)}. Give that folder."


def _find_slots(variables, tables):
    """`{variable: (its parameter, slot)}` of those that are slots, and none of `tables`."""
    slots = {}
    for variable in sorted(set(variables) - set(tables)):
        found = []
        for parameter in variables:
            rest = variable[len(parameter) :] if variable.startswith(parameter) else ""
            match = _SLOT_OF_A_LAYER.fullmatch(rest) or _SLOT_OF_A_LOOKUP.fullmatch(rest)
            if match:
                found.append((len(parameter), parameter, match[1]))
        if found:
            slots[variable] = max(found)[1:]
    return slots


def _choose(directory, variables, slots, names):
    """`{variable: name of its table}` of the variables to be taken."""
    if names is None:
        status = {v for v in variables for p in variables if _STATUS.fullmatch(v.removeprefix(p))}
        tables = set(variables) - set(slots) - status
        names = {variable: variable.removesuffix(_LAYER_SUFFIX) for variable in tables}
    unknown = sorted(set(names) - set(variables))
    if unknown:
        known = sorted(set(variables) - set(slots))
        raise DumpError(f"'{directory}' has no variables {unknown}. It has {known}.")
    if len(set(names.values())) < len(names):
        raise DumpError(
            f"Tables need names of their own. Received: {names}. Give `--table VARIABLE=NAME` for "
            "each."
        )
    return {variable: names[variable] for variable in sorted(names)}


def _only_size(directory, variables, size):
    """The number of ranks whose files are taken."""
    sizes = sorted({of_size for saves in variables.values() for of_size, _ in saves})
    if size is None and len(sizes) > 1:
        raise DumpError(
            f"'{directory}' has files of several numbers of ranks, "
            f"{', '.join(f'_size{s}' for s in sizes)}: of several saves, of which TFRA removes "
            "none. Give `--size N`, that of the newest save."
        )
    if size is not None and size not in sizes:
        raise DumpError(f"'{directory}' has files of {sizes} ranks. Received: `--size {size}`.")
    return sizes[0] if size is None else size


def _pairs_of(directory, variable, saves, size):
    """The files of a variable, `{(device, rank): Pair}`."""
    devices = sorted(d for of_size, d in saves if of_size == size)
    if len(devices) != 1:
        found = f"files of {devices} devices" if devices else "no files"
        raise DumpError(
            f"'{directory}' has {found} of variable '{variable}' and {size} ranks, and should "
            "have those of one number of devices. Remove files of other saves, or choose variables "
            "by `--table`."
        )
    files = saves[size, devices[0]]
    wanted = [(device, rank) for rank in range(size) for device in range(1, devices[0] + 1)]
    missing = [
        f"{variable}_mht_{device}of{devices[0]}_rank{rank}_size{size}-{part}"
        for device, rank in wanted
        for part in ("keys", "values")
        if part not in files.get((device, rank), {})
    ]
    if missing or len(files) > len(wanted):
        foreign = sorted(set(files) - set(wanted))
        raise DumpError(
            f"'{directory}' must have a file of keys and one of values for each of {devices[0]} "
            f"devices of {size} ranks of variable '{variable}'. Missing: {missing}; of other "
            f"devices and ranks: {foreign}. Bring the files of all ranks into one folder."
        )
    return {place: _pair(files[place]["keys"], files[place]["values"]) for place in wanted}


def _pair(keys, values):
    num_bytes, value_bytes = os.path.getsize(keys), os.path.getsize(values)
    num_keys = num_bytes // 8
    floats = value_bytes // 4
    fits = floats % num_keys == 0 and floats > 0 if num_keys else floats == 0
    if num_bytes % 8 or value_bytes % 4 or not fits:
        raise DumpError(
            f"'{keys}' must have int64 keys, and '{values}' as many rows of float32. Received: "
            f"{num_bytes} and {value_bytes} bytes. Save again, if they were cut off; other types "
            "cannot be imported."
        )
    return Pair(keys, values, num_keys, floats // num_keys if num_keys else None)


def _table(variable, name, columns, pairs):
    """Puts the parameter and the slots of each device and rank side by side."""
    of_columns = {column: pairs[v] for column, v in columns.items()}
    places = of_columns["parameter"].keys()
    for column, of_column in of_columns.items():
        if of_column.keys() != places:
            raise DumpError(
                f"'{columns[column]}' has files of {len(of_column)} devices and ranks, and "
                f"'{variable}', whose slot it is, of {len(places)}. Take them from one save, or "
                "give `--without-slots`."
            )
    found = [pair for of_column in of_columns.values() for pair in of_column.values()]
    first = next((pair for pair in found if pair.dim is not None), None)
    for pair in found:
        if pair.dim is not None and pair.dim != first.dim:
            raise DumpError(
                f"'{pair.values}' has rows of {pair.dim} floats, and '{first.values}' of "
                f"{first.dim}. Files of one table must be of one save, and of float32."
            )
    return DumpedTable(
        variable=variable,
        name=name,
        dim=None if first is None else first.dim,
        slots=tuple(sorted(set(columns) - {"parameter"})),
        shards=[{column: of_columns[column][place] for column in columns} for place in places],
    )
