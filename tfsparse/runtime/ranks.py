"""The processes of a job. The only module that imports Horovod.

Started by `horovodrun` (or `mpirun`), each process is a rank; otherwise there is one rank and
Horovod is never imported. Collectives carry explicit names: Horovod's default names come from
the graph, which retracing and nested functions change on some ranks only.
"""

import atexit
import os
import threading

import tensorflow as tf

from tfsparse import stack
from tfsparse.runtime import watch

# Set by the launchers for every process they start.
_LAUNCHER_VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

# Seconds after which a process or host that does not answer ends the job. One that computes or
# reads does answer: Horovod has threads for that. Horovod's own 30 s would also bound how far apart
# ranks may reach `init`, and Python packages can take longer to load.
_SILENCE_LIMIT = "HOROVOD_GLOO_TIMEOUT_SECONDS", "120"

_hvd = None
_watch = None
_leaving = threading.Lock()


def _launched():
    return any(variable in os.environ for variable in _LAUNCHER_VARIABLES)


def init():
    """Joins the job: Horovod under `horovodrun`, otherwise a job of one process.

    Call it first in the program. Calling it again does nothing. With GPUs, the process sees
    only the GPU number `local_rank()`.

    Raises:
        ValueError: an environment variable that sets a limit is not a number of seconds.
        ImportError: the process was started by `horovodrun`, but Horovod is missing, built for
            another TensorFlow, or does not load.
    """
    global _hvd, _watch
    if _hvd is not None or not _launched():
        return
    check_s, limit_s = watch.limits()
    os.environ.setdefault(*_SILENCE_LIMIT)
    stack.check_horovod()
    try:
        import horovod.tensorflow as hvd
    except Exception as error:
        raise stack.horovod_failure(error) from None
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    _hvd = hvd
    if hvd.size() > 1 and os.environ.get(watch.DISABLE) != "1":
        _watch = watch.Watch(hvd.rank(), hvd.size(), _allgather_begun, _leave, check_s, limit_s)
        atexit.register(shutdown)  # its thread must not outlive the interpreter


def shutdown():
    """Leaves the job. The other ranks must do so too."""
    global _hvd, _watch
    if _watch is not None:
        _watch.close()
    if _hvd is not None:
        _leave()
        _hvd = None
    if _watch is not None:
        _watch.join()
        _watch = None


def _leave():
    with _leaving:  # the watch may do so at the same time
        _hvd.shutdown()


def _allgather_begun(counts):
    return _hvd.allgather(counts, name="tfsparse.watch", ignore_name_scope=True)


def _begins(tensor, name):
    """`tensor` for a collective that waits for other ranks; `name` is its name."""
    return tensor if _watch is None else _watch.begins(tensor, name)


def _world():
    if _hvd is None and _launched():
        raise RuntimeError("Call tfs.init() first: this process was started as one of several.")
    return _hvd


def rank():
    """This process's number, 0 to `size() - 1`."""
    world = _world()
    return world.rank() if world else 0


def size():
    """The number of processes of the job."""
    world = _world()
    return world.size() if world else 1


def local_rank():
    """This process's number among those on the same host."""
    world = _world()
    return world.local_rank() if world else 0


def local_size():
    """The number of processes of the job on this host; 1 before `init`."""
    return _hvd.local_size() if _hvd else 1


def allreduce_sum(tensor, name):
    """The sum of `tensor` over all ranks."""
    if size() == 1:
        return tf.convert_to_tensor(tensor)
    tensor = _begins(tensor, name)
    return _hvd.allreduce(tensor, op=_hvd.Sum, name=f"tfsparse.{name}", ignore_name_scope=True)


def alltoall(tensor, counts, name):
    """Sends each rank its rows of `tensor` and returns the rows sent to this one.

    Every rank must call it at the same point of the step.

    Args:
        tensor: `[sum(counts), ...]`, rows for rank 0 first.
        counts: int32 `[size()]`, rows for each rank.
        name: the same on all ranks; not in flight twice.

    Returns:
        The received rows in rank order, and how many came from each rank, int32 `[size()]`.
    """
    if size() == 1:
        return tensor, counts
    tensor = _begins(tensor, name)
    return _hvd.alltoall(tensor, splits=counts, name=f"tfsparse.{name}", ignore_name_scope=True)


def broadcast(tensor, name, root_rank=0):
    """`tensor` of rank `root_rank`, on every rank. Defaults to rank 0."""
    if size() == 1:
        return tf.convert_to_tensor(tensor)
    tensor = _begins(tensor, name.rstrip(".0123456789"))  # those of many variables as one
    return _hvd.broadcast(tensor, root_rank, name=f"tfsparse.{name}", ignore_name_scope=True)


def allgather_object(value, name):
    """The values of all ranks, as a list in rank order. For small, picklable things."""
    if size() == 1:
        return [value]
    _begins(tf.constant(0), name)
    return _hvd.allgather_object(value, name=f"tfsparse.{name}")


def told(variables):
    """Types and shapes of variables, as a text for `require_same`."""
    return ", ".join(f"{v.dtype.name}{v.shape.as_list()}" for v in variables) or "none"


def require_same(description):
    """Raises on every rank unless all ranks bring the same text.

    There is one meeting point for whatever ranks do together outside of steps. Ranks that are
    about different things meet here too, and are told, instead of waiting for each other.

    Args:
        description: what this rank is about to make or do.

    Raises:
        ValueError: ranks bring different texts; it lists them.
    """
    ranks_by_text = {}
    for number, text in enumerate(allgather_object(description, "meeting")):
        ranks_by_text.setdefault(text, []).append(str(number))
    if len(ranks_by_text) > 1:
        found = "".join(
            f"\n  rank {', '.join(ranks)}: {text}" for text, ranks in ranks_by_text.items()
        )
        raise ValueError(
            "All ranks must make the same tables, train the same variables, and save and restore "
            f"in the same places, in the same order. Received:{found}"
        )


def agree(error, name):
    """Raises on every rank if any rank brings an error; returns on none then.

    Call it where all ranks have finished something that can fail on one of them.

    Args:
        error: this rank's exception, or None.
        name: of the exchange, the same on all ranks.
    """
    texts = allgather_object(None if error is None else f"{type(error).__name__}: {error}", name)
    if error is not None:
        raise error
    failed = [f"rank {r}: {text}" for r, text in enumerate(texts) if text is not None]
    if failed:
        raise RuntimeError("Another rank failed. " + "; ".join(failed))
