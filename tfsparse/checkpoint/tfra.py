"""What TensorFlow Recommenders-Addons has saved, as a checkpoint that has tables alone.

Tables are imported one after the other. Beside what `tfra_rows` needs for a pair of files, a rank
has the rows of one table that it owns in memory, twice at most.
"""

import dataclasses
from typing import Optional

import numpy as np

from tfsparse import ops, runtime
from tfsparse.checkpoint import manifest, table_files
from tfsparse.checkpoint.new_checkpoint import NewCheckpoint, require_empty
from tfsparse.checkpoint.placing import place
from tfsparse.checkpoint.tfra_dump import DumpError, open_dump
from tfsparse.checkpoint.tfra_rows import DumpedRows
from tfsparse.embedding import optimizers
from tfsparse.embedding.config import Table
from tfsparse.embedding.table import shard_of

_ADAM, _ADAGRAD, _SGD = ("m", "v"), ("accumulator",), ("m",)
_WITHOUT_SLOTS = "Give `--without-slots` to leave them."


@dataclasses.dataclass(frozen=True)
class Training:
    """How the tables of a dump were trained, which no file of it says.

    Args:
        iterations: steps of the optimizer until the dump. TFRA corrects the bias of Adam's moments
            by it, so it becomes the number of updates of each row. None where there is no Adam.
        beta_1: of Adam. Defaults to 0.9.
        beta_2: of Adam. Defaults to 0.999.
        epsilon: of Adam or Adagrad. Defaults to 1e-7.
        initial_accumulator_value: of Adagrad. Defaults to 0.1.
        legacy: whether the model that takes the tables has one of Keras's legacy optimizers, which
            compute 1 - beta from float32. Defaults to False.
    """

    iterations: Optional[int] = None
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    initial_accumulator_value: float = 0.1
    legacy: bool = False

    def optimizer_of(self, dumped):
        """The optimizer of a `DumpedTable`, told by its slots; None if rows get no slots.

        A slot m alone is of Keras's SGD, which writes it and, without momentum, never reads it.

        Raises:
            DumpError: the slots are of no optimizer that tables have, or `iterations` is needed.
        """
        if dumped.slots == _ADAM:
            if self.iterations is None:
                raise DumpError(
                    f"'{dumped.variable}' has Adam's slots, m and v, whose bias TFRA corrects by "
                    "the steps of the optimizer. Give `--iterations N`: `optimizer.iterations` of "
                    "the model at that save. In its TensorFlow checkpoint it is "
                    "'optimizer/_iterations/.ATTRIBUTES/VARIABLE_VALUE', with `iter` for "
                    "`_iterations` of a legacy optimizer; tf.train.load_variable(checkpoint, name) "
                    "reads it."
                )
            betas = self.beta_1, self.beta_2
            if self.legacy:
                betas = tuple(float(np.float32(beta)) for beta in betas)
            return optimizers.Adam(beta_1=betas[0], beta_2=betas[1], epsilon=self.epsilon)
        if dumped.slots == _ADAGRAD:
            return optimizers.Adagrad(
                initial_accumulator_value=self.initial_accumulator_value, epsilon=self.epsilon
            )
        if dumped.slots in ((), _SGD):
            return None
        raise DumpError(
            f"'{dumped.variable}' has slots {list(dumped.slots)}. Tables have those of Adam, m and "
            f"v, and of Adagrad, accumulator. {_WITHOUT_SLOTS}"
        )


@dataclasses.dataclass(frozen=True)
class Imported:
    """What was imported of a variable.

    Args:
        variable: its name in the files.
        described: what the manifest says of the table; None if there were no rows.
        optimizer: from `tfs.optimizers`; None if rows have no slots.
        slots_left: names of slots that no table has a use for.
        rows_without_slots: rows that TFRA had no slots for, and which have those of new rows.
    """

    variable: str
    described: Optional[dict]
    optimizer: Optional[object]
    slots_left: tuple
    rows_without_slots: int


def import_dump(directory, target, training, names=None, size=None, with_slots=True):
    """Writes the tables of a dump as a checkpoint, for `tfs.restore(..., partial=True)`.

    Every rank calls it; each reads some of the files and writes the rows that it owns. The
    checkpoint appears when it is complete; until then an error removes what was written.

    Args:
        directory: of the dump.
        target: directory on a file system that all ranks see, to be made, or empty.
        training: a `Training`.
        names: as for `open_dump`.
        size: as for `open_dump`.
        with_slots: as for `open_dump`.

    Returns:
        `[Imported]`.

    Raises:
        ValueError: something is wrong with the dump, its contents or an argument.
        OSError, tf.errors.OpError: something cannot be read or written.
        RuntimeError: another rank failed; it says which, and why.
    """
    runtime.require_same(f"import {directory!r} into {target!r} by {training}")
    plan = None
    with runtime.together("tfra.open"):
        if runtime.rank() == 0:
            target = runtime.mounted_path(target)
            require_empty(target)
            tables = open_dump(directory, names, size, with_slots)
            if not any(dumped.dim for dumped in tables):
                variables = [dumped.variable for dumped in tables]
                raise DumpError(f"Variables {variables} of '{directory}' have no rows.")
            for dumped in tables:
                training.optimizer_of(dumped)
            plan = target, tables
    target, tables = runtime.allgather_object(plan, "tfra.plan")[0]
    with NewCheckpoint(target) as new:
        imported = [_import(number, table, training, new) for number, table in enumerate(tables)]
        described = [part.described for part in imported if part.described is not None]
        new.finish(manifest.describe(described))
    return imported


def _import(number, dumped, training, new):
    """Writes a table's rows, and returns an `Imported`. Every rank calls it."""
    optimizer = training.optimizer_of(dumped)
    if dumped.dim is None:
        return Imported(dumped.variable, None, optimizer, dumped.slots, 0)
    config = Table(dumped.name, dumped.dim, optimizer=optimizer or "auto")
    shard = shard_of(config)
    rows = DumpedRows(
        dumped,
        dumped.shards[runtime.rank() :: runtime.size()],
        columns=ops.describe(shard.handle)[2],
        new_slots={"m": 0, "v": 0, "accumulator": training.initial_accumulator_value},
        updates=training.iterations,
    )
    place(shard, rows.blocks())
    with runtime.together("tfra.write"):
        files = table_files.write_table(number, config, new)
    told = runtime.allgather_object((files, rows.num_without_slots), "tfra.files")
    return Imported(
        dumped.variable,
        table_files.describe_table(config, [file for files, _ in told for file in files]),
        optimizer,
        () if optimizer else dumped.slots,
        sum(count for _, count in told),
    )
