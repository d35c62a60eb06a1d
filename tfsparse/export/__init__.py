"""Models for serving."""

from tfsparse.export.saved_model import export

__all__ = ["export"]
