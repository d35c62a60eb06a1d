"""What must hold on two ranks; each `check_...` runs on both, in this order."""

import job
import numpy as np
import tensorflow as tf
from job import built, mine

import tfsparse as tfs
from tfsparse.keras_layers import DynamicEmbedding

K = tf.keras


def int64(*values):
    return tf.constant(values, tf.int64)


def step(layer, ids, factors, learning_rate=1.0):
    """One SGD step on mean over samples of sum(factor * vector), factors [B]."""
    optimizer = tfs.DistributedOptimizer(K.optimizers.SGD(learning_rate))
    with tf.GradientTape() as tape:
        per_sample = tf.reduce_sum(layer(ids, training=True), -1) * factors
        loss = tf.reduce_sum(per_sample) / tf.cast(tf.shape(ids)[0], tf.float32)
    gradient = tape.gradient(loss, layer.trainable_variables)
    optimizer.apply_gradients(zip(gradient, layer.trainable_variables))


def check_first_values_are_the_same_on_every_rank():
    keys = int64(0, -1, -2, 7, 2**63 - 1, -(2**63))
    layer = built(DynamicEmbedding(4, seed=5, name="first_values"))
    own = mine(keys, tf.reverse(keys, [0]))
    vectors = layer(own, training=True).numpy()
    other = tfs_broadcast(vectors if tfs.rank() == 0 else vectors[::-1])
    np.testing.assert_array_equal(vectors if tfs.rank() == 0 else vectors[::-1], other)
    assert len(np.unique(vectors)) == vectors.size


def tfs_broadcast(array):
    from tfsparse import runtime

    return runtime.broadcast(tf.constant(array), "test").numpy()


def check_a_key_on_two_ranks_gets_both_gradients():
    layer = built(DynamicEmbedding(2, initializer="zeros", name="both"))
    # Global batch of 4: the mean gradient of key 7 is (1 + 2 + 10) / 4, of key 8 20 / 4.
    step(layer, mine(int64(7, 7), int64(7, 8)), mine([1.0, 2.0], [10.0, 20.0]))
    np.testing.assert_allclose(layer.table.lookup([7, 8])[:, 0], [-13 / 4, -5])
    assert layer.table.size() == 2


def check_a_rank_weighs_by_its_samples():
    layer = built(DynamicEmbedding(1, initializer="zeros", name="weights"))
    # Means of 2.0 over 3 samples and of 10.0 over 1: globally (3 * 2 + 10) / 4.
    step(layer, mine(int64(5, 5, 5), int64(5)), mine([2.0, 2.0, 2.0], [10.0]))
    np.testing.assert_allclose(layer.table.lookup([5]), [[-4.0]])


def check_a_rank_without_samples_changes_nothing_for_the_other():
    layer = built(DynamicEmbedding(1, initializer="zeros", name="none"))
    ids = mine(int64(1, 2), tf.zeros([0], tf.int64))
    optimizer = tfs.DistributedOptimizer(K.optimizers.SGD(1.0))
    with tf.GradientTape() as tape:
        # On the empty rank the mean is 0 / 0; it must not reach the other.
        loss = tf.reduce_mean(layer(ids, training=True) * mine([[4.0], [8.0]], [[1.0]]))
    gradient = tape.gradient(loss, layer.trainable_variables)
    optimizer.apply_gradients(zip(gradient, layer.trainable_variables))
    np.testing.assert_allclose(layer.table.lookup([1, 2]), [[-2.0], [-4.0]])


def check_all_ids_owned_by_one_rank():
    layer = built(DynamicEmbedding(1, initializer="zeros", name="skewed"))
    candidates = np.arange(1000)
    step(layer, tf.constant(candidates), tf.ones(1000))
    of_rank_0 = tfs_broadcast(np.sort(job.table_state(layer.table)["keys"])[:50])
    other = built(DynamicEmbedding(1, initializer="zeros", name="skewed_more"))
    step(other, tf.constant(of_rank_0), tf.ones(50))
    assert other.table.size() == 50
    assert len(job.table_state(other.table)["keys"]) == mine(50, 0)


def check_one_id_ten_thousand_times():
    layer = built(DynamicEmbedding(1, initializer="zeros", name="repeated"))
    step(layer, tf.fill([10_000], tf.constant(3, tf.int64)), tf.ones(10_000))
    np.testing.assert_allclose(layer.table.lookup([3]), [[-1.0]], rtol=1e-4)  # added one by one


def check_evaluation_changes_nothing():
    layer = built(DynamicEmbedding(2, default=0.5, name="evaluation"))
    step(layer, int64(1, 2), [1.0, 1.0])
    before = job.table_state(layer.table)
    np.testing.assert_array_equal(layer(mine(int64(99), int64(98, 97))), mine(1, 2) * [[0.5, 0.5]])
    after = job.table_state(layer.table)
    for part in before:
        np.testing.assert_array_equal(before[part], after[part])
    assert layer.table.size() == 2


def check_lookup_takes_other_keys_on_each_rank():
    layer = built(DynamicEmbedding(1, initializer="zeros", name="lookup"))
    step(layer, int64(10, 20), [2.0, 4.0])
    wanted = mine([[-2.0]], [[-1.0], [0.0], [-2.0]])
    got = layer.table.lookup(mine([20], [10, 30, 20])).numpy()
    np.testing.assert_allclose(got, wanted)


def check_a_layer_called_twice_and_in_a_nested_function():
    layer = built(DynamicEmbedding(1, initializer="zeros", name="nested"))
    optimizer = tfs.DistributedOptimizer(K.optimizers.SGD(1.0))

    @tf.function
    def nested(ids):
        return layer(ids, training=True)

    @tf.function(reduce_retracing=False)
    def train(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(2 * nested(ids) + 3 * layer(ids, training=True) + nested(ids))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        )

    train(int64(1, 2))
    np.testing.assert_allclose(layer.table.lookup([1, 2]), [[-3.0], [-3.0]])
    # Rank 0 alone traces again, for a batch of another size.
    train(mine(int64(1, 2, 3), int64(1, 2)))
    np.testing.assert_allclose(layer.table.lookup([1, 2, 3]), [[-5.4], [-5.4], [-3.0 * 0.4]])


def check_a_step_and_an_evaluation_in_one_function():
    layer = built(DynamicEmbedding(1, initializer="zeros", name="train_then_test"))
    optimizer = tfs.DistributedOptimizer(K.optimizers.SGD(1.0))

    @tf.function
    def train_then_test(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(layer(ids, training=True))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        )
        return layer(ids, training=False)

    for _ in range(3):
        seen = train_then_test(mine(int64(1), int64(1)))
    np.testing.assert_allclose(seen, [[-3.0]])


def _small_model(name):
    ids = K.Input((2,), dtype=tf.int64)
    x = K.layers.Flatten()(DynamicEmbedding(2, name=name)(ids))
    return K.Model(ids, K.layers.Dense(1, activation="sigmoid")(x))


def _state(model, name):
    state = job.table_state(model.get_layer(name).table)
    return [*state.values(), *model.layers[-1].get_weights()]


def check_a_nan_on_one_rank_fails_the_step_on_both_and_changes_nothing():
    model = _small_model("nan")
    model.compile(tfs.DistributedOptimizer(K.optimizers.Adam(0.1)), "mse")
    x = np.arange(8).reshape(4, 2)
    y = np.ones((4, 1), np.float32)
    callbacks = [tfs.callbacks.Broadcast()]
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0, callbacks=callbacks)
    before = _state(model, "nan")
    bad = y.copy()
    bad[0] = mine(1.0, np.nan)
    try:
        model.fit(x, bad, batch_size=4, shuffle=False, verbose=0)
    except tf.errors.InvalidArgumentError as error:
        assert "NaN or infinite" in str(error), error
    else:
        raise AssertionError("the step must fail on both ranks")
    for a, b in zip(before, _state(model, "nan")):
        np.testing.assert_array_equal(a, b)
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    assert any((a != b).any() for a, b in zip(before, _state(model, "nan")) if a.size)


def check_with_loss_scaling_both_ranks_skip_together():
    for new in (True, False):
        name = f"skip_{'new' if new else 'legacy'}"
        optimizers = K.optimizers if new else K.optimizers.legacy
        model = _small_model(name)
        scaled = K.mixed_precision.LossScaleOptimizer(optimizers.SGD(0.1), initial_scale=8.0)
        model.compile(tfs.DistributedOptimizer(scaled), "mse")
        x = np.arange(8).reshape(4, 2)
        y = np.ones((4, 1), np.float32)
        callbacks = [tfs.callbacks.Broadcast()]
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0, callbacks=callbacks)
        before = _state(model, name)
        bad = y.copy()
        bad[0] = mine(1.0, np.inf)
        model.fit(x, bad, batch_size=4, shuffle=False, verbose=0)
        for a, b in zip(before, _state(model, name)):
            np.testing.assert_array_equal(a, b)
        assert float(scaled.loss_scale) == 4.0, float(scaled.loss_scale)
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        assert any((a != b).any() for a, b in zip(before, _state(model, name)) if a.size)


def check_tables_alone_skip_together_where_one_rank_owns_no_row():
    layer = built(DynamicEmbedding(1, name="tables_alone"))
    scaled = tfs.DistributedOptimizer(
        K.mixed_precision.LossScaleOptimizer(K.optimizers.SGD(0.1), initial_scale=8.0)
    )
    for factor in (1.0, np.inf):
        with tf.GradientTape() as tape:
            loss = scaled.get_scaled_loss(tf.reduce_mean(layer(int64(1), training=True) * factor))
        gradients = tape.gradient(loss, layer.trainable_variables)
        gradients = scaled.get_unscaled_gradients(gradients)
        scaled.apply_gradients(zip(gradients, layer.trainable_variables))
    assert float(scaled.loss_scale) == 4.0
    assert layer.table.size() == 1


def check_with_loss_scaling_and_clipping_rows_beyond_the_limit_make_both_skip():
    layer = built(DynamicEmbedding(1, initializer="zeros", name="beyond"))
    dense = tf.Variable([1.0])
    inner = K.optimizers.SGD(1.0, global_clipnorm=1.0)
    scaled = K.mixed_precision.LossScaleOptimizer(inner, initial_scale=8.0)
    optimizer = tfs.DistributedOptimizer(scaled)

    @tf.function
    def train(factor):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(layer(int64(1, 2), training=True)) * factor + dense[0]
            loss = optimizer.get_scaled_loss(loss)
        variables = [*layer.trainable_variables, dense]
        gradients = optimizer.get_unscaled_gradients(tape.gradient(loss, variables))
        optimizer.apply_gradients(zip(gradients, variables))

    train(tf.constant(1.0))
    before = layer.table.lookup([1, 2]).numpy()
    # Each part is finite; their sum over ranks would not be, on the owner alone.
    train(tf.constant(3e38))
    np.testing.assert_array_equal(layer.table.lookup([1, 2]), before)
    assert float(scaled.loss_scale) == 4.0
    train(tf.constant(1.0))
    # Gradients 1/2, 1/2 and 1 have norm sqrt(3/2); two of the three steps counted.
    np.testing.assert_allclose(layer.table.lookup([1, 2]), [[-(1.5**-0.5)]] * 2, rtol=1e-5)
    np.testing.assert_allclose(dense, [1 - 2 * 1.5**-0.5], rtol=1e-5)


def check_two_optimizers_in_one_function():
    user = built(DynamicEmbedding(1, initializer="zeros", name="user_tower"))
    item = built(DynamicEmbedding(1, initializer="zeros", name="item_tower"))
    dense = [tf.Variable([0.0, 0.0]), tf.Variable([0.0])]
    optimizers = [tfs.DistributedOptimizer(K.optimizers.SGD(1.0)) for _ in dense]

    @tf.function
    def train():
        for _ in range(2):  # unrolled: each optimizer twice in one graph
            for layer, variable, optimizer in zip((user, item), dense, optimizers):
                with tf.GradientTape() as tape:
                    rows = tf.reduce_mean(layer(mine(int64(1), int64(1, 2)), training=True))
                    loss = rows + tf.reduce_sum(variable)
                variables = [*layer.trainable_variables, variable]
                optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    for _ in range(10):
        train()
    for layer in (user, item):  # of three samples two have id 1
        np.testing.assert_allclose(layer.table.lookup([1, 2])[:, 0], [-40 / 3, -20 / 3], rtol=1e-5)
    for variable in dense:
        np.testing.assert_allclose(variable, tf.fill(variable.shape, -20.0), rtol=1e-6)


def check_a_frozen_layer_in_a_nested_function():
    frozen = built(DynamicEmbedding(1, default=2.0, trainable=False, name="frozen"))
    weight = tf.Variable(1.0)
    optimizer = tfs.DistributedOptimizer(K.optimizers.SGD(1.0))

    @tf.function
    def nested(ids):
        return frozen(ids, training=True)

    @tf.function
    def train(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(weight * nested(ids))
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

    train(mine(int64(1), int64(2, 3)))
    assert float(weight) == -1.0
    assert frozen.table.size() == 0


def check_a_plain_optimizer_is_refused_on_both_ranks_beside_a_wrapped_one():
    import horovod.tensorflow.keras as hvd

    wrapped = tfs.DistributedOptimizer(K.optimizers.SGD(0.1))
    others = [K.optimizers.SGD(0.1), K.optimizers.legacy.SGD(0.1)]
    others.append(hvd.DistributedOptimizer(K.optimizers.legacy.Adam(0.1)))
    for number, optimizer in enumerate(others):
        model = _small_model(f"plain_{number}")
        model.compile(optimizer, "mse")
        try:
            model.fit(np.zeros((2, 2), int), np.zeros((2, 1)), verbose=0)
        except ValueError as error:
            assert "is trained by tfs.DistributedOptimizer" in str(error), error
        else:
            raise AssertionError("must be refused")
    del wrapped


def check_global_metrics_are_those_of_all_samples():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 30, (200, 2)), rng.integers(0, 2, (200, 1)).astype(np.float32)
    model = _small_model("metrics")
    model.compile(
        tfs.DistributedOptimizer(K.optimizers.SGD(0.1)), "binary_crossentropy", metrics=["AUC"]
    )
    metrics = tfs.callbacks.GlobalMetrics()
    seen = []
    watch = K.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: seen.append(dict(logs)))
    part = slice(0, 130) if tfs.rank() == 0 else slice(130, 200)
    data = tf.data.Dataset.from_tensor_slices((x[part], y[part])).batch(mine(65, 35))
    history = model.fit(
        data,
        validation_data=data,
        epochs=2,
        verbose=0,
        callbacks=[metrics, tfs.callbacks.Broadcast(), watch],
    )
    predictions = model.predict(x, verbose=0)
    auc = K.metrics.AUC()
    auc.update_state(y, predictions)
    loss = K.losses.BinaryCrossentropy()(y, predictions).numpy()
    np.testing.assert_allclose(history.history["val_auc"][-1], auc.result(), rtol=1e-6)
    np.testing.assert_allclose(history.history["val_loss"][-1], loss, rtol=1e-5)
    np.testing.assert_allclose(metrics.results["auc"], auc.result(), rtol=1e-6)
    assert seen[-1]["val_auc"] == history.history["val_auc"][-1]
    same = tfs_broadcast(np.array([history.history[k][-1] for k in sorted(history.history)]))
    np.testing.assert_array_equal([history.history[k][-1] for k in sorted(history.history)], same)


def check_broadcast_makes_the_first_step_exact():
    K.utils.set_random_seed(10 + tfs.rank())
    model = _small_model("broadcast")
    model.compile(tfs.DistributedOptimizer(K.optimizers.Adam(0.1)), "mse")
    weights = tfs_broadcast(model.layers[-1].get_weights()[0])
    x, y = np.arange(8).reshape(4, 2), np.ones((4, 1), np.float32)
    first = []
    watch = K.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: first.append(model.layers[-1].get_weights()[0])
    )
    callbacks = [tfs.callbacks.Broadcast(), watch]
    model.fit(x, y, batch_size=4, verbose=0, callbacks=callbacks)
    np.testing.assert_array_equal(first[0], weights)


def check_broadcast_of_an_unbuilt_model_is_an_error_on_every_rank():
    model = K.Sequential([DynamicEmbedding(2, name="unbuilt"), K.layers.Flatten()])
    model.compile(tfs.DistributedOptimizer(K.optimizers.SGD(0.1)), "mse")
    try:
        model.fit(np.zeros((2, 2), int), np.zeros((2, 4)), verbose=0,
                  callbacks=[tfs.callbacks.Broadcast()])  # fmt: skip
    except RuntimeError as error:
        assert "no weights to broadcast" in str(error), error
    else:
        raise AssertionError("must be refused")


def check_an_optimizer_wrapped_by_horovod_is_refused():
    import horovod.tensorflow.keras as hvd

    wrapped = hvd.DistributedOptimizer(K.optimizers.SGD(0.1))
    try:
        tfs.DistributedOptimizer(wrapped)
    except TypeError as error:
        assert "takes the place of hvd.DistributedOptimizer" in str(error), error
    else:
        raise AssertionError("must be refused")


def check_shares_are_disjoint_and_together_everything():
    own = [int(i) for i in tfs.shard(tf.data.Dataset.range(7))]
    assert own == mine([0, 2, 4, 6], [1, 3, 5])
    assert tfs.shard(["a", "b", "c"]) == mine(["a", "c"], ["b"])


def check_a_static_keras_embedding_beside_a_table():
    ids = K.Input((2,), dtype=tf.int64)
    static = K.layers.Embedding(10, 2, embeddings_initializer="zeros", name="static")
    dynamic = DynamicEmbedding(2, initializer="zeros", name="dynamic")
    both = K.layers.Add()([static(ids), dynamic(ids)])
    model = K.Model(ids, K.layers.Lambda(lambda x: tf.reduce_sum(x, [1, 2]))(both))
    model.compile(tfs.DistributedOptimizer(K.optimizers.SGD(0.5)), "mse")
    x = mine(np.array([[1, 2], [3, 4], [1, 1]]), np.array([[1, 5]]))
    model.fit(x, np.ones(len(x)), batch_size=3, shuffle=False, verbose=0)
    np.testing.assert_allclose(
        dynamic.table.lookup(np.arange(10)), static.get_weights()[0], atol=1e-6
    )


job.run_checks(globals())
