"""From the gradients of one rank to those of the global batch.

This is all a synchronous step says to other ranks, in a fixed order: one allreduce of the dense
gradients, which also carries the number of samples and whether everything is finite; then per
table one exchange of row gradients; then, only when norms are clipped, one allreduce of the
tables' norms.

Gradients are means over the global batch: a rank with n of N samples weighs n / N, on the
gradient itself, so that regularisation terms, which every rank adds in full, stay right.
"""

import dataclasses

import tensorflow as tf

from tfsparse import runtime
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


def reduce(grads_and_vars):
    """This rank's gradients -> gradients of the global batch, for the rows this rank owns.

    A value that is not finite, on any rank, makes NaN of one gradient on every rank, so that
    all of them skip or fail together.

    Args:
        grads_and_vars: `[(gradient, variable)]`; row gradients stand with their table's anchor.

    Returns:
        `[(gradient, variable)]`, dense variables first; then for each table a
        `tf.IndexedSlices` of summed gradients and of keys that this rank owns.
    """
    dense, tables = split(grads_and_vars)
    slices = [(table, *_concat(parts)) for table, parts in tables.items()]
    samples = _samples(tables)
    rows_finite = _all_finite([values for _, _, values in slices])
    result, total, finite = _reduce_dense(dense, samples, rows_finite)
    poison = tf.where(finite, 0.0, float("nan"))
    if result:
        gradient, variable = result[0]
        add = lambda values: values + tf.cast(poison, values.dtype)  # noqa: E731
        result[0] = (_map_values(add, gradient), variable)
    for table, keys, values in slices:
        if runtime.size() > 1:
            values = tf.math.multiply_no_nan(values, samples)
        keys, sums = table.sum_gradients(keys, values)
        if runtime.size() > 1:
            sums = sums / total
        if not result:
            # No dense gradient can carry the poison, and this rank may own none of the rows:
            # one more row does, which `apply_rows` cuts off.
            sums = tf.concat([sums, tf.fill([1, table.dim], poison)], axis=0)
        result.append((tf.IndexedSlices(sums, keys), table.anchor))
    return result


def _concat(parts):
    if len(parts) == 1:
        return parts[0].indices, parts[0].values
    return tf.concat([p.indices for p in parts], 0), tf.concat([p.values for p in parts], 0)


def _samples(tables):
    for parts in tables.values():
        return tf.cast(parts[0].dense_shape[0] - SAMPLES_OFFSET, tf.float32)
    return tf.constant(1.0)


def _reduce_dense(dense, samples, rows_finite):
    """Weighted means of dense gradients; the total of samples; whether all is finite."""
    if runtime.size() == 1:
        finite = _all_finite([_values(gradient) for gradient, _ in dense])
        return dense, samples, tf.logical_and(rows_finite, finite)
    dense = [(tf.convert_to_tensor(gradient), variable) for gradient, variable in dense]
    # One message per type, in a fixed order; that of fp32 always exists.
    by_type = {tf.float32: []}
    for gradient, _ in dense:
        by_type.setdefault(gradient.dtype, []).append(gradient)
    reduced, total, finite = {}, None, None
    for dtype, gradients in by_type.items():
        weight = tf.cast(samples, dtype)
        flat = [tf.reshape(tf.math.multiply_no_nan(g, weight), [-1]) for g in gradients]
        if dtype == tf.float32:
            flat.append(tf.stack([samples, tf.where(rows_finite, 0.0, 1.0)]))
        message = runtime.allreduce_sum(tf.concat(flat, 0), f"dense.{dtype.name}")
        type_finite = tf.reduce_all(tf.math.is_finite(message))
        if dtype == tf.float32:
            total = tf.maximum(message[-2], 1.0)
            finite = tf.logical_and(type_finite, tf.equal(message[-1], 0.0))
            message = message[:-2]
        else:
            finite = tf.logical_and(finite, type_finite)
        sizes = [tf.size(gradient) for gradient in gradients]
        parts = tf.split(message / tf.cast(total, dtype), sizes) if gradients else []
        reduced[dtype] = [tf.reshape(part, g.shape) for part, g in zip(parts, gradients)]
    queues = {dtype: iter(parts) for dtype, parts in reduced.items()}
    return [(next(queues[g.dtype]), variable) for g, variable in dense], total, finite


def clip(grads_and_vars, config):
    """Clips reduced gradients, rows of all ranks included, equally on every rank.

    Args:
        grads_and_vars: from `reduce`.
        config: a `Clip`.
    """
    limits = [limit for limit in dataclasses.astuple(config) if limit is not None]
    if not limits or not grads_and_vars:
        return grads_and_vars
    if config.clipvalue is not None:
        limit = config.clipvalue
        return [
            (_map_values(lambda x: tf.clip_by_value(x, -limit, limit), gradient), variable)
            for gradient, variable in grads_and_vars
        ]
    squares = _squared_norms(grads_and_vars)
    if config.global_clipnorm is not None:
        squares = [tf.add_n(squares)] * len(squares)
    limit = limits[0]
    scales = [limit / tf.maximum(tf.sqrt(square), limit) for square in squares]
    return [
        (_map_values(lambda x, s=scale: x * tf.cast(s, x.dtype), gradient), variable)
        for (gradient, variable), scale in zip(grads_and_vars, scales)
    ]


def _squared_norms(grads_and_vars):
    values = [_values(gradient) for gradient, _ in grads_and_vars]
    squares = [tf.reduce_sum(tf.square(tf.cast(value, tf.float32))) for value in values]
    spread = [i for i, (_, v) in enumerate(grads_and_vars) if table_of(v) is not None]
    if spread:
        totals = runtime.allreduce_sum(tf.stack([squares[i] for i in spread]), "norms")
        for i, total in zip(spread, tf.unstack(totals, num=len(spread))):
            squares[i] = total
    return squares


def _all_finite(tensors):
    if not tensors:
        return tf.constant(True)
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(tensor)) for tensor in tensors])


def _values(gradient):
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _map_values(function, gradient):
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(function(gradient.values), gradient.indices, gradient.dense_shape)
    return function(gradient)


def check_finite(grads_and_vars):
    """An op that fails, on all ranks alike, if `reduce` met a value that is not finite."""
    carrier = _values(grads_and_vars[0][0])
    return tf.debugging.Assert(
        tf.reduce_all(tf.math.is_finite(carrier)),
        [
            "A gradient is NaN or infinite on some rank. Nothing was updated, on any rank. "
            "Lower the learning rate, clip gradients, check the inputs, or wrap the optimizer "
            "in tf.keras.mixed_precision.LossScaleOptimizer, which skips such steps."
        ],
    )


def apply_rows(slices, table, learning_rate):
    """Updates the rows of one table by reduced (and clipped) gradients."""
    keys = slices.indices
    table.apply(keys, slices.values[: tf.shape(keys)[0]], learning_rate)
