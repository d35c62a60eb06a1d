"""What is not in tables: weights, optimizer and metrics, as a TensorFlow checkpoint."""

import collections
import os

import tensorflow as tf

from tfsparse import ops, runtime
from tfsparse.checkpoint.manifest import CheckpointError
from tfsparse.embedding.protocol import rows_kept_elsewhere

PREFIX = "dense"


def write(model, new):
    """Writes into a `NewCheckpoint`; returns what the manifest says of the files."""
    parts = {"model": _without_optimizer(model), "metrics": _metrics_of(model)}
    if _optimizer_of(model) is not None:
        parts["optimizer"] = _optimizer_of(model)
    with rows_kept_elsewhere():
        return write_variables(tf.train.Checkpoint(**parts), PREFIX, new)


def write_variables(checkpoint, prefix, new):
    """Writes a `tf.train.Checkpoint` into files of a `NewCheckpoint` that begin with `prefix`.

    Returns:
        What the manifest says of them; they are on the disk.
    """
    folder = os.path.join(new.path, new.folder)
    checkpoint.write(os.path.join(folder, prefix))
    files = []
    for name in sorted(os.listdir(folder)):
        if not name.startswith(prefix + "."):
            continue
        full = os.path.join(folder, name)
        runtime.sync(full)
        size = os.path.getsize(full)
        crc = int(ops.checksum(full, 0, size))
        files.append({"file": f"{new.folder}/{name}", "bytes": size, "crc32c": crc})
    return files


def read(model, path, content, partial):
    """Gives the variables of a model their values of a checkpoint.

    If it raises, some variables may have theirs already; `values_of` and `put_back` are for that.

    Args:
        model: the model.
        path: of the checkpoint.
        content: its manifest.
        partial: whether variables that the checkpoint does not have keep their values, and those
            of another optimizer too.

    Raises:
        CheckpointError: the checkpoint is of another model.
    """
    if not content["dense"]:  # it has tables alone
        return
    then, now = content["optimizer"], describe_optimizer(model)
    with_optimizer = then is not None and now is not None
    if with_optimizer and then != now:
        if not partial:
            raise CheckpointError(
                f"'{path}' was saved with the optimizer {then}, and the model has {now}. "
                "`partial=True` leaves the optimizer as it is."
            )
        with_optimizer = False
    prefix = os.path.join(path, content["folder"], PREFIX)
    try:
        with rows_kept_elsewhere():
            parts = {"model": _without_optimizer(model)}
            if with_optimizer:  # in one graph: the slots of legacy ones hang on the variables
                parts["optimizer"] = _optimizer_of(model)
            _read(prefix, partial, **parts)
            # Metrics may be others: they are not what was trained.
            _read(prefix, True, metrics=_metrics_of(model))
    except (AssertionError, ValueError) as error:
        hint = "" if partial else " `partial=True` restores what both have."
        raise CheckpointError(f"'{path}' is of another model: {error}{hint}") from error


def values_of(model):
    """`[(variable, value)]` of everything that `read` may change."""
    describe_optimizer(model)  # which makes its variables
    return [(variable, tf.identity(variable)) for variable in _variables_of(model)]


def put_back(values):
    """Gives variables their values of `values_of`."""
    for variable, value in values:
        variable.assign(value)


def _read(prefix, partial, **parts):
    status = tf.train.Checkpoint(**parts).read(prefix)
    try:
        if not partial:
            status.assert_existing_objects_matched()
    finally:
        status.expect_partial()  # or TensorFlow warns of what was not read


def step_of(model):
    """How many steps were applied; None if the model has no optimizer."""
    optimizer = _optimizer_of(model)
    return None if optimizer is None else int(optimizer.iterations)


def describe_optimizer(model):
    """A text that is the same for optimizers whose variables mean the same; None without one.

    Its variables are made, if they were not: those made later are neither saved nor checked.
    """
    outer = optimizer = _optimizer_of(model)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if optimizer is None:
        return None
    if hasattr(optimizer, "make_variables"):
        optimizer.make_variables(model.trainable_variables)
    elif not isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer):
        optimizer.build(model.trainable_variables)
    names = [type(outer).__name__] if outer is not optimizer else []
    names.append(getattr(optimizer, "keras_class", type(optimizer)).__name__)
    if isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer):
        return ".".join(["legacy", *names])
    return f"{'.'.join(names)} of {runtime.told(_list(optimizer.variables))}"


def describe_weights(model):
    """Types and shapes of the model's variables, in an order of their own."""
    variables = [variable for variable in model.variables if isinstance(variable, tf.Variable)]
    return sorted(runtime.told([variable]) for variable in variables)


def check_weights(model, path, content):
    """Raises if a checkpoint has other weights than the model: more of them, too.

    Raises:
        CheckpointError: it says which.
    """
    then, now = _weights_apart(model, content)
    if then or now:
        raise CheckpointError(
            f"'{path}' is of another model: it has weights {then} that the model does not have, "
            f"and the model has {now} that it does not have. `partial=True` restores what both "
            "have."
        )


def left_out(model, content):
    """Says what a partial `read` leaves as it is, or leaves behind."""
    if not content["dense"]:
        yield "it has tables alone"
        return
    then, now = _weights_apart(model, content)
    if then:
        yield f"the model has no weights {then}"
    if now:
        yield f"weights {now} are not in it and stay as they are"
    then, now = content["optimizer"], describe_optimizer(model)
    if now is not None and then != now:
        yield f"its optimizer is {then}, and that of the model, {now}, stays as it is"


def _weights_apart(model, content):
    """Those that the checkpoint alone has, and those that the model alone has."""
    then, now = (collections.Counter(w) for w in (content["weights"], describe_weights(model)))
    return list((then - now).elements()), list((now - then).elements())


def _optimizer_of(model):
    return getattr(model, "optimizer", None)


def _without_optimizer(model):
    """What the model consists of, its optimizer left out, under the same names."""
    children = tf.train.TrackableView(model).children(model)
    optimizer = _optimizer_of(model)
    return tf.train.Checkpoint(
        **{name: child for name, child in children.items() if child is not optimizer}
    )


def _metrics_of(model):
    return {metric.name: metric for metric in model.metrics}


def _variables_of(model):
    parts = {"model": model, "metrics": _metrics_of(model)}
    variables = list(model.variables)
    if _optimizer_of(model) is not None:
        parts["optimizer"] = _optimizer_of(model)
        variables += _list(_optimizer_of(model).variables)
    # Rates and the state of loss scaling are no variables of an optimizer, and slots of a legacy
    # one are none of its parts.
    root = tf.train.Checkpoint(**parts)
    variables += tf.train.TrackableView(root).descendants()
    return [v for v in {id(v): v for v in variables}.values() if isinstance(v, tf.Variable)]


def _list(variables):
    """Of an optimizer: the legacy ones have a method, the new ones a property."""
    return list(variables() if callable(variables) else variables)
