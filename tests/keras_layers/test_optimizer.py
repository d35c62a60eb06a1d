"""`tfs.DistributedOptimizer`: what it makes of an optimizer, and what it refuses."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.keras_layers.models import (
    OPTIMIZERS,
    all_rows,
    linear_loss,
    linear_model,
    rows_of,
    samples,
    table_of,
)
from tfsparse.keras_layers import DynamicEmbedding

ROOT = Path(__file__).parents[2]
KERAS = tf.keras.optimizers
LEGACY = KERAS.legacy
LossScaleOptimizer = tf.keras.mixed_precision.LossScaleOptimizer


# Wrapping.


@pytest.mark.parametrize("make", [KERAS.SGD, KERAS.RMSprop, LEGACY.Adam, LEGACY.Ftrl])
def test_the_same_object_comes_back_and_wrapping_twice_is_wrapping_once(make):
    optimizer = make()
    wrapped = tfs.DistributedOptimizer(optimizer)
    assert wrapped is optimizer
    assert isinstance(wrapped, make)
    kind = type(wrapped)
    assert tfs.DistributedOptimizer(wrapped) is optimizer
    assert type(wrapped) is kind


@pytest.mark.parametrize("make", [KERAS.SGD, LEGACY.SGD])
def test_the_optimizer_inside_a_loss_scale_optimizer_is_wrapped(make):
    outer = LossScaleOptimizer(make())
    assert tfs.DistributedOptimizer(outer) is outer
    assert type(outer.inner_optimizer).__name__ == "DistributedOptimizer"
    inner = outer.inner_optimizer
    assert tfs.DistributedOptimizer(outer) is outer
    assert outer.inner_optimizer is inner


def test_names_of_optimizers_are_taken_as_keras_takes_them():
    assert isinstance(tfs.DistributedOptimizer("adagrad"), KERAS.Adagrad)
    with pytest.raises(ValueError, match="adagard"):
        tfs.DistributedOptimizer("adagard")


@pytest.mark.parametrize("other", [None, 0.1, tf.Variable(1.0), KERAS.SGD, tfs.optimizers.SGD()])
def test_what_is_no_keras_optimizer_is_refused(other):
    with pytest.raises(TypeError, match="Expected a Keras optimizer. Received: "):
        tfs.DistributedOptimizer(other)


def test_variables_without_tables_train_as_ever():
    for make in (KERAS.Nadam, LEGACY.RMSprop, KERAS.AdamW):
        values = []
        for optimizer in (make(0.1), tfs.DistributedOptimizer(make(0.1))):
            variable = tf.Variable([1.0, 2.0])
            for _ in range(3):
                optimizer.apply_gradients([(tf.constant([0.5, -3.0]), variable)])
            values.append(variable.numpy())
        np.testing.assert_allclose(values[1], values[0], rtol=1e-6)


# Configs.

SCHEDULE = KERAS.schedules.ExponentialDecay(0.1, 2, 0.5)
CONFIGURED = {
    "sgd": lambda: KERAS.SGD(0.5, clipnorm=2.0),
    "sgd_momentum": lambda: KERAS.SGD(0.5, momentum=0.5, nesterov=True, name="mine"),
    "adam": lambda: KERAS.Adam(0.5, beta_1=0.75, global_clipnorm=1.0),
    "schedule": lambda: KERAS.Adagrad(SCHEDULE, initial_accumulator_value=0.25),
    "rmsprop": lambda: KERAS.RMSprop(0.5),
    "legacy_sgd": lambda: LEGACY.SGD(0.5, clipvalue=1.0),
    "legacy_adagrad": lambda: LEGACY.Adagrad(SCHEDULE, initial_accumulator_value=0.25),
    "legacy_adam": lambda: LEGACY.Adam(0.5, decay=0.25),
}
COPIES = {
    "from_config": lambda optimizer: type(optimizer).from_config(optimizer.get_config()),
    "serialize": lambda optimizer: KERAS.deserialize(KERAS.serialize(optimizer)),
    "legacy_format": lambda optimizer: KERAS.deserialize(
        KERAS.serialize(optimizer, use_legacy_format=True), use_legacy_format=True
    ),
    "keras_object": lambda optimizer: tf.keras.saving.deserialize_keras_object(
        tf.keras.saving.serialize_keras_object(optimizer)
    ),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("name", CONFIGURED)
def test_a_copy_from_the_config_is_wrapped_and_configured_alike(name, way):
    optimizer = tfs.DistributedOptimizer(CONFIGURED[name]())
    copy = COPIES[way](optimizer)
    assert copy is not optimizer
    assert type(copy) is type(optimizer)
    assert copy.get_config() == optimizer.get_config()
    # What Keras's own optimizer says of itself is in it, clipping included.
    inner = copy.get_config()["optimizer_config"]
    for argument, value in CONFIGURED[name]().get_config().items():
        same = value == inner[argument] or np.float32(value) == np.float32(inner[argument])
        assert same, argument


def test_a_copy_trains_tables_and_clips():
    original = tfs.DistributedOptimizer(KERAS.SGD(1.0, clipnorm=2.0))
    model = linear_model()
    model.compile(type(original).from_config(original.get_config()), linear_loss)
    model.fit(samples([7], [8.0]), verbose=0)
    assert rows_of(model, [7]).tolist() == [[-2.0]]


def test_a_model_compiles_itself_again_from_its_config():
    model = linear_model()
    model.compile(tfs.DistributedOptimizer(KERAS.SGD(0.5)), "mse")
    model.fit(samples([7], [8.0]), verbose=0)
    clone = tf.keras.models.clone_model(model)
    clone.compile_from_config(model.get_compile_config())
    clone.fit(samples([8], [1.0]), verbose=0)
    assert rows_of(model, [7, 8]).tolist() == [[8.0], [0.0]]  # 0 - 0.5 * 2 * (0 - 8)
    assert rows_of(clone, [7, 8]).tolist() == [[0.0], [1.0]]


@tf.keras.utils.register_keras_serializable("tests")
class HalvedSGD(KERAS.SGD):
    def update_step(self, gradient, variable):
        super().update_step(gradient / 2, variable)


def test_a_registered_subclass_survives_its_config():
    optimizer = tfs.DistributedOptimizer(HalvedSGD(1.0))
    copy = KERAS.deserialize(KERAS.serialize(optimizer))
    assert isinstance(copy, HalvedSGD)
    variable = tf.Variable([1.0])
    copy.apply_gradients([(tf.constant([1.0]), variable)])
    assert variable.numpy().tolist() == [0.5]


def test_a_subclass_that_keras_does_not_know_is_named():
    unknown = type("Unknown", (KERAS.SGD,), {})
    optimizer = tfs.DistributedOptimizer(unknown(1.0))
    with pytest.raises(ValueError, match="Unknown optimizer class 'Unknown': register it"):
        type(optimizer).from_config(optimizer.get_config())
    copy = type(optimizer).from_config(optimizer.get_config(), {"Unknown": unknown})
    assert isinstance(copy, unknown)


# Rules that tables cannot follow.

UNSUPPORTED = {
    "momentum": lambda: KERAS.SGD(1.0, momentum=0.5),
    "nesterov": lambda: KERAS.SGD(1.0, nesterov=True),
    "amsgrad": lambda: KERAS.Adam(1.0, amsgrad=True),
    "use_ema": lambda: KERAS.Adagrad(1.0, use_ema=True),
    "weight_decay": lambda: KERAS.SGD(1.0, weight_decay=0.1),
    "Nadam": lambda: KERAS.Nadam(1.0),
    "Lion": lambda: KERAS.Lion(1.0),
    "AdamW": lambda: KERAS.AdamW(1.0),
    "HalvedSGD": lambda: HalvedSGD(1.0),
    "momentum (legacy)": lambda: LEGACY.SGD(1.0, momentum=0.5),
    "decay": lambda: LEGACY.Adam(1.0, decay=0.1),
    "amsgrad (legacy)": lambda: LEGACY.Adam(1.0, amsgrad=True),
    "RMSprop": lambda: LEGACY.RMSprop(1.0),
    # Its epsilon stands outside of the root, which shows where accumulators are small.
    "Adagrad (legacy)": lambda: LEGACY.Adagrad(1.0, initial_accumulator_value=0.001),
}


@pytest.mark.parametrize("what", UNSUPPORTED)
def test_a_rule_that_tables_cannot_follow_is_an_error_for_auto_tables_only(what):
    def step(table):
        layer = DynamicEmbedding(table)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(2.0 * layer([7], training=True)) + tf.reduce_sum(dense)
        variables = [dense, layer.anchor]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return layer.table

    dense = tf.Variable([0.0])
    optimizer = tfs.DistributedOptimizer(UNSUPPORTED[what]())
    own = step(tfs.Table("own", 1, optimizer=tfs.optimizers.SGD(0.5), initializer="zeros"))
    assert own.lookup([7]).numpy().tolist() == [[-1.0]]
    moved = dense.numpy().tolist()
    assert moved != [0.0]
    auto = tfs.Table("auto", 1, initializer="zeros")
    name = what.split()[0]
    with pytest.raises(ValueError, match=f"'auto': .*{name}.*tfs.Table\\(..., optimizer="):
        step(auto)
    assert auto.shard.size() == 0
    assert dense.numpy().tolist() == moved


@pytest.mark.parametrize("generation", OPTIMIZERS)
def test_the_error_reaches_the_user_of_fit(generation):
    model = linear_model(OPTIMIZERS[generation].SGD(1.0, momentum=0.5))
    with pytest.raises(ValueError, match="cannot follow SGD, because momentum=0.5"):
        model.fit(samples([7], [1.0]), verbose=0)
    assert table_of(model).size() == 0


# Compiling anew.


def test_the_same_rule_keeps_rows_and_slots():
    model = linear_model(KERAS.Adagrad(1.0, 1.0))
    model.fit(samples([7], [3.0]), verbose=0)
    model.compile(tfs.DistributedOptimizer(KERAS.Adagrad(0.5, 1.0)), linear_loss)
    model.fit(samples([7], [4.0]), verbose=0)
    wanted = [-3 / np.sqrt(1 + 9) - 0.5 * 4 / np.sqrt(1 + 9 + 16), 26.0]
    np.testing.assert_allclose(all_rows(table_of(model))[7], wanted, rtol=1e-6)
    assert int(model.optimizer.iterations) == 1


@pytest.mark.parametrize("other", [KERAS.SGD(1.0), KERAS.Adagrad(1.0, 0.5)], ids=["SGD", "Adagrad"])
def test_another_rule_is_an_error_and_keeps_the_rows(other):
    model = linear_model(KERAS.Adagrad(1.0, 1.0))
    model.fit(samples([7], [3.0]), verbose=0)
    before = all_rows(table_of(model))[7].tolist()
    model.compile(tfs.DistributedOptimizer(other), linear_loss)
    message = 'its rows carry the slots of "adagrad" and cannot change'
    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
        model.fit(samples([7], [3.0]), verbose=0)
    assert all_rows(table_of(model))[7].tolist() == before


# Optimizers that know no tables.

PLAIN = {
    "SGD": lambda: KERAS.SGD(1.0),
    "Adam": lambda: KERAS.Adam(1.0),
    "Adagrad": lambda: KERAS.Adagrad(1.0),
    "loss_scale": lambda: LossScaleOptimizer(KERAS.SGD(1.0)),
    "legacy_SGD": lambda: LEGACY.SGD(1.0),
    "legacy_Adagrad": lambda: LEGACY.Adagrad(1.0),
}


@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
@pytest.mark.parametrize("what", PLAIN)
def test_a_plain_optimizer_beside_a_wrapped_one_fails_and_trains_nothing(what, eager):
    other = tfs.DistributedOptimizer(KERAS.SGD())  # of another model: hides that ours is missing
    model = linear_model()
    model.compile(PLAIN[what](), linear_loss, run_eagerly=eager)
    name = type(model.optimizer).__name__ if what != "loss_scale" else "SGD"
    message = f"Table 'table' is trained by tfs.DistributedOptimizer, and this is a {name}: wrap"
    with pytest.raises(ValueError, match=message):
        model.fit(samples([7], [1.0]), verbose=0)
    assert table_of(model).size() == 0
    assert float(table_of(model).anchor) == 0.0
    assert int(other.iterations) == 0


@pytest.mark.parametrize("what", PLAIN)
def test_a_plain_optimizer_in_an_own_loop_fails_and_trains_nothing(what):
    other = tfs.DistributedOptimizer(KERAS.SGD())
    layer = DynamicEmbedding(2)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer([7], training=True))
    gradient = tape.gradient(loss, layer.anchor)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        PLAIN[what]().apply_gradients([(gradient, layer.anchor)])
    assert layer.table.size() == 0
    assert float(layer.anchor) == 0.0
    assert int(other.iterations) == 0


UNWRAPPED = """
import horovod.tensorflow.keras as hvd
import tensorflow as tf
import tfsparse as tfs
from tests.keras_layers.models import linear_loss, linear_model, samples, table_of

hvd.init()
keras = tf.keras.optimizers
for optimizer in (
    keras.SGD(1.0),
    keras.legacy.Adam(1.0),
    hvd.DistributedOptimizer(keras.SGD(1.0)),
    hvd.DistributedOptimizer(keras.legacy.SGD(1.0)),
):
    model = linear_model()
    model.compile(optimizer, linear_loss)
    try:
        model.fit(samples([7], [1.0]), verbose=0)
    except ValueError as error:
        text = str(error)
        assert "Table 'table' is trained by tfs.DistributedOptimizer, and this is a" in text, text
        assert "model.compile(tfs.DistributedOptimizer(" in text, text
        assert "replaces hvd.DistributedOptimizer" in text, text
    else:
        raise AssertionError(f"{optimizer} trained a table")
    assert table_of(model).size() == 0

for wrapped in (keras.SGD, keras.legacy.SGD):
    try:
        tfs.DistributedOptimizer(hvd.DistributedOptimizer(wrapped()))
    except TypeError as error:
        assert "takes the place of hvd.DistributedOptimizer: pass the Keras" in str(error), error
    else:
        raise AssertionError("an optimizer wrapped by Horovod was wrapped")

# The other way round Horovod makes a copy from the config, which is ours.
model = linear_model()
model.compile(hvd.DistributedOptimizer(tfs.DistributedOptimizer(keras.SGD(1.0))), linear_loss)
model.fit(samples([7], [1.0]), verbose=0)
assert table_of(model).lookup([7]).numpy().tolist() == [[-1.0]]
print("all refused")
"""


def test_without_a_wrapped_optimizer_the_error_says_what_to_do():
    # In a program of its own: this one has wrapped optimizers, and no Horovod.
    done = subprocess.run(
        [sys.executable, "-c", UNWRAPPED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "all refused" in done.stdout
