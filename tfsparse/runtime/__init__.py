"""Ranks, and what they say to each other."""

from tfsparse.runtime.names import unique_name
from tfsparse.runtime.ranks import (
    agree,
    allgather_object,
    allreduce_sum,
    alltoall,
    broadcast,
    init,
    local_rank,
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
    "rank",
    "require_same",
    "shutdown",
    "size",
    "told",
    "unique_name",
]
