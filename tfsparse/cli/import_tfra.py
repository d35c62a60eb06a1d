"""`tfsparse import-tfra`: tables that TensorFlow Recommenders-Addons has saved, as a checkpoint."""

import argparse
import dataclasses
import sys

from tfsparse_cli import checkpoints
from tfsparse_cli.checkpoints import tell

_MORE = """
DUMP is the folder of files such as users-parameter_mht_1of1_rank0_size1-keys, which TFRA calls
TFRADynamicEmbedding: of CPU or GPU tables with int64 keys and float32 values. Slots m and v are
taken as Adam's, and accumulator as Adagrad's. With many rows, horovodrun -np N tfsparse import-tfra
divides the memory among N processes.
"""


def add_to(commands):
    """Adds the command to argparse's `commands`."""
    text = "make a checkpoint of tables that TensorFlow Recommenders-Addons (TFRA) has saved"
    command = commands.add_parser("import-tfra", help=text, description=f"{text}. {_MORE}")
    add = command.add_argument
    add("dump", metavar="DUMP", help="folder that TFRA's FileSystemSaver has written")
    add("target", metavar="OUT", help="directory to be made, or empty")
    add(
        "--table",
        metavar="VARIABLE=NAME",
        type=_table,
        action="append",
        help="a variable of TFRA to be taken, and the name of its table in the new model; without "
        "any, all are taken, by their own names without -parameter",
    )
    add("--size", metavar="N", type=int, help="take files of _sizeN, if there are several")
    add("--without-slots", action="store_true", help="leave the slots of optimizers")
    add("--iterations", metavar="N", type=_count, help="steps of Adam until this dump")
    add("--beta-1", metavar="X", type=float, default=0.9, help="of Adam; default %(default)s")
    add("--beta-2", metavar="X", type=float, default=0.999, help="of Adam; default %(default)s")
    add(
        "--epsilon",
        metavar="X",
        type=float,
        default=1e-7,
        help="of Adam or Adagrad; default %(default)s",
    )
    add(
        "--initial-accumulator-value",
        metavar="X",
        type=float,
        default=0.1,
        help="of Adagrad; default %(default)s",
    )
    add(
        "--legacy",
        action="store_true",
        help="the new model has tf.keras.optimizers.legacy.Adam, whose betas are float32",
    )
    command.set_defaults(run=run)


def run(arguments):
    """Writes the checkpoint; returns the exit status."""
    return checkpoints.run(_import, arguments, failed=1)


def _import(arguments):
    from tfsparse import runtime
    from tfsparse.checkpoint import tfra

    training = tfra.Training(
        iterations=arguments.iterations,
        beta_1=arguments.beta_1,
        beta_2=arguments.beta_2,
        epsilon=arguments.epsilon,
        initial_accumulator_value=arguments.initial_accumulator_value,
        legacy=arguments.legacy,
    )
    names = None if arguments.table is None else dict(arguments.table)
    if names is not None and len(names) < len(arguments.table):
        raise ValueError(f"`--table` must name each variable once. Received: {arguments.table}.")
    try:
        runtime.init()
        imported = tfra.import_dump(
            arguments.dump,
            arguments.target,
            training,
            names=names,
            size=arguments.size,
            with_slots=not arguments.without_slots,
        )
    except (ImportError, RuntimeError) as error:  # no Horovod, or the error of another rank
        print(f"tfsparse import-tfra: {error}", file=sys.stderr)
        return 1
    if runtime.rank() == 0:
        _tell(arguments, imported)
    return 0


def _tell(arguments, imported):
    from tfsparse.checkpoint import inspecting

    tell("checkpoint", arguments.target)
    for of_variable in imported:
        if of_variable.described is None:
            tell("left out", f"'{of_variable.variable}', which has no rows")
            continue
        of_table, optimizer = of_variable.described, of_variable.optimizer
        tell(f"table '{of_table['name']}'", f"of '{of_variable.variable}'")
        tell("  rows", f"{of_table['rows']:,} of dim {of_table['dim']}")
        tell("  optimizer", inspecting.describe_rule(**of_table["optimizer"]))
        if of_variable.slots_left:
            tell(
                "", f"slot {', '.join(of_variable.slots_left)} left: SGD uses it for momentum alone"
            )
        if of_variable.rows_without_slots:
            tell("", f"{of_variable.rows_without_slots:,} rows had no slots; theirs begin anew")
    optimizers = {part.optimizer for part in imported} - {None}
    print(
        "\nUse it, with tables of these names and dims, in a model that is compiled and was called:"
    )
    print(f"  tfs.restore(model, {arguments.target!r}, partial=True)")
    for optimizer in sorted(map(_in_keras, optimizers, [arguments.legacy] * len(optimizers))):
        print(f"Slots are restored if tables follow {optimizer}, whatever its rate.")


def _in_keras(optimizer, legacy):
    """The Keras optimizer whose arguments go with those of a rule, as a text."""
    values = dataclasses.asdict(optimizer)
    del values["learning_rate"]
    told = ", ".join(f"{name}={float(f'{value:.7g}')}" for name, value in values.items())
    package = "tf.keras.optimizers.legacy" if legacy else "tf.keras.optimizers"
    return f"{package}.{type(optimizer).__name__}({told})"


def _table(text):
    variable, equals, name = text.partition("=")
    if not (variable and equals and name):
        raise argparse.ArgumentTypeError(f"must be VARIABLE=NAME. Received: {text!r}")
    return variable, name


def _count(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number, 0 or more. Received: {text!r}")
    return int(text)
