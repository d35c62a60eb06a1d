"""What subclasses Keras: layers, optimizer, callbacks, input."""

from tfsparse.keras_layers.embedding import DynamicEmbedding

__all__ = ["DynamicEmbedding"]
