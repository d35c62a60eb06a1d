"""What the commands for checkpoints share."""

import os
import signal
import sys

_STATUS_OF_SIGPIPE = 128 + signal.SIGPIPE  # as shells give it


def run(work, arguments, failed):
    """Runs a command that reads checkpoints; what is wrong with one is told in a line.

    Args:
        work: called with `arguments`; it returns the exit status.
        arguments: of the command line.
        failed: the exit status where `work` cannot do what it should.

    Returns:
        The exit status.
    """
    # TensorFlow reads both when it is loaded: its notices would stand among what is printed, and
    # it would take the memory of GPUs on which others may be training.
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    try:
        import tensorflow as tf

        from tfsparse import checkpoint  # noqa: F401, whether it can be
    except ImportError as error:
        print(f"{error}\nSee what `tfsparse doctor` says.", file=sys.stderr)
        return failed
    try:
        status = work(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # who reads has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _STATUS_OF_SIGPIPE
    except (ValueError, OSError, RuntimeError, tf.errors.OpError) as error:
        told = getattr(error, "message", None) or str(error)
        print(f"tfsparse {arguments.command}: {told}", file=sys.stderr)
        return failed


def tell(title, text):
    """Prints a line of what a command found."""
    print(f"{title:<16}{text}")


def bytes_told(count):
    """A number of bytes as a short text."""
    if count < 1 << 10:
        return f"{count} bytes"
    unit = next((i for i in (1, 2, 3) if count < 1 << 10 * (i + 1)), 4)
    return f"{count / (1 << 10 * unit):.1f} {('KiB', 'MiB', 'GiB', 'TiB')[unit - 1]}"
