"""FBGEMM's table-batched embeddings on the CPU: static tables, one for each feature."""

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from tests.bench.table_step import FEATURES, VOCABULARY

SETTINGS = "static tables in host memory, fused exact optimizer"
PACKAGES = ("fbgemm-gpu-cpu", "torch")
_OPTIMIZERS = {"sgd": EmbOptimType.EXACT_SGD, "adagrad": EmbOptimType.EXACT_ADAGRAD}

use_threads = torch.set_num_threads


class Table:
    """See `tests.bench.contenders`; ids are `[samples, FEATURES]`, each feature its own table."""

    def __init__(self, dim, optimizer_name, capacity):
        table = (VOCABULARY, dim, EmbeddingLocation.HOST, ComputeDevice.CPU)
        self._tables = SplitTableBatchedEmbeddingBagsCodegen(
            [table] * FEATURES,
            optimizer=_OPTIMIZERS[optimizer_name],
            learning_rate=1e-3,
            pooling_mode=PoolingMode.SUM,
        )
        self._dim = dim

    def ids(self, array):
        """Rows within each table, feature by feature, and where each bag of one id begins."""
        rows = (array - np.arange(FEATURES) * VOCABULARY).T.reshape(-1)
        return torch.from_numpy(rows), torch.arange(len(rows) + 1)

    def floats(self, array):
        """`[samples, FEATURES * dim]`, the form of its output."""
        return torch.from_numpy(array.reshape(len(array), FEATURES * self._dim))

    def step(self, ids, gradients):
        """Forward and backward, which updates."""
        self._tables(*ids).backward(gradients)
