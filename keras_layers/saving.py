"""Keeps Keras from saving a model without its rows.

Keras's weight formats know variables; the rows of a table are none. Until tables are part of
checkpoints, each way of saving fails with one message instead of dropping them.
"""

import tensorflow as tf

from tfsparse.embedding.protocol import are_rows_kept_elsewhere

_MESSAGE = (
    "The rows of table '{name}' are not part of Keras's and TensorFlow's save formats yet, and "
    "saving the model without them would lose what was trained. tfs.export(model, dir) writes a "
    "SavedModel for serving; layer.table.export() yields keys, rows and optimizer slots."
)


def refuse(name):
    """Raises the error that every unsupported way of saving meets."""
    raise NotImplementedError(_MESSAGE.format(name=name))


class UnsavedRows(tf.saved_model.experimental.TrackableResource):
    """Stands in TensorFlow's object graph where the rows are: checkpoints and SavedModels.

    Args:
        shard: the `ShardedTable`.
    """

    def __init__(self, shard):
        """See the class."""
        super().__init__()
        self._shard = shard

    def _create_resource(self):
        return self._shard.handle

    def _serialize_to_tensors(self):
        if are_rows_kept_elsewhere():
            return {}
        refuse(self._shard.name)

    def _restore_from_tensors(self, restored_tensors):
        if not are_rows_kept_elsewhere():
            refuse(self._shard.name)


class RowsPlaceholder:
    """Stands among a layer's weights where the rows are: `get_weights`, legacy `.h5`.

    It looks like an empty weight to code that counts or lists weights, and refuses to give or
    take a value.

    Args:
        name: the table's name.
    """

    dtype = tf.float32
    shape = tf.TensorShape([0])
    trainable = False

    def __init__(self, name):
        """See the class."""
        self._table_name = name
        self.name = f"{name}/rows"

    def __repr__(self):
        """What Keras prints of weights that a format, as legacy `.h5`, does not take."""
        return f"<{_MESSAGE.format(name=self._table_name)}>"

    def refuse(self):
        """Raises."""
        refuse(self._table_name)

    def numpy(self):
        """Raises: there is no array of all rows."""
        self.refuse()

    def assign(self, value):
        """Raises: rows come one by one."""
        self.refuse()


# For those who only look at weights, as the histograms of the TensorBoard callback.
tf.register_tensor_conversion_function(
    RowsPlaceholder, lambda rows, dtype=None, name=None, as_ref=False: tf.zeros([0])
)
