"""A model with two tables, its batches, and all that a checkpoint must bring back."""

import contextlib
import subprocess
import sys

import numpy as np
import tensorflow as tf

import tfsparse as tfs
from tests.keras_layers.models import OPTIMIZERS, all_rows
from tfsparse import runtime
from tfsparse.keras_layers import DynamicEmbedding

RATES = {"SGD": 0.5, "Adagrad": 0.1, "Adam": 0.01}
SAMPLES = 48


def optimizer_of(name):
    """A Keras optimizer by a name such as `"Adam"` or `"legacy.SGD"`."""
    generation, _, rule = name.rpartition(".")
    return getattr(OPTIMIZERS[generation or "new"], rule)(RATES[rule])


def make_model(
    optimizer="Adam", dims=(8, 4), table_optimizer="auto", every_rule=False, **table_options
):
    """Users, and the items of a history; weights and rows always begin alike.

    Args:
        optimizer: of the model, a name for `optimizer_of`; None leaves it uncompiled.
        dims: of the tables.
        table_optimizer: of users.
        every_rule: whether items have Adagrad, and a third table, tags, has SGD.
        **table_options: of users.
    """
    tf.keras.utils.set_random_seed(1)
    user = tf.keras.Input((), dtype=tf.int64)
    history = tf.keras.Input((None,), dtype=tf.int64, ragged=True)
    users = DynamicEmbedding(dims[0], name="users", optimizer=table_optimizer, **table_options)
    rule = tfs.optimizers.Adagrad(0.1) if every_rule else "auto"
    items = DynamicEmbedding(dims[1], combiner="mean", name="items", optimizer=rule)
    parts = [users(user), items(history)]
    if every_rule:
        tags = DynamicEmbedding(3, combiner="sum", name="tags", optimizer=tfs.optimizers.SGD(0.5))
        parts.append(tags(history))
    hidden = tf.keras.layers.Dense(6, "relu", name="hidden")(tf.keras.layers.Concatenate()(parts))
    model = tf.keras.Model([user, history], tf.keras.layers.Dense(1, name="score")(hidden))
    if optimizer is not None:
        model.compile(tfs.DistributedOptimizer(optimizer_of(optimizer)), "mse")
    return model


def batch(number, rows=slice(None)):
    """Batch `number`, or some rows of it: `((user, history), label)`."""
    rng = np.random.default_rng(number)
    users = rng.integers(-(1 << 63), 1 << 63, 200)[rng.integers(0, 200, SAMPLES)]
    # The rng is of the batch, so half of the ids are of this batch alone.
    users[::2] = rng.integers(0, 300, SAMPLES // 2)
    lengths = rng.integers(0, 5, SAMPLES)
    history = np.split(rng.integers(0, 2000, lengths.sum()), np.cumsum(lengths)[:-1])
    label = rng.random((SAMPLES, 1)).astype(np.float32)
    taken = np.arange(SAMPLES)[rows]
    history = tf.ragged.constant([history[i] for i in taken], tf.int64, 1)
    return (tf.constant(users[taken]), history), label[taken]


def train(model, steps, rows=slice(None)):
    """Trains on batches of the numbers `steps`; returns the losses."""
    return [model.train_on_batch(*batch(step, rows)) for step in steps]


def tables_of(model):
    readers = [layer for layer in model.layers if isinstance(layer, DynamicEmbedding)]
    return {layer.name: layer.table for layer in readers}


def state_of(model):
    """Everything: rows with slots by table and key, weights and the optimizer's variables."""
    variables = [] if model.optimizer is None else model.optimizer.variables
    variables = variables() if callable(variables) else variables
    return {
        "rows": {name: all_rows(table) for name, table in tables_of(model).items()},
        "weights": [w.numpy() for w in model.layers[-1].weights + model.layers[-2].weights],
        "optimizer": [v.numpy() for v in sorted(variables, key=_place)],
    }


def whole_state(model):
    """`state_of` with the rows of all ranks."""
    states = runtime.allgather_object(state_of(model), "test.state")
    whole = states[0]
    for state in states[1:]:
        for name, rows in state["rows"].items():
            assert not rows.keys() & whole["rows"][name].keys()
            whole["rows"][name].update(rows)
    return whole


def assert_same(got, wanted, atol=0.0):
    """Asserts that two states are equal, to the bit unless a tolerance is given."""
    for name, rows in wanted["rows"].items():
        assert sorted(got["rows"][name]) == sorted(rows)
        for key, row in rows.items():
            np.testing.assert_allclose(got["rows"][name][key], row, rtol=0, atol=atol)
    for part in ("weights", "optimizer"):
        assert len(got[part]) == len(wanted[part])
        for a, b in zip(got[part], wanted[part]):
            np.testing.assert_allclose(a, b, rtol=0, atol=atol)


def _place(variable):
    """The name of an optimizer's variable; that of the optimizer may stand before it."""
    return variable.name.split("/")[-3:]


@contextlib.contextmanager
def another_process_in(folder):
    """Another process has a directory, as one has that saves there."""
    program = (
        "import fcntl, os, sys, time; "
        "fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX); "
        "print('locked', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        yield
        process.kill()
