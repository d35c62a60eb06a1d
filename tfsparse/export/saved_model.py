"""`tfs.export`: a trained model as a SavedModel that plain TensorFlow serves."""

import operator
import os

import tensorflow as tf

from tfsparse import runtime
from tfsparse.embedding.protocol import built_tables_of, serving
from tfsparse.export import signature
from tfsparse.export.aside import written_aside
from tfsparse.export.serving_table import ServingTable, checkpoint_names
from tfsparse.export.streaming import SliceWriter, merge, rewrite, stream_table


def export(model, directory, version=None):
    """Writes a model for serving: a SavedModel of stock TensorFlow ops.

    Every rank calls it, between steps of training. The SavedModel holds the parameters of all
    ranks' rows and the dense weights of rank 0; optimizer state is left out. It is loaded by a
    process that has neither tfsparse nor Horovod: `tf.saved_model.load`, TensorFlow Serving,
    `saved_model_cli`, the C API. It has one signature, `serving_default`, which computes
    `model(inputs, training=False)` for batches of any size, 0 included. Ids without a row read
    their table's default.

    Inputs are called as in the model: by the keys if it takes a dict, otherwise by their
    `tf.keras.Input` layers; those of a subclassed model that takes no dict are called `input_1`,
    and so on. Outputs are called by the keys of a dict, by their layers, or `output_1`, and so
    on. A ragged input `history` is fed as `history`, its flat values, and `history_row_splits`; a
    sparse one as `history`, `history_indices` and `history_dense_shape`. Ragged and sparse
    outputs come in the same way.

    Rows are streamed from the tables to the disk, so that exporting takes little memory. The
    directory appears when it is complete: who sees it may load it.

    Args:
        model: a `tf.keras.Model`, built and, if it is subclassed, called before.
        directory: to write to; it does not exist yet. With several ranks, on a file system that
            all of them share.
        version: int; the model is written to `directory/<version>`, as TensorFlow Serving wants
            it, beside other versions. None (the default) writes to `directory` itself.

    Returns:
        The path that holds the SavedModel, a string.

    Raises:
        FileExistsError: it exists already. Nothing is changed.
        FileNotFoundError: the ranks do not share the file system.
        ValueError: the model has not been built or called.
        RuntimeError: another rank failed; the message says which and how.

    Example:
        ```python
        path = tfs.export(model, "ranker", version=7)     # "ranker/7"

        # elsewhere, with TensorFlow only:
        score = tf.saved_model.load("ranker/7").signatures["serving_default"]
        score(user=tf.constant([3, 4]), item=tf.constant([10, 11]))["score"]
        ```
    """
    with runtime.together("export.check"):
        path = _path(directory, version)
        tables = built_tables_of(model)
        inputs = signature.inputs_of(model)
    with written_aside(os.path.abspath(path)) as folder:
        _write(model, inputs, tables, folder)
    return path


def _path(directory, version):
    runtime.mounted_path(directory)  # or it raises
    if version is None:
        return os.fspath(directory)
    if isinstance(version, bool) or operator.index(version) < 0:
        raise ValueError(f"`version` must be an int of at least 0. Received: {version!r}.")
    return os.path.join(os.fspath(directory), str(operator.index(version)))


def _write(model, inputs, tables, folder):
    """Writes the SavedModel into an empty directory. Every rank calls it."""
    own_rows = [table.shard.stats()["rows"] for table in tables]
    rows_of_ranks = runtime.allgather_object(own_rows, "export.rows")
    rank = runtime.rank()
    parts = os.path.join(folder, "parts")
    checkpoint = os.path.join(folder, "variables", "variables")
    writer = SliceWriter(os.path.join(parts, f"rank-{rank}"))
    with runtime.together("export.stream"):
        if any(len(rows) != len(tables) for rows in rows_of_ranks):
            raise ValueError("The ranks' models have different numbers of tables.")
        if rank == 0:
            sources = {table: ServingTable(table) for table in tables}
            _save_without_rows(model, inputs, sources, folder)
            names = [name for number in range(len(tables)) for name in checkpoint_names(number)]
            rewrite(checkpoint, names, writer)
        for number, table in enumerate(tables):
            stream_table(number, table, [rows[number] for rows in rows_of_ranks], writer)
        writer.flush()
    prefixes = runtime.allgather_object(writer.prefixes, "export.prefixes")
    with runtime.together("export.merge"):
        if rank == 0:
            merge([prefix for of_rank in prefixes for prefix in of_rank], checkpoint)
            os.rmdir(parts)


def _save_without_rows(model, inputs, serving_tables, folder):
    """Saves the graph and the dense weights; tables in it are empty."""
    args, kwargs, names = inputs
    leaves = tf.nest.flatten((args, kwargs))

    # The model is converted by autograph, as in Keras. Converting this as well takes seconds.
    @tf.autograph.experimental.do_not_convert
    def arguments(tensors):
        fed = [signature.from_parts(name, leaf, tensors) for name, leaf in zip(names, leaves)]
        return tf.nest.pack_sequence_as((args, kwargs), fed)

    @tf.autograph.experimental.do_not_convert
    def results(outputs):
        named = {}
        output_names = signature.leaf_names(outputs, model.output_names, "output")
        for name, leaf in zip(output_names, tf.nest.flatten(outputs)):
            named.update(signature.to_parts(name, leaf))
        return named

    def serve(tensors):
        fed_args, fed_kwargs = arguments(tensors)
        return results(model(*fed_args, training=False, **fed_kwargs))

    specs = [spec for pair in zip(names, leaves) for spec in signature.part_specs(*pair)]
    with serving(serving_tables):
        traced = tf.function(serve).get_concrete_function({spec.name: spec for spec in specs})
    module = tf.Module()
    module.tables = list(serving_tables.values())
    module.used = _used(model, traced)
    tf.saved_model.save(module, folder, signatures={"serving_default": traced})
    fingerprint = os.path.join(folder, "fingerprint.pb")
    if os.path.exists(fingerprint):  # it tells a checksum of a checkpoint without rows
        os.remove(fingerprint)


def _used(model, traced):
    """The model's variables and lookup tables that a traced function reads."""
    captured = {id(tensor) for tensor in traced.captured_inputs}
    used = []
    for part in tf.train.TrackableView(model).descendants():
        if isinstance(part, tf.Variable):
            handle = part.handle
        elif isinstance(part, tf.saved_model.experimental.TrackableResource):
            handle = part.resource_handle
        else:
            continue
        if id(handle) in captured:
            used.append(part)
    return used
