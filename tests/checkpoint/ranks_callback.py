"""Trains with tfs.callbacks.Checkpoint, after each epoch or each few steps; a rank may be killed.

    ranks_callback.py FOLDER NAME [DIES_AT]

Checkpoints are in FOLDER/NAME. When it has trained step DIES_AT for the first time, the last rank
kills itself by SIGKILL. At the end rank 0 writes the state of all ranks to FOLDER/NAME.pkl.
"""

import os
import pickle
import signal
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import tfsparse as tfs
from tests.checkpoint.models import whole_state
from tfsparse.keras_layers import DynamicEmbedding

SAMPLES, BATCH, EPOCHS = 96, 4, 3


class Die(tf.keras.callbacks.Callback):
    def __init__(self, step, marker):
        super().__init__()
        self.step, self.marker = step, marker

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.step and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def samples():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 40, SAMPLES)
    return tf.data.Dataset.from_tensor_slices((ids, rng.normal(size=(SAMPLES, 3))))


def main():
    folder, name = Path(sys.argv[1]), sys.argv[2]
    tfs.init()
    tf.keras.utils.set_random_seed(1 + tfs.rank())
    ids = tf.keras.Input((), dtype=tf.int64)
    hidden = tf.keras.layers.Dense(4)(DynamicEmbedding(2, name="table")(ids))
    model = tf.keras.Model(ids, tf.keras.layers.Dense(3)(hidden))
    model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adam(0.1)), "mse")
    checkpoint = tfs.callbacks.Checkpoint(folder / name, every_steps=5)
    callbacks = [tfs.callbacks.Broadcast(), checkpoint]
    if len(sys.argv) > 3 and tfs.rank() == tfs.size() - 1:
        callbacks.append(Die(int(sys.argv[3]), folder / f"{name}.died"))
    data = tfs.shard(samples()).shuffle(20, seed=3 + tfs.rank()).batch(BATCH).prefetch(2)
    model.fit(
        data,
        epochs=EPOCHS,
        initial_epoch=checkpoint.initial_epoch,
        callbacks=callbacks,
        verbose=0,
    )
    state = whole_state(model)
    if tfs.rank() == 0:
        result = {"state": state, "resumed": checkpoint.resumed_step}
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(result))
    print(f"all done on rank {tfs.rank()}", flush=True)


main()
