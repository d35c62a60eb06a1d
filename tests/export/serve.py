"""A serving process: plain TensorFlow, in which tfsparse and Horovod cannot be imported.

`python serve.py jobs results`: `jobs` is a pickled dict from a name to `{"path": of a SavedModel,
"calls": [dict of arrays]}`; `results` becomes one from the name to what the SavedModel gave and is.
"""

import os
import pickle
import sys
import time


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tfsparse", "horovod"):
            raise ImportError(f"{name} in the serving process")


sys.meta_path.insert(0, Refuse())

import tensorflow as tf  # noqa: E402
from tensorflow.core.protobuf import saved_model_pb2  # noqa: E402


def foreign_ops(path):
    """The ops of all graphs and functions that stock TensorFlow does not have."""
    saved = saved_model_pb2.SavedModel()
    with open(os.path.join(path, "saved_model.pb"), "rb") as file:
        saved.ParseFromString(file.read())
    ops, functions = set(), set()
    for meta in saved.meta_graphs:
        ops |= {node.op for node in meta.graph_def.node}
        for function in meta.graph_def.library.function:
            functions.add(function.signature.name)
            ops |= {node.op for node in function.node_def}
    assert ops, "no graph"
    return sorted(op for op in ops - functions if not hasattr(tf.raw_ops, op))


def serve_as_python_does(path, calls):
    signature = tf.saved_model.load(path).signatures["serving_default"]
    fed = [{name: tf.constant(array) for name, array in call.items()} for call in calls]
    return [{name: out.numpy() for name, out in signature(**call).items()} for call in fed]


def serve_as_tensorflow_serving_does(path, calls):
    """By a session, as TensorFlow Serving, the C API and saved_model_cli load models."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], path)
        signature = meta.signature_def["serving_default"]
        outputs = {name: tensor.name for name, tensor in signature.outputs.items()}
        feeds = [{signature.inputs[name].name: call[name] for name in call} for call in calls]
        return [session.run(outputs, feed) for feed in feeds]


def main(jobs, results):
    with open(jobs, "rb") as file:
        jobs = pickle.load(file)
    served = {}
    for name, job in jobs.items():
        path, calls = job["path"], job["calls"]
        begin = time.monotonic()
        outputs = serve_as_python_does(path, calls)
        served[name] = {
            "seconds": time.monotonic() - begin,
            "outputs": outputs,
            "session_outputs": serve_as_tensorflow_serving_does(path, calls),
            "foreign_ops": foreign_ops(path),
            "pb_bytes": os.path.getsize(os.path.join(path, "saved_model.pb")),
            "checkpoint": dict(tf.train.list_variables(os.path.join(path, "variables/variables"))),
        }
    loaded = [name for name in sys.modules if name.split(".")[0] in ("tfsparse", "horovod")]
    assert not loaded, loaded
    with open(results, "wb") as file:
        pickle.dump(served, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
