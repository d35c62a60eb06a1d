"""Odd batches spread over the ranks, see tests/keras_layers/odd_batches.py."""

import functools

import job

import tfsparse as tfs
from tests.keras_layers import odd_batches


def on_all_ranks(check):
    check(rank=tfs.rank(), num_ranks=tfs.size())


checks = {
    f"check_{name}": functools.partial(odd_batches.train_and_compare, name)
    for name in odd_batches.CASES
}
checks["check_features_of_one_table"] = odd_batches.features_of_one_table
job.run_checks({name: functools.partial(on_all_ranks, check) for name, check in checks.items()})
