"""What a step puts on the wire is what its batch uses."""

import pytest

from tests.bench import wire


@pytest.mark.multi
@pytest.mark.slow
def test_a_table_sends_what_the_batch_uses_and_a_dense_embedding_all():
    ((table, dense),) = wire.figures([100_000]).values()
    # Half of 4,000 distinct keys belong to the other rank: key, row, gradient and its key. Twice
    # that leaves room for headers and for what others send over the loopback device.
    assert 0.2 < table < 2 * 2000 * (8 + 64 + 64 + 8) / 1e6
    assert dense > 100_000 * 64 / 1e6
