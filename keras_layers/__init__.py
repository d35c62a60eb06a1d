"""What subclasses Keras: layers, optimizer, callbacks, input."""

from tfsparse.stack import check_keras

check_keras()  # before anything is made of Keras's classes

from tfsparse.keras_layers.embedding import DynamicEmbedding  # noqa: E402

__all__ = ["DynamicEmbedding"]
