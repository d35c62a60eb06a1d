"""The forms in which ids come: dense, ragged, sparse; and how vectors go back into them."""

import tensorflow as tf

_DTYPES = (tf.int32, tf.int64, tf.string)


def take_apart(ids, layer_name):
    """The form of `ids`.

    Raises:
        TypeError: not int32, int64 or string.
    """
    if isinstance(ids, tf.SparseTensor):
        _check_dtype(ids.dtype, layer_name)
        return Sparse(ids)
    if isinstance(ids, tf.RaggedTensor):
        _check_dtype(ids.dtype, layer_name)
        return Ragged(ids)
    ids = tf.convert_to_tensor(ids)
    _check_dtype(ids.dtype, layer_name)
    if ids.shape.rank is None or ids.shape.rank < 1:
        raise ValueError(
            f"Layer '{layer_name}': ids must have a known rank of at least 1, as [B] or [B, L]. "
            f"Received: shape {ids.shape}."
        )
    return Dense(ids)


def _check_dtype(dtype, layer_name):
    if dtype not in _DTYPES:
        raise TypeError(
            f"Layer '{layer_name}': ids must be int32, int64 or string. Received: {dtype.name}. "
            "A tf.keras.Input is float32 unless it says dtype=tf.int64 or dtype=tf.string."
        )


def _wide(flat):
    """int32 ids as int64, so that any `padding_id` can be compared with them."""
    return tf.cast(flat, tf.int64) if flat.dtype == tf.int32 else flat


def fill_gaps(vectors, keep):
    """Spreads `vectors` over the True places of `keep` `[n]`, zeros elsewhere: `[n, dim]`."""
    if keep is None:
        return vectors
    padded = tf.pad(vectors, [[1, 0], [0, 0]])
    return tf.gather(padded, tf.where(keep, tf.cumsum(tf.cast(keep, tf.int32)), 0))


class Dense:
    """Ids `[B]`, `[B, L]` or of higher rank."""

    def __init__(self, ids):
        """See the class."""
        self._ids = ids
        self.rank = ids.shape.rank
        self.samples = tf.shape(ids, tf.int64)[0]
        self.flat = _wide(tf.reshape(ids, [-1]))

    def put_together(self, vectors):
        """`[n, dim]` -> ids' shape + `[dim]`."""
        dim = vectors.shape[-1]
        out = tf.reshape(vectors, tf.concat([tf.shape(self._ids), [dim]], 0))
        return tf.ensure_shape(out, [*self._ids.shape, dim])

    def flat_weights(self, weights, layer_name):
        """`weights` as `[n]`."""
        weights = tf.convert_to_tensor(weights)
        if not weights.shape.is_compatible_with(self._ids.shape):
            _refuse_weights(layer_name, self._ids.shape, weights.shape)
        same = [(tf.shape(weights), tf.shape(self._ids))]
        return _checked(tf.reshape(weights, [-1]), same, layer_name)

    def pool(self, vectors, weights, keep, combiner):
        """Pools over the last axis; `vectors` (and `weights`) are those of `keep` only."""
        vectors = fill_gaps(vectors, keep)
        counted = tf.ones_like(vectors[:, 0]) if keep is None else tf.cast(keep, vectors.dtype)
        if weights is not None:
            counted = tf.squeeze(fill_gaps(weights[:, tf.newaxis], keep), -1)
        if weights is not None:
            vectors = vectors * counted[:, tf.newaxis]
        summed = tf.reduce_sum(self.put_together(vectors), -2)
        if combiner == "sum":
            return summed
        counted = tf.reshape(counted, tf.shape(self._ids))
        return _divide(summed, counted, combiner, lambda x: tf.reduce_sum(x, -1))


class Ragged:
    """Ids in a `tf.RaggedTensor`."""

    def __init__(self, ids):
        """See the class."""
        self._ids = ids
        self.rank = ids.shape.rank
        self.samples = ids.nrows(out_type=tf.int64)
        self.flat = _wide(tf.reshape(ids.flat_values, [-1]))
        if ids.flat_values.shape.rank != 1:
            raise ValueError(
                "Ragged ids must be ragged in their last axis. "
                f"Received: flat values of shape {ids.flat_values.shape}."
            )

    def put_together(self, vectors):
        """`[n, dim]` -> ragged, ids' shape + `[dim]`."""
        return self._ids.with_flat_values(vectors)

    def flat_weights(self, weights, layer_name):
        """`weights` as `[n]`."""
        ids = self._ids
        if not isinstance(weights, tf.RaggedTensor) or weights.ragged_rank != ids.ragged_rank:
            _refuse_weights(layer_name, ids.shape, weights.shape)
        same = zip(weights.nested_row_splits, ids.nested_row_splits)
        return _checked(tf.reshape(weights.flat_values, [-1]), same, layer_name)

    def pool(self, vectors, weights, keep, combiner):
        """Pools over the last axis; `vectors` (and `weights`) are those of `keep` only."""
        inner = self._innermost()
        segments = inner.value_rowids()
        if keep is not None:
            segments = tf.boolean_mask(segments, keep)
        total = lambda x: tf.math.unsorted_segment_sum(x, segments, inner.nrows())  # noqa: E731
        if weights is not None:
            vectors = vectors * weights[:, tf.newaxis]
        pooled = total(vectors)
        if combiner != "sum":
            counted = tf.ones_like(vectors[:, 0]) if weights is None else weights
            pooled = _divide(pooled, counted, combiner, total)
        return self._above(pooled)

    def _innermost(self):
        inner = self._ids
        while isinstance(inner.values, tf.RaggedTensor):
            inner = inner.values
        return inner

    def _above(self, pooled):
        """The pooled vectors `[rows of the innermost lists, dim]` in the axes above them."""
        splits, inner = [], self._ids
        while isinstance(inner.values, tf.RaggedTensor):
            splits.append(inner.row_splits)
            inner = inner.values
        for row_splits in reversed(splits):
            pooled = tf.RaggedTensor.from_row_splits(pooled, row_splits, validate=False)
        return pooled


class Sparse(Ragged):
    """Ids in a `tf.SparseTensor` of rank 2, as ragged lists in the order of its values."""

    def __init__(self, ids):
        """See the class."""
        super().__init__(_to_ragged(ids, ids.values))
        self._sparse = ids

    def flat_weights(self, weights, layer_name):
        """`weights`, a sparse tensor of the same places, as `[n]`."""
        if not isinstance(weights, tf.SparseTensor):
            _refuse_weights(layer_name, self._sparse.shape, weights.shape)
        return _checked(weights.values, [(weights.indices, self._sparse.indices)], layer_name)


def _to_ragged(sparse, values):
    if sparse.shape.rank not in (None, 2):
        raise ValueError(f"Sparse ids must have rank 2. Received: shape {sparse.shape}.")
    return tf.RaggedTensor.from_value_rowids(
        values, sparse.indices[:, 0], nrows=sparse.dense_shape[0]
    )


def _divide(summed, counted, combiner, total):
    if combiner == "mean":
        divisor = total(counted)
    else:
        divisor = tf.sqrt(total(tf.square(counted)))
    return tf.math.divide_no_nan(summed, divisor[..., tf.newaxis])


def _checked(weights, same, layer_name):
    """`weights`, once the pairs of integer tensors in `same` have turned out equal."""
    # Unlike tf.equal, == of tensors is False for shapes that do not match.
    equal = [tf.reduce_all(tf.cast(a, tf.int64) == tf.cast(b, tf.int64)) for a, b in same]
    check = tf.debugging.assert_equal(
        tf.reduce_all(equal),
        True,
        message=f"Layer '{layer_name}': `weights` must have one entry per id, in the same places.",
    )
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(weights)


def _refuse_weights(layer_name, ids_shape, weights_shape):
    raise ValueError(
        f"Layer '{layer_name}': `weights` must have the form and shape of the ids, {ids_shape}. "
        f"Received: {weights_shape}."
    )
