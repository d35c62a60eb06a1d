"""What stands for a table in a SavedModel: keys, rows, and a stock hash table between them.

```
key --static hash table--> row number --gather--> row

row 0   the default, for keys that have no row
row 1.. the rows of all ranks, in the order of `keys`
```

The hash table is not in the checkpoint: keys are, as a variable, and the table is filled from them
when the model is loaded. TensorFlow runs initializers after it has restored variables, in
`tf.saved_model.load` and in the C++ loader. No key is reserved, and structured ids do not collide.

Measured on two shared cores, 1M and 20M keys, batches of 100k. Mkeys/s | MB of the index | seconds
to fill it, once its file is read:

    static hash table, from a variable      7.9, 5.2 |  51, 873 | 0.16, 5.8
    DenseHashTable, from its checkpoint     4.2, 3.7 |  34, 537 | 0.02, 0.2
    MutableHashTable, key by key            3.9      |          | 1.5, 59
    StaticHashTable, from a text file       2.8      |          | 1.7, 58
    sorted keys and tf.searchsorted         0.6, 0.2 |   8, 160 | 0

`DenseHashTable` loads sooner, but reserves two keys, puts ids like `k << 40` into one bucket, and
is checkpointed as its buckets, which would have to be laid out here.
"""

import uuid

import tensorflow as tf

from tfsparse.embedding.exchange import checked


class ServingTable(tf.Module):
    """A table in the graph of a SavedModel. Layers read it as they read a shard.

    It is made empty. Its contents, which Python never holds, are put straight into the checkpoint
    under the names that `checkpoint_names` tells.

    Args:
        table: the `tfs.Table`.
    """

    def __init__(self, table):
        super().__init__()
        self._dim = table.dim
        self.keys = tf.Variable(tf.zeros([0], tf.int64), shape=[None], trainable=False)
        self.rows = tf.Variable(tf.zeros([1, table.dim]), shape=[None, table.dim], trainable=False)
        self.index = _Index(self.keys)

    @tf.autograph.experimental.do_not_convert
    def gather(self, keys, samples, training, checks=()):
        """The rows of keys, the default for keys without: int64 `[n]` -> float32 `[n, dim]`."""
        keys = checked(keys, checks)
        numbers = tf.raw_ops.LookupTableFindV2(
            table_handle=self.index.resource_handle,
            keys=keys,
            default_value=tf.constant(0, tf.int64),
        )
        return tf.ensure_shape(tf.gather(self.rows, numbers), [None, self._dim])


class _Index(tf.saved_model.experimental.TrackableResource):
    """The static hash table from `keys[i]` to `i + 1`."""

    def __init__(self, keys):
        super().__init__()
        self._keys = keys
        self._name = f"tfsparse_index_{uuid.uuid4().hex}"
        self.resource_handle  # noqa: B018  made now, or the first function that uses it makes its own

    def _create_resource(self):
        return tf.raw_ops.HashTableV2(
            key_dtype=tf.int64, value_dtype=tf.int64, shared_name=self._name
        )

    def _initialize(self):
        keys = self._keys.read_value()
        numbers = 1 + tf.range(tf.size(keys, tf.int64), dtype=tf.int64)
        tf.raw_ops.InitializeTableV2(table_handle=self.resource_handle, keys=keys, values=numbers)


def checkpoint_names(number):
    """The names in the checkpoint of `module.tables[number]`'s keys and rows.

    They follow from how TensorFlow names what hangs on a `tf.Module`.
    """
    return tuple(f"tables/{number}/{part}/.ATTRIBUTES/VARIABLE_VALUE" for part in ("keys", "rows"))
