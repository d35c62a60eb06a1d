"""Saving and restoring on two ranks where something is odd or goes wrong on one of them."""

import os
import tempfile
from pathlib import Path

import job
import numpy as np
import tensorflow as tf
from job import expect, mine
from safetensors.numpy import save_file

import tfsparse as tfs
from tfsparse import ops, runtime
from tfsparse.checkpoint import pretrained
from tfsparse.embedding import ownership
from tfsparse.keras_layers import DynamicEmbedding

K = tf.keras


def new_folder():
    """A folder that both ranks know."""
    return Path(runtime.allgather_object(tempfile.mkdtemp(), "test.folder")[0])


def trained(name, ids=range(40)):
    """A model after a step on some ids."""
    model = K.Sequential([K.Input((), dtype=tf.int64), DynamicEmbedding(2, name=name)])
    model.compile(tfs.DistributedOptimizer(K.optimizers.Adagrad(0.1)), "mse")
    model.fit(np.asarray(ids), np.ones((len(ids), 2)), batch_size=len(ids), verbose=0)
    return model


def table_of(model):
    return model.layers[0].table


def check_ways_of_one_process_are_refused_on_both():
    model, folder = trained("refused"), new_folder()
    own = folder / str(tfs.rank())
    before = job.table_state(table_of(model))
    for way in (
        lambda: model.save_weights(own / "w"),
        lambda: model.save_weights(own / "m.weights.h5"),
        lambda: model.save(own / "m.keras"),
        lambda: model.save(own / "m"),
        lambda: tf.train.Checkpoint(model=model).save(own / "c"),
        model.get_weights,
        lambda: model.set_weights([np.zeros(()), np.zeros(6)]),
    ):
        expect(NotImplementedError, "Use tfs.save(model, dir)", way)
    np.testing.assert_equal(job.table_state(table_of(model)), before)


def check_different_directories_are_refused_on_both():
    model, folder = trained("directories"), new_folder()
    for call in (tfs.save, tfs.restore):
        tfs.save(model, folder / "a")
        tfs.save(model, folder / "b")
        expect(ValueError, "All ranks must", call, model, folder / mine("a", "b"))


def check_what_fails_on_one_rank_fails_on_both():
    model, folder = trained("fails"), new_folder()
    tfs.save(model, folder)
    before = sorted(folder.rglob("*"))
    for call in (tfs.save, tfs.restore):
        expect(
            *mine((TypeError, "`model` must be"), (RuntimeError, "rank 0: TypeError")),
            call,
            mine("no model", model),
            folder,
        )
    assert sorted(folder.rglob("*")) == before


def check_damage_that_one_rank_meets_changes_nothing_on_both():
    model, folder = trained("damaged"), new_folder()
    tfs.save(model, folder)
    model.fit(np.arange(40, 60), np.ones((20, 2)), verbose=0)
    before = job.table_state(table_of(model)), model.optimizer.iterations.numpy()
    if tfs.rank() == 0:
        (path,) = folder.glob("data-*/table-0-buckets-32768-65535.safetensors")
        whole = bytearray(path.read_bytes())
        whole[-1] ^= 1
        path.write_bytes(whole)
    expect(
        *mine((RuntimeError, "rank 1: CheckpointError"), (ValueError, "was altered")),
        tfs.restore,
        model,
        folder,
    )
    after = job.table_state(table_of(model)), model.optimizer.iterations.numpy()
    np.testing.assert_equal(after, before)


def check_a_rank_without_rows_saves_and_restores_none():
    owned = trained("owners", range(200))
    owned = runtime.allgather_object(job.table_state(table_of(owned))["keys"], "test.keys")[1]
    model, folder = trained("one_owner", owned), new_folder()
    assert table_of(model).stats()["rows"] == mine(0, len(owned))
    tfs.save(model, folder)
    before = job.table_state(table_of(model))
    model.fit(np.arange(500, 520), np.ones((20, 2)), verbose=0)
    assert tfs.restore(model, folder) == 1
    np.testing.assert_equal(job.table_state(table_of(model)), before)
    assert table_of(model).size() == len(owned)


def vectors_of(ids):
    """A vector for each id, told by it."""
    return np.stack([ids, 2 * ids], axis=1).astype(np.float32)


def check_vectors_that_all_ranks_bring_are_read_once():
    ids, folder = np.arange(-500, 501), new_folder()
    sources = {"npy": (folder / "ids.npy", folder / "v.npy"), "arrays": (ids, vectors_of(ids))}
    sources.update(npz=folder / "v.npz", safetensors=folder / "v.safetensors")
    if tfs.rank() == 0:
        np.save(folder / "ids.npy", ids)
        np.save(folder / "v.npy", vectors_of(ids))
        np.savez(folder / "v.npz", ids=ids, vectors=vectors_of(ids))
        save_file({"ids": ids, "vectors": vectors_of(ids)}, folder / "v.safetensors")
    runtime.allgather_object(None, "test.files")
    read, blocks_of = [], pretrained._blocks

    def recorded(*arguments):
        for block in blocks_of(*arguments):
            read.append(block[0])
            yield block

    pretrained._blocks = recorded
    for form, source in sources.items():
        table = table_of(trained(f"pretrained_{form}", range(3)))
        read.clear()
        assert tfs.load_rows(table, source) == len(ids)
        all_read = np.concatenate(sum(runtime.allgather_object(read, "test.read"), []))
        np.testing.assert_array_equal(np.sort(all_read), ids)
        assert (tfs.rank() == 0 or form != "npz") == (len(read) > 0)
        state = job.table_state(table)
        np.testing.assert_array_equal(state["rows"], vectors_of(state["keys"]))
        assert np.all(state["slots"] == np.float32(0.1))
        assert 0 < table.stats()["rows"] < table.size() == len(ids)
    pretrained._blocks = blocks_of


def check_ranks_bring_a_part_each():
    table = table_of(trained("parts", range(3)))
    ids = mine(np.arange(100), np.arange(90, 250))
    assert tfs.load_rows(table, (ids, vectors_of(ids))) == 260
    np.testing.assert_array_equal(table.lookup(np.arange(250)), vectors_of(np.arange(250)))
    assert table.size() == 250
    tfs.load_rows(table, mine((ids[:0], vectors_of(ids)[:0]), (ids[:1], vectors_of(ids)[:1] + 1)))
    np.testing.assert_array_equal(table.lookup([90]), [[91, 181]])


def check_ranks_bring_files_of_one_name_from_disks_of_their_own():
    table = table_of(trained("own_disks", range(3)))
    ids = np.arange(40_000)
    own = mine(ids, ids + 40_000)
    home = os.getcwd()
    os.chdir(tempfile.mkdtemp())
    np.savez("part.npz", ids=own, vectors=vectors_of(own))
    assert tfs.load_rows(table, "part.npz") == 80_000
    os.chdir(home)
    assert table.size() == 80_000


def out_of_memory(*_, **__):
    raise MemoryError("full")


def check_vectors_that_one_rank_refuses_are_loaded_on_none():
    table = table_of(trained("refused_vectors"))
    other = table_of(trained("other_table"))
    before = job.table_state(table)
    ids = np.arange(100)
    brought = mine(table, other), (ids, vectors_of(ids))
    expect(ValueError, "rank 1: load rows into table 'other_table'", tfs.load_rows, *brought)
    bad = mine(vectors_of(ids), vectors_of(ids)[:, :1]), mine(vectors_of(ids), -vectors_of(ids))
    expect(
        ValueError if tfs.rank() else RuntimeError,
        "need vectors",
        tfs.load_rows,
        table,
        (ids, bad[0]),
    )
    owner = ownership.owners_of(np.array([1]), 2)[0]
    expect(
        ValueError if tfs.rank() == owner else RuntimeError,
        "comes with two rows",
        tfs.load_rows,
        table,
        ([1], bad[1][1:2]),
    )
    not_finite = mine(vectors_of(ids), np.full([100, 2], np.inf))
    expect(
        ValueError if tfs.rank() else RuntimeError,
        "not finite",
        tfs.load_rows,
        table,
        (mine(ids, ids + 100), not_finite),
    )
    stage = ops.stage
    ops.stage = mine(stage, out_of_memory)
    expect(mine(RuntimeError, MemoryError), "full", tfs.load_rows, table, (ids, vectors_of(ids)))
    ops.stage = stage
    np.testing.assert_equal(job.table_state(table), before)


job.run_checks(globals())
