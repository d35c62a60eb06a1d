"""MovieLens-100K trains as in plain Keras; `movielens` says what equals what."""

import numpy as np
import pytest

from tests.bench import movielens

pytestmark = pytest.mark.real_data


@pytest.fixture(scope="module")
def ratings():
    folder = movielens.ROOT / ".data" / "ml-100k"
    if not folder.is_dir():
        pytest.skip(f"no data at {folder}; `python examples/movielens_data.py` fetches it")
    return movielens.Ratings(folder)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["SGD", "Adagrad"])
def test_an_epoch_has_the_losses_of_keras(ratings, rule):
    rows = np.random.default_rng(0).permutation(ratings.train_rows)
    twins = movielens.twins(ratings, seed=0)
    ours, keras = movielens.losses_of_twins(ratings, twins, rule, rows, batch=512)
    assert len(ours) == 157
    np.testing.assert_allclose(ours, keras, rtol=0, atol=1e-4)
    assert ours[-20:].mean() < ours[:20].mean() - 0.01, "nothing was learned"


@pytest.mark.slow
def test_adam_has_the_losses_of_keras_when_every_id_is_in_every_batch(ratings):
    rows = np.tile(ratings.train_rows, 10)
    twins = movielens.twins(ratings, seed=0)
    ours, keras = movielens.losses_of_twins(ratings, twins, "Adam", rows, batch=80_000)
    assert len(ours) == 10
    np.testing.assert_allclose(ours, keras, rtol=0, atol=1e-4)
    assert ours[-1] < ours[0] - 0.01, "nothing was learned"


def test_auc_is_the_probability_of_the_right_order():
    # Of the four pairs three are in order and one is tied.
    labels, scores = np.array([1, 0, 1, 0]), np.array([0.4, 0.1, 0.3, 0.3])
    assert movielens.auc(labels, scores) == pytest.approx((1 + 1 + 1 + 0.5) / 4)
    assert movielens.auc(labels, -scores) == pytest.approx(0.5 / 4)
