"""The command line of `tfsparse`: each command is a module with `add_to(commands)`."""

import argparse
import sys
from importlib import metadata

from tfsparse_cli import (
    diff_checkpoints,
    doctor,
    import_tfra,
    inspect_checkpoint,
    reshard_checkpoint,
)

COMMANDS = (doctor, inspect_checkpoint, reshard_checkpoint, diff_checkpoints, import_tfra)


def main():
    """Runs the command that was asked for and exits with its status."""
    parser = argparse.ArgumentParser(prog="tfsparse", description="Tools for tfsparse.")
    version = f"tfsparse {metadata.version('tfsparse')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    arguments = parser.parse_args()
    sys.exit(arguments.run(arguments))
