"""The forms in which ids come: dense, ragged, sparse; and how vectors go back into them.

A form's `checks` are `[(condition, message)]`: what only a running step can tell about its ids and
weights. Whoever looks the ids up sees to it that a step with bad ones fails on all ranks; until
then no op may trip over them, so what depends on their shape waits for the vectors.
"""

import contextlib
import operator

import tensorflow as tf

_DTYPES = (tf.int32, tf.int64, tf.string)


def take_apart(ids, layer_name):
    """The form of `ids`.

    Raises:
        TypeError: not int32, int64 or string.
        ValueError: of a rank that cannot be ids.
    """
    if isinstance(ids, tf.SparseTensor):
        _check_dtype(ids.dtype, layer_name)
        return Sparse(ids, layer_name)
    if isinstance(ids, tf.RaggedTensor):
        _check_dtype(ids.dtype, layer_name)
        return Ragged(ids, layer_name)
    ids = tf.convert_to_tensor(ids)
    _check_dtype(ids.dtype, layer_name)
    if ids.shape.rank is None or ids.shape.rank < 1:
        raise ValueError(
            f"Layer '{layer_name}': ids must have a known rank of at least 1, as [B] or [B, L]. "
            f"Received: shape {ids.shape}."
        )
    return Dense(ids, layer_name)


def _check_dtype(dtype, layer_name):
    if dtype not in _DTYPES:
        raise TypeError(
            f"Layer '{layer_name}': ids must be int32, int64 or string. Received: {dtype.name}. "
            "A tf.keras.Input is float32 unless it says dtype=tf.int64 or dtype=tf.string."
        )


def as_padding(padding_id, layer_name):
    """A layer's `padding_id` as an int, a string or None.

    Raises:
        ValueError: it is none of these, or no int64.
    """
    if padding_id is None or isinstance(padding_id, (str, bytes)):
        return padding_id
    with contextlib.suppress(TypeError):  # numpy's integers too
        number = operator.index(padding_id)
        if not isinstance(padding_id, bool) and -(2**63) <= number < 2**63:
            return number
    raise ValueError(
        f"Layer '{layer_name}': `padding_id` must be None, an int64 or a string. "
        f"Received: {padding_id!r}."
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


class _Form:
    """What the forms share: `_layer_name`, `rank`, `samples`, `flat` `[n]` and `checks`."""

    def all_but(self, padding_id):
        """Which ids are not `padding_id`, boolean `[n]`; None stands for all of them."""
        if padding_id is None:
            return None
        if isinstance(padding_id, int) == (self.flat.dtype == tf.string):
            raise TypeError(
                f"Layer '{self._layer_name}': `padding_id` must be of the type of the ids. "
                f"Received: padding_id={padding_id!r} and ids of type {self.flat.dtype.name}."
            )
        return tf.not_equal(self.flat, padding_id)

    def flat_weights(self, weights):
        """`weights`, given in the form of the ids, as `[n]`; a check, from now on, that they fit.

        Raises:
            ValueError: they have another form or rank.
            TypeError: they are no numbers.
        """
        flat, same = self._take_weights(weights)
        if not (flat.dtype.is_floating or flat.dtype.is_integer):
            raise TypeError(
                f"Layer '{self._layer_name}': `weights` must be numbers. "
                f"Received: {flat.dtype.name}."
            )
        message = "`weights` must have one entry per id, in the same places."
        fit = tf.reduce_all([_are_equal(a, b) for a, b in same])
        self.checks.append((fit, f"Layer {self._layer_name}: {message}"))
        # Even where a shape is known to be wrong, it is the check that fails, on all ranks.
        return tf.compat.v1.placeholder_with_default(tf.reshape(flat, [-1]), [None])

    def _refuse_weights(self, weights):
        raise ValueError(
            f"Layer '{self._layer_name}': `weights` must have the form and rank of the ids, "
            f"{self._ids.shape}. Received: {weights.shape}."
        )


class Dense(_Form):
    """Ids `[B]`, `[B, L]` or of higher rank."""

    def __init__(self, ids, layer_name):
        """See the class."""
        self._ids = ids
        self._layer_name = layer_name
        self.rank = ids.shape.rank
        self.samples = tf.shape(ids, tf.int64)[0]
        self.flat = _wide(tf.reshape(ids, [-1]))
        self.checks = []

    def put_together(self, vectors):
        """`[n, dim]` -> ids' shape + `[dim]`."""
        dim = vectors.shape[-1]
        out = tf.reshape(vectors, tf.concat([tf.shape(self._ids), [dim]], 0))
        return tf.ensure_shape(out, [*self._ids.shape, dim])

    def _take_weights(self, weights):
        weights = tf.convert_to_tensor(weights)
        if weights.shape.rank not in (None, self.rank):
            self._refuse_weights(weights)
        return weights, [(tf.shape(weights), tf.shape(self._ids))]

    def pool(self, vectors, weights, keep, combiner):
        """Pools over the last axis; `vectors` (and `weights`) are those of `keep` only."""
        vectors = fill_gaps(vectors, keep)
        counted = tf.ones_like(vectors[:, 0]) if keep is None else tf.cast(keep, vectors.dtype)
        if weights is not None:
            counted = tf.squeeze(fill_gaps(weights[:, tf.newaxis], keep), -1)
            vectors = vectors * counted[:, tf.newaxis]
        summed = tf.reduce_sum(self.put_together(vectors), -2)
        if combiner == "sum":
            return summed
        counted = tf.reshape(counted, tf.shape(self._ids))
        return _divide(summed, counted, combiner, lambda x: tf.reduce_sum(x, -1))


class Ragged(_Form):
    """Ids in a `tf.RaggedTensor`."""

    def __init__(self, ids, layer_name):
        """See the class."""
        self._ids = ids
        self._layer_name = layer_name
        self.rank = ids.shape.rank
        self.samples = ids.nrows(out_type=tf.int64)
        self.flat = _wide(tf.reshape(ids.flat_values, [-1]))
        if ids.flat_values.shape.rank != 1:
            raise ValueError(
                f"Layer '{layer_name}': ragged ids must be ragged in their last axis. "
                f"Received: flat values of shape {ids.flat_values.shape}."
            )
        self.checks = [(_are_splits(ids), _BAD_SPLITS.format(layer_name))]

    def put_together(self, vectors):
        """`[n, dim]` -> ragged, ids' shape + `[dim]`."""
        return self._ids.with_flat_values(vectors)

    def _take_weights(self, weights):
        ids = self._ids
        if not isinstance(weights, tf.RaggedTensor) or weights.ragged_rank != ids.ragged_rank:
            self._refuse_weights(weights)
        flat = weights.flat_values
        same = list(zip(weights.nested_row_splits, ids.nested_row_splits))
        return flat, [*same, (tf.shape(flat), tf.shape(self.flat))]

    def pool(self, vectors, weights, keep, combiner):
        """Pools over the last axis; `vectors` (and `weights`) are those of `keep` only."""
        return _pool_lists(self._ids, vectors, weights, keep, combiner)


class Sparse(_Form):
    """Ids in a `tf.SparseTensor` of rank 2, as ragged lists in the order of its values."""

    def __init__(self, ids, layer_name):
        """See the class."""
        if ids.shape.rank not in (None, 2):
            raise ValueError(
                f"Layer '{layer_name}': sparse ids must have rank 2. Received: shape {ids.shape}."
            )
        self._ids = ids
        self._layer_name = layer_name
        self.rank = 2
        self.samples = ids.dense_shape[0]
        self.flat = _wide(ids.values)
        self.checks = [(_are_sparse_lists(ids), _BAD_INDICES.format(layer_name))]

    def put_together(self, vectors):
        """`[n, dim]` -> ragged, `[B, (length), dim]`."""
        return self._ragged(vectors)

    def _take_weights(self, weights):
        if not isinstance(weights, tf.SparseTensor):
            self._refuse_weights(weights)
        flat = weights.values
        return flat, [(weights.indices, self._ids.indices), (tf.shape(flat), tf.shape(self.flat))]

    def pool(self, vectors, weights, keep, combiner):
        """Pools over the last axis; `vectors` (and `weights`) are those of `keep` only."""
        return _pool_lists(self._ragged(self.flat), vectors, weights, keep, combiner)

    def _ragged(self, values):
        return tf.RaggedTensor.from_value_rowids(
            values, self._ids.indices[:, 0], nrows=self._ids.dense_shape[0], validate=False
        )


def _pool_lists(ragged, vectors, weights, keep, combiner):
    """Pools over the innermost lists of `ragged`, whose axes above them remain."""
    splits, inner = [], ragged
    while isinstance(inner.values, tf.RaggedTensor):
        splits.append(inner.row_splits)
        inner = inner.values
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
    for row_splits in reversed(splits):
        pooled = tf.RaggedTensor.from_row_splits(pooled, row_splits, validate=False)
    return pooled


# Without quotes around names: TensorFlow prints them as \' when an op in a graph fails.
_BAD_SPLITS = (
    "Layer {}: the row_splits of ragged ids must begin with 0, never fall, and end with the "
    "number of ids. The ids were built with validate=False, or their splits changed since."
)
_BAD_INDICES = (
    "Layer {}: the indices of sparse ids must be one [row, column] per value, in the order of "
    "rows, with rows below dense_shape[0]; tf.sparse.reorder sorts them."
)


def _are_splits(ragged):
    """Whether `row_splits` at every level of a ragged tensor describe lists."""
    sound = []
    while isinstance(ragged, tf.RaggedTensor):
        splits, values = ragged.row_splits, ragged.values
        is_list = isinstance(values, tf.RaggedTensor)
        end = tf.size(values.row_splits) - 1 if is_list else tf.shape(values)[0]
        ends = tf.concat([splits[:1], splits[-1:]], 0)  # nothing, when there are no splits at all
        sound.append(tf.size(splits) >= 1)
        sound.append(tf.reduce_all(ends == tf.stack([0, tf.cast(end, splits.dtype)])))
        sound.append(tf.reduce_all(splits[1:] >= splits[:-1]))
        ragged = values
    return tf.reduce_all(sound)


def _are_sparse_lists(sparse):
    rows = sparse.indices[:, 0]
    in_order = tf.reduce_all(rows[1:] >= rows[:-1])
    inside = tf.reduce_all((rows >= 0) & (rows < sparse.dense_shape[0]))
    one_each = tf.equal(tf.size(rows), tf.size(sparse.values))
    return in_order & inside & one_each


def _are_equal(a, b):
    """Whether two integer tensors have equal shapes and elements."""
    # Unlike tf.equal, == of tensors is False for shapes that do not fit; but it broadcasts.
    a, b = tf.cast(a, tf.int64), tf.cast(b, tf.int64)
    return tf.reduce_all(tf.shape(a) == tf.shape(b)) & tf.reduce_all(a == b)


def _divide(summed, counted, combiner, total):
    if combiner == "mean":
        divisor = total(counted)
    else:
        divisor = tf.sqrt(total(tf.square(counted)))
    return tf.math.divide_no_nan(summed, divisor[..., tf.newaxis])
