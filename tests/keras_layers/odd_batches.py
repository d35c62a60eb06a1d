"""Batches of odd shapes, and a dict of numpy rows that is trained by them beside a table.

Used on one rank and on several: a case says what each rank gets, and the reference is computed
from the global batch by hand, gradients being means over its samples.
"""

import dataclasses

import numpy as np
import tensorflow as tf

import tfsparse as tfs
from tests.export.models import hash_inverse
from tfsparse.keras_layers import DynamicEmbedding

RATE, ACCUMULATOR, EPSILON = 0.5, 0.1, 1e-7
LIMITS = [0, -1, -2, -3, 2**63 - 1, -(2**63), 2**31, -(2**31)]
SCALES = (1.0, 0.1, 0.01)  # of three features that share a table
OF_RANK_0 = [hash_inverse(number) for number in range(1000, 1050)]  # their mixed values are small

rng = np.random.default_rng(0)


def lists(num_lists, max_length, num_ids=30):
    return [
        rng.integers(0, num_ids, rng.integers(0, max_length + 1)).tolist() for _ in range(num_lists)
    ]


@dataclasses.dataclass
class Case:
    """Global batches, each a list of lists of ids, and who gets how much of them.

    With `share`, the first rank gets that many lists of a batch and the last one the rest;
    without, all ranks get equal parts.
    """

    batches: list
    share: int = None
    dim: int = 3
    rule: str = "sgd"
    combiner: str = "sum"
    padding_id: int = None
    weighted: bool = False
    form: str = "ragged"  # or "B", where lists have one id each and come as a vector
    dtype: tf.DType = tf.int64
    rtol: float = 1e-4

    def part(self, batch, rank, num_ranks):
        """This rank's lists."""
        if self.share is None:
            cuts = [len(batch) * r // num_ranks for r in range(num_ranks + 1)]
        else:
            cuts = [0, *[self.share] * (num_ranks - 1), len(batch)]
            cuts = [0, len(batch)] if num_ranks == 1 else cuts
        return slice(cuts[rank], cuts[rank + 1])


USUAL = lists(8, 6)
CASES = {
    "no_samples": Case([USUAL, [], USUAL]),
    "no_samples_on_the_first_rank": Case([USUAL, USUAL], share=0),
    "no_samples_on_the_last_rank": Case([USUAL, USUAL], share=8, rule="adagrad", combiner="mean"),
    "no_ids": Case([USUAL, [[], [], [], []], USUAL], combiner="mean"),
    "no_ids_on_the_first_rank": Case([[[], [], [], []] + USUAL] * 2, share=4, combiner="mean"),
    "no_ids_on_the_last_rank": Case([USUAL + [[], [], [], []]] * 2, share=8, combiner="sqrtn"),
    "trailing_empty_lists": Case([[[], [], [], [1], []], [[2], [], []]], combiner="mean"),
    "one_sample": Case([[[1, 2, 1]], [[2]]], rule="adagrad"),
    "one_list_of_a_thousand": Case([[rng.integers(0, 300, 1000).tolist(), [1]]], rule="adagrad"),
    # Ten thousand roundings of float32.
    "one_id_ten_thousand_times": Case([[[7] * 5000] * 2] * 2, combiner="mean", rtol=1e-3),
    "all_ids_of_one_rank": Case([[OF_RANK_0[:20], OF_RANK_0[20:]]] * 2, rule="adagrad"),
    "one_id_in_all": Case([[[5]] * 6] * 3, form="B", combiner=None, rule="adagrad"),
    "limits_of_int64": Case([[LIMITS, LIMITS[::2]]] * 2, rule="adagrad"),
    "padding": Case([lists(8, 6, 3)] * 2, padding_id=0, combiner="mean"),
    "padding_only": Case([[[0, 0], [0], [1, 0]]] * 2, padding_id=0, combiner="mean"),
    "int32": Case([USUAL] * 2, dtype=tf.int32),
    "strings": Case([[["a", "", "b"], [], ["a"], ["Zoë"]]] * 2, dtype=tf.string, rule="adagrad"),
    "last_batch_is_smaller": Case([lists(8, 6), lists(8, 6), lists(3, 6)], rule="adagrad"),
    "no_combiner": Case([USUAL] * 2, combiner=None, rule="adagrad"),
    **{f"pooled_{c}": Case([USUAL] * 2, combiner=c) for c in ("sum", "mean", "sqrtn")},
    **{
        f"weighted_{c}": Case([USUAL] * 2, combiner=c, weighted=True)
        for c in ("sum", "mean", "sqrtn")
    },
    **{f"dim_{d}": Case([USUAL] * 2, dim=d, rule="adagrad") for d in (1, 3, 7, 16, 100, 1025)},
}  # fmt: skip


class DictTable:
    """Rows of zeros in a dict, trained by formulas written out."""

    def __init__(self, case):
        self.case, self.rows, self.squares = case, {}, {}

    def output(self, samples, weights):
        """The vectors that these lists pool to, or their ids' vectors."""
        case, pooled = self.case, []
        for ids, own in zip(samples, weights):
            scales = self._scales(ids, own)
            vectors = [self._row(i) * s for i, s in zip(ids, scales)]
            if case.combiner is None:
                pooled.extend(vectors)
            else:
                pooled.append(np.sum(vectors, 0) if vectors else np.zeros(case.dim))
        return np.array(pooled).reshape(-1, case.dim)

    def train(self, samples, weights, upstream):
        sums = {}
        for ids, own in zip(samples, weights):
            for i, scale in zip(ids, self._scales(ids, own)):
                if i != self.case.padding_id:
                    sums[i] = sums.get(i, 0) + upstream * scale / len(samples)
        for i, gradient in sums.items():
            if self.case.rule == "adagrad":
                self.squares[i] = self.squares.get(i, ACCUMULATOR) + gradient**2
                gradient = gradient / np.sqrt(self.squares[i] + EPSILON)
            self.rows[i] = self._row(i) - RATE * gradient

    def _row(self, i):
        return self.rows.get(i, np.zeros(self.case.dim))

    def _scales(self, ids, weights):
        used = np.array([w * (i != self.case.padding_id) for i, w in zip(ids, weights)])
        divisor = {"mean": used.sum(), "sqrtn": np.sqrt((used**2).sum())}
        return used / (divisor.get(self.case.combiner, 1.0) or 1.0)


def train_and_compare(name, rank, num_ranks):
    """Every rank calls it."""
    case = CASES[name]
    rules = {
        "sgd": tfs.optimizers.SGD(RATE),
        "adagrad": tfs.optimizers.Adagrad(RATE, ACCUMULATOR, EPSILON),
    }
    table = tfs.Table(name, case.dim, optimizer=rules[case.rule], initializer="zeros")
    layer = DynamicEmbedding(table, combiner=case.combiner, padding_id=case.padding_id)
    optimizer = tfs.DistributedOptimizer(tf.keras.optimizers.SGD(RATE))
    reference = DictTable(case)
    upstream = np.arange(1.0, case.dim + 1) / case.dim
    draw = np.random.default_rng(1)
    for samples in case.batches:
        weights = [
            draw.uniform(0.5, 2, len(ids)) if case.weighted else [1] * len(ids) for ids in samples
        ]
        part = case.part(samples, rank, num_ranks)
        ids = as_tensor(samples[part], case.form, case.dtype)
        options = (
            {"weights": as_tensor(weights[part], "ragged", tf.float32)} if case.weighted else {}
        )
        with tf.GradientTape() as tape:
            output = layer(ids, training=True, **options)
            output = output.flat_values if isinstance(output, tf.RaggedTensor) else output
            loss = tf.reduce_sum(output * upstream.astype(np.float32)) / max(len(samples[part]), 1)
        wanted = reference.output(samples[part], weights[part])
        np.testing.assert_allclose(output, wanted, rtol=case.rtol, atol=1e-5)
        gradients = tape.gradient(loss, layer.trainable_variables)
        optimizer.apply_gradients(zip(gradients, layer.trainable_variables))
        reference.train(samples, weights, upstream)
        keys = list(reference.rows)
        assert layer.table.size() == len(keys)
        if keys:  # every rank asks, each in another order
            got = layer.table.lookup(tf.constant(keys[rank:] + keys[:rank], stored(case.dtype)))
            rows = [reference.rows[key] for key in keys[rank:] + keys[:rank]]
            np.testing.assert_allclose(got, rows, rtol=case.rtol, atol=1e-5)


def stored(dtype):
    return tf.string if dtype == tf.string else tf.int64


def as_tensor(samples, form, dtype):
    flat = [value for ids in samples for value in ids]
    if form == "B":
        return tf.constant(flat, dtype)
    return tf.RaggedTensor.from_row_lengths(
        tf.constant(flat, dtype), tf.constant([len(ids) for ids in samples], tf.int64)
    )


def features_of_one_table(rank, num_ranks):
    """A vector of candidates, and lists of 33 and of 1280 ids, read and trained together."""
    table = tfs.Table("three_features", 4, optimizer=tfs.optimizers.SGD(RATE))
    layers = [DynamicEmbedding(table, combiner=combiner) for combiner in (None, "sum", "sum")]
    draw = np.random.default_rng(2)
    batch = 6
    candidate = draw.integers(0, 500, batch)
    features = [draw.integers(0, 500, (batch, length)) for length in (33, 1280)]
    part = slice(batch * rank // num_ranks, batch * (rank + 1) // num_ranks)
    optimizer = tfs.DistributedOptimizer(tf.keras.optimizers.SGD(RATE))
    inputs = [candidate[part], features[0][part], tf.RaggedTensor.from_tensor(features[1][part])]

    def read(training):
        return [layer(ids, training=training) for layer, ids in zip(layers, inputs)]

    read(training=True)  # what has no row yet reads its first value
    with tf.GradientTape() as tape:
        outputs = read(training=True)
        loss = sum(scale * tf.reduce_sum(o) for scale, o in zip(SCALES, outputs))
        loss /= part.stop - part.start
    variables = [layers[0].anchor]
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    ids = np.arange(500)
    rows = table.shard.lookup(ids).numpy()
    counts = [np.bincount(f.ravel(), minlength=500) for f in (candidate, *features)]
    total = sum(scale * count for scale, count in zip(SCALES, counts))
    before = rows + RATE * total[:, np.newaxis] / batch
    for at, wanted in ((outputs, before), (read(training=False), rows)):
        np.testing.assert_allclose(at[0], wanted[candidate[part]], rtol=1e-4, atol=1e-4)
        for output, feature in zip(at[1:], features):
            np.testing.assert_allclose(output, wanted[feature[part]].sum(1), rtol=1e-4, atol=1e-3)
    assert np.abs(before[total > 0]).max() < 0.06  # first values: uniform, up to 0.05
