"""Trains until something happens to one rank; test_dead_ranks.py says what and watches.

    doomed.py WHAT VICTIM FOLDER

The victim prints "here" with its process id where something is to happen. What the test brings
about are the functions `wait_...`: the victim is at that point and goes no further. The others
happen by themselves.
"""

import os
import sys
import threading
from pathlib import Path

import job
import numpy as np
import tensorflow as tf

import tfsparse as tfs
from tfsparse.keras_layers import DynamicEmbedding

K = tf.keras
WHAT, VICTIM, FOLDER = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
BATCH = (np.arange(8).reshape(4, 2), np.ones((4, 1), np.float32))


def here():
    """True on the victim, which says so."""
    if tfs.rank() != VICTIM:
        return False
    print(f"here: {WHAT} on rank {VICTIM}, pid={os.getpid()}", flush=True)
    return True


def wait_if_here():
    if here():
        threading.Event().wait()


def at_batch(number, act):
    """A callback that calls `act` after a training batch."""
    return K.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: act() if batch == number else None
    )


class WaitInPredict(K.callbacks.Callback):
    def on_predict_batch_end(self, batch, logs=None):
        if batch == 2:
            wait_if_here()


def small_model():
    ids = K.Input((2,), dtype=tf.int64)
    x = K.layers.Flatten()(DynamicEmbedding(2, name="table")(ids))
    model = K.Model(ids, K.layers.Dense(1)(x))
    model.compile(tfs.DistributedOptimizer(K.optimizers.SGD(0.1)), "mse")
    return model


def batches(number=-1):
    return tf.data.Dataset.from_tensors(BATCH).repeat(number)


def fit(model, steps=3, **options):
    model.fit(batches(), steps_per_epoch=steps, verbose=0, **options)


def wait_before_the_first_step(model):
    begin = K.callbacks.LambdaCallback(on_train_begin=lambda logs: wait_if_here())
    fit(model, callbacks=[begin])


def run_in_fit(model):
    fit(model, steps=10**9, callbacks=[at_batch(20, here)])


def wait_in_predict(model):
    fit(model)
    data = batches(5).map(lambda ids, labels: ids)
    model.predict(data, verbose=0, callbacks=[WaitInPredict()])


def wait_between_fits(model):
    fit(model)
    wait_if_here()
    fit(model)


def wait_in_export(model):
    """The victim has written its rows; nothing is joined yet."""
    fit(model)

    def stop_at_own_rows(event, arguments):
        if event == "open" and f"parts/rank-{VICTIM}" in str(arguments[0]):
            wait_if_here()

    sys.addaudithook(stop_at_own_rows)
    tfs.export(model, FOLDER / "exported")


def wait_long_and_fail_in_a_callback(model):
    def wait_for_the_test():
        if here():
            job.wait_at_gate(FOLDER / "go_on")

    def fail():
        print(f"went on: rank {tfs.rank()}", flush=True)
        if tfs.rank() == VICTIM:
            raise RuntimeError("meant to fail in a callback")

    fit(model, steps=10**9, callbacks=[at_batch(20, wait_for_the_test), at_batch(40, fail)])


def fail_in_a_generator(model):
    def generate():
        for number in range(10**9):
            if number == 20 and here():
                raise RuntimeError("meant to fail in a generator")
            yield BATCH

    signature = tuple(tf.TensorSpec.from_tensor(tf.constant(part)) for part in BATCH)
    data = tf.data.Dataset.from_generator(generate, output_signature=signature)
    model.fit(data, verbose=0)


def fail_between_steps(model):
    for number in range(10**9):
        model.train_on_batch(*BATCH)
        if number == 20 and here():
            raise RuntimeError("meant to fail between steps")


def have_fewer_batches(model):
    """The others wait in a step when the victim is done and wants to add up metrics."""
    number = 20
    if here():
        number = 15
    model.fit(batches(number), verbose=0, callbacks=[tfs.callbacks.GlobalMetrics()])


if (FOLDER / "start").exists():
    print("ready", flush=True)
    job.wait_at_gate(FOLDER / "start")
tfs.init()
globals()[WHAT](small_model())
print(f"reached the end on rank {tfs.rank()}", flush=True)
