"""A training step on a Keras embedding layer alone, for contenders that have one."""

import tensorflow as tf

OPTIMIZERS = {"sgd": "SGD", "adagrad": "Adagrad", "adam": "Adam"}


def use_threads(threads):
    """Of TensorFlow's pools."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def step_of(layer, optimizer):
    """A function of ids and the gradients of their vectors that looks up and trains."""

    @tf.function
    def step(ids, gradients):
        with tf.GradientTape() as tape:
            vectors = layer(ids, training=True)
        variables = layer.trainable_variables
        found = tape.gradient(vectors, variables, output_gradients=gradients)
        optimizer.apply_gradients(zip(found, variables))

    return step
