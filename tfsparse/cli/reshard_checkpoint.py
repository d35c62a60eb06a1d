"""`tfsparse reshard`: a checkpoint as another number of ranks would have saved it."""

from tfsparse_cli import checkpoints
from tfsparse_cli.checkpoints import bytes_told


def add_to(commands):
    """Adds the command to argparse's `commands`."""
    text = "write a checkpoint anew, as another number of ranks would have saved it"
    command = commands.add_parser("reshard", help=text, description=text)
    command.add_argument("source", metavar="SRC", help="directory of a checkpoint")
    command.add_argument("target", metavar="DST", help="directory to be made, or empty")
    command.add_argument("--ranks", metavar="N", type=int, required=True, help="number of ranks")
    command.set_defaults(run=run)


def run(arguments):
    """Writes the checkpoint; returns the exit status."""
    return checkpoints.run(_reshard, arguments, failed=1)


def _reshard(arguments):
    from tfsparse.checkpoint import resharding

    content = resharding.reshard(arguments.source, arguments.target, arguments.ranks)
    files = [file for of_table in content["tables"] for file in of_table["files"]]
    size = sum(file["bytes"] for file in files)
    rows = sum(file["rows"] for file in files)
    print(
        f"{arguments.target}: {content['num_ranks']} ranks, {len(content['tables'])} tables with "
        f"{rows:,} rows, {bytes_told(size)} in {len(files)} files"
    )
    return 0
