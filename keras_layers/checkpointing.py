"""`tfs.callbacks.Checkpoint`: saves a training as it goes on, and resumes it."""

import contextlib
import math
import numbers
import operator
import os
import time

import tensorflow as tf

from tfsparse import runtime
from tfsparse.checkpoint import dense, manifest, position, restoring, saving, series
from tfsparse.embedding import protocol

_LONGEST_WAIT_S = 60.0  # until ranks ask whether it is time to save
_LOCK_WAIT_S = 20.0  # for an earlier process of the training to end

# Of rank 0: `{directory: descriptor}` that keeps other processes out. After a fit that has failed
# it goes on to the next one.
_locks = {}


class Checkpoint(tf.keras.callbacks.Callback):
    """Saves checkpoints while a model trains; a program that is run again resumes from the newest.

    Every rank has it among the callbacks of `fit`. `directory` gets a checkpoint of `tfs.save` in
    each `step-<n>`; the oldest are removed, and so is what a killed save has left behind. Another
    process that would keep checkpoints there meanwhile is refused.

    Where the first `fit` begins, the newest checkpoint is restored, if there is one, and training
    goes on behind the batch after which it was saved: fewer epochs remain, and batches of the
    current epoch that were trained are counted, with empty `logs`, but not trained again. If all
    were trained, nothing remains: `epochs=checkpoint.initial_epoch + 1` trains one on new data.
    If it was saved in a later `fit` with the same callback, those before it train nothing.
    On as many ranks the data go on where they were if tf.data can save their iterator, with
    the state of their shuffling; a shuffle buffer becomes part of the checkpoint. Otherwise as many
    batches are taken from the dataset and dropped, which is right if it yields the same batches
    again. On another number of ranks as much is passed over as all ranks had trained together.

    Without `initial_epoch=checkpoint.initial_epoch` in `fit`, epochs are numbered from 0 again.
    Metrics of the epoch in which training resumes are of the batches since then. What other
    callbacks know, as how long `EarlyStopping` has waited, is not saved, nor is the state of random
    layers such as Dropout. Where a shuffled dataset is prefetched, a save in the last batches of an
    epoch, whose end tf.data has seen by then, forgets how later epochs are shuffled.

    What is due after the last batch of an epoch is saved where the next one begins, for it is then
    that the data know how they go on; after the last epoch, at once. A save that fails is logged as
    an error, and training goes on; after the last step it is raised.

    Args:
        directory: path on a file system that all ranks see. It is made if it is missing.
        every_steps: how many steps of the optimizer lie between checkpoints.
        every_minutes: how many minutes do. With neither, one is saved after each epoch; in all
            cases one after the last.
        keep: how many of them remain. Defaults to 3; None keeps all.

    Attributes:
        initial_epoch: how many epochs the newest checkpoint has complete; 0 without one.
        resumed_step: the step of the checkpoint that was restored, or None.

    Raises:
        ValueError: an argument is none of these; or `fit` begins and has two of these callbacks, or
            the directory has a checkpoint of another model, a damaged one (see `tfs.restore`), or
            one of a later step than the model's.
        RuntimeError: `fit` begins and the model has no weights yet, or another process keeps
            checkpoints in the directory; or an epoch has ended and `model.optimizer` has made no
            step, so that checkpoints have no step to be named by; or data end in the middle of an
            epoch because those that were trained before are missing.

    Example:
        ```python
        checkpoint = tfs.callbacks.Checkpoint("checkpoints", every_minutes=30)
        model.fit(
            data, epochs=3, initial_epoch=checkpoint.initial_epoch, callbacks=[checkpoint]
        )
        ```
    """

    def __init__(self, directory, every_steps=None, every_minutes=None, keep=3):
        """See the class."""
        super().__init__()
        if every_steps is not None and every_minutes is not None:
            raise ValueError("Give `every_steps` or `every_minutes`, not both.")
        self._every_steps = _positive("every_steps", every_steps, operator.index)
        self._keep = _positive("keep", keep, operator.index)
        minutes = _positive("every_minutes", every_minutes, float)
        self._clock = None if minutes is None else _Clock(60 * minutes)
        self._directory = runtime.mounted_path(directory)
        self.resumed_step = self._saved_step = None
        self._removal = None  # the thread that removes what is outdated
        self._fit = -1  # the number of the current one
        self._content = None  # the manifest of the position to go on from, until that is reached

    @property
    def initial_epoch(self):
        """See the class."""
        steps = series.steps_of(self._directory) if os.path.isdir(self._directory) else []
        if not steps:
            return 0
        return position.epoch_of(manifest.read(series.path_of(self._directory, steps[-1])))

    def on_train_begin(self, logs=None):
        """Restores the newest checkpoint, once."""
        runtime.require_same(
            f"keep checkpoints in {self._directory!r}, every_steps={self._every_steps}, "
            f"every_minutes={self._clock and self._clock.period_s / 60}, keep={self._keep}"
        )
        with runtime.together("checkpoint.begin"):
            if not self.model.built:
                raise RuntimeError(
                    "The model has no weights yet that a checkpoint could be restored to. Call it "
                    "once on a batch, or give it an input shape, before fit."
                )
            protocol.named_tables_of(self.model)  # raises now what every save would
            before = self.model.train_function
            if isinstance(before, _Step) and before.params is self.params:  # one for each fit
                raise ValueError(
                    "One tfs.callbacks.Checkpoint alone can be among the callbacks of fit, because "
                    f"a training goes on from one place. There are those of {self._directory!r} "
                    f"and {before.callback._directory!r}."
                )
            steps = []
            if runtime.rank() == 0:
                os.makedirs(self._directory, exist_ok=True)
                if self._directory not in _locks:
                    _locks[self._directory] = runtime.lock(self._directory, _LOCK_WAIT_S)
                steps = series.steps_of(self._directory)
        steps = runtime.allgather_object(steps, "checkpoint.steps")[0]
        self._fit += 1
        if steps and self._fit == 0:
            self._resume(series.path_of(self._directory, steps[-1]))
        if self._content is not None and self._fit > position.fit_of(self._content):
            self._content = None  # its fit was complete
        if self._content is not None and runtime.rank() == 0:
            self._tell_what_is_complete()
        self._seen_step = dense.step_of(self.model)
        if steps and self._seen_step < steps[-1]:  # it would be the newest for ever
            raise ValueError(
                f"'{self._directory}' has a checkpoint of step {steps[-1]}, and the model is at "
                f"step {self._seen_step}. Give the training a directory of its own, or remove "
                "checkpoints of later steps."
            )
        if self._clock is not None:
            self._clock.start()
        self._epochs_before = 0  # those that Keras does not count
        self._iterator, self._taken_before = None, 0
        self._epoch = self._steps = None  # the current one; how many batches it has, if known
        self._batch = self._passed_over = 0
        self._is_begun = self._is_exhausted = self._save_next = self._was_moved = False
        # Keras calls what make_train_function has made, once a step, with the iterator of the data.
        if isinstance(before, _Step):  # left behind by a fit that has failed
            before = before.train
        self._train = before
        self.model.train_function = _Step(self, before)

    def _resume(self, path):
        self.resumed_step = self._saved_step = restoring.restore(self.model, path)
        with runtime.together("checkpoint.position"):
            content = manifest.read(path)
        if "position" in content:
            self._path, self._content = path, content
        if runtime.rank() == 0:
            tf.get_logger().info(f"Resumed from '{path}'.")

    def _tell_what_is_complete(self):
        fit, complete = position.fit_of(self._content), position.epoch_of(self._content)
        wanted = self.params["epochs"]
        if self._fit < fit:
            tf.get_logger().warning(
                f"'{self._path}' was saved in fit number {fit} with this callback, so number "
                f"{self._fit} trains nothing. Make a new callback to train it."
            )
        elif complete >= wanted:
            tf.get_logger().warning(
                f"'{self._path}' has {complete} epochs complete, so that of {wanted} none is left "
                "to train. Give fit more epochs to go on."
            )

    def on_epoch_begin(self, epoch, logs=None):
        """Counts."""
        self._step_before = dense.step_of(self.model)
        if self._content is not None and self._fit == position.fit_of(self._content):
            complete = position.epoch_of(self._content)
            self._epochs_before = max(0, complete - epoch)
            if epoch > complete:
                self._content = None  # the user wants to go on behind what was interrupted
            else:
                self._passed_over, _ = position.scaled(self._content, runtime.size())
        self._epoch = epoch + self._epochs_before
        self._taken_before += self._batch
        self._batch = 0
        self._is_exhausted = False
        self._steps = self.params["steps"] or self._steps

    def on_train_batch_begin(self, batch, logs=None):
        """Tells this `fit` from another one that has what an interrupted one has left behind."""
        self._is_begun = True

    def _step(self, iterator):
        """A step of this `fit`."""
        if self._is_complete():
            self.model.stop_training = True
            return {}
        if iterator is not self._iterator:
            self._iterator, self._taken_before = iterator, 0
            if self._content is not None:
                batch, taken = position.scaled(self._content, runtime.size())
                position.advance(iterator, self._content, self._path)
                self._was_moved = taken > batch
                self._taken_before = taken - batch
                self._content = None
        if self._save_next:
            self._save_next = False
            self._save(self._place())
        if self._batch < self._passed_over:
            return {}  # it was trained before
        try:
            return self._train(iterator)
        except (tf.errors.OutOfRangeError, StopIteration):
            if self.params["steps"] and self._was_moved:
                raise RuntimeError(
                    f"The data have ended after {self._batch} of {self.params['steps']} batches of "
                    "an epoch, for what was trained before the training was interrupted was taken "
                    "from them once more. Keras repeats arrays `epochs - initial_epoch` times: "
                    "give fit no `initial_epoch`, or a tf.data.Dataset with repeat()."
                ) from None
            # Keras did not know how many there are.
            self._is_exhausted, self._steps = True, self._batch
            self._save_next = self._saved_step == dense.step_of(self.model)  # see below
            raise

    def on_train_batch_end(self, batch, logs=None):
        """Saves when it is time."""
        if self._is_complete():
            return
        self._batch = batch + 1
        if self._batch <= self._passed_over:
            return
        if self._clock is not None:
            due = self._clock.is_due()
        elif self._every_steps is not None:
            before, self._seen_step = self._seen_step, dense.step_of(self.model)
            due = before // self._every_steps < self._seen_step // self._every_steps
        else:
            due = False
        # The iterator of a complete epoch has forgotten how the next ones are shuffled; that of the
        # next one knows. With the next step it is known, too, whether there is a next one.
        if due and self._batch == self._steps:
            self._save_next = True
        elif due:
            self._save(self._place())

    def on_epoch_end(self, epoch, logs=None):
        """Ends the training after as many epochs as it has in all."""
        has_trained = not self._is_complete() and self._batch > self._passed_over
        if has_trained and dense.step_of(self.model) == self._step_before:
            raise RuntimeError(
                f"An epoch has ended, and the step of the model's optimizer is {self._step_before} "
                "as before. Checkpoints are counted by it, so a model that trains by optimizers of "
                "its own needs `tfs.save` in a callback of its own."
            )
        self._passed_over = 0
        if self._clock is None and self._every_steps is None:
            self._save_next = True
        if self._epochs_before and self._epoch + 1 >= self.params["epochs"]:
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        """Saves the end."""
        self.model.train_function = self._train
        if self._epoch is not None and not self._is_complete():
            place = self._place()
            if self._is_exhausted or self._batch == self._steps:
                place = position.Position(self._fit, self._epoch + 1, 0, taken=0, iterator=None)
            if dense.step_of(self.model) != self._saved_step or self._save_next:
                self._save(place, at_end=True)
        self._iterator = None
        self._finish_removal()
        if self._directory in _locks:
            os.close(_locks.pop(self._directory))

    def _is_complete(self):
        """Whether nothing was left when this epoch began, which Keras begins nevertheless."""
        is_earlier = self._content is not None and self._fit < position.fit_of(self._content)
        return is_earlier or self._epoch >= self.params["epochs"]

    def _place(self):
        taken = self._taken_before + self._batch
        return position.Position(self._fit, self._epoch, self._batch, taken, self._iterator)

    def _save(self, place, at_end=False):
        step = dense.step_of(self.model)
        self._finish_removal()  # there must be room
        try:
            saving.write(self.model, series.path_of(self._directory, step), place)
        except Exception as error:  # of whatever kind: it is one on all ranks, or on none
            if at_end:
                raise
            tf.get_logger().error(f"Step {step} was not saved, training goes on: {error}")
        else:
            self._saved_step = step
            with contextlib.suppress(OSError):  # the next one tries again
                if runtime.rank() == 0:
                    self._removal = series.prune(self._directory, self._keep)
        if self._clock is not None:
            self._clock.start()

    def _finish_removal(self):
        if self._removal is not None:
            self._removal.join()
            self._removal = None


class _Step:
    """Stands in the place of a model's train function while a `Checkpoint` takes part in a fit.

    A fit that has failed leaves it behind; then it does what the train function does.

    Args:
        callback: the `Checkpoint`.
        train: the model's train function.
    """

    def __init__(self, callback, train):
        self.callback, self.train, self.params = callback, train, callback.params

    def __call__(self, iterator):
        """One call of the train function."""
        is_of_this_fit = self.callback.params is self.params and self.callback._is_begun
        self.callback._is_begun = False
        return self.callback._step(iterator) if is_of_this_fit else self.train(iterator)


class _Clock:
    """Tells, on all ranks at the same step, when some time has passed on rank 0.

    Ranks ask each other only where rank 0 may say yes: it tells them how many steps they need not
    ask, half as many as it expects to fit into the time that is left.

    Args:
        period_s: the time.
    """

    def __init__(self, period_s):
        self.period_s = period_s
        self._steps_left = 1

    def start(self):
        """The time begins."""
        self._start = time.monotonic()
        self._asked, self._steps_asked_for = self._start, self._steps_left

    def is_due(self):
        """To be called after each step."""
        self._steps_left -= 1
        if self._steps_left > 0:
            return False
        answer = self._answer() if runtime.rank() == 0 else None
        due, self._steps_left = runtime.allgather_object(answer, "checkpoint.clock")[0]
        return due

    def _answer(self):
        now = time.monotonic()
        step_s = max((now - self._asked) / self._steps_asked_for, 1e-6)
        left_s = self.period_s - (now - self._start)
        due = left_s < step_s / 2
        if due:
            left_s = self.period_s
        # Steps may become slower, so it does not wait for long.
        steps = max(1, math.floor(min(left_s / 2, _LONGEST_WAIT_S) / step_s))
        self._asked, self._steps_asked_for = now, steps
        return due, steps


def _positive(name, value, convert):
    if value is None:
        return None
    try:
        number = convert(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < number < math.inf:
        kind = "an integer" if convert is operator.index else "a number"
        raise ValueError(f"`{name}` must be {kind} > 0, or None. Received: {value!r}.")
    return number
