"""Makes the golden dumps of TensorFlow Recommenders-Addons: TFRA itself trains and saves them.

    .venv-bench/tfra/bin/python tests/checkpoint/make_tfra_dumps.py FOLDER [CASE...]

To be run in the environment of TFRA that `make bench-tfra` makes. FOLDER/<case>/dump.zip has
the files that TFRA's FileSystemSaver wrote. FOLDER/<case>/rank<r>.npz has, for each rank and table,
what TFRA's own export and lookup gave: `keys`, `parameter` and slots; then the batch of one further
step, `ids` and `gradients`, and the parameters after it, `next_keys` and `next`. A rank is a
process that trains keys of its own, without Horovod: the saver is told its number.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

# Optimizer, ranks, devices of each. TFRA 0.7.2 cannot make the slots of Keras's new Adagrad.
CASES = {
    "adam": ("Adam", 1, 1),
    "legacy-adam": ("legacy.Adam", 2, 2),
    "legacy-adagrad": ("legacy.Adagrad", 3, 1),
    "sgd": ("SGD", 1, 2),
    "legacy-sgd": ("legacy.SGD", 2, 1),
}
DIMS = {"users": 4, "items": 3}
RATE = 0.05
STEPS = 3
SAMPLES = 8  # of a batch


def batch(step, rank, num_ranks):
    """`({table: ids}, {table: gradients})`, of keys of the rank; one comes twice.

    The further step has keys of the first alone: for a new row TFRA would correct the bias of
    Adam by the steps of all rows.
    """
    ids, gradients = {}, {}
    rng = np.random.default_rng([step, rank])
    for table, dim in DIMS.items():
        keys = np.append(np.arange(-6, 5), (1 << 60) + 1) * num_ranks + rank
        if step == STEPS:
            keys = np.unique(batch(0, rank, num_ranks)[0][table])
        ids[table] = rng.permutation(keys)[: SAMPLES - 1]
        ids[table] = np.append(ids[table], ids[table][0])
        gradients[table] = rng.normal(size=(SAMPLES, dim)).astype(np.float32)
    return ids, gradients


def dump(folder, case, rank):
    """Trains and saves what one rank has."""
    import tensorflow as tf
    from tensorflow_recommenders_addons import dynamic_embedding as tfra

    rule, num_ranks, num_devices = CASES[case]
    tf.keras.utils.set_random_seed(rank)
    saver = tfra.FileSystemSaver(proc_size=num_ranks, proc_rank=rank)
    options = {
        "devices": ["/CPU:0"] * num_devices,
        "kv_creator": tfra.CuckooHashTableCreator(saver=saver),
    }
    layers = {
        table: tfra.keras.layers.Embedding(
            dim, initializer=tf.random_normal_initializer(0, 0.1), name=table, **options
        )
        for table, dim in DIMS.items()
    }
    inputs = {table: tf.keras.Input((), dtype=tf.int64, name=f"{table}_ids") for table in layers}
    outputs = [layer(inputs[table]) for table, layer in layers.items()]
    model = tf.keras.Model(list(inputs.values()), outputs)
    generation, _, name = rule.rpartition(".")
    keras = tf.keras.optimizers.legacy if generation else tf.keras.optimizers
    optimizer = tfra.DynamicEmbeddingOptimizer(getattr(keras, name)(RATE))

    def loss(gradients, rows):
        return tf.reduce_sum(gradients * rows, -1)

    model.compile(optimizer, loss)

    def step(number):
        ids, gradients = batch(number, rank, num_ranks)
        model.train_on_batch(list(ids.values()), list(gradients.values()))
        return ids, gradients

    for number in range(STEPS):
        step(number)
    variables = optimizer.variables
    slots = [
        v.params
        for v in (variables() if callable(variables) else variables)
        if hasattr(v, "params")
    ]
    found = {}
    for table, layer in layers.items():
        keys, parameter = (part.numpy() for part in layer.params.export())
        found[table, "keys"], found[table, "parameter"] = keys, parameter
        for slot in slots:
            if slot.name.startswith(layer.params.name):
                found[table, slot.name.split("/")[-1]] = slot.lookup(keys).numpy()
    target = folder / case / "dump"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as saved:
        model.save(saved)
        for file in Path(saved, "variables", "TFRADynamicEmbedding").iterdir():
            shutil.copy(file, target)
    if case == "legacy-adam":
        empty = tfra.get_variable("no/rows", dim=2, **options)
        empty.save_to_file_system(str(target), proc_size=num_ranks, proc_rank=rank)
    ids, gradients = step(STEPS)
    for table, layer in layers.items():
        found[table, "ids"], found[table, "gradients"] = ids[table], gradients[table]
        found[table, "next_keys"], found[table, "next"] = layer.params.export()
    arrays = {"/".join(name): np.asarray(array) for name, array in found.items()}
    np.savez_compressed(folder / case / f"rank{rank}.npz", **arrays)


def main():
    """Makes the dumps, each rank in a process of its own."""
    folder, *cases = sys.argv[1:]
    for case in cases or CASES:
        for rank in range(CASES[case][1]):
            program = f"import runpy; m = runpy.run_path({__file__!r}); "
            program += f"m['dump'](m['Path']({folder!r}), {case!r}, {rank})"
            subprocess.run([sys.executable, "-c", program], check=True)
        target = Path(folder, case, "dump")
        shutil.make_archive(target, "zip", target)
        shutil.rmtree(target)


if __name__ == "__main__":
    main()
