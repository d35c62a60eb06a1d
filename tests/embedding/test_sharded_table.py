"""A table's rows: where they come from, when they exist, what changes them."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tfsparse.embedding.table import shard_of

SGD = tfs.optimizers.SGD
Constant = tfs.initializers.Constant


class OneTable:
    """A table of rows that start at [5, 5], and an optimizer that subtracts gradients."""

    def __init__(self, optimizer="auto", initializer=None, keras=None, dim=2, **options):
        initializer = initializer or Constant(5.0)
        config = tfs.Table(
            "users", dim, optimizer=optimizer, initializer=initializer, default=-1.0, **options
        )
        self.shard = shard_of(config)
        self.optimizer = tfs.DistributedOptimizer(keras or tf.keras.optimizers.SGD(1.0))

    def forward(self, keys, training=True):
        keys = tf.convert_to_tensor(keys, tf.int64)
        return self.shard.gather(keys, tf.size(keys, tf.int64), training)

    def gradient(self, keys, upstream):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.forward(keys) * tf.convert_to_tensor(upstream))
        return tape.gradient(loss, self.shard.anchor)

    def apply(self, gradient):
        self.optimizer.apply_gradients([(gradient, self.shard.anchor)])

    def train(self, keys, upstream):
        self.apply(self.gradient(keys, upstream))

    def rows(self, keys):
        return self.shard.lookup(keys).numpy().tolist()

    def all_rows(self, block_rows=100):
        blocks = list(self.shard.export(block_rows))
        return {
            int(key): (row.tolist(), slots.tolist())
            for keys, rows, slots_of_block in blocks
            for key, row, slots in zip(keys, rows, slots_of_block)
        }


def hash_of(key):
    """SplitMix64's finaliser, which the order of rows in files hangs on."""
    x = int(key) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


# First values.


def first_values(keys, seed=0, low=-0.05, high=0.05, dim=8):
    table = OneTable(initializer=tfs.initializers.Uniform(low, high), seed=seed, dim=dim)
    return table.forward(keys).numpy()


def test_first_values_depend_on_seed_and_key_only():
    keys = np.array([0, -1, 7, 2**63 - 1, -(2**63), 12345])
    values = first_values(keys)
    np.testing.assert_array_equal(first_values(keys[::-1])[::-1], values)
    np.testing.assert_array_equal(first_values([99, *keys.tolist(), 7])[1:-1], values)
    table = OneTable(initializer=tfs.initializers.Uniform(), dim=8)
    one_by_one = np.concatenate([table.forward([key]).numpy() for key in keys])
    np.testing.assert_array_equal(one_by_one, values)
    table.train([7], np.zeros((1, 8), np.float32))
    np.testing.assert_array_equal(table.shard.lookup([7]).numpy(), values[2:3])


def test_other_keys_and_other_seeds_get_other_values():
    values = first_values(np.arange(100))
    other = first_values(np.arange(100), seed=1)
    assert len(np.unique(np.concatenate([values, other]))) > 1590  # of 1600


def test_uniform_values_fill_their_range_evenly():
    values = first_values(np.arange(5000), low=-3.0, high=1.0)
    assert -3.0 <= values.min() < -2.999
    assert 0.999 < values.max() < 1.0
    assert abs(values.mean() - -1.0) < 0.02  # standard deviation of the mean: 0.006
    assert abs(values.std() - 4.0 / np.sqrt(12.0)) < 0.02
    assert np.abs(values.mean(axis=0) - -1.0).max() < 0.07


# What inserts, and what does not.


def test_evaluation_inserts_nothing_and_reads_the_default():
    table = OneTable()
    assert table.forward([1, 2, 1], training=False).numpy().tolist() == [[-1.0, -1.0]] * 3
    assert table.rows([1]) == [[-1.0, -1.0]]
    assert table.shard.size() == 0
    assert table.shard.stats()["provisional_rows"] == 0


def test_a_training_forward_alone_changes_nothing_that_others_see():
    table = OneTable()
    for start in range(0, 100, 5):
        rows = table.forward([start, start + 1, start, start + 2, start + 3, start + 4])
        assert rows.numpy().tolist() == [[5.0, 5.0]] * 6
        assert table.shard.stats()["provisional_rows"] <= 4 * 5
    assert table.shard.size() == 0
    assert table.all_rows() == {}
    assert table.rows([1]) == [[-1.0, -1.0]]


def test_two_forward_passes_read_the_same_new_row():
    table = OneTable(initializer="uniform")
    np.testing.assert_array_equal(table.forward([1, 2]).numpy(), table.forward([1, 2]).numpy())


def test_apply_commits_the_rows_of_the_step():
    table = OneTable()
    table.train([1, 2], [[1.0, 2.0], [0.0, 0.0]])
    assert table.shard.size() == 2
    assert table.shard.stats()["provisional_rows"] == 0
    assert table.rows([1, 2, 3]) == [[4.0, 3.0], [5.0, 5.0], [-1.0, -1.0]]
    assert table.forward([1], training=False).numpy().tolist() == [[4.0, 3.0]]


def test_a_key_that_repeats_gets_the_sum_of_its_gradients():
    table = OneTable()
    table.train([7, 8, 7], [[1.0, 0.0], [10.0, 10.0], [2.0, 5.0]])
    assert table.rows([7, 8]) == [[2.0, 0.0], [-5.0, -5.0]]


def test_empty_batches_train_nothing_and_are_no_error():
    table = OneTable()
    table.train([], np.zeros((0, 2), np.float32))
    assert table.forward([]).shape == (0, 2)
    assert table.shard.size() == 0
    assert int(table.optimizer.iterations) == 1


# Gradients are values: taking one does nothing.


def test_the_gradient_of_a_lookup_names_keys_and_samples():
    table = OneTable()
    gradient = table.gradient([7, 8, 7], [[1.0, 0.0], [10.0, 20.0], [2.0, 5.0]])
    assert isinstance(gradient, tf.IndexedSlices)
    assert gradient.indices.numpy().tolist() == [7, 8]
    assert gradient.values.numpy().tolist() == [[3.0, 5.0], [10.0, 20.0]]
    assert gradient.dense_shape.numpy().tolist() == [2**40 + 3, 2]


def test_gradients_that_are_not_applied_train_nothing():
    table = OneTable()
    for _ in range(3):
        gradient = table.gradient([1, 2], [[1.0, 1.0], [1.0, 1.0]])
    assert table.shard.size() == 0
    table.apply(gradient)
    assert table.rows([1, 2]) == [[4.0, 4.0], [4.0, 4.0]]


def test_a_persistent_tape_gives_the_same_gradient_again():
    table = OneTable()
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(table.forward([1, 2, 1]))
        doubled = 2.0 * loss
    gradients = [tape.gradient(target, table.shard.anchor) for target in (loss, loss, doubled)]
    del tape
    assert [g.values.numpy().sum() for g in gradients] == [6.0, 6.0, 12.0]
    assert table.shard.size() == 0
    table.apply(gradients[2])
    assert table.rows([1, 2]) == [[1.0, 1.0], [3.0, 3.0]]


def test_a_gradient_may_be_applied_twice_or_late():
    table = OneTable()
    gradient = table.gradient([1], [[1.0, 2.0]])
    for start in range(10, 30, 2):  # the plan of the forward pass is long gone
        table.forward([start, start + 1])
    table.apply(gradient)
    table.apply(gradient)
    assert table.rows([1]) == [[3.0, 1.0]]
    assert table.shard.size() == 1


def test_two_lookups_of_a_step_are_one_update():
    # Adagrad shows it: two updates of 3 and 4 move the accumulator to 26, one of 7 to 50.
    table = OneTable(tfs.optimizers.Adagrad(1.0, initial_accumulator_value=1.0, epsilon=1e-30))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(3.0 * table.forward([1])) + tf.reduce_sum(4.0 * table.forward([1]))
    table.apply(tape.gradient(loss, table.shard.anchor))
    ((row, slots),) = table.all_rows().values()
    assert slots == [50.0, 50.0]
    np.testing.assert_allclose(row, [5 - 7 / np.sqrt(50.0)] * 2, rtol=1e-6)


def test_training_works_inside_nested_functions():
    table = OneTable()
    inner = tf.function(lambda keys: table.forward(keys))

    @tf.function
    def step(keys):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(inner(keys)) + tf.reduce_sum(inner(keys))
        table.apply(tape.gradient(loss, table.shard.anchor))

    for _ in range(2):
        step(tf.constant([1, 2], tf.int64))
    assert table.rows([1, 2]) == [[1.0, 1.0], [1.0, 1.0]]
    assert table.shard.size() == 2


# Rules.


def test_a_table_with_a_rule_of_its_own_has_its_own_rate():
    table = OneTable(SGD(0.5), keras=tf.keras.optimizers.Adam(123.0))
    table.train([1], [[1.0, 2.0]])
    assert table.rows([1]) == [[4.5, 4.0]]


def test_binding_gives_slots_to_rows_that_wait_for_their_first_step():
    table = OneTable(keras=tf.keras.optimizers.Adagrad(1.0, 0.25))
    gradient = table.gradient([1, 2], np.zeros((2, 2), np.float32))  # no rule is known yet
    assert table.shard.stats()["row_bytes"] == 2 * 4
    table.apply(gradient)
    assert table.shard.stats()["row_bytes"] == 4 * 4
    assert table.all_rows() == {1: ([5.0, 5.0], [0.25, 0.25]), 2: ([5.0, 5.0], [0.25, 0.25])}


def test_a_second_optimizer_of_the_same_rule_goes_on_with_the_slots():
    table = OneTable(keras=tf.keras.optimizers.Adagrad(1.0, 1.0))
    table.train([1], [[1.0, 2.0]])
    table.optimizer = tfs.DistributedOptimizer(tf.keras.optimizers.legacy.Adagrad(1.0, 1.0))
    table.train([1], [[1.0, 2.0]])
    assert table.all_rows()[1][1] == [3.0, 9.0]


def test_another_rule_is_an_error_and_changes_nothing():
    table = OneTable()
    table.train([1], [[1.0, 1.0]])
    table.optimizer = tfs.DistributedOptimizer(tf.keras.optimizers.Adam())
    message = '\'users\': its rows carry the slots of "sgd" and cannot change to "adam"'
    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
        table.train([1], [[1.0, 1.0]])
    assert table.rows([1]) == [[4.0, 4.0]]


# What must fail loudly.


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_fails_and_changes_nothing(value, compiled):
    table, dense = OneTable(), tf.Variable([1.0])

    def step(keys, upstream):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(table.forward(keys) * upstream) + tf.reduce_sum(dense)
        variables = [dense, table.shard.anchor]
        table.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    step = tf.function(step) if compiled else step
    keys = tf.constant([1, 2], tf.int64)
    step(keys, tf.ones([2, 2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="A gradient is NaN or infinite"):
        step(keys + 1, tf.constant([[1.0, value], [1.0, 1.0]]))
    assert table.all_rows() == {1: ([4.0, 4.0], []), 2: ([4.0, 4.0], [])}
    assert dense.numpy().tolist() == [0.0]
    assert int(table.optimizer.iterations) == 1
    step(keys, tf.ones([2, 2]))
    assert table.rows([1, 2]) == [[3.0, 3.0]] * 2


def test_a_gradient_that_is_made_dense_fails():
    table = OneTable(dim=1024)  # dense it would be 4 PiB: more than any machine can address
    gradient = table.gradient([1], np.ones((1, 1024), np.float32))
    with pytest.raises(tf.errors.ResourceExhaustedError, match="OOM"):
        tf.convert_to_tensor(gradient)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda slices: tf.ones([3, 2]),
        lambda slices: tf.IndexedSlices(slices.values, slices.indices),
    ],
)
def test_a_gradient_that_lost_its_form_is_refused_by_the_optimizer(spoil):
    table = OneTable()
    gradient = table.gradient([1], [[1.0, 1.0]])
    message = "The gradient of table 'users' must stay a tf.IndexedSlices"
    with pytest.raises(ValueError, match=message):
        table.apply(spoil(gradient))
    assert table.shard.size() == 0


IN_CONTROL_FLOW = {
    "cond": lambda f, keys: tf.cond(tf.size(keys) > 0, lambda: f(keys), lambda: tf.zeros([2, 2])),
    "while_loop": lambda f, keys: tf.while_loop(
        lambda i, total: i < 2, lambda i, total: (i + 1, total + f(keys)), (0, tf.zeros([2, 2]))
    )[1],
    "map_fn": lambda f, keys: tf.map_fn(
        lambda key: f(key[tf.newaxis])[0], keys, fn_output_signature=tf.TensorSpec([2])
    ),
}


@pytest.mark.parametrize("kind", IN_CONTROL_FLOW)
def test_training_inside_control_flow_is_refused_in_words(kind):
    table = OneTable()

    @tf.function
    def step(keys):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(IN_CONTROL_FLOW[kind](table.forward, keys))
        table.apply(tape.gradient(loss, table.shard.anchor))

    message = "'users' cannot be trained from inside tf.cond, tf.while_loop or tf.map_fn"
    with pytest.raises(NotImplementedError, match=message):
        step(tf.constant([1, 2], tf.int64))
    assert table.shard.size() == 0


@pytest.mark.parametrize("kind", IN_CONTROL_FLOW)
def test_evaluation_inside_control_flow_works(kind):
    table = OneTable()
    table.train([1, 2], [[0.0, 0.0], [1.0, 1.0]])
    read = tf.function(
        lambda keys: IN_CONTROL_FLOW[kind](lambda k: table.forward(k, training=False), keys)
    )
    times = 2.0 if kind == "while_loop" else 1.0
    rows = read(tf.constant([1, 2], tf.int64)).numpy()
    assert rows.tolist() == [[5.0 * times, 5.0 * times], [4.0 * times, 4.0 * times]]


def test_a_table_ends_with_the_last_that_holds_it():
    table = OneTable()
    step = tf.function(lambda keys: table.train(keys, tf.ones([2, 2])))
    step(tf.constant([1, 2], tf.int64))
    table.train([3], [[1.0, 1.0]])
    assert table.shard.size() == 3
    shard = weakref.ref(table.shard)
    del table, step
    gc.collect()
    assert shard() is None


# Looking inside.


def test_export_yields_every_row_once_with_slots_in_the_order_of_hashes():
    table = OneTable(tfs.optimizers.Adagrad(0.0, initial_accumulator_value=0.5))
    keys = [2**63 - 1, -(2**63), -1, 0, *range(100, 140)]
    upstream = np.repeat(np.arange(len(keys), dtype=np.float32)[:, np.newaxis], 2, axis=1)
    table.train(keys, upstream)
    wanted = sorted(keys, key=hash_of)
    for block_rows in (1, 43, 44, 1000):
        blocks = list(table.shard.export(block_rows))
        assert [len(block[0]) for block in blocks[:-1]] == [block_rows] * (len(blocks) - 1)
        exported, rows, slots = (np.concatenate(part) for part in zip(*blocks))
        assert exported.tolist() == wanted
        assert (exported.dtype, rows.dtype, slots.dtype) == (np.int64, np.float32, np.float32)
        np.testing.assert_array_equal(rows, np.full((44, 2), 5.0))
        squares = [[0.5 + keys.index(key) ** 2] * 2 for key in wanted]
        np.testing.assert_array_equal(slots, squares)


def test_export_of_an_empty_table_yields_nothing():
    assert list(OneTable().shard.export()) == []


def test_export_of_a_table_without_slots_has_slots_of_no_width():
    table = OneTable()
    table.train([1], [[1.0, 1.0]])
    ((keys, rows, slots),) = table.shard.export()
    assert (keys.shape, rows.shape, slots.shape) == ((1,), (1, 2), (1, 0))


def test_stats_are_plain_numbers():
    table = OneTable(tfs.optimizers.Adam(), dim=3)
    table.train([1, 2], np.zeros((2, 3), np.float32))
    table.forward([3])
    stats = table.shard.stats()
    assert (stats["rows"], stats["provisional_rows"]) == (2, 1)
    assert stats["row_bytes"] == (3 + 3 + 3 + 1) * 4
    assert all(type(value) is int for value in stats.values())
    assert set(stats) == {"rows", "provisional_rows", "row_bytes", "index_bytes", "page_bytes"}


@pytest.mark.parametrize(
    "keys", [[1, 9], (1, 9), np.array([1, 9], np.int32), tf.constant([[1], [9]], tf.int64)]
)
def test_lookup_takes_integers_of_any_kind(keys):
    table = OneTable()
    table.train([1], [[1.0, 1.0]])
    assert table.rows(keys) == [[4.0, 4.0], [-1.0, -1.0]]


def test_lookup_takes_strings_by_their_fingerprints():
    table = OneTable()
    table.train([-5528939962900187677], [[1.0, 1.0]])  # of "a", by FarmHash
    assert table.rows(["a", "b"]) == [[4.0, 4.0], [-1.0, -1.0]]
    assert table.rows(tf.constant([], tf.string)) == []


def test_lookup_of_floats_is_refused():
    with pytest.raises(TypeError, match="'users': ids are integers or strings"):
        OneTable().shard.lookup([1.0, 2.0])


def test_configs_and_shards_belong_together():
    config = tfs.Table("users", 2)
    assert shard_of(config) is shard_of(config)
    assert shard_of(config) is not shard_of(tfs.Table("users", 2))
