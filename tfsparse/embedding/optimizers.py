"""Optimizers of tables, named and parameterised as in Keras.

A table's optimizer is *lazy*: a step changes only the rows that have a gradient in it, slots
included. `Table(optimizer="auto")`, the default, follows the Keras optimizer of the model; one
of these gives a table a rule and a rate of its own.
"""

import dataclasses

from tfsparse.embedding.bounds import LARGEST, require_between

# Beyond float32's smallest normal number, epsilon would be 0 in the core and 0 / 0 a NaN.
_SMALLEST = 1.2e-38
_BELOW_1 = 1 - 2**-24  # the largest beta whose 1 - beta is a float32 above 0


@dataclasses.dataclass(frozen=True)
class SGD:
    """`w -= learning_rate * g`.

    Args:
        learning_rate: float >= 0. Defaults to 0.01.
    """

    learning_rate: float = 0.01

    def __post_init__(self):
        """Checks the arguments."""
        require_between(self, "learning_rate", 0, LARGEST, ">= 0, at most 1e12")

    def rule(self):
        """The core's name for the formula, and its arguments."""
        return "sgd", []


@dataclasses.dataclass(frozen=True)
class Adagrad:
    """`a += g * g; w -= learning_rate * g / sqrt(a + epsilon)` (Duchi, Hazan, Singer 2011).

    The same bits of state as Keras's Adagrad on the rows of a batch; lazy and dense agree,
    because a zero gradient changes nothing.

    Args:
        learning_rate: float >= 0. Defaults to 0.001.
        initial_accumulator_value: float >= 0. Defaults to 0.1.
        epsilon: float > 0. Defaults to 1e-7.
    """

    learning_rate: float = 0.001
    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7

    def __post_init__(self):
        """Checks the arguments."""
        require_between(self, "learning_rate", 0, LARGEST, ">= 0, at most 1e12")
        require_between(self, "initial_accumulator_value", 0, LARGEST, ">= 0, at most 1e12")
        require_between(self, "epsilon", _SMALLEST, LARGEST, "> 0 in float32, at most 1e12")

    def rule(self):
        """The core's name for the formula, and its arguments."""
        return "adagrad", [self.initial_accumulator_value, self.epsilon]


@dataclasses.dataclass(frozen=True)
class Adam:
    """Adam (Kingma, Ba 2015) with a step count in each row.

    `t += 1; m += (1 - beta_1) * (g - m); v += (1 - beta_2) * (g * g - v);
    w -= learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon)`

    `t` counts the updates of this row, not the steps of the model: a row that appears late
    gets the same bias correction as one that appeared early, and the moments of a row do not
    decay while its key is absent.

    Args:
        learning_rate: float >= 0. Defaults to 0.001.
        beta_1: float in [0, 1). Defaults to 0.9.
        beta_2: float in [0, 1). Defaults to 0.999.
        epsilon: float > 0. Defaults to 1e-7.
    """

    learning_rate: float = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    def __post_init__(self):
        """Checks the arguments."""
        require_between(self, "learning_rate", 0, LARGEST, ">= 0, at most 1e12")
        require_between(self, "beta_1", 0, _BELOW_1, "in [0, 1)")
        require_between(self, "beta_2", 0, _BELOW_1, "in [0, 1)")
        require_between(self, "epsilon", _SMALLEST, LARGEST, "> 0 in float32, at most 1e12")

    def rule(self):
        """The core's name for the formula, and its arguments."""
        return "adam", [1 - self.beta_1, 1 - self.beta_2, self.epsilon]


BY_NAME = {rule.__name__: rule for rule in (SGD, Adagrad, Adam)}
