"""`tfsparse diff`: what differs between two checkpoints."""

from tfsparse_cli import checkpoints
from tfsparse_cli.checkpoints import tell


def add_to(commands):
    """Adds the command to argparse's `commands`."""
    text = "print what differs between two checkpoints, places in the data and ranks left out"
    more = "; exit status 0 when they are the same, 1 when they differ, 2 on an error"
    command = commands.add_parser("diff", help=text, description=text + more)
    command.add_argument("a", metavar="A", help="directory of a checkpoint")
    command.add_argument("b", metavar="B", help="directory of another")
    command.set_defaults(run=run)


def run(arguments):
    """Prints what differs; returns the exit status, as that of diff(1)."""
    return checkpoints.run(_diff, arguments, failed=2)


def _diff(arguments):
    from tfsparse.checkpoint import checking, comparing, inspecting

    both = [inspecting.open_checkpoint(directory) for directory in (arguments.a, arguments.b)]
    for path, content in both:
        checking.require_files(path, content)
    (path_a, content_a), (path_b, content_b) = both
    settings = comparing.compare_settings(content_a, content_b)
    tables = comparing.compare_tables(path_a, content_a, path_b, content_b)
    dense = comparing.compare_dense(path_a, content_a, path_b, content_b)

    tell("A", path_a)
    tell("B", path_b)
    for what, (in_a, in_b) in settings.items():
        _tell_pair(what, in_a, in_b)
    for name, table in tables.items():
        _tell_table(name, table)
    _tell_dense(dense)
    return 1 if settings or dense or any(tables.values()) else 0


def _tell_table(name, table):
    if not table:
        tell(f"table '{name}'", f"the same {table.in_both:,} rows")
        return
    print(f"table '{name}'")
    for what, (in_a, in_b) in table.settings.items():
        _tell_pair(f"  {what}", in_a, in_b)
    tell("  rows", f"{table.only_in_a:,} only in A, {table.only_in_b:,} only in B")
    tell("", f"{table.in_both:,} in both, of which {table.changed:,} differ")
    for column, difference in table.largest.items():
        tell(f"  {column}", f"differs by at most {difference:.6g}")


def _tell_dense(dense):
    if not dense:
        tell("dense variables", f"the same {dense.compared:,}")
        return
    print(f"dense variables: {len(dense.largest):,} of {dense.compared:,} in both differ")
    for name, (in_a, in_b) in dense.shapes.items():
        print(f"  {name}: {in_a or 'absent'} -> {in_b or 'absent'}")
    for name, difference in dense.largest.items():
        print(f"  {name} differs by at most {difference:.6g}")


def _tell_pair(what, in_a, in_b):
    tell(what, f"{in_a} -> {in_b}")
