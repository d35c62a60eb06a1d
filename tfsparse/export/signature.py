"""Between a model's inputs and outputs, of any structure, and the named tensors of a signature.

A signature is a flat dict of tensors: that is what TensorFlow Serving, the C API and
`saved_model_cli` can feed. Ragged and sparse tensors therefore come as their parts:

| a `...` called `history` | tensors of the signature |
|---|---|
| tensor | `history` |
| `tf.RaggedTensor` | `history`, the values of all lists; `history_row_splits`, where lists end |
| ragged in more axes | `history`; `history_row_splits_0` (outermost), `history_row_splits_1`, ... |
| `tf.SparseTensor` | `history`, the values; `history_indices`; `history_dense_shape` |

For example `[[7, 8], [], [9]]` is `history=[7, 8, 9]` and `history_row_splits=[0, 2, 2, 3]`.
"""

import inspect

import tensorflow as tf


def inputs_of(model):
    """What a model is called with.

    Returns:
        The positional arguments and the keyword arguments as structures of specs, and the names
        of their leaves, in the order of `tf.nest.flatten`.

    Raises:
        ValueError: the model has never been called, or a name is used twice.
    """
    spec = model.save_spec()
    if spec is None:
        raise ValueError(
            f"The inputs of model '{model.name}' are not known. Call it, or fit it, before "
            "exporting it."
        )
    args, kwargs = spec
    parameters = [name for name in inspect.signature(model.call).parameters if name != "self"]
    names = leaf_names(args[0], model.input_names, "input")
    for parameter, arg in zip(parameters[1:], args[1:]):
        names += _path_names(arg, parameter)
    for parameter in sorted(kwargs):
        names += _path_names(kwargs[parameter], parameter)
    specs = tf.nest.flatten((args, kwargs))
    parts = [part for name, leaf in zip(names, specs) for part in _part_names(name, leaf)]
    if len(set(parts)) < len(parts):
        raise ValueError(f"The inputs of model '{model.name}' need distinct names. Got: {parts}")
    return args, kwargs, names


def leaf_names(structure, layer_names, prefix):
    """Names for the leaves of inputs or outputs.

    Args:
        structure: of tensors or specs. In a dict the keys are the names.
        layer_names: the names of the layers behind the leaves, or None.
        prefix: of the names of leaves that have no other: `"output"` gives `output_1`, ...
    """
    leaves = tf.nest.flatten(structure)
    if isinstance(structure, dict):
        return _path_names(structure, "")
    if layer_names is not None and len(layer_names) == len(leaves):
        return list(layer_names)
    return [f"{prefix}_{number}" for number in range(1, len(leaves) + 1)]


def _path_names(structure, path):
    if isinstance(structure, dict):
        children = [(str(key), structure[key]) for key in sorted(structure)]
    elif isinstance(structure, (list, tuple)):
        children = [(str(number), child) for number, child in enumerate(structure)]
    else:
        return [path]
    join = lambda name: f"{path}_{name}" if path else name  # noqa: E731
    return [name for key, child in children for name in _path_names(child, join(key))]


def part_specs(name, spec):
    """The tensors of which a leaf consists, as `tf.TensorSpec`s that have names."""
    if isinstance(spec, tf.RaggedTensorSpec):
        values = [None, *spec.shape[spec.ragged_rank + 1 :]]
        parts = [(values, spec.dtype)] + [([None], spec.row_splits_dtype)] * spec.ragged_rank
    elif isinstance(spec, tf.SparseTensorSpec):
        rank = spec.shape.rank
        parts = [([None], spec.dtype), ([None, rank], tf.int64), ([rank], tf.int64)]
    else:
        parts = [(spec.shape, spec.dtype)]
    names = _part_names(name, spec)
    return [tf.TensorSpec(shape, dtype, name=n) for n, (shape, dtype) in zip(names, parts)]


def from_parts(name, spec, tensors):
    """The leaf that named tensors make up."""
    parts = [tensors[part] for part in _part_names(name, spec)]
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensor.from_nested_row_splits(parts[0], parts[1:])
    if isinstance(spec, tf.SparseTensorSpec):
        values, indices, dense_shape = parts
        return tf.SparseTensor(indices, values, tf.ensure_shape(dense_shape, [spec.shape.rank]))
    return parts[0]


def to_parts(name, leaf):
    """The named tensors that make up a leaf."""
    if isinstance(leaf, tf.RaggedTensor):
        parts = [leaf.flat_values, *leaf.nested_row_splits]
    elif isinstance(leaf, tf.SparseTensor):
        parts = [leaf.values, leaf.indices, leaf.dense_shape]
    else:
        parts = [tf.convert_to_tensor(leaf)]
    return dict(zip(_part_names(name, leaf), parts))


def _part_names(name, leaf):
    """For a leaf or its spec."""
    if isinstance(leaf, (tf.RaggedTensorSpec, tf.RaggedTensor)):
        splits = [f"{name}_row_splits"]
        if leaf.ragged_rank > 1:
            splits = [f"{name}_row_splits_{axis}" for axis in range(leaf.ragged_rank)]
        return [name, *splits]
    if isinstance(leaf, (tf.SparseTensorSpec, tf.SparseTensor)):
        return [name, f"{name}_indices", f"{name}_dense_shape"]
    return [name]
