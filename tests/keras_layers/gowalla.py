"""A stream of real ids: who checked in where, and where somebody did not."""

import numpy as np
import tensorflow as tf

from tfsparse.keras_layers import DynamicEmbedding

DIM = 8


class Gowalla:
    """`num_steps` batches of users, places and labels, shuffled with seed 0.

    Every second sample is a pair of a user and a place drawn at random, with label 0.
    """

    def __init__(self, data_dir, num_steps, batch_size):
        pairs = np.load(data_dir / "gowalla" / "gowalla_pairs.npz")["train"].astype(np.int64)
        rng = np.random.default_rng(0)
        pairs = pairs[rng.permutation(len(pairs))[: num_steps * batch_size]]
        self.users, self.items = pairs[:, 0], pairs[:, 1].copy()
        self.labels = np.arange(len(pairs), dtype=np.float32)[:, np.newaxis] % 2
        false = self.labels[:, 0] == 0
        self.items[false] = rng.integers(0, 40_981, false.sum())
        self.batch_size = batch_size

    def dataset(self, user_numbers=None, item_numbers=None):
        """The batches; with the arguments, ids as their numbers in these sorted lists."""
        users, items = self.users, self.items
        if user_numbers is not None:
            users, items = (
                np.searchsorted(user_numbers, users),
                np.searchsorted(item_numbers, items),
            )
        data = tf.data.Dataset.from_tensor_slices(((users, items), self.labels))
        return data.batch(self.batch_size)


def recommender(embed_user, embed_item):
    """A small tower on the vectors of a user and an item."""
    user = tf.keras.Input((), dtype=tf.int64)
    item = tf.keras.Input((), dtype=tf.int64)
    vectors = tf.keras.layers.Concatenate()([embed_user(user), embed_item(item)])
    initializer = tf.keras.initializers.GlorotUniform(seed=1)
    dense = lambda units, act: tf.keras.layers.Dense(units, act, kernel_initializer=initializer)  # noqa: E731
    return tf.keras.Model([user, item], dense(1, None)(dense(8, "tanh")(vectors)))


def tables_recommender(user="user", item="item", **options):
    """The recommender on tables named `user` and `item`."""
    return recommender(
        DynamicEmbedding(DIM, name=user, **options), DynamicEmbedding(DIM, name=item, **options)
    )


LOSS = tf.keras.losses.BinaryCrossentropy(from_logits=True)
