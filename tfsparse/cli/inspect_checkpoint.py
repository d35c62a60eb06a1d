"""`tfsparse inspect`: what is in a checkpoint, and whether it is whole."""

import os
import time

from tfsparse_cli import checkpoints
from tfsparse_cli.checkpoints import bytes_told, tell


def add_to(commands):
    """Adds the command to argparse's `commands`."""
    text = "print what is in a checkpoint of tfs.save"
    more = "; exit status 0 when nothing is wrong with it, 1 when it is damaged or none"
    command = commands.add_parser("inspect", help=text, description=text + more)
    command.add_argument("directory", metavar="DIR", help="of the checkpoint")
    command.add_argument(
        "--verify", action="store_true", help="compare every byte with its checksum"
    )
    command.set_defaults(run=run)


def run(arguments):
    """Prints what is in a checkpoint; returns the exit status."""
    return checkpoints.run(_inspect, arguments, failed=1)


def _inspect(arguments):
    from tfsparse.checkpoint import checking, inspecting

    path, content = inspecting.open_checkpoint(arguments.directory)
    if not arguments.verify:
        checking.require_files(path, content)
    _tell_checkpoint(path, content)
    if arguments.verify:
        faults = checking.faults(path, content)
        for fault in faults:
            tell("damaged", fault)
        if faults:
            return 1
        tell("verified", "every byte is as it was written")
    for of_table in content["tables"]:
        _tell_table(path, content, of_table)
    return 0


def _tell_checkpoint(path, content):
    from tfsparse.checkpoint import inspecting, manifest

    saved_s = os.path.getmtime(os.path.join(path, manifest.NAME))
    row_files = [file for of_table in content["tables"] for file in of_table["files"]]
    size = sum(file["bytes"] for file in row_files + content["dense"])
    weights, values = inspecting.count_weights(content)
    tell("checkpoint", path)
    written = f"tfsparse {content['tfsparse']}, TensorFlow {content['tensorflow']}"
    tell("format", f"version {content['version']}, written by {written}")
    tell("saved", time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(saved_s)))
    tell("step", content["step"] if content["step"] is not None else "none: without optimizer")
    if "position" in content:
        place = content["position"]
        tell("position", f"epoch {place['epoch']}, behind {place['batch']} batches of a rank")
    tell("ranks", content["num_ranks"])
    tell("optimizer", content["optimizer"] or "none")
    tell("weights", f"{weights}, with {values:,} values in all")
    tell("size", f"{bytes_told(size)} in {len(row_files + content['dense'])} files")


def _tell_table(path, content, of_table):
    from tfsparse.checkpoint import inspecting

    size = sum(file["bytes"] for file in of_table["files"])
    rows = inspecting.rows_of_ranks(content, of_table)
    settings = f"seed {of_table['seed']}, default {of_table['default']}"
    print()
    tell("table", f"'{of_table['name']}', dim {of_table['dim']}")
    tell("  optimizer", inspecting.describe_rule(**of_table["optimizer"]))
    tell("  initializer", f"{inspecting.describe_initializer(of_table)}, {settings}")
    tell("  rows", f"{of_table['rows']:,}, {min(rows):,} to {max(rows):,} a rank")
    tell("  size", f"{bytes_told(size)} in {len(of_table['files'])} files")
    print(f"  {'column':<14}{'floats':>6}{'mean norm':>13}{'smallest':>13}{'largest':>13}")
    for column, found in inspecting.column_statistics(path, of_table).items():
        numbers = (found.mean_norm, found.smallest, found.largest)
        told = "".join(f"{'-' if n is None else format(n, '.6g'):>13}" for n in numbers)
        print(f"  {column:<14}{of_table['columns'][column]:>6}{told}", end="")
        bad = found.rows_not_finite
        print(f"  {bad:,} rows with NaN or infinite values, not counted here" if bad else "")
