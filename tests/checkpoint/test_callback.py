"""tfs.callbacks.Checkpoint: a training that was interrupted goes on as if it had not been."""

import itertools
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tfsparse as tfs
from tests.checkpoint.models import another_process_in, assert_same, make_model, state_of
from tfsparse.checkpoint import series
from tfsparse.keras_layers import DynamicEmbedding, checkpointing

SAMPLES, BATCH, EPOCHS = 40, 4, 3  # ten batches an epoch
K = tf.keras


class Interrupted(Exception):
    pass


class Interrupt(K.callbacks.Callback):
    """Raises when a batch of an epoch has been trained."""

    def __init__(self, at):
        super().__init__()
        self.at = at
        self.steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.steps == self.at:
            raise Interrupted


def samples():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 30, SAMPLES)
    return tf.data.Dataset.from_tensor_slices((ids, rng.normal(size=(SAMPLES, 3))))


def shuffled():
    return samples().shuffle(20, seed=5).batch(BATCH).prefetch(2)


def of_unknown_size():
    return samples().filter(lambda *_: True).batch(BATCH)


def endless():
    return samples().shuffle(20, seed=5).repeat().batch(BATCH)


def of_a_generator():
    data = list(samples().as_numpy_iterator())
    spec = (tf.TensorSpec((), tf.int64), tf.TensorSpec((3,), tf.float64))
    return tf.data.Dataset.from_generator(lambda: iter(data), output_signature=spec).batch(BATCH)


def endless_generator():
    data = list(samples().as_numpy_iterator())
    spec = (tf.TensorSpec((), tf.int64), tf.TensorSpec((3,), tf.float64))
    make = lambda: itertools.cycle(data)  # noqa: E731
    return tf.data.Dataset.from_generator(make, output_signature=spec).batch(BATCH)


DATASETS = [shuffled, of_unknown_size, endless, of_a_generator, endless_generator]


def small_model(**compile_options):
    K.utils.set_random_seed(1)
    ids = K.Input((), dtype=tf.int64)
    hidden = K.layers.Dense(4, name="hidden")(DynamicEmbedding(2, name="table")(ids))
    model = K.Model(ids, K.layers.Dense(3, name="score")(hidden))
    model.compile(tfs.DistributedOptimizer(K.optimizers.Adam(0.1)), "mse", **compile_options)
    return model


def fit(model, dataset, callbacks, **options):
    options = {"epochs": EPOCHS, "verbose": 0, **options}
    if dataset.__name__.startswith("endless"):
        options["steps_per_epoch"] = 10
    return model.fit(dataset(), callbacks=callbacks, **options)


def steps_in(folder):
    return series.steps_of(folder)  # what is being removed is none any more


@pytest.fixture(scope="module")
def straight():
    """The states after trainings that nothing has interrupted, by dataset."""
    states = {}
    for dataset in DATASETS:
        model = small_model()
        fit(model, dataset, [])
        states[dataset] = state_of(model)
    return states


CASES = [(dataset, at, True) for dataset in DATASETS for at in (12, 17)]
CASES += [(shuffled, at, False) for at in (5, 10, 17)]


@pytest.mark.parametrize(
    "dataset,at,numbered", CASES, ids=[f"{d.__name__}-{at}-{numbered}" for d, at, numbered in CASES]
)
def test_an_interrupted_training_goes_on_to_the_same_bits(
    dataset, at, numbered, straight, tmp_path
):
    def make():
        return tfs.callbacks.Checkpoint(tmp_path, every_steps=5)

    with pytest.raises(Interrupted):
        fit(small_model(), dataset, [make(), Interrupt(at)])
    model, checkpoint, epochs = small_model(), make(), []
    # What is due after the last batch of an epoch is saved where the next one begins.
    saved = 5 if at == 10 else at // 5 * 5
    first = saved // 10
    assert checkpoint.initial_epoch == first
    counted = K.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epochs.append(epoch))
    options = {"initial_epoch": checkpoint.initial_epoch} if numbered else {}
    fit(model, dataset, [checkpoint, counted], **options)
    assert checkpoint.resumed_step == saved
    assert int(model.optimizer.iterations) == 30
    assert_same(state_of(model), straight[dataset])
    assert epochs == (list(range(first, EPOCHS)) if numbered else list(range(EPOCHS - first)))


def test_several_steps_an_execution(straight, tmp_path):
    for at in (2, None):
        model = small_model(steps_per_execution=3)
        checkpoint = tfs.callbacks.Checkpoint(tmp_path, every_steps=4)
        callbacks = [checkpoint] if at is None else [checkpoint, Interrupt(at)]
        try:
            fit(model, shuffled, callbacks)
        except Interrupted:
            assert steps_in(tmp_path) == [6]
    assert checkpoint.resumed_step == 6
    assert_same(state_of(model), straight[shuffled])


def test_interrupted_again_and_again(straight, tmp_path):
    for at in (3, 7, 1, 9, 6, 8, 4, None):
        model = small_model()
        checkpoint = tfs.callbacks.Checkpoint(tmp_path, every_steps=2)
        try:
            fit(model, shuffled, [checkpoint] if at is None else [checkpoint, Interrupt(at)])
        except Interrupted:
            continue
    assert_same(state_of(model), straight[shuffled])


def test_one_fit_after_another_has_failed_in_the_same_program(straight, tmp_path):
    model = small_model()
    checkpoint = tfs.callbacks.Checkpoint(tmp_path, every_steps=10)
    with pytest.raises(Interrupted):
        fit(model, shuffled, [checkpoint, Interrupt(11)])
    assert steps_in(tmp_path) == [10]
    fit(model, shuffled, [checkpoint], epochs=1)
    assert int(model.optimizer.iterations) == 21
    assert steps_in(tmp_path) == [10, 20, 21]


def test_after_each_epoch_and_no_more_than_it_should_keep(straight, tmp_path):
    seen = []
    look = K.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(steps_in(tmp_path)),
    )
    model = small_model()
    fit(model, shuffled, [tfs.callbacks.Checkpoint(tmp_path, keep=2), look], epochs=4)
    assert [seen[i] for i in (9, 10, 20, 30)] == [[], [10], [10, 20], [20, 30]]
    assert steps_in(tmp_path) == [30, 40]
    rerun = small_model()
    with pytest.raises(Interrupted):
        fit(rerun, shuffled, [tfs.callbacks.Checkpoint(tmp_path, keep=2), Interrupt(12)], epochs=7)
    assert steps_in(tmp_path) == [40, 50]
    go_on = small_model()
    fit(go_on, shuffled, [tfs.callbacks.Checkpoint(tmp_path, keep=None)], epochs=7)
    assert int(go_on.optimizer.iterations) == 70
    assert steps_in(tmp_path) == [40, 50, 60, 70]


@pytest.mark.parametrize("dataset", [shuffled, of_unknown_size, endless])
def test_a_training_that_was_at_its_end_trains_nothing_more(dataset, tmp_path, caplog):
    model = small_model()
    fit(model, dataset, [tfs.callbacks.Checkpoint(tmp_path, every_steps=10)])
    assert steps_in(tmp_path) == [10, 20, 30]
    for numbered in (True, False):
        again, checkpoint = small_model(), tfs.callbacks.Checkpoint(tmp_path, every_steps=10)
        assert checkpoint.initial_epoch == EPOCHS
        caplog.clear()
        fit(again, dataset, [checkpoint], initial_epoch=EPOCHS if numbered else 0)
        assert "none is left to train" in caplog.text
        assert_same(state_of(again), state_of(model))
        assert steps_in(tmp_path) == [10, 20, 30]


def test_more_epochs_follow_a_training_that_was_at_its_end(tmp_path):
    model = small_model()
    fit(model, shuffled, [tfs.callbacks.Checkpoint(tmp_path, every_steps=10)])
    again, checkpoint = small_model(), tfs.callbacks.Checkpoint(tmp_path, every_steps=10)
    options = {"initial_epoch": EPOCHS, "epochs": 2 * EPOCHS}
    fit(again, shuffled, [checkpoint], **options)
    fit(model, shuffled, [])
    assert_same(state_of(again), state_of(model))
    assert steps_in(tmp_path) == [40, 50, 60]
    assert checkpoint.initial_epoch == 2 * EPOCHS


def test_a_training_that_was_asked_to_stop_goes_on_from_there(straight, tmp_path):
    def stop(batch, logs):
        model.stop_training = batch == 6

    model = small_model()
    stopper = K.callbacks.LambdaCallback(on_train_batch_end=stop)
    fit(model, shuffled, [tfs.callbacks.Checkpoint(tmp_path), stopper])
    assert steps_in(tmp_path) == [7]
    again = small_model()
    fit(again, shuffled, [tfs.callbacks.Checkpoint(tmp_path)])
    assert_same(state_of(again), straight[shuffled])


def shuffled_of_unknown_size():
    return samples().shuffle(20, seed=5).filter(lambda *_: True).batch(BATCH)


def test_a_save_after_the_last_batch_of_an_epoch_of_unknown_size(tmp_path):
    model = small_model()
    fit(model, shuffled_of_unknown_size, [])
    for saved in ([10], [10, 20]):
        callbacks = [tfs.callbacks.Checkpoint(tmp_path, every_steps=10), Interrupt(11)]
        with pytest.raises(Interrupted):
            fit(small_model(), shuffled_of_unknown_size, callbacks)
        assert steps_in(tmp_path) == saved
    again = small_model()
    fit(again, shuffled_of_unknown_size, [tfs.callbacks.Checkpoint(tmp_path)])
    assert_same(state_of(again), state_of(model))


def test_a_fit_without_the_callback_trains_after_one_with_it_has_failed(tmp_path):
    fit(small_model(), shuffled, [tfs.callbacks.Checkpoint(tmp_path)], epochs=1)
    with pytest.raises(Interrupted):
        fit(
            small_model(),
            shuffled,
            [tfs.callbacks.Checkpoint(tmp_path, every_steps=5), Interrupt(17)],
        )
    model = small_model()
    with pytest.raises(Interrupted):  # while it passes over what was trained
        fit(model, shuffled, [tfs.callbacks.Checkpoint(tmp_path), Interrupt(2)])
    assert int(model.optimizer.iterations) == 25
    fit(model, shuffled, [], epochs=1)
    assert int(model.optimizer.iterations) == 35
    assert steps_in(tmp_path)[-1] == 25


@pytest.mark.parametrize("at", [4, 10, 13, 25])
def test_a_program_of_several_fits_goes_on_in_the_one_that_was_interrupted(at, tmp_path, caplog):
    def program(model, callbacks):
        for seed in range(3):  # other data in each
            data = lambda: samples().shuffle(40, seed=seed).batch(BATCH)  # noqa: B023, E731
            data.__name__ = "data"
            fit(model, data, callbacks, epochs=1)

    straight, model = small_model(), small_model()
    program(straight, [])
    with pytest.raises(Interrupted):
        program(model, [tfs.callbacks.Checkpoint(tmp_path, every_steps=2), Interrupt(at)])
    again, checkpoint = small_model(), tfs.callbacks.Checkpoint(tmp_path, every_steps=2)
    program(again, [checkpoint])
    assert_same(state_of(again), state_of(straight))
    assert ("number 0 trains nothing" in caplog.text) == (at > 10)


def test_arrays_that_end_before_what_remains_are_an_error(tmp_path):
    ids, labels = (np.stack(part) for part in zip(*samples().as_numpy_iterator()))
    options = {"batch_size": BATCH, "steps_per_epoch": 7, "epochs": 20, "verbose": 0}
    straight = small_model()
    straight.fit(ids, labels, shuffle=False, **options)
    callbacks = [tfs.callbacks.Checkpoint(tmp_path, every_steps=5), Interrupt(75)]
    with pytest.raises(Interrupted):
        small_model().fit(ids, labels, shuffle=False, callbacks=callbacks, **options)
    checkpoint = tfs.callbacks.Checkpoint(shutil.copytree(tmp_path, tmp_path / "copy"))
    with pytest.raises(RuntimeError, match="give fit no `initial_epoch`"):
        options["initial_epoch"] = checkpoint.initial_epoch
        small_model().fit(ids, labels, callbacks=[checkpoint], shuffle=False, **options)
    del options["initial_epoch"]
    again = small_model()
    callbacks = [tfs.callbacks.Checkpoint(tmp_path)]
    again.fit(ids, labels, callbacks=callbacks, shuffle=False, **options)
    assert_same(state_of(again), state_of(straight))


def test_a_model_that_trains_by_optimizers_of_its_own_is_told(tmp_path):
    class Adversarial(K.Model):
        def train_step(self, data):
            return {"loss": tf.constant(0.0)}

    ids = K.Input((), dtype=tf.int64)
    model = Adversarial(ids, DynamicEmbedding(3)(ids))
    model.compile(tfs.DistributedOptimizer(K.optimizers.Adam()), "mse")
    with pytest.raises(RuntimeError, match="trains by optimizers of its own"):
        fit(model, shuffled, [tfs.callbacks.Checkpoint(tmp_path)])


def test_two_programs_do_not_keep_checkpoints_in_one_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpointing, "_LOCK_WAIT_S", 0.2)
    with pytest.raises(Interrupted):
        fit(small_model(), shuffled, [tfs.callbacks.Checkpoint(tmp_path), Interrupt(12)])
    fit(small_model(), shuffled, [tfs.callbacks.Checkpoint(tmp_path)])  # the same process may
    with another_process_in(tmp_path):
        with pytest.raises(RuntimeError, match="Another process is saving to"):
            fit(small_model(), shuffled, [tfs.callbacks.Checkpoint(tmp_path)], epochs=4)
    assert steps_in(tmp_path) == [10, 20, 30]
    fit(small_model(), shuffled, [tfs.callbacks.Checkpoint(tmp_path)], epochs=4)
    assert steps_in(tmp_path) == [20, 30, 40]


def test_two_of_them_are_refused(tmp_path):
    two = [tfs.callbacks.Checkpoint(tmp_path / name) for name in "ab"]
    with pytest.raises(ValueError, match="One tfs.callbacks.Checkpoint alone"):
        fit(small_model(), shuffled, two)
    model = small_model()
    for callback in two:  # one after the other, and the first was interrupted
        with pytest.raises(Interrupted):
            fit(model, shuffled, [callback, Interrupt(3)])
        assert model.train_function.train.__name__ == "train_function"  # and no other callback's
    assert int(model.optimizer.iterations) == 6


def test_a_model_whose_fit_has_failed_trains_when_the_callback_has_gone_to_another(tmp_path):
    first, second = small_model(), small_model()
    callback = tfs.callbacks.Checkpoint(tmp_path, every_steps=100)
    with pytest.raises(Interrupted):
        fit(first, shuffled, [callback, Interrupt(7)])
    fit(second, shuffled, [callback], epochs=1)
    fit(first, shuffled, [], epochs=1)
    assert [int(model.optimizer.iterations) for model in (first, second)] == [17, 10]


def test_a_directory_with_later_steps_is_refused(tmp_path):
    model = small_model()
    checkpoint = tfs.callbacks.Checkpoint(tmp_path)
    fit(model, shuffled, [checkpoint])
    model.compile(tfs.DistributedOptimizer(K.optimizers.Adam(0.1)), "mse")
    with pytest.raises(ValueError, match="of step 30, and the model is at step 0"):
        fit(model, shuffled, [checkpoint])
    assert steps_in(tmp_path) == [10, 20, 30]


def test_a_checkpoint_with_files_of_others_stays_one(tmp_path):
    callbacks = [tfs.callbacks.Checkpoint(tmp_path, keep=1)]
    fit(small_model(), shuffled, callbacks, epochs=1)
    (tmp_path / "step-10" / "metrics.json").write_text("{}")
    fit(small_model(), shuffled, [tfs.callbacks.Checkpoint(tmp_path, keep=1)])
    assert steps_in(tmp_path) == [10, 30]
    assert tfs.restore(small_model(), tmp_path / "step-10") == 10


def test_what_killed_saves_have_left_goes_and_what_others_have_stays(tmp_path):
    for name in ("step-3/data-0123456789ab", "step-7", "step-8/data", "step-x", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "step-3/data-0123456789ab/table-0").write_text("half")
    (tmp_path / "step-3/manifest.json.tmp").write_text("{")
    (tmp_path / "step-8/data/of others").write_text("")
    fit(small_model(), shuffled, [tfs.callbacks.Checkpoint(tmp_path, every_steps=20)])
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["other", "step-20", "step-30", "step-8", "step-x"]
    assert (tmp_path / "step-8/data/of others").exists()


def test_training_goes_on_when_a_save_fails_and_the_last_one_must_not(tmp_path, caplog):
    (tmp_path / "step-10").write_text("in the way")
    fit(small_model(), shuffled, [tfs.callbacks.Checkpoint(tmp_path, every_steps=10)])
    assert steps_in(tmp_path) == [20, 30]
    assert "Step 10 was not saved, training goes on" in caplog.text
    (tmp_path / "step-60").write_text("in the way")
    with pytest.raises(OSError, match="step-60"):
        callbacks = [tfs.callbacks.Checkpoint(tmp_path, every_steps=100)]
        fit(small_model(), shuffled, callbacks, epochs=2 * EPOCHS)


def test_other_data_are_passed_over_by_as_many_batches(tmp_path, caplog):
    with pytest.raises(Interrupted):
        fit(
            small_model(),
            shuffled,
            [tfs.callbacks.Checkpoint(tmp_path, every_steps=4), Interrupt(4)],
        )
    model = small_model()
    fit(model, of_unknown_size, [tfs.callbacks.Checkpoint(tmp_path)])
    assert "The data are not those of" in caplog.text
    assert int(model.optimizer.iterations) == 30


def test_another_model_is_refused_before_it_trains(tmp_path):
    fit(small_model(), shuffled, [tfs.callbacks.Checkpoint(tmp_path)], epochs=1)
    model = make_model()
    with pytest.raises(ValueError, match=r"has tables \['table'\], and the model has"):
        model.fit(np.zeros(4), callbacks=[tfs.callbacks.Checkpoint(tmp_path)])


def test_a_model_without_weights_or_rows_is_refused_in_the_first_run_already(tmp_path):
    model = K.Sequential([DynamicEmbedding(2)])
    model.compile(tfs.DistributedOptimizer(K.optimizers.Adam()), "mse")
    with pytest.raises(RuntimeError, match="no weights yet"):
        fit(model, shuffled, [tfs.callbacks.Checkpoint(tmp_path)])


BAD = [
    ({"every_steps": 0}, "`every_steps` must be an integer > 0, or None. Received: 0"),
    ({"every_steps": 2.5}, "`every_steps` must be an integer"),
    ({"every_steps": True}, "`every_steps` must be an integer"),
    ({"every_minutes": -1}, "`every_minutes` must be a number > 0"),
    ({"every_minutes": float("nan")}, "`every_minutes` must be a number > 0"),
    ({"every_minutes": "5"}, "`every_minutes` must be a number > 0"),
    ({"keep": 0}, "`keep` must be an integer > 0"),
    ({"every_steps": 1, "every_minutes": 1}, "not both"),
]


@pytest.mark.parametrize("options,message", BAD, ids=[str(options) for options, _ in BAD])
def test_bad_arguments(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        tfs.callbacks.Checkpoint(tmp_path, **options)
    with pytest.raises(ValueError, match="mounted"):
        tfs.callbacks.Checkpoint("s3://bucket")


def test_by_the_clock(tmp_path):
    checkpoint = tfs.callbacks.Checkpoint(tmp_path, every_minutes=1e-6, keep=None)
    fit(small_model(), shuffled, [checkpoint], epochs=1)
    assert steps_in(tmp_path) == list(range(1, 11))


@pytest.mark.parametrize("step_s", [0.01, 1, 100])
def test_the_clock_is_asked_seldom_and_answers_in_time(step_s, monkeypatch):
    now, asked = [0.0], []
    monkeypatch.setattr(checkpointing.time, "monotonic", lambda: now[0])
    clock = checkpointing._Clock(600.0)
    answer = clock._answer
    monkeypatch.setattr(clock, "_answer", lambda: asked.append(now[0]) or answer())
    clock.start()
    saves = []
    while now[0] < 6000:
        now[0] += step_s if saves or now[0] else 50  # the first is traced
        if clock.is_due():
            saves.append(now[0])
            now[0] += 30
            clock.start()
    assert len(asked) <= 25 * len(saves)
    gaps = np.diff([-30, *saves]) - 30
    assert np.all(np.abs(gaps - 600) <= max(step_s, 2)), gaps
