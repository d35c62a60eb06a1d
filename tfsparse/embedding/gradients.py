"""From the gradients of one rank to those of the global batch.

This is all a synchronous step says to other ranks, in a fixed order: one allreduce of the dense
gradients, which also carries what each rank says of its step (samples, soundness, rate); then per
table one exchange of row gradients; then, only when norms are clipped, one allreduce of the
tables' norms. None of it stands under a condition.

Gradients are means over the global batch: a rank with n of N samples weighs n / N, on the
gradient itself, so that regularisation terms, which every rank adds in full, stay right.
"""

import dataclasses

import tensorflow as tf

from tfsparse import runtime
from tfsparse.embedding.bounds import LARGEST
from tfsparse.embedding.table import SAMPLES_OFFSET, table_of


@dataclasses.dataclass(frozen=True)
class Clip:
    """Gradient clipping with the meaning of Keras's arguments; at most one is not None.

    A key that occurs several times, or on several ranks, counts once, with its summed gradient.
    """

    clipnorm: float = None
    global_clipnorm: float = None
    clipvalue: float = None


def split(grads_and_vars):
    """Separates anchors from dense variables, dropping pairs without a gradient.

    Returns:
        `[(gradient, variable)]` of dense variables, and `{table: [slices]}` in order of first
        appearance.

    Raises:
        ValueError: an anchor's gradient is not the sparse gradient a lookup gave it.
    """
    dense, tables = [], {}
    for gradient, variable in grads_and_vars:
        table = table_of(variable)
        if gradient is None:
            continue
        if table is None:
            dense.append((gradient, variable))
            continue
        if not isinstance(gradient, tf.IndexedSlices) or gradient.dense_shape is None:
            raise ValueError(
                f"The gradient of table '{table.name}' must stay a tf.IndexedSlices with the "
                f"`dense_shape` it came with. Received: {gradient}."
            )
        tables.setdefault(table, []).append(gradient)
    return dense, tables


def describe(grads_and_vars):
    """A text that is the same on ranks whose gradients belong together.

    Raises:
        ValueError: two tables of one name.
    """
    dense, tables = split(grads_and_vars)
    names = [table.name for table in tables]
    for name in names:
        if names.count(name) > 1:
            dims = [table.dim for table in tables if table.name == name]
            raise ValueError(
                f"{len(dims)} tables of one model are named {name!r} (of dims {dims}). Share one "
                "tfs.Table between the layers, or give each table its own name."
            )
    return f"tables {names} and variables {runtime.told(v for _, v in dense)}"


def reduce(grads_and_vars, config, name, after, rate):
    """This rank's gradients -> clipped gradients of the global batch, for the rows it owns.

    A gradient that is not finite (or, of a row, beyond `LARGEST`) on any rank makes NaN of one
    gradient, the `carrier`, on every rank, so that all of them skip or fail together.

    Args:
        grads_and_vars: `[(gradient, variable)]`; row gradients stand with their table's anchor.
        config: a `Clip`.
        name: of the caller, a part of the names of collectives; unique, the same on all ranks.
        after: a tensor to wait for. One of the state that the caller's steps change keeps the
            collectives of two of its steps in one function apart.
        rate: float32 scalar, the learning rate; every rank must bring the same.

    Returns:
        `[(gradient, variable)]`, dense variables first; then for each table a
        `tf.IndexedSlices` of summed gradients and of keys that this rank owns.

    Raises:
        tf.errors.InvalidArgumentError: when run, on every rank: ranks have different rates, or one
            that is negative, not finite or beyond `LARGEST`.
    """
    dense, tables = split(grads_and_vars)
    slices = [(table, *_concat(parts)) for table, parts in tables.items()]
    samples = _samples(tables)
    with tf.control_dependencies([] if tf.executing_eagerly() else [after]):
        # Beyond LARGEST, whether a sum over uses and ranks overflows would be known to its owner
        # alone; below, no sum of a step can, nor its square.
        rows_sound = _all(tf.less_equal(tf.abs(values), LARGEST) for _, _, values in slices)
        said = tf.stack([samples, tf.cast(rows_sound, tf.float32), rate])
        result, said_by_all, finite = _reduce_dense(dense, said, name)
    total = _total(said_by_all)
    rates = said_by_all[:, 2]
    with tf.control_dependencies(_checks_of(rates)):
        sound = tf.logical_and(finite, tf.reduce_all(tf.equal(said_by_all[:, 1], 1.0)))
    for table, keys, values in slices:
        if runtime.size() > 1:
            values = tf.math.multiply_no_nan(values, samples / total)
        keys, sums = table.sum_gradients(keys, values)
        result.append((tf.IndexedSlices(sums, keys), table.anchor))
    result = _clip(result, config, name)
    return _poisoned(result, tf.where(sound, 0.0, float("nan")))


def carrier(grads_and_vars):
    """The number of the gradient that turns to NaN when a step must not be applied.

    A dense one, which is the same on all ranks. Without any it is the first: of that `_poisoned`
    makes sure that it is not empty.
    """
    kinds = [isinstance(gradient, tf.IndexedSlices) for gradient, _ in grads_and_vars]
    return kinds.index(False) if False in kinds else 0


def _poisoned(grads_and_vars, poison):
    if not grads_and_vars:
        return grads_and_vars
    result = list(grads_and_vars)
    number = carrier(result)
    gradient, variable = result[number]
    if not isinstance(gradient, tf.IndexedSlices):
        result[number] = (gradient + tf.cast(poison, gradient.dtype), variable)
    elif table_of(variable) is None:
        gradient = tf.convert_to_tensor(gradient)
        result[number] = (gradient + tf.cast(poison, gradient.dtype), variable)
    else:
        # This rank may own no row of the step: one more carries the poison, and `apply_rows`
        # cuts it off.
        width = tf.shape(gradient.values)[1]
        values = tf.concat([gradient.values, tf.fill([1, width], poison)], axis=0)
        result[number] = (tf.IndexedSlices(values, gradient.indices), variable)
    return result


def _concat(parts):
    if len(parts) == 1:
        return parts[0].indices, parts[0].values
    return tf.concat([p.indices for p in parts], 0), tf.concat([p.values for p in parts], 0)


def _samples(tables):
    for parts in tables.values():
        return tf.cast(parts[0].dense_shape[0] - SAMPLES_OFFSET, tf.float32)
    return tf.constant(1.0)


def _reduce_dense(dense, said, name):
    """Weighted means of dense gradients; what all ranks say; whether all of it is finite.

    Args:
        dense: `[(gradient, variable)]`.
        said: float32 `[3]`, of this rank: samples, whether its rows are sound (1 or 0), rate.
        name: of the collectives.

    Returns:
        `[(gradient, variable)]`, float32 `[size(), 3]` and a boolean scalar.
    """
    if runtime.size() == 1:
        finite = _all(tf.math.is_finite(values_of(gradient)) for gradient, _ in dense)
        return dense, said[tf.newaxis], finite
    dense = [(tf.convert_to_tensor(gradient), variable) for gradient, variable in dense]
    # One message per type, in a fixed order; that of fp32 always exists. Each rank adds what it
    # says to zeros of the others, and so all read it exactly.
    by_type = {tf.float32: []}
    for gradient, _ in dense:
        by_type.setdefault(gradient.dtype, []).append(gradient)
    others = [[runtime.rank(), runtime.size() - 1 - runtime.rank()], [0, 0]]
    saying = tf.pad(said[tf.newaxis], others)
    reduced, finite = {}, []
    for dtype, gradients in by_type.items():
        weight = tf.cast(said[0], dtype)
        flat = [tf.reshape(tf.math.multiply_no_nan(g, weight), [-1]) for g in gradients]
        if dtype == tf.float32:
            flat.append(tf.reshape(saying, [-1]))
        message = runtime.allreduce_sum(tf.concat(flat, 0), f"{name}.{dtype.name}")
        if dtype == tf.float32:
            message, said_by_all = tf.split(message, [-1, 3 * runtime.size()])
            said_by_all = tf.reshape(said_by_all, [runtime.size(), 3])
        finite.append(tf.math.is_finite(message))
        sizes = [tf.size(gradient) for gradient in gradients]
        means = message / tf.cast(_total(said_by_all), dtype)
        parts = tf.split(means, sizes) if gradients else []
        reduced[dtype] = [tf.reshape(part, g.shape) for part, g in zip(parts, gradients)]
    queues = {dtype: iter(parts) for dtype, parts in reduced.items()}
    means = [(next(queues[gradient.dtype]), variable) for gradient, variable in dense]
    return means, said_by_all, _all(finite)


def _total(said_by_all):
    """The samples of all ranks; 1 where there are none."""
    return tf.maximum(tf.reduce_sum(said_by_all[:, 0]), 1.0)


def _checks_of(rates):
    """Ops that fail if the rates of all ranks, float32 `[size()]`, cannot be used."""
    usable = tf.reduce_all((rates >= 0) & (rates <= LARGEST))
    return [
        tf.debugging.Assert(
            usable,
            [f"The learning rate must be in [0, {LARGEST:.0e}]. Received, by rank:", rates],
        ),
        tf.debugging.Assert(
            tf.reduce_all(tf.equal(rates, rates[0])),
            [
                "The learning rate must be the same on all ranks. A callback that follows a "
                "metric, as ReduceLROnPlateau, needs tfs.callbacks.GlobalMetrics before it. "
                "Received, by rank:",
                rates,
            ],
        ),
    ]


def _clip(grads_and_vars, config, name):
    """Clips reduced gradients, rows of all ranks included, equally on every rank."""
    limits = [limit for limit in dataclasses.astuple(config) if limit is not None]
    if not limits or not grads_and_vars:
        return grads_and_vars
    if config.clipvalue is not None:
        limit = config.clipvalue
        return [
            (_map_values(lambda x: tf.clip_by_value(x, -limit, limit), gradient), variable)
            for gradient, variable in grads_and_vars
        ]
    squares = _squared_norms(grads_and_vars, name)
    if config.global_clipnorm is not None:
        squares = [tf.add_n(squares)] * len(squares)
    limit = limits[0]
    scales = [limit / tf.maximum(tf.sqrt(square), limit) for square in squares]
    return [
        (_map_values(lambda x, s=scale: x * tf.cast(s, x.dtype), gradient), variable)
        for (gradient, variable), scale in zip(grads_and_vars, scales)
    ]


def _squared_norms(grads_and_vars, name):
    values = [values_of(gradient) for gradient, _ in grads_and_vars]
    squares = [tf.reduce_sum(tf.square(tf.cast(value, tf.float32))) for value in values]
    spread = [i for i, (_, v) in enumerate(grads_and_vars) if table_of(v) is not None]
    if spread:
        totals = runtime.allreduce_sum(tf.stack([squares[i] for i in spread]), f"{name}.norms")
        for i, total in zip(spread, tf.unstack(totals, num=len(spread))):
            squares[i] = total
    return squares


def _all(conditions):
    """Whether all elements of some boolean tensors are True; so it is for none."""
    whole = [tf.reduce_all(condition) for condition in conditions]
    return tf.reduce_all(whole) if whole else tf.constant(True)


def values_of(gradient):
    """The numbers of a gradient, dense or sparse."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _map_values(function, gradient):
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(function(gradient.values), gradient.indices, gradient.dense_shape)
    return function(gradient)


def check_sound(grads_and_vars):
    """An op that fails, on all ranks alike, if `reduce` met a gradient that is not finite."""
    gradient, _ = grads_and_vars[carrier(grads_and_vars)]
    return tf.debugging.Assert(
        tf.reduce_all(tf.math.is_finite(values_of(gradient))),
        [
            "A gradient is NaN or infinite (or, of a row, beyond 1e12) on some rank. Nothing was "
            "updated, on any rank. Lower the learning rate, clip gradients, check the inputs, or "
            "wrap the optimizer in tf.keras.mixed_precision.LossScaleOptimizer, which skips such "
            "steps."
        ],
    )


def apply_rows(slices, table, learning_rate):
    """Updates the rows of one table by reduced (and clipped) gradients."""
    keys = slices.indices
    table.apply(keys, slices.values[: tf.shape(keys)[0]], learning_rate)
