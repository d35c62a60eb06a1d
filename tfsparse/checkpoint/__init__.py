"""Checkpoints: all of a model and its tables, for any number of ranks."""

from tfsparse.checkpoint.restoring import restore
from tfsparse.checkpoint.saving import save

__all__ = ["restore", "save"]
