"""`tfs.DistributedOptimizer`: a Keras optimizer that also trains tables, over all ranks."""

import inspect
import weakref

import tensorflow as tf

from tfsparse import runtime
from tfsparse.embedding import gradients
from tfsparse.embedding.table import gradient_checks, table_of
from tfsparse.keras_layers.rules import rule_of

_KERAS = tf.keras.optimizers
_LossScaleOptimizer = tf.keras.mixed_precision.LossScaleOptimizer

_classes = {}
_alive = weakref.WeakSet()


def DistributedOptimizer(optimizer):
    """Makes a Keras optimizer train tables, and average gradients over the global batch.

    Needed to train tables, on one process too, and instead of `hvd.DistributedOptimizer`. Dense
    variables are updated by the Keras optimizer as ever; rows of `optimizer="auto"` tables
    follow its rule (SGD, Adagrad or Adam) and its rate of the step, schedules and callbacks
    that set the rate included. `clipnorm`, `global_clipnorm` and `clipvalue` apply to the
    gradients of the global batch, dense ones and rows, with equal results on all ranks.

    A rank's samples are counted by the leading dimension of the ids of the first lookup, so give
    ids as `[batch, ...]`. An optimizer whose variables have no table behind them weighs ranks
    equally.

    A gradient that is not finite, on any rank, fails the step on all ranks before anything is
    updated; inside a `LossScaleOptimizer` it makes all ranks skip the step.

    In own training loops use `tape.gradient` and `apply_gradients` (or `minimize`) as usual.

    Compiling a model anew keeps the rows and their slots, while Keras starts the slots of dense
    variables afresh; a table keeps the rule it was first trained with, and another rule is an
    error.

    Args:
        optimizer: a `tf.keras.optimizers.Optimizer`, a legacy one, or a `LossScaleOptimizer`
            around one.

    Returns:
        The same object. Its class is replaced by a subclass of its class.

    Raises:
        TypeError: `optimizer` is not a Keras optimizer, or is wrapped by Horovod.
    """
    if isinstance(optimizer, _TrainsTables):
        return optimizer
    if isinstance(optimizer, _LossScaleOptimizer):
        DistributedOptimizer(optimizer.inner_optimizer)
        return optimizer
    if isinstance(optimizer, str):
        optimizer = _KERAS.get(optimizer)
    keras_class = type(optimizer)
    if "horovod" in keras_class.__module__ or hasattr(optimizer, "_allreduce_grads"):
        raise TypeError(
            "tfs.DistributedOptimizer takes the place of hvd.DistributedOptimizer: pass the Keras "
            f"optimizer itself. Received: {keras_class.__name__} wrapped by Horovod."
        )
    if isinstance(optimizer, _KERAS.legacy.Optimizer):
        mixin = _LegacyTrainsTables
    elif isinstance(optimizer, _KERAS.Optimizer):
        mixin = _NewTrainsTables
    else:
        raise TypeError(f"Expected a Keras optimizer. Received: {optimizer!r}.")
    optimizer.__class__ = _class_for(keras_class, mixin)
    optimizer._start()
    return optimizer


def _refuse_other_optimizers(table_name):
    """Raises if the gradient that is being made is for an optimizer that knows no tables.

    Keras's `minimize` asks for it, so the optimizer stands on the stack. Without this check it
    would fail later, by TensorFlow's words about shapes. AutoGraph converts the functions of
    tf_keras, though not those of keras, and then calls them tf__...
    """
    asking = None
    frame = inspect.currentframe()
    while frame is not None and asking is None:
        name = frame.f_code.co_name.removeprefix("tf__")
        if name in ("compute_gradients", "_compute_gradients", "get_gradients"):
            asking = frame.f_locals.get("self")
        frame = frame.f_back
    asking = getattr(asking, "inner_optimizer", asking)
    if isinstance(asking, _TrainsTables) or (asking is None and _alive):
        return
    found = "this program has none" if asking is None else f"this is a {type(asking).__name__}"
    raise ValueError(
        f"Table '{table_name}' is trained by tfs.DistributedOptimizer, and {found}: wrap the Keras "
        "optimizer, as in model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adam()), ...)."
        " It replaces hvd.DistributedOptimizer and is needed on one process too."
    )


gradient_checks.append(_refuse_other_optimizers)


def _class_for(keras_class, mixin):
    if keras_class not in _classes:
        made = type(
            "DistributedOptimizer",
            (mixin, keras_class),
            {"keras_class": keras_class, "__module__": __name__, "__doc__": keras_class.__doc__},
        )
        register = tf.keras.utils.register_keras_serializable("tfsparse", "DistributedOptimizer")
        _classes[keras_class] = register(made)
    return _classes[keras_class]


class _TrainsTables:
    """What both generations of Keras optimizers share.

    The reduction over ranks happens in the method that Keras calls to aggregate gradients: a
    `LossScaleOptimizer` calls it outside of its `tf.cond`, where collectives may stand.
    """

    keras_class = None

    def _start(self):
        # Clipping is ours: the inner optimizer would clip before the reduction, by norms that
        # differ from rank to rank.
        names = ("clipnorm", "global_clipnorm", "clipvalue")
        limits = {name: getattr(self, name, None) for name in names}
        self._clip = gradients.Clip(**limits)
        for name, limit in limits.items():
            if limit is not None:
                setattr(self, name, None)
        try:
            self._rule = rule_of(self, self.keras_class)
        except ValueError as error:
            self._rule = error  # matters only if an "auto" table asks for the rule
        self._collectives = None  # their name, once ranks have met
        self._met = set()
        _alive.add(self)

    def _reduce(self, grads_and_vars):
        grads_and_vars = list(grads_and_vars)
        with tf.init_scope():
            iterations = self.iterations  # legacy optimizers make it when they are first asked
            self._meet(gradients.describe(grads_and_vars))
        after, rate = iterations.read_value(), self._rate()
        return gradients.reduce(grads_and_vars, self._clip, self._collectives, after, rate)

    def _meet(self, trained):
        """Makes sure, when something new is trained, that all ranks train the same."""
        if trained in self._met:
            return
        runtime.require_same(f"first step of {self.keras_class.__name__}, {self._clip}, {trained}")
        # Drawn here, where all ranks are: some of them may have made optimizers of their own.
        self._collectives = self._collectives or runtime.unique_name("optimizer")
        self._met.add(trained)

    def _rate(self):
        """The rate of the coming step."""
        rate = self.learning_rate
        # A new optimizer with a schedule tells the rate of the step before.
        schedule = getattr(self, "_learning_rate", None)
        if isinstance(schedule, tf.keras.optimizers.schedules.LearningRateSchedule):
            rate = schedule
        if isinstance(rate, tf.keras.optimizers.schedules.LearningRateSchedule):
            rate = rate(self.iterations)
        return tf.cast(rate() if callable(rate) else rate, tf.float32)

    def _apply_all(self, reduced, apply_dense):
        reduced = list(reduced)
        if not reduced:
            return apply_dense([])
        dense = [(g, v) for g, v in reduced if table_of(v) is None]
        tables = [(g, table_of(v)) for g, v in reduced if table_of(v) is not None]
        for _, table in tables:  # first of all, because it may refuse
            self._bind(table)
        rate = self._rate()  # before the dense update moves `iterations` on
        # The dependencies tie the update, `iterations` included, to the data of the step: with a
        # dataset of unknown length Keras runs the part of a step that depends on no data once too
        # often. And the next step of this optimizer, which waits for `iterations`, begins no
        # collective before those of this step have ended.
        check = gradients.check_sound(reduced)
        ended = [gradients.values_of(gradient) for gradient, _ in reduced]
        with tf.control_dependencies([] if check is None else [check, *ended]):
            result = apply_dense(dense)
            if not dense:
                # An op, not a value: in a LossScaleOptimizer both ways of a tf.cond are ops.
                result = self.iterations.assign_add(1, read_value=False)
        with tf.control_dependencies([] if check is None else [check]):
            for slices, table in tables:
                own = table.optimizer != "auto"
                gradients.apply_rows(slices, table, table.optimizer.learning_rate if own else rate)
        return result

    @property
    def table_rule(self):
        """What "auto" tables follow, one of `tfs.optimizers`; None if they cannot."""
        return None if isinstance(self._rule, Exception) else self._rule

    def _bind(self, table):
        if table.optimizer != "auto":
            return
        if isinstance(self._rule, Exception):
            raise ValueError(f"Table '{table.name}': {self._rule}") from self._rule
        table.bind(self._rule)

    def get_config(self):
        """The class and config of the Keras optimizer inside."""
        config = super().get_config()
        for name in ("clipnorm", "global_clipnorm", "clipvalue"):
            limit = getattr(self._clip, name)
            if limit is not None:
                config[name] = limit
        legacy = isinstance(self, _KERAS.legacy.Optimizer)
        if self.keras_class is getattr(_KERAS, self.keras_class.__name__, None):
            name = self.keras_class.__name__
        elif self.keras_class is getattr(_KERAS.legacy, self.keras_class.__name__, None):
            name = f"legacy.{self.keras_class.__name__}"
        else:
            name = tf.keras.utils.get_registered_name(self.keras_class)
        return {
            "optimizer_class": name,
            "optimizer_config": config,
            "is_legacy_optimizer": legacy,
            "name": config["name"],
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """The optimizer that `get_config` described."""
        name = config["optimizer_class"]
        keras_class = tf.keras.utils.get_registered_object(name, custom_objects)
        if keras_class is None:
            module = _KERAS.legacy if name.startswith("legacy.") else _KERAS
            keras_class = getattr(module, name[len("legacy.") :] if "." in name else name, None)
        if keras_class is None:
            raise ValueError(
                f"Unknown optimizer class {name!r}: register it by "
                "tf.keras.utils.register_keras_serializable, or pass it in `custom_objects`."
            )
        return DistributedOptimizer(keras_class.from_config(dict(config["optimizer_config"])))


class _NewTrainsTables(_TrainsTables):
    def make_variables(self, var_list):
        """Makes `iterations` and slots, which otherwise the first step would."""
        self.build(var_list)

    def build(self, var_list):
        super().build([variable for variable in var_list if table_of(variable) is None])

    def aggregate_gradients(self, grads_and_vars):
        return self._reduce(grads_and_vars)

    def apply_gradients(
        self, grads_and_vars, name=None, skip_gradients_aggregation=False, **kwargs
    ):
        aggregate = kwargs.pop("experimental_aggregate_gradients", True)
        if aggregate and not skip_gradients_aggregation:
            grads_and_vars = self.aggregate_gradients(grads_and_vars)

        def apply_dense(dense):
            # Keras returns early from an empty list, before it builds `iterations`' peers.
            return super(_NewTrainsTables, self).apply_gradients(
                dense, name=name, skip_gradients_aggregation=True
            )

        return self._apply_all(grads_and_vars, apply_dense)


class _LegacyTrainsTables(_TrainsTables):
    def make_variables(self, var_list):
        """Makes `iterations`, hyperparameters and slots, which otherwise the first step would."""
        self._create_all_weights(var_list)

    def _create_all_weights(self, var_list):
        super()._create_all_weights([v for v in var_list if table_of(v) is None])

    def _aggregate_gradients(self, grads_and_vars):
        return self._reduce(grads_and_vars)

    def apply_gradients(self, grads_and_vars, name=None, experimental_aggregate_gradients=True):
        if experimental_aggregate_gradients:
            grads_and_vars = self._aggregate_gradients(grads_and_vars)

        def apply_dense(dense):
            if not dense:
                return None
            return super(_LegacyTrainsTables, self).apply_gradients(
                dense, name=name, experimental_aggregate_gradients=False
            )

        return self._apply_all(grads_and_vars, apply_dense)


tf.keras.utils.register_keras_serializable("tfsparse", "DistributedOptimizer")(_NewTrainsTables)
