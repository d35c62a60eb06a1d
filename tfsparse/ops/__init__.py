"""The op library, one documented function an op.

Nothing here knows of ranks or Keras. Every function takes the handle of a table's shard (a
resource tensor) first; TensorFlow runs the ops of one handle in the order they were written.
"""

import tensorflow as tf

from tfsparse.stack import load_op_library

_lib = load_op_library()


# Bits of the header of a message of keys, as in core/key_message.h.
TRAINS, REFUSED, HEADER_BITS = 1, 2, 2


def make_table(
    name, dim, *, rank, num_ranks, seed, initializer, initializer_arguments, default_value
):
    """Makes one rank's empty shard of a table; it lives as long as the handle returned.

    Args:
        name: for error messages.
        dim: floats of a row's parameter.
        rank: the shard's number.
        num_ranks: how many shards the table has.
        seed: int64; a new row's parameter is a function of this and its key.
        initializer: `"constant"` or `"uniform"`.
        initializer_arguments: `[value]` or `[low, high]`.
        default_value: what lookups of absent keys read.
    """
    return _lib.tfsparse_table(
        table_name=name,
        dim=dim,
        rank=rank,
        num_ranks=num_ranks,
        seed=seed,
        initializer=initializer,
        initializer_arguments=initializer_arguments,
        default_value=default_value,
    )


def bind(table, optimizer, arguments):
    """Gives the table its optimizer, `"sgd"`, `"adagrad"` or `"adam"`; rows get slots.

    The same optimizer and arguments again change nothing.

    Raises:
        tf.errors.FailedPreconditionError: another optimizer is bound.
    """
    _lib.tfsparse_bind(table, optimizer=optimizer, arguments=arguments)


def group_keys(table, keys):
    """Makes keys unique and groups them by the rank that owns them.

    Args:
        table: handle.
        keys: int64 `[n]`.

    Returns:
        `unique` int64 `[u]`, those of rank 0 first; `positions` int32 `[n]`, with
        `keys == unique[positions]`; `counts` int32 `[num_ranks]`.
    """
    return _lib.tfsparse_group_keys(table, keys)


def sum_by_key(table, keys, values):
    """`group_keys`, and the values of equal keys added in their order.

    Args:
        table: handle.
        keys: int64 `[n]`.
        values: float32 `[n, dim]`.

    Returns:
        `unique` int64 `[u]`, `sums` float32 `[u, dim]`, `counts` int32 `[num_ranks]`.
    """
    return _lib.tfsparse_sum_by_key(table, keys, values)


def write_messages(keys, counts, header):
    """Puts a header before the keys for each rank.

    Args:
        keys: int64 `[u]`, those for rank 0 first.
        counts: int32 `[num_ranks]`, keys for each.
        header: int64 scalar, bits of `TRAINS` and `REFUSED`, and above these which table it is.

    Returns:
        int64 `[u + num_ranks]`, and int32 `[num_ranks]`, numbers for each rank.
    """
    return _lib.tfsparse_write_messages(keys, counts, header)


def read_messages(message, counts, header, table_name):
    """Takes the headers off what all ranks have written for this one.

    Args:
        message: int64, the messages in rank order.
        counts: int32 `[num_ranks]`, numbers of each.
        header: int64 scalar, this rank's own.
        table_name: for errors.

    Returns:
        int64 `[m]`, the keys, and int32 `[num_ranks]`, how many came from each rank.

    Raises:
        tf.errors.InvalidArgumentError: other ranks look up another table or have refused their
            input, or some ranks train while others read. It is raised on every rank, except on one
            that has refused its own.
    """
    return _lib.tfsparse_read_messages(message, counts, header, table_name=table_name)


def stage(table, keys, distinct):
    """Finds the rows of keys, reserving provisional ones for new keys.

    Args:
        table: handle.
        keys: int64 `[m]`, owned by this rank.
        distinct: Python bool; True promises that no key repeats.

    Returns:
        The plan, a scalar variant.
    """
    return _lib.tfsparse_stage(table, keys, distinct=distinct)


def read_plan(table, plan, dim):
    """Copies the parameters of a plan's rows, float32 `[m, dim]`."""
    return _lib.tfsparse_read_plan(table, plan, dim=dim)


def lookup(table, keys, dim):
    """Copies the parameters of keys `[m]`, the default for absent ones: float32 `[m, dim]`."""
    return _lib.tfsparse_lookup(table, keys, dim=dim)


def expand(table, rows, positions):
    """`rows[positions]`: float32 `[u, dim]`, int32 `[n]` -> `[n, dim]`. Differentiable."""
    return _lib.tfsparse_expand(table, rows, positions)


def anchored(anchor, rows, keys, samples, table_name):
    """`rows`, depending on `anchor` in the eyes of a tape; the caller registers the gradient.

    Args:
        anchor: float32 scalar.
        rows: float32 `[u, dim]`.
        keys: int64 `[u]`, for the gradient.
        samples: int64 scalar, for the gradient.
        table_name: for its errors.
    """
    return _lib.tfsparse_anchored(anchor, rows, keys, samples, table_name=table_name)


def segment_sum(values, positions, num_sums):
    """Adds `values` `[n, dim]` into `[num_sums, dim]` by int32 `positions`, in order."""
    return _lib.tfsparse_segment_sum(values, positions, num_sums)


@tf.RegisterGradient("Tfsparse>Expand")
def _expand_gradient(op, values_gradient):
    rows, positions = op.inputs[1], op.inputs[2]
    return None, segment_sum(values_gradient, positions, tf.shape(rows)[0]), None


def apply(table, keys, gradients, learning_rate):
    """Applies one optimizer step to the rows of distinct keys `[u]` and commits them.

    Args:
        table: handle, with an optimizer bound.
        keys: int64 `[u]`, distinct, owned by this rank.
        gradients: float32 `[u, dim]`, summed over all uses of a key in the step.
        learning_rate: float32 scalar.
    """
    return _lib.tfsparse_apply(table, keys, gradients, learning_rate)


def set_rows(table, plan, rows):
    """Gives the rows of a plan their values and commits them.

    Args:
        table: handle.
        plan: from `stage`, of distinct keys `[u]`.
        rows: float32 `[u, dim]`, and slots begin as those of new rows; or `[u, row_floats]`.
    """
    return _lib.tfsparse_set_rows(table, plan, rows)


def size(table):
    """The number of rows on this rank, int64 scalar."""
    return _lib.tfsparse_size(table)


def scan(table, start, max_rows):
    """The next at most `max_rows` rows in the order of their hashes.

    Args:
        table: handle.
        start: 0, or `next` of the previous block.
        max_rows: rows wanted.

    Returns:
        `keys` int64 `[r]`, `rows` float32 `[r, row_floats]` (parameter, then slots), `next`,
        and `done`, True when nothing follows.
    """
    return _lib.tfsparse_scan(table, start, max_rows)


def stats(table):
    """Of this rank, int64 `[5]`: rows, provisional rows, bytes of a row, index, pages."""
    return _lib.tfsparse_stats(table)


def bound_optimizer(table):
    """The optimizer as it was bound, or `"none"`, string scalar; its arguments, float32 `[a]`."""
    return _lib.tfsparse_describe(table)[:2]


def describe(table):
    """What a row consists of, in Python's types. Not in a graph.

    Returns:
        The optimizer as it was bound, or `"none"`; its arguments `[float]`; and the columns of a
        row, `{name: floats}`, in their order: `"parameter"`, then the slots.
    """
    optimizer, arguments, columns, floats = _lib.tfsparse_describe(table)
    names = [name.decode() for name in columns.numpy()]
    return optimizer.numpy().decode(), arguments.numpy().tolist(), dict(zip(names, floats.numpy()))


def count_by_bucket(table):
    """The rows in each bucket of this rank, int64 `[buckets]`."""
    return _lib.tfsparse_count_by_bucket(table)


def write_rows(table, path, prefix, buckets, num_rows):
    """Writes a new file: bytes of the caller, the keys of some buckets, each column of their rows.

    It is on the disk when this returns; its name is when its directory has been synced.

    Args:
        table: handle.
        path: of the file.
        prefix: bytes that the file begins with.
        buckets: `(first, last)`, those in [first, last) of this rank.
        num_rows: rows of these buckets.

    Returns:
        int64 `[2 + columns]`: the CRC-32C of the prefix, the keys and each column.

    Raises:
        tf.errors.FailedPreconditionError: the buckets have another number of rows by now.
    """
    return _lib.tfsparse_write_rows(table, path, prefix, *buckets, num_rows)


def checksum(path, begin, end):
    """The CRC-32C of the bytes [begin, end) of a file, int64 scalar."""
    return _lib.tfsparse_checksum(path, begin, end)


def row_loader(table, num_rows, optimizer, arguments):
    """Makes room beside the table for rows that will replace those of the table.

    Args:
        table: handle.
        num_rows: to be loaded, of this rank.
        optimizer: what the table will then have, as in `bind`; `"none"` for none.
        arguments: of the optimizer.

    Returns:
        The loader, a scalar variant.
    """
    return _lib.tfsparse_row_loader(table, num_rows, optimizer=optimizer, arguments=arguments)


def read_rows(loader, path, num_rows, rows, first, columns):
    """Takes rows from a file of `write_rows`, all of which is checked against its checksums.

    Args:
        loader: from `row_loader`.
        path: of the file.
        num_rows: of the file.
        rows: `(begin, end)`; the rows [begin, end) of the file are taken.
        first: the number in the loader of the first of them.
        columns: `{name: (offset in the file, CRC-32C)}` of `"keys"`, and of the columns to be
            read. Slots of which none is read begin as those of new rows.

    Raises:
        tf.errors.DataLossError: a checksum is another one.
    """
    offsets, checksums = zip(columns["keys"], *(c for name, c in columns.items() if name != "keys"))
    names = [name for name in columns if name != "keys"]
    _lib.tfsparse_read_rows(loader, path, num_rows, *rows, first, offsets, checksums, columns=names)


def finish_loader(loader):
    """Builds the index of what was loaded.

    Raises:
        tf.errors.InvalidArgumentError: keys are not of this rank, repeat, or are out of order.
    """
    _lib.tfsparse_finish_loader(loader)


def replace_rows(table, loader):
    """Puts what was loaded in the place of all rows and of the optimizer; plans become void."""
    _lib.tfsparse_replace_rows(table, loader)


def load_rows(table, keys, rows, optimizer, arguments):
    """Puts rows in the place of all rows of this rank; plans become void.

    Args:
        table: handle.
        keys: int64 `[n]`, of this rank, in the order in which `scan` gives them.
        rows: float32 `[n, row_floats]`, parameter and slots.
        optimizer: string scalar, `bound_optimizer` of where the rows are from. After `"none"` a
            table that has an optimizer keeps it, and slots begin as those of new rows.
        arguments: float32 `[a]`.

    Raises:
        tf.errors.FailedPreconditionError: the table has another optimizer.
    """
    return _lib.tfsparse_load_rows(table, keys, rows, optimizer, arguments)
