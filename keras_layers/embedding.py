"""The embedding layer."""

import tensorflow as tf

from tfsparse.embedding.config import Table
from tfsparse.embedding.keys import as_keys
from tfsparse.embedding.protocol import TableReader, source_of
from tfsparse.embedding.table import shard_of
from tfsparse.keras_layers import ids as id_forms
from tfsparse.keras_layers import saving

COMBINERS = (None, "sum", "mean", "sqrtn")


@tf.keras.utils.register_keras_serializable("tfsparse")
class DynamicEmbedding(TableReader, tf.keras.layers.Layer):
    """Turns ids into vectors from a table that grows by itself and is spread over all ranks.

    Use it where `tf.keras.layers.Embedding` stood, without a vocabulary size: any int64, int32
    or string is an id, none is reserved, and its row exists from its first training step on.
    Train it with an optimizer wrapped in `tfs.DistributedOptimizer`.

    Args:
        dim_or_table: int, the width of a table of the layer's own; or a `tfs.Table`, which
            other layers may share.
        combiner: None (the default) gives one vector per id. `"sum"`, `"mean"` and `"sqrtn"`
            pool the vectors over the last axis of the ids; an empty list gives zeros.
        padding_id: an int64, or a string for string ids, that stands for nothing: it reads
            zeros, is left out of pooling and never gets a row. Defaults to None, where every id
            is ordinary.
        name: of the layer and, with an int, of its table.
        **table_options: with an int, options of `tfs.Table`, such as `optimizer=`.

    Call arguments:
        ids: int32, int64 or string. A tensor `[B]` or `[B, L]` (or of higher rank), a
            `tf.RaggedTensor` or a `tf.SparseTensor`.
        weights: with a combiner, float weights of the ids, in the form of `ids`. "mean" divides
            by their sum, "sqrtn" by the root of the sum of their squares. Defaults to None.
        training: Python bool. None (the default) means evaluation, which never creates rows:
            unseen ids read the table's default.

    Output shape:
        Without a combiner the shape of `ids` and `dim` behind it, ragged for ragged or sparse
        ids. With one, `dim` takes the place of the last axis.

    Example:
        ```python
        history = tf.keras.Input((None,), dtype=tf.string, ragged=True)  # [["a", "b"], [], ...]
        vector = DynamicEmbedding(16, combiner="mean")(history)          # [B, 16]
        ```
    """

    def __init__(self, dim_or_table, combiner=None, padding_id=None, name=None, **table_options):
        """See the class."""
        layer_options = {
            option: table_options.pop(option)
            for option in ("dtype", "trainable", "dynamic")
            if option in table_options
        }
        super().__init__(name=name, **layer_options)
        if combiner not in COMBINERS:
            raise ValueError(
                f"`combiner` must be one of {COMBINERS}. Received: combiner={combiner!r} "
                f"in layer '{self.name}'."
            )
        if isinstance(dim_or_table, Table):
            if table_options:
                raise ValueError(
                    f"Layer '{self.name}' got a tfs.Table and also {sorted(table_options)}; "
                    "give these to the table."
                )
            self.table_config = dim_or_table
        elif isinstance(dim_or_table, dict):  # from get_config()
            self.table_config = Table.from_config(dim_or_table, self.name)
        else:
            self.table_config = Table(self.name, dim_or_table, **table_options)
        self.table_config.layers.add(self.name)
        self._combiner = combiner
        self._padding_id = id_forms.as_padding(padding_id, self.name)
        self._rows_as_weight = None
        self._supports_ragged_inputs = True

    def build(self, input_shape):
        """Makes this rank's shard of the table, unless another layer did."""
        if tf.distribute.has_strategy():
            raise ValueError(
                f"Layer '{self.name}': tfsparse spreads tables by Horovod and does not run under "
                "tf.distribute. Remove the strategy and start the program by horovodrun."
            )
        shard = shard_of(self.table_config)
        self.anchor = shard.anchor
        self._rows = saving.rows_of(shard)
        self._rows_as_weight = saving.RowsAsWeight(shard)
        super().build(input_shape)

    @tf.autograph.experimental.do_not_convert
    def call(self, ids, weights=None, training=None):
        """Looks up and pools; see the class."""
        form = id_forms.take_apart(ids, self.name)
        if self._combiner is None and weights is not None:
            raise ValueError(f"Layer '{self.name}': `weights` need a combiner.")
        if self._combiner is not None and form.rank < 2:
            raise ValueError(
                f"Layer '{self.name}': combiner={self._combiner!r} pools over the last axis of "
                f"ids of rank 2 or more. Received: ids of shape {ids.shape}."
            )
        flat_weights = None if weights is None else form.flat_weights(weights)
        keep = form.all_but(self._padding_id)
        flat = form.flat if keep is None else tf.boolean_mask(form.flat, keep)
        training = self._is_training(training) and self.trainable
        source = source_of(self.table_config)
        vectors = source.gather(as_keys(flat), form.samples, training, form.checks)
        vectors = tf.cast(vectors, self.compute_dtype)
        # Behind the checks: what is here trips over ids and weights that do not fit.
        with tf.control_dependencies([] if tf.executing_eagerly() else [vectors]):
            if self._combiner is None:
                return form.put_together(id_forms.fill_gaps(vectors, keep))
            if flat_weights is not None:
                flat_weights = tf.cast(flat_weights, self.compute_dtype)
                if keep is not None:
                    flat_weights = tf.boolean_mask(flat_weights, keep)
            return form.pool(vectors, flat_weights, keep, self._combiner)

    def _is_training(self, training):
        if training is None:
            return False
        if isinstance(training, (bool, int)):
            return bool(training)
        value = tf.get_static_value(training)
        if value is None:
            raise TypeError(
                f"Layer '{self.name}': `training` must be a Python bool, because training and "
                f"evaluation run different exchanges between ranks. Received: {training}."
            )
        return bool(value)

    def compute_mask(self, inputs, mask=None):
        """Without a combiner, which ids are not `padding_id`."""
        if self._padding_id is None or self._combiner is not None:
            return None
        if not isinstance(inputs, tf.Tensor):
            return None
        return tf.not_equal(inputs, self._padding_id)

    @property
    def table(self):
        """The table behind the layer: `size()`, `lookup(keys)`, `export()`, `stats()`.

        Raises:
            ValueError: the layer has not been built.
        """
        if self.table_config.shard is None:
            raise ValueError(f"Layer '{self.name}' has no rows before it is built or called.")
        return self.table_config.shard

    @property
    def non_trainable_weights(self):
        """Keras's list, and the rows, which no weight format may skip silently."""
        weights = super().non_trainable_weights
        return weights if self._rows_as_weight is None else [*weights, self._rows_as_weight]

    def save_own_variables(self, store):
        """Puts the rows into a `.keras` or `.weights.h5` file; in one process only."""
        if self.table_config.shard is not None:
            saving.to_store(self.table, store)

    def load_own_variables(self, store):
        """Replaces all rows by those in the file, if the layer had some when it was saved."""
        saving.refuse_on_several_ranks(self.table_config.name)
        if not list(store.keys()):
            if self.table_config.shard is not None and self.table.size() > 0:
                raise ValueError(
                    f"Table '{self.table_config.name}' has rows, and the file has none for layer "
                    f"'{self.name}': it is of another model."
                )
            return
        if not self.built:
            self.build(None)  # which asks for no shape
            self.built = True
        saving.from_store(self.table, store)

    def get_config(self):
        """The layer as plain values; layers that share a table share one again."""
        return {
            **super().get_config(),
            "dim_or_table": self.table_config.get_config(),
            "combiner": self._combiner,
            "padding_id": self._padding_id,
        }
