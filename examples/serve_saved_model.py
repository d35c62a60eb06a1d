"""Serves an exported model with TensorFlow alone, and checks its answers.

    python examples/serve_saved_model.py MODEL REQUESTS.npz

REQUESTS.npz holds the inputs of the signature, and "expected", what the trained model predicted.
"""

import sys

import numpy as np
import tensorflow as tf


def main():
    """Loads, predicts, compares."""
    model_path, requests_path = sys.argv[1:]
    requests = dict(np.load(requests_path))
    expected = requests.pop("expected")
    serve = tf.saved_model.load(model_path).signatures["serving_default"]
    (scores,) = serve(**{name: tf.constant(value) for name, value in requests.items()}).values()
    difference = np.abs(scores.numpy() - expected).max()
    assert not {"tfsparse", "horovod"} & set(sys.modules), "plain TensorFlow only"
    if not difference < 1e-5:
        sys.exit(f"predictions differ by up to {difference:.1e}")
    print(f"predictions agree (max difference {difference:.1e})")


if __name__ == "__main__":
    main()
