"""Ranks, and what they say to each other."""

from tfsparse.runtime.files import lock, missing_folders, mounted_path, sync, together
from tfsparse.runtime.names import unique_name
from tfsparse.runtime.ranks import (
    agree,
    allgather_object,
    allreduce_sum,
    alltoall,
    broadcast,
    init,
    local_rank,
    local_size,
    rank,
    require_same,
    shutdown,
    size,
    told,
)

__all__ = [
    "agree",
    "allgather_object",
    "allreduce_sum",
    "alltoall",
    "broadcast",
    "init",
    "local_rank",
    "local_size",
    "lock",
    "missing_folders",
    "mounted_path",
    "rank",
    "require_same",
    "shutdown",
    "size",
    "sync",
    "together",
    "told",
    "unique_name",
]
