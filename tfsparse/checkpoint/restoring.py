"""`tfs.restore`: every rank reads the rows that it owns, whichever rank wrote them."""

import os

import tensorflow as tf

from tfsparse import ops, runtime
from tfsparse.checkpoint import checking, dense, manifest
from tfsparse.checkpoint.inspecting import describe_rule
from tfsparse.checkpoint.manifest import CheckpointError
from tfsparse.checkpoint.row_file import RowFile
from tfsparse.checkpoint.threads import run_all
from tfsparse.embedding.ownership import buckets_of_rank
from tfsparse.embedding.protocol import named_tables_of, table_rule


def restore(model, directory, partial=False):
    """Gives a model the state of a checkpoint, in the place of its own.

    Every rank calls it, between steps; there may be more or fewer of them than there were to
    `tfs.save`. All rows are replaced: those that came into being after the checkpoint are gone.
    What is taken is read and checked before anything changes; if any rank fails, no rank's rows or
    weights have changed. Until then the new rows of all tables, and copies of the dense variables,
    are in memory beside those that the model has.

    Args:
        model: a `tf.keras.Model` that has been called, compiled if it is to be trained on.
        directory: of `tfs.save`.
        partial: False (the default) refuses a checkpoint with other tables, columns of a row or
            weights than the model's. True restores what both have: tables of one name and dim,
            with their slots if the optimizer is the same and else with those of new rows; and
            weights at the same place of the model, which must have the same shape. The rest stays
            as it is, and a warning lists it.

    Returns:
        The step of the checkpoint, `optimizer.iterations`; None if it was saved without optimizer,
        or has tables alone, as those of `tfsparse import-tfra`, which need `partial=True`.

    Raises:
        TypeError: `model` is not a Keras model.
        ValueError: `directory` is not a checkpoint, is not whole, was altered or is of another
            model; a message names the file, the table or the weight. Or a layer of a table has
            never been called.
        RuntimeError: another rank failed; it says which, and why.

    Example:
        ```python
        model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adam()), "mse")
        step = tfs.restore(model, "checkpoints/monday")
        ```
    """
    runtime.require_same(f"restore the checkpoint {os.path.abspath(str(directory))!r}")
    with runtime.together("restore.check"):
        path = runtime.mounted_path(directory)
        tables = named_tables_of(model)
        content = manifest.read(path)
    runtime.require_same(f"restore what was saved as {content['folder']}, partial={partial}")
    with runtime.together("restore.compare"), manifest.not_replaced(path, content):
        if not content["dense"]:
            _check_tables_alone(tables, content["tables"], path, partial)
        stored = _match(tables, content["tables"], model, path, partial)
        if not partial:
            dense.check_weights(model, path, content)
        apart = list(_left_out(tables, content, model)) if partial else []
        if runtime.rank() == 0:
            checking.require_files(path, content)
    with runtime.together("restore.read"), manifest.not_replaced(path, content):
        loaders = [_load(table, of_table, path, model) for table, of_table in stored]
    with runtime.together("restore.values"):
        values = dense.values_of(model)
    try:
        with runtime.together("restore.dense"), manifest.not_replaced(path, content):
            dense.read(model, path, content, partial)
    except BaseException:
        dense.put_back(values)
        raise
    with runtime.together("restore.replace"):
        for (table, _), loader in zip(stored, loaders):
            ops.replace_rows(table.shard.handle, loader)
    if apart and runtime.rank() == 0:
        tf.get_logger().warning(f"Restored a part of '{path}': {'; '.join(apart)}.")
    return content["step"]


def _check_tables_alone(tables, described, path, partial):
    """Of a checkpoint with nothing but tables: raises unless it is to be restored in part."""
    if not partial:
        raise CheckpointError(
            f"'{path}' has tables alone, and neither weights nor an optimizer. `partial=True` "
            "restores the tables, and leaves the rest of the model as it is."
        )
    stored, names = [of_table["name"] for of_table in described], [table.name for table in tables]
    if not set(stored) & set(names):
        raise CheckpointError(
            f"'{path}' has tables {stored} alone, and the model has {names}: none of one name."
        )


def _match(tables, described, model, path, partial):
    """The tables to be restored, `[(table, what the manifest says of it)]`."""
    by_name = {of_table["name"]: of_table for of_table in described}
    names = [table.name for table in tables]
    absent = [name for name in names if name not in by_name]
    foreign = [name for name in by_name if name not in names]
    if (absent or foreign) and not partial:
        raise CheckpointError(
            f"'{path}' has tables {list(by_name)}, and the model has {names}. `partial=True` "
            "restores those that both have."
        )
    matched = [(table, by_name[table.name]) for table in tables if table.name in by_name]
    for table, of_table in matched:
        differences = _differences(table, of_table, model)
        if "dim" in differences or (differences and not partial):
            told = "; ".join(f"{what} {a} -> {b}" for what, (a, b) in differences.items())
            raise CheckpointError(
                f"Table '{table.name}' is not as it was when '{path}' was saved: {told}."
                + ("" if "dim" in differences else " `partial=True` restores it nevertheless.")
            )
    return matched


def _left_out(tables, content, model):
    """Says what a partial restore leaves as it is, or leaves behind."""
    by_name = {of_table["name"]: of_table for of_table in content["tables"]}
    for table in tables:
        if table.name not in by_name:
            yield f"table '{table.name}' is not in it and stays as it is"
            continue
        differences = _differences(table, by_name.pop(table.name), model)
        for what, (then, now) in differences.items():
            yield f"table '{table.name}' has {what} {now}, and had {then}"
        if "optimizer" in differences:
            yield f"the slots of '{table.name}' are those of new rows"
    if by_name:
        yield f"the model has no tables {list(by_name)}"
    yield from dense.left_out(model, content)


def _differences(table, of_table, model):
    """`{what: (in the checkpoint, now)}`."""
    config = table.get_config()
    then = {name: of_table[name] for name in ("dim", "seed", "default", "initializer")}
    now = {name: config[name] for name in then}
    stored, rule = _stored_rule(of_table), _rule_now(table, model)
    # A checkpoint from before the first step goes with any rule, and so does a model without one.
    if rule is not None and stored[0] != "none":
        then["optimizer"], now["optimizer"] = describe_rule(*stored), describe_rule(*rule)
    return {name: (then[name], now[name]) for name in then if then[name] != now[name]}


def _stored_rule(of_table):
    return of_table["optimizer"]["rule"], of_table["optimizer"]["arguments"]


def _rule_now(table, model):
    """The `(rule, arguments)` that the table has, or would get by its first step; or None."""
    rule = ops.describe(table.shard.handle)[:2]
    return rule if rule[0] != "none" else table_rule(table, model)


def _load(table, of_table, path, model):
    """Reads this rank's rows beside the table; returns the loader."""
    own = buckets_of_rank(runtime.rank(), runtime.size())
    columns = of_table["columns"]
    files = []
    first = 0
    for described in sorted(of_table["files"], key=lambda file: file["buckets"]):
        begin, end = described["buckets"]
        low, high = max(begin, own[0]), min(end, own[1])
        if low >= high:
            continue
        file = RowFile(of_table["name"], (begin, end), described["rows"], columns)
        full = os.path.join(path, described["file"])
        if int(ops.checksum(full, 0, file.offsets["keys"])) != described["crc32c"]["prefix"]:
            raise CheckpointError(checking.altered(full))
        rows = 0, described["rows"]
        if (low, high) != (begin, end):
            rows = file.rows_of_buckets(full, low, high)
            if not 0 <= rows[0] <= rows[1] <= described["rows"]:
                raise CheckpointError(checking.altered(full))
        files.append((described, file, full, rows, first))
        first += rows[1] - rows[0]

    stored, rule = _stored_rule(of_table), _rule_now(table, model)
    with_slots = rule is None or describe_rule(*rule) == describe_rule(*stored)
    read = ["keys", *columns] if with_slots else ["keys", "parameter"]
    loader = ops.row_loader(table.shard.handle, first, *(rule or stored))

    def read_file(described, file, full, rows, first):
        places = {name: (file.offsets[name], described["crc32c"][name]) for name in read}
        try:
            ops.read_rows(loader, full, described["rows"], rows, first, places)
        except tf.errors.DataLossError as error:
            raise CheckpointError(f"{error.message} Use another checkpoint.") from None

    run_all(read_file, files)
    ops.finish_loader(loader)
    return loader
