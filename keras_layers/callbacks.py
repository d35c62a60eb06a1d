"""`tfs.callbacks`: what ranks do together around steps and epochs."""

import tensorflow as tf

from tfsparse import runtime
from tfsparse.keras_layers.checkpointing import Checkpoint
from tfsparse.keras_layers.metrics import global_results

__all__ = ["Broadcast", "Checkpoint", "GlobalMetrics"]


class Broadcast(tf.keras.callbacks.Callback):
    """Starts all ranks from rank 0's dense weights and optimizer state.

    Before the first step of each `fit`, so the first step is exact too. Rows need none: their first
    values are the same on every rank.

    Raises:
        RuntimeError: at the first step, if the model has not been built. Call it on a batch, or
            give it an input shape, before `fit`.
        ValueError: on every rank, if ranks have different variables.
    """

    def __init__(self):
        """See the class."""
        super().__init__()
        self._done = False

    def on_train_begin(self, logs=None):
        """Broadcasts again: the model, or the optimizer, may be another one."""
        self._done = False

    def on_train_batch_begin(self, batch, logs=None):
        """Broadcasts once."""
        if self._done or runtime.size() == 1:
            return
        model = self.model
        if not model.built:
            raise RuntimeError(
                "The model has no weights to broadcast yet. Call it once on a batch, or give it an "
                "input shape, before fit."
            )
        optimizer = model.optimizer
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        if isinstance(inner, tf.keras.optimizers.Optimizer):
            inner.build(model.trainable_variables)
        state = optimizer.variables
        state = state() if callable(state) else state
        variables = [v for v in (*model.variables, *state) if isinstance(v, tf.Variable)]
        variables = list({v.ref(): v for v in variables}.values())
        runtime.require_same(f"broadcast of {runtime.told(variables)}")
        for i, variable in enumerate(variables):
            variable.assign(runtime.broadcast(variable, f"variables.{i}"))
        self._done = True


class GlobalMetrics(tf.keras.callbacks.Callback):
    """Makes the metrics of a plain `tf.keras.Model` those of all ranks.

    Put it first in the list: callbacks behind it, the history and the progress bar's last line
    then see, at the end of epochs and of evaluations, values over the samples of all ranks, the
    same on every rank. What `model.evaluate()` returns remains this rank's own; read `results`.

    Attributes:
        results: `{name: float}`, of the last evaluation or, before any, training epoch.

    Example:
        ```python
        metrics = tfs.callbacks.GlobalMetrics()
        model.evaluate(test, callbacks=[metrics])
        print(metrics.results["auc"])
        ```
    """

    def __init__(self):
        """See the class."""
        super().__init__()
        self.results = {}
        self._in_epoch = False
        self._of_epoch = None
        self._of_validation = {}

    def on_epoch_begin(self, epoch, logs=None):
        """Forgets the last epoch."""
        self._in_epoch, self._of_epoch, self._of_validation = True, None, {}

    def on_test_begin(self, logs=None):
        """Keeps the epoch's training values: evaluation resets the states behind them."""
        if self._in_epoch and self._of_epoch is None:
            self._of_epoch = global_results(self.model)

    def on_test_end(self, logs=None):
        """Puts the global values into the logs."""
        self.results = self._of_validation = global_results(self.model)
        _update(logs, self.results)

    def on_epoch_end(self, epoch, logs=None):
        """Puts the global values into the logs."""
        if self._of_epoch is None:
            self._of_epoch = self.results = global_results(self.model)
        _update(logs, self._of_epoch)
        _update(logs, {f"val_{name}": value for name, value in self._of_validation.items()})
        self._in_epoch = False


def _update(logs, results):
    if logs is not None:
        logs.update({name: value for name, value in results.items() if name in logs})
