"""Odd batches on one rank; tests/multi/test_odd_ranks.py has them on two and three."""

import pytest

from tests.keras_layers import odd_batches


@pytest.mark.parametrize("name", odd_batches.CASES)
def test_rows_are_those_of_a_dict(name):
    odd_batches.train_and_compare(name, rank=0, num_ranks=1)


def test_features_of_one_table_keep_to_their_own_ids():
    odd_batches.features_of_one_table(rank=0, num_ranks=1)
