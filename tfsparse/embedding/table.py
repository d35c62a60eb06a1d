"""A table spread over the ranks: lookups on the tape, updates, and looking inside."""

import weakref

import numpy as np
import tensorflow as tf

from tfsparse import ops, runtime
from tfsparse.embedding.exchange import Exchange
from tfsparse.embedding.keys import as_keys
from tfsparse.embedding.ownership import owners_of

# `dense_shape[0]` of a row gradient is this plus the samples it comes from. Nothing can make it
# dense by accident: that asks for petabytes and fails, on every device.
SAMPLES_OFFSET = 1 << 40

_SCAN_ROWS = 65536

_by_anchor = weakref.WeakValueDictionary()

# Called with a table's name when a gradient of its rows is made; they raise if it cannot be used.
gradient_checks = []


def shard_of(config):
    """The run-time side of a `tfs.Table` on this rank, made at the first call.

    All ranks make it together.

    Raises:
        ValueError: on every rank, if they do not make the same table.
    """
    if config.shard is None:
        with tf.init_scope():
            description = {**config.get_config(), "uid": None}
            runtime.require_same(f"table {config.name!r}: {description}")
            object.__setattr__(config, "shard", ShardedTable(config))
    return config.shard


def table_of(variable):
    """The table whose anchor `variable` is, or None."""
    return _by_anchor.get(variable.ref())


# A registered gradient and not tf.custom_gradient, which keeps its closure, and so the graph and
# the table, for as long as the process lives.
@tf.RegisterGradient("Tfsparse>Anchored")
def _gradient_of_rows(op, row_gradients):
    keys, samples = op.inputs[2], op.inputs[3]
    table_name = op.get_attr("table_name")
    table_name = table_name.decode() if isinstance(table_name, bytes) else table_name
    for check in gradient_checks:
        check(table_name)
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if "Grad" in type(graph).__name__:  # the gradient of a branch or of a loop's body
        raise NotImplementedError(
            f"Table '{table_name}' cannot be trained from inside tf.cond, tf.while_loop or "
            "tf.map_fn. Call the layer outside and pass its output in."
        )
    # The scope's name is what TensorFlow prints if an optimizer that does not know tables trips
    # over these slices.
    with tf.name_scope("wrap_the_optimizer_in_tfs.DistributedOptimizer"):
        values = tf.identity(row_gradients)
        dim = tf.shape(values, tf.int64)[1]
        slices = tf.IndexedSlices(values, keys, tf.stack([SAMPLES_OFFSET + samples, dim]))
    return slices, None, None, None


class ShardedTable:
    """One table over all ranks, as `layer.table`.

    `size`, `lookup` and `gather` speak of the whole table: every rank calls them together.

    Its *anchor* is one trainable scalar that stands for all rows in front of Keras: a lookup's
    gradient leaves the tape as the anchor's gradient, a `tf.IndexedSlices` of row gradients,
    keys, and `[SAMPLES_OFFSET + samples, dim]`. The backward pass changes nothing; whoever
    receives the slices may drop, scale, add or apply them.

    Args:
        config: the `tfs.Table`.
    """

    def __init__(self, config):
        self.name, self.dim = config.name, config.dim
        self.optimizer = config.optimizer
        self._exchange = Exchange(config.name)
        initializer, arguments = config.initializer.kernel_arguments()
        self._options = {
            "name": config.name,
            "dim": config.dim,
            "rank": runtime.rank(),
            "num_ranks": runtime.size(),
            "seed": config.seed,
            "initializer": initializer,
            "initializer_arguments": arguments,
            "default_value": config.default,
        }
        self.handle = self.make()
        self.anchor = tf.Variable(0.0, trainable=True, name=f"{config.name}/anchor")
        _by_anchor[self.anchor.ref()] = self
        if self.optimizer != "auto":
            self.bind(self.optimizer)

    def make(self):
        """The handle of a new, empty shard like this one."""
        return ops.make_table(**self._options)

    def gather(self, keys, samples, training, checks=()):
        """The rows of keys; in training also those of keys never seen, which then exist.

        Args:
            keys: int64 `[n]`; they may repeat.
            samples: int64 scalar, samples of this rank's batch, which weigh its gradient.
            training: Python bool. False reads only: unseen keys read the table's default.
            checks: `[(condition, message)]` of this rank's input: boolean scalars, and what is
                wrong where one is False. Then nothing is read or reserved, on any rank, and all
                ranks fail. Defaults to none.

        Returns:
            float32 `[n, dim]`.
        """
        unique, positions, counts = ops.group_keys(self.handle, keys)
        asked, asked_counts = self._exchange.keys_to_owners(unique, counts, training, checks)
        if training:
            plan = ops.stage(self.handle, asked, distinct=runtime.size() == 1)
            rows = ops.read_plan(self.handle, plan, self.dim)
        else:
            rows = ops.lookup(self.handle, asked, self.dim)
        # Nothing behind this line has a gradient; without it TensorFlow asks for one where a
        # nested function captures the handle.
        rows = tf.stop_gradient(self._exchange.rows_to_askers(rows, asked_counts))
        if training:
            rows = ops.anchored(self.anchor, rows, unique, samples, self.name)
        return ops.expand(self.handle, rows, positions)

    def sum_gradients(self, keys, values):
        """Sends row gradients to their owners and adds those of equal keys, in rank order.

        Args:
            keys: int64 `[n]`; they may repeat.
            values: float32 `[n, dim]`.

        Returns:
            int64 `[u]`, keys of this rank, and float32 `[u, dim]`.
        """
        unique, sums, counts = ops.sum_by_key(self.handle, keys, values)
        if runtime.size() == 1:
            return unique, sums
        unique, sums = self._exchange.values_to_owners(unique, sums, counts)
        unique, sums, _ = ops.sum_by_key(self.handle, unique, sums)
        return unique, sums

    def apply(self, keys, gradients, learning_rate):
        """Updates this rank's rows: int64 `[u]`, float32 `[u, dim]`, float32 scalar."""
        ops.apply(self.handle, keys, gradients, learning_rate)

    def bind(self, optimizer):
        """Gives the table a rule from `tfs.optimizers`, once; its rate does not matter here.

        Raises:
            tf.errors.FailedPreconditionError: the table has another rule.
        """
        kind, arguments = optimizer.rule()
        with tf.init_scope():
            ops.bind(self.handle, kind, arguments)

    def rows_to_owners(self, keys, rows):
        """Sends rows to the ranks that own them. Every rank calls it. Not in a graph.

        Args:
            keys: int64 `[n]`, a numpy array; they may repeat.
            rows: float32 `[n, any]`.

        Returns:
            The same, of what all ranks have sent to this one.
        """
        owners = owners_of(keys, runtime.size())
        order = np.argsort(owners, kind="stable")
        counts = np.bincount(owners, minlength=runtime.size()).astype(np.int32)
        keys, rows = self._exchange.values_to_owners(keys[order], rows[order], counts)
        return np.asarray(keys), np.asarray(rows)

    def size(self):
        """The number of rows of the whole table. Every rank calls it."""
        return int(runtime.allreduce_sum(ops.size(self.handle), "table.size"))

    def lookup(self, keys):
        """Reads rows; unseen keys read the default and stay unseen. Every rank calls it.

        Args:
            keys: ids `[n]`, integers or strings; ranks may ask for different ones.

        Returns:
            float32 `[n, dim]`.
        """
        keys = tf.reshape(tf.convert_to_tensor(keys), [-1])
        if keys.dtype.is_floating and keys.shape != [0]:
            raise TypeError(f"Table '{self.name}': ids are integers or strings. Received: {keys}.")
        keys = as_keys(keys)
        return self.gather(keys, tf.constant(0, tf.int64), training=False)

    def export(self, block_rows=_SCAN_ROWS):
        """Yields this rank's rows in blocks.

        Do not train meanwhile. The key of a string is its fingerprint (`as_keys`). Each block is
        `(keys, rows, slots)`: int64 `[r]`, float32
        `[r, dim]` and float32 `[r, slot floats]`, as numpy arrays, in the order of the keys'
        hashes.

        Args:
            block_rows: rows of a block. Defaults to 65536.
        """
        start, done = 0, False
        while not done:
            keys, rows, start, done = ops.scan(self.handle, start, block_rows)
            rows = rows.numpy()
            if len(rows):
                yield keys.numpy(), rows[:, : self.dim], rows[:, self.dim :]

    def stats(self):
        """Plain numbers about this rank's part.

        `rows`; `provisional_rows`, reserved by steps under way; `row_bytes`, parameter and slots
        of one row; `index_bytes`; `page_bytes`, memory reserved for rows.
        """
        names = ("rows", "provisional_rows", "row_bytes", "index_bytes", "page_bytes")
        return dict(zip(names, ops.stats(self.handle).numpy().tolist()))
