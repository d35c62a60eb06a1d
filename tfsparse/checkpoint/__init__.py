"""Checkpoints: all of a model and its tables, for any number of ranks."""

from tfsparse.checkpoint.pretrained import load_rows
from tfsparse.checkpoint.restoring import restore
from tfsparse.checkpoint.saving import save

__all__ = ["load_rows", "restore", "save"]
