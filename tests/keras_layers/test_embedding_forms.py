"""Every form of ids, every combiner: the layer against numpy on the same rows."""

import struct

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tfsparse.keras_layers import DynamicEmbedding

DTYPES = (tf.int32, tf.int64, tf.string)
COMBINERS = (None, "sum", "mean", "sqrtn")

# Batches as nested lists; 0 is the padding id where there is one.
BATCHES = {
    "B": [3, 0, 5, 3],
    "BL": [[3, 5, 0], [7, 7, 7], [0, 0, 0]],
    "BLM": [[[1, 2], [3, 0]], [[4, 4], [0, 0]], [[9, 1], [1, 9]]],
    "ragged": [[3, 5, 0], [], [7, 7], [0], []],
    "ragged_of_ragged": [[[1, 2], [], [3]], [], [[0], [4, 4, 1, 0]]],
    "sparse": [[3, 5, 0], [], [7, 7], [0], []],
}


def cast(ids, dtype):
    if isinstance(ids, list):
        return [cast(part, dtype) for part in ids]
    return str(ids).encode() if dtype == tf.string else ids


def as_tensor(form, values, dtype):
    """The nested list `values` as a tensor of the form."""
    if form == "sparse":
        places = [[i, j] for i, part in enumerate(values) for j in range(len(part))]
        flat = tf.constant([value for part in values for value in part], dtype)
        return tf.SparseTensor(places, flat, [len(values), 4])
    if form.startswith("ragged"):
        return tf.ragged.constant(values, dtype, ragged_rank=form.count("ragged"))
    return tf.constant(values, dtype)


def key_of(value):
    """A string's key is its 64-bit FarmHash fingerprint as a signed number."""
    if isinstance(value, bytes):
        return struct.unpack("<q", tf.fingerprint([value], "farmhash64").numpy().tobytes())[0]
    return value


def numpy_pool(vectors, weights, combiner):
    if combiner is None:
        return vectors
    weights = np.ones(len(vectors), np.float32) if weights is None else np.array(weights)
    total = (vectors * weights[:, np.newaxis]).sum(0)
    divisor = {"sum": 1.0, "mean": weights.sum(), "sqrtn": np.sqrt((weights**2).sum())}[combiner]
    return total / divisor if divisor else np.zeros_like(total)


def layer_with_rows(keys, dim=4, combiner=None, padding_id=None):
    table = tfs.Table(
        "t", dim, optimizer=tfs.optimizers.SGD(), initializer=tfs.initializers.Uniform(-1.0, 1.0)
    )
    layer = DynamicEmbedding(table, combiner=combiner, padding_id=padding_id)
    layer.build(None)
    keys = np.unique(keys)
    layer.table.apply(keys, np.zeros((len(keys), dim), np.float32), 0.0)  # commits first values
    assert np.abs(layer.table.lookup(keys)).min(axis=1).max() > 0
    return layer


def flatten(values):
    if isinstance(values, list):
        return [leaf for part in values for leaf in flatten(part)]
    return [values]


def weights_like(ids):
    numbers = iter(np.random.default_rng(0).uniform(0.5, 2.0, 100).round(2).tolist())
    draw = lambda x: [draw(y) for y in x] if isinstance(x, list) else next(numbers)  # noqa: E731
    return draw(ids)


def expected(layer, form, ids, weights, combiner, padding_id):
    """The output as nested lists of vectors, computed list by list from `table.lookup`."""

    def of_list(part, part_weights):
        kept = [i for i, value in enumerate(part) if value != padding_id]
        keys = [key_of(part[i]) for i in kept]
        rows = layer.table.lookup(np.array(keys, np.int64)).numpy()
        if combiner is None:
            vectors = np.zeros((len(part), 4), np.float32)
            vectors[kept] = rows
            return vectors.tolist()
        part_weights = None if part_weights is None else [part_weights[i] for i in kept]
        return numpy_pool(rows, part_weights, combiner).tolist()

    depth = {"B": 1, "BLM": 3, "ragged_of_ragged": 3}.get(form, 2)

    def descend(part, part_weights, level):
        if level == depth:
            return of_list(part, part_weights)
        part_weights = part_weights or [None] * len(part)
        return [descend(*pair, level + 1) for pair in zip(part, part_weights)]

    return descend(ids, weights, 1)


def as_lists(output):
    return output.to_list() if isinstance(output, tf.RaggedTensor) else output.numpy().tolist()


def assert_close(output, wanted):
    output = as_lists(output)

    def compare(one, other):
        assert len(one) == len(other)
        if one and isinstance(one[0], list):
            for pair in zip(one, other):
                compare(*pair)
        else:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)

    compare(output, wanted)


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("form", BATCHES)
def test_output_equals_numpy_on_the_rows_of_the_table(form, dtype, combiner):
    if form == "B" and combiner is not None:
        with pytest.raises(ValueError, match="pools over the last axis of ids of rank 2 or more"):
            DynamicEmbedding(4, combiner=combiner)(tf.constant([1, 2]))
        return
    ids = cast(BATCHES[form], dtype)
    tensor = as_tensor(form, ids, dtype)
    keys = [key_of(value) for value in flatten(ids)]
    weights = weights_like(ids)
    for padding_id in (None, cast(0, dtype)):
        for used in [None] if combiner is None else [None, weights]:
            layer = layer_with_rows(keys, combiner=combiner, padding_id=padding_id)
            given = None if used is None else as_tensor(form, used, tf.float32)
            wanted = expected(layer, form, ids, used, combiner, padding_id)
            for training in (False, True):
                assert_close(layer(tensor, weights=given, training=training), wanted)
    if dtype == tf.int64 and combiner in (
        None,
        "sqrtn",
    ):  # once more, with padding and weights, in a graph
        traced = tf.function(lambda t, w, layer=layer: layer(t, weights=w))
        assert_close(traced(tensor, given), wanted)


@pytest.mark.parametrize(
    "form, shape, combiner, wanted",
    [
        ("dense", (), None, [None, 4]),
        ("dense", (3,), None, [None, 3, 4]),
        ("dense", (None,), None, [None, None, 4]),
        ("dense", (3,), "sum", [None, 4]),
        ("dense", (None,), "mean", [None, 4]),
        ("dense", (2, 3), "sqrtn", [None, 2, 4]),
        ("ragged", (None,), None, [None, None, 4]),
        ("ragged", (None,), "sum", [None, 4]),
        ("ragged", (None, None), "mean", [None, None, 4]),
        ("sparse", (3,), "sum", [None, 4]),
        ("sparse", (None,), "mean", [None, 4]),
    ],
)
def test_functional_models_know_the_output_shape(form, shape, combiner, wanted):
    kind = {} if form == "dense" else {form: True}
    ids = tf.keras.Input(shape, dtype=tf.int64, **kind)
    output = DynamicEmbedding(4, combiner=combiner)(ids)
    assert output.shape.as_list() == wanted
    assert tf.keras.Model(ids, output).output_shape == tuple(wanted)
    if len(wanted) == 2:
        assert tf.keras.layers.Dense(3)(output).shape.as_list() == [None, 3]


@pytest.mark.parametrize("combiner", COMBINERS)
def test_batches_without_samples_or_ids_give_empty_outputs_and_zeros(combiner):
    layer = DynamicEmbedding(4, combiner=combiner)
    for batch, length in ((0, 3), (2, 0), (0, 0)):
        shape = [batch, 4] if combiner else [batch, length, 4]
        for training in (False, True):
            output = layer(tf.zeros([batch, length], tf.int64), training=training)
            assert output.shape.as_list() == shape
            assert not output.numpy().any()
    ragged = layer(tf.ragged.constant([[], [], []], tf.int64, ragged_rank=1), training=True)
    assert_close(ragged, [[0.0] * 4] * 3 if combiner else [[], [], []])
    none = layer(tf.ragged.constant([], tf.int64, ragged_rank=1), training=True)
    assert_close(none, [])
    sparse = tf.SparseTensor(tf.zeros([0, 2], tf.int64), tf.zeros([0], tf.int64), [2, 3])
    assert_close(layer(sparse), [[0.0] * 4] * 2 if combiner else [[], []])
    assert layer.table.stats()["rows"] == layer.table.stats()["provisional_rows"] == 0


def test_trailing_empty_lists_keep_their_rows():
    layer = layer_with_rows([1], combiner="mean")
    (row,) = layer.table.lookup([1]).numpy().tolist()
    output = layer(tf.ragged.constant([[], [], [], [1], []], tf.int64))
    assert_close(output, [[0.0] * 4] * 3 + [row] + [[0.0] * 4])


@pytest.mark.parametrize("dim", [1, 3, 7, 16, 100, 1025])
def test_every_width_reads_whole_rows(dim):
    layer = layer_with_rows(range(50), dim=dim)
    ids = np.random.default_rng(dim).integers(0, 60, (8, 5))  # ten of the ids have no row
    wanted = layer.table.lookup(ids).numpy().reshape(8, 5, dim)
    assert not wanted[ids >= 50].any()
    assert np.abs(wanted[ids < 50]).min(axis=-1).max() > 0
    np.testing.assert_array_equal(layer(ids).numpy(), wanted)
    pooled = DynamicEmbedding(layer.table_config, combiner="sum")(ids)
    np.testing.assert_allclose(pooled.numpy(), wanted.sum(1), rtol=1e-5, atol=1e-6)


def test_long_lists_and_an_id_that_comes_ten_thousand_times():
    layer = layer_with_rows(range(300), combiner="mean")
    ids = np.random.default_rng(1).integers(0, 300, (3, 1000))
    wanted = layer.table.lookup(ids).numpy().reshape(3, 1000, 4).mean(1)
    np.testing.assert_allclose(layer(ids).numpy(), wanted, rtol=1e-4, atol=1e-5)
    (row,) = layer.table.lookup([7]).numpy()
    same = layer(np.full((1, 10_000), 7)).numpy()
    np.testing.assert_allclose(same, [row], rtol=1e-3)  # ten thousand roundings


def test_lists_of_very_unequal_length_on_one_table_do_not_mix():
    one = layer_with_rows(range(2000), combiner="sum")
    other = DynamicEmbedding(one.table_config, combiner="sum")
    rng = np.random.default_rng(2)
    for layer, length in ((one, 33), (other, 1280)):
        ids = rng.integers(0, 2000, (4, length))
        wanted = one.table.lookup(ids).numpy().reshape(4, length, 4).sum(1)
        np.testing.assert_allclose(layer(ids, training=True).numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_one_id_has_one_row_as_int32_and_as_int64():
    layer = layer_with_rows([7])
    np.testing.assert_array_equal(
        layer(tf.constant([7], tf.int32)), layer(tf.constant([7], tf.int64))
    )


def test_the_key_of_a_string_is_frozen():
    # Checkpoints and exports hold keys, so these must never change.
    layer = layer_with_rows([-1, 0])
    strings = [b"", b"a", b"user_1", "Zoë".encode()]
    golden = [
        -7286425919675154353,
        -5528939962900187677,
        1009713755322965798,
        7257558274888974767,
    ]
    rows = np.arange(4, dtype=np.float32)[:, np.newaxis].repeat(4, axis=1)
    layer.table.apply(golden, -rows, 1.0)
    np.testing.assert_array_equal(layer(tf.constant(strings)), layer.table.lookup(golden))
    assert layer.table.size() == 2 + 4


# Malformed ids and weights.


def test_float_ids_are_refused_with_advice():
    message = "ids must be int32, int64 or string. Received: float32. .*dtype=tf.int64"
    with pytest.raises(TypeError, match=message):
        DynamicEmbedding(4)(tf.keras.Input((2,)))
    with pytest.raises(TypeError, match="Layer 'users': ids must be int32"):
        DynamicEmbedding(4, name="users")(np.array([[1.0, 2.0]]))
    with pytest.raises(TypeError, match="Received: float32"):
        DynamicEmbedding(4)(tf.ragged.constant([[1.0], []]))


def test_a_scalar_id_is_refused():
    with pytest.raises(ValueError, match=r"known rank of at least 1.*Received: shape \(\)"):
        DynamicEmbedding(4)(tf.constant(3))


def test_sparse_ids_of_higher_rank_are_refused():
    ids = tf.SparseTensor([[0, 0, 0]], [1], [1, 1, 1])
    with pytest.raises(ValueError, match="sparse ids must have rank 2"):
        DynamicEmbedding(4)(ids)


def test_ids_ragged_in_another_axis_than_the_last_are_refused():
    ids = tf.RaggedTensor.from_row_splits([[1, 2], [3, 4]], [0, 2])
    with pytest.raises(ValueError, match="ragged in their last axis"):
        DynamicEmbedding(4)(ids)


def test_weights_without_a_combiner_are_refused():
    with pytest.raises(ValueError, match="'users': `weights` need a combiner"):
        DynamicEmbedding(4, name="users")([[1, 2]], weights=[[1.0, 2.0]])


@pytest.mark.parametrize(
    "ids, weights",
    [
        (tf.constant([[1, 2]]), tf.constant([[1.0]])),
        (tf.constant([[1, 2]]), tf.constant([1.0, 2.0])),
        (tf.constant([[1], [2]]), tf.constant([[1.0, 2.0]])),
        (tf.ragged.constant([[1, 2], [3]]), tf.constant([1.0, 2.0, 3.0])),
        (tf.ragged.constant([[1, 2], [3]]), tf.ragged.constant([[1.0], [2.0, 3.0]])),
        (tf.ragged.constant([[1, 2], [3]]), tf.ragged.constant([[1.0], [2.0]])),
        (
            tf.SparseTensor([[0, 0], [1, 0]], [1, 2], [2, 2]),
            tf.SparseTensor([[0, 0], [0, 1]], [1.0, 2.0], [2, 2]),
        ),
        (tf.SparseTensor([[0, 0]], [1], [1, 1]), tf.constant([[1.0]])),
    ],
)
def test_weights_of_another_shape_are_refused(ids, weights):
    layer = DynamicEmbedding(4, combiner="sum", name="users")
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="users'?: `weights`"):
        layer(ids, weights=weights, training=True)
    traced = tf.function(lambda i, w: layer(i, weights=w, training=True))
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="users.*`weights`"):
        traced(ids, weights)


def test_weights_get_gradients_too():
    optimizer = tfs.DistributedOptimizer(tf.keras.optimizers.SGD())
    layer = layer_with_rows([1, 2], combiner="sum")
    weights = tf.constant([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        tape.watch(weights)
        total = tf.reduce_sum(layer([[1, 2]], weights=weights, training=True))
    wanted = layer.table.lookup([1, 2]).numpy().sum(1)
    np.testing.assert_allclose(tape.gradient(total, weights).numpy(), [wanted], rtol=1e-6)
    assert layer.table.size() == 2
    assert int(optimizer.iterations) == 0
