"""How Keras's and TensorFlow's own ways of saving carry the rows of a table.

In one process all of them do: the rows stand among the weights of their layers, whole and in
memory. On several ranks a process has a part of the rows only, and ranks that write one path
race; there each way raises one error that names `tfs.save`.
"""

import json
import weakref

import numpy as np
import tensorflow as tf

from tfsparse import ops, runtime
from tfsparse.embedding.protocol import are_rows_kept_elsewhere

_EVERY_ROW = tf.int64.max

_HEAD_BYTES = 3 * 8  # of the rows as a weight: three int64

_by_shard = weakref.WeakValueDictionary()


def refuse_on_several_ranks(name):
    """Raises if this process has a part of the rows only."""
    if runtime.size() > 1:
        raise NotImplementedError(
            f"The rows of table '{name}' are spread over {runtime.size()} ranks, and Keras's and "
            "TensorFlow's own ways of saving know one process. Use tfs.save(model, dir) and "
            "tfs.restore(model, dir), which all ranks call; tfs.export(model, dir) for serving."
        )


def rows_of(shard):
    """The `TableRows` of a shard; layers that share a table share one, so it is saved once."""
    rows = _by_shard.get(id(shard))
    if rows is None:
        rows = _by_shard[id(shard)] = TableRows(shard)
    return rows


class TableRows(tf.saved_model.experimental.TrackableResource):
    """The rows of a table in TensorFlow's object graph: checkpoints and SavedModels.

    Args:
        shard: the `ShardedTable`.
    """

    def __init__(self, shard):
        """See the class."""
        super().__init__()
        self._shard = shard
        with tf.init_scope():
            self.resource_handle  # noqa: B018, from here on known as this object's

    def _create_resource(self):
        if tf.executing_eagerly():
            return self._shard.handle
        # A SavedModel is being made; whoever loads it runs this.
        refuse_on_several_ranks(self._shard.name)
        return self._shard.make()

    def _serialize_to_tensors(self):
        if are_rows_kept_elsewhere():
            return {}
        refuse_on_several_ranks(self._shard.name)
        return _to_tensors(self.resource_handle)  # which is another one in a SavedModel

    def _restore_from_tensors(self, restored_tensors):
        if are_rows_kept_elsewhere():
            return None
        refuse_on_several_ranks(self._shard.name)
        return ops.load_rows(self.resource_handle, **restored_tensors)


def _to_tensors(handle):
    keys, rows, _, _ = ops.scan(handle, 0, _EVERY_ROW)
    optimizer, arguments = ops.bound_optimizer(handle)
    return {"keys": keys, "rows": rows, "optimizer": optimizer, "arguments": arguments}


def to_store(shard, store):
    """Puts the rows into a store of Keras: `.keras`, `.weights.h5`."""
    refuse_on_several_ranks(shard.name)
    for name, tensor in _to_tensors(shard.handle).items():
        value = tensor.numpy()
        store[name] = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value


def from_store(shard, store):
    """Takes the rows out of a store of Keras."""
    refuse_on_several_ranks(shard.name)
    tensors = {name: np.asarray(store[name]) for name in ("keys", "rows", "arguments")}
    ops.load_rows(shard.handle, optimizer=np.asarray(store["optimizer"]).tobytes(), **tensors)


class RowsAsWeight:
    """The rows of a table among a layer's weights: `get_weights`, `set_weights`.

    Its value is all rows as one vector of float32 whose bits matter: it is there to be given
    back. Legacy `.h5`, which knows variables only, refuses it.

    Args:
        shard: the `ShardedTable`.
    """

    dtype = tf.float32
    shape = tf.TensorShape([None])
    trainable = False

    def __init__(self, shard):
        """See the class."""
        self._shard = shard
        self.name = f"{shard.name}/rows"

    def __repr__(self):
        """What Keras prints of weights that a format, as legacy `.h5`, does not take."""
        return (
            f"<The rows of table '{self._shard.name}', which legacy .h5 files cannot hold: save as "
            "'.keras', as '.weights.h5' or in TensorFlow's format, or use tfs.save(model, dir).>"
        )

    def numpy(self):
        """All rows, float32 `[any]`."""
        refuse_on_several_ranks(self._shard.name)
        tensors = {name: tensor.numpy() for name, tensor in _to_tensors(self._shard.handle).items()}
        rule = json.dumps([tensors["optimizer"].decode(), tensors["arguments"].tolist()]).encode()
        head = np.array([len(rule), *tensors["rows"].shape], np.int64)
        parts = [head, np.frombuffer(rule + b" " * (-len(rule) % 4), np.uint8)]
        parts += [tensors["keys"], tensors["rows"].ravel()]
        return np.concatenate([part.view(np.float32) for part in parts])

    def assign(self, value):
        """Gives the table the rows of `numpy()`.

        Raises:
            ValueError: `value` is something else.
        """
        refuse_on_several_ranks(self._shard.name)
        content = np.ascontiguousarray(value, np.float32).ravel().view(np.uint8)
        try:
            length, num_rows, width = content[:_HEAD_BYTES].view(np.int64).tolist()
            sizes = [_HEAD_BYTES, length + (-length % 4), 8 * num_rows, 4 * num_rows * width]
            if min(sizes) < 0 or sum(sizes) != len(content):
                raise ValueError("it has another length")
            _, rule, keys, rows = np.split(content, np.cumsum(sizes[:-1]))
            optimizer, arguments = json.loads(rule[:length].tobytes())
        except ValueError as error:
            raise ValueError(
                f"The weight '{self.name}' is the rows of table '{self._shard.name}', as "
                f"get_weights() gives them. Received: an array of shape {np.shape(value)} that is "
                f"something else ({error})."
            ) from None
        ops.load_rows(
            self._shard.handle,
            keys.view(np.int64),
            rows.view(np.float32).reshape(num_rows, width),
            optimizer,
            tf.constant(arguments, tf.float32),
        )


# For those who only look at weights, as the histograms of the TensorBoard callback.
tf.register_tensor_conversion_function(
    RowsAsWeight, lambda rows, dtype=None, name=None, as_ref=False: tf.zeros([0])
)
