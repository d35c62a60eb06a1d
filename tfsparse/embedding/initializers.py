"""First values of rows, named as in Keras.

A new row's value is a function of the table's seed and the key alone: the same on every rank,
in every order, in every run.
"""

import dataclasses

from tfsparse.embedding.bounds import LARGEST, require_between


@dataclasses.dataclass(frozen=True)
class Zeros:
    """All zeros."""

    def kernel_arguments(self):
        """The core's name for the distribution, and its arguments."""
        return "constant", [0.0]


@dataclasses.dataclass(frozen=True)
class Constant:
    """All `value`.

    Args:
        value: float. Defaults to 0.
    """

    value: float = 0.0

    def __post_init__(self):
        """Checks the arguments."""
        require_between(self, "value", -LARGEST, LARGEST, "within +-1e12")

    def kernel_arguments(self):
        """The core's name for the distribution, and its arguments."""
        return "constant", [self.value]


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Uniform in [minval, maxval).

    Args:
        minval: float. Defaults to -0.05.
        maxval: float. Defaults to 0.05.
    """

    minval: float = -0.05
    maxval: float = 0.05

    def __post_init__(self):
        """Checks the arguments."""
        for field in ("minval", "maxval"):
            require_between(self, field, -LARGEST, LARGEST, "within +-1e12")
        if not self.minval <= self.maxval:
            raise ValueError(f"Uniform needs minval <= maxval. Received: {self}.")

    def kernel_arguments(self):
        """The core's name for the distribution, and its arguments."""
        return "uniform", [self.minval, self.maxval]


BY_NAME = {kind.__name__: kind for kind in (Zeros, Constant, Uniform)}


def get(initializer):
    """An initializer from itself or from its name in lower case, as `"uniform"`."""
    if isinstance(initializer, tuple(BY_NAME.values())):
        return initializer
    for name, kind in BY_NAME.items():
        if initializer == name.lower():
            return kind()
    raise ValueError(
        "`initializer` must be one of tfs.initializers or a name, "
        f"{', '.join(repr(name.lower()) for name in BY_NAME)}. Received: {initializer!r}."
    )
