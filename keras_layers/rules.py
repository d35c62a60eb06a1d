"""Which table optimizer does what a Keras optimizer does."""

import tensorflow as tf

from tfsparse.embedding import optimizers

_KERAS = tf.keras.optimizers
_RULES = {
    _KERAS.SGD: "SGD",
    _KERAS.legacy.SGD: "SGD",
    _KERAS.Adagrad: "Adagrad",
    _KERAS.legacy.Adagrad: "Adagrad",
    _KERAS.Adam: "Adam",
    _KERAS.legacy.Adam: "Adam",
}


def rule_of(optimizer, keras_class):
    """The `tfs.optimizers` object that follows a Keras optimizer, its rate aside.

    Call it outside of graphs: hyperparameters may be variables.

    Args:
        optimizer: the Keras optimizer.
        keras_class: its class as the user chose it.

    Raises:
        ValueError: no table rule does what this optimizer, so configured, does.
    """
    rule = _RULES.get(keras_class)
    legacy = isinstance(optimizer, _KERAS.legacy.Optimizer)

    def number(name):
        # New optimizers compute 1 - beta from Python's floats, legacy ones from float32.
        value = getattr(optimizer, name)
        exact = isinstance(value, (int, float)) and not legacy
        return float(value if exact else tf.convert_to_tensor(value))

    if rule is None:
        _refuse(keras_class, "it is not SGD, Adagrad or Adam")
    for name in ("amsgrad", "use_ema", "weight_decay", "nesterov"):
        if getattr(optimizer, name, None):
            _refuse(keras_class, f"{name}={getattr(optimizer, name)!r}")
    if hasattr(optimizer, "decay") and number("decay"):  # legacy: a rate that falls with steps
        _refuse(keras_class, f"decay={number('decay')}; use a schedule instead")
    if rule == "SGD":
        if number("momentum"):
            _refuse(keras_class, f"momentum={number('momentum')}")
        return optimizers.SGD()
    if rule == "Adagrad":
        initial = keras_class.get_config(optimizer)["initial_accumulator_value"]
        if legacy and (number("epsilon") > 1e-6 or initial < 1e-2):
            # sqrt(a) + epsilon there, sqrt(a + epsilon) in Keras's new one and here
            _refuse(keras_class, "with this epsilon and initial accumulator its formula differs")
        return optimizers.Adagrad(
            initial_accumulator_value=float(initial), epsilon=number("epsilon")
        )
    return optimizers.Adam(
        beta_1=number("beta_1"), beta_2=number("beta_2"), epsilon=number("epsilon")
    )


def _refuse(keras_class, why):
    raise ValueError(
        f'Tables with optimizer="auto" follow Keras\'s SGD, Adagrad and Adam. They cannot follow '
        f"{keras_class.__name__}, because {why}. Give the table a rule of its "
        "own, as in tfs.Table(..., optimizer=tfs.optimizers.Adagrad(0.05))."
    )
