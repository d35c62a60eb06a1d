"""What a table is: the object users write down."""

import contextlib
import dataclasses
import numbers
import operator
import uuid
import weakref
from typing import Any, Optional, Union

from tfsparse.embedding import initializers, optimizers
from tfsparse.embedding.bounds import LARGEST

MAX_DIM = 65536

# Tables that were made from a config, by the config's uid: layers that shared a table share one
# again after `from_config`.
_revived = weakref.WeakValueDictionary()


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Table:
    """An embedding table: how its rows look and behave.

    The same object given to several layers is one table; two objects are two tables, whatever
    their names. Rows come into being when training meets their key: nothing is pre-sized.

    Args:
        name: of the table, in errors, checkpoints and exports.
        dim: floats of a row, 1 to 65,536.
        optimizer: `"auto"` (the default) follows the rule and rate of the model's Keras
            optimizer; one of `tfs.optimizers` has its own.
        initializer: one of `tfs.initializers` or its name. Defaults to `"uniform"`, which is
            uniform in [-0.05, 0.05).
        default: float that all elements of an unseen key read in evaluation and serving.
            Defaults to 0.0.
        seed: int64 that first values depend on, beside the key. Defaults to 0.
        admission: None; every key is admitted when it is first trained.
        eviction: None; no row is evicted.
        storage: None; rows are kept in memory.

    Example:
        ```python
        users = tfs.Table("users", dim=16, optimizer=tfs.optimizers.Adagrad(0.05))
        ```
    """

    name: str
    dim: int
    optimizer: Union[str, optimizers.SGD, optimizers.Adagrad, optimizers.Adam]
    initializer: Any
    default: float
    seed: int
    admission: Optional[Any]
    eviction: Optional[Any]
    storage: Optional[Any]

    # Written out because Python 3.9 has no keyword-only fields.
    def __init__(
        self,
        name,
        dim,
        *,
        optimizer="auto",
        initializer="uniform",
        default=0.0,
        seed=0,
        admission=None,
        eviction=None,
        storage=None,
    ):
        """See the class."""
        values = dict(locals())
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, values[field.name])
        self._validate()

    def _validate(self):
        for name in ("dim", "seed"):  # numpy's integers too
            with contextlib.suppress(TypeError):
                if not isinstance(getattr(self, name), bool):
                    object.__setattr__(self, name, operator.index(getattr(self, name)))

        def require(name, condition, wanted):
            if not condition:
                raise ValueError(
                    f"Table {self.name!r}: `{name}` must be {wanted}. "
                    f"Received: {getattr(self, name)!r}."
                )

        require("name", isinstance(self.name, str) and self.name, "a non-empty string")
        require("dim", _is_int(self.dim) and 1 <= self.dim <= MAX_DIM, f"an int, 1 to {MAX_DIM}")
        require(
            "optimizer",
            self.optimizer == "auto" or isinstance(self.optimizer, _OPTIMIZERS),
            '"auto" or one of tfs.optimizers',
        )
        require("default", _is_number(self.default), "a number within +-1e12")
        require("seed", _is_int(self.seed) and -(2**63) <= self.seed < 2**63, "an int64")
        for name in ("admission", "eviction", "storage"):
            require(name, getattr(self, name) is None, "None in this version")
        try:
            object.__setattr__(self, "initializer", initializers.get(self.initializer))
        except ValueError as error:
            raise ValueError(f"Table {self.name!r}: {error}") from None
        # What this object stands for at run time. `shard` is set by `shard_of`, `layers` holds
        # the names of the layers that use it.
        object.__setattr__(self, "uid", uuid.uuid4().hex)
        object.__setattr__(self, "shard", None)
        object.__setattr__(self, "layers", set())

    def get_config(self):
        """The table as plain values, for `from_config`."""
        config = {name: getattr(self, name) for name in ("name", "dim", "default", "seed", "uid")}
        config["optimizer"] = _to_config(self.optimizer)
        config["initializer"] = _to_config(self.initializer)
        return config

    @classmethod
    def from_config(cls, config, layer_name):
        """The table of a layer that is made from a config.

        Layers that shared a table share the new one. A layer name that the new table has
        already belongs to another copy of the model, which gets a table of its own.

        Args:
            config: from `get_config`.
            layer_name: of the layer that asks.
        """
        config = dict(config)
        uid = config.pop("uid")
        table = _revived.get(uid)
        if table is None or layer_name in table.layers:
            config["optimizer"] = _from_config(config["optimizer"], optimizers.BY_NAME)
            config["initializer"] = _from_config(config["initializer"], initializers.BY_NAME)
            table = cls(**config)
            _revived[uid] = table
        return table


_OPTIMIZERS = tuple(optimizers.BY_NAME.values())


def _is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value):
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_number and abs(value) <= LARGEST  # NaN is not


def _to_config(part):
    if isinstance(part, str):
        return part
    return {"class_name": type(part).__name__, "config": dataclasses.asdict(part)}


def _from_config(part, by_name):
    if isinstance(part, str):
        return part
    return by_name[part["class_name"]](**part["config"])
