"""The examples run as README and Makefile run them, on files of the form they expect."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.multi.launch import run_ranks

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "deepfm_movielens.py"


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
    """A folder with ml-100k's three files: random users who like items of their parity."""
    folder = tmp_path_factory.mktemp("ml-100k")
    rng = np.random.default_rng(0)
    num_users, num_items, n = 60, 80, 3001
    user, item = rng.integers(1, num_users + 1, n), rng.integers(1, num_items + 1, n)
    rating = np.where((user + item) % 2 == 0, rng.integers(4, 6, n), rng.integers(1, 4, n))
    write(folder / "ml-100k.inter", "user item rating timestamp",
          zip(user, item, rating, range(n)))  # fmt: skip
    people = ((u, 20 + u % 40, "MF"[u % 2], "writer", f"{u:05d}") for u in range(1, num_users + 1))
    write(folder / "ml-100k.user", "user age gender occupation zip", people)
    genres = ["Drama", "Comedy War", "Action", ""]
    movies = ((i, f"Movie {i}", 1950 + i % 50, genres[i % 4]) for i in range(1, num_items + 1))
    write(folder / "ml-100k.item", "item title year genres", movies)
    return folder


def write(path, header, rows):
    lines = [header.replace(" ", "\t"), *("\t".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_deepfm_learns_exports_and_is_served_by_plain_tensorflow(ratings, tmp_path, num_ranks):
    model = tmp_path / "model"
    options = ["--data", ratings, "--epochs", "8", "--batch-size", "128", "--export", model]
    status, output = run_ranks(num_ranks, EXAMPLE, *options)
    assert status == 0, output[-5000:]
    assert "Epoch 8/8" in output
    auc = float(re.search(r"test AUC ([01]\.\d+)", output).group(1))
    assert auc > 0.75, output[-2000:]
    assert re.search(r"predictions agree \(max difference \d\.\de[-+]\d+\)", output), output[-2000:]
    assert (model / "1" / "saved_model.pb").is_file()
