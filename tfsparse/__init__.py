"""tfsparse: dynamic embedding tables for TensorFlow and Keras, trained synchronously by Horovod.

```python
import tfsparse as tfs
from tfsparse.keras_layers import DynamicEmbedding

tfs.init()
model = tf.keras.Sequential([DynamicEmbedding(16, combiner="sum"), tf.keras.layers.Dense(1)])
model.compile(tfs.DistributedOptimizer(tf.keras.optimizers.Adam(1e-3)), "mse")
```
"""

from tfsparse.checkpoint import load_rows, restore, save
from tfsparse.embedding import initializers, optimizers
from tfsparse.embedding.config import Table
from tfsparse.export import export
from tfsparse.keras_layers import callbacks
from tfsparse.keras_layers.input import shard
from tfsparse.keras_layers.optimizer import DistributedOptimizer
from tfsparse.runtime import init, local_rank, rank, shutdown, size
from tfsparse.version import __version__

__all__ = [
    "DistributedOptimizer",
    "Table",
    "__version__",
    "callbacks",
    "export",
    "init",
    "initializers",
    "load_rows",
    "local_rank",
    "optimizers",
    "rank",
    "restore",
    "save",
    "shard",
    "shutdown",
    "size",
]
