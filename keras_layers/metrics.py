"""Metric values over all ranks."""

import numpy as np
import tensorflow as tf

from tfsparse import runtime


def global_results(model):
    """The model's metrics over the samples of all ranks; every rank calls it.

    Keras's metrics keep sums (of values, of weights, of confusion counts), so the state of the
    global metric is the sum of the ranks' states; an AUC is that of all samples together, which
    the mean of the ranks' AUCs is not. The ranks' own states stay as they are.

    Returns:
        `{name: float}`, as Keras's `get_metrics_result()`.
    """
    variables = [variable for metric in model.metrics for variable in metric.variables]
    own = [variable.numpy() for variable in variables]
    if not own or runtime.size() == 1:
        return _numbers(model.get_metrics_result())
    flat = np.concatenate([value.astype(np.float64).ravel() for value in own])
    total = runtime.allreduce_sum(tf.constant(flat), "metrics").numpy()
    parts = np.split(total, np.cumsum([value.size for value in own])[:-1])
    for variable, value, part in zip(variables, own, parts):
        variable.assign(part.reshape(value.shape).astype(value.dtype))
    try:
        return _numbers(model.get_metrics_result())
    finally:
        for variable, value in zip(variables, own):
            variable.assign(value)


def _numbers(results):
    return {name: np.asarray(result).tolist() for name, result in results.items()}
