"""MovieLens-100K as numpy arrays: 100,000 ratings with who rated, what, and when.

The data may not be redistributed, so it is not part of the project. The first use fetches the
copy that the recbole package carries:

    python examples/movielens_data.py                # into .data/ml-100k of the checkout
    python examples/movielens_data.py --data FOLDER  # checks a folder that you have
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

DATA_DIR = Path(__file__).resolve().parents[1] / ".data"
FILES = ("ml-100k.inter", "ml-100k.item", "ml-100k.user")
PACKAGE = "recbole==1.2.1"
PACKAGE_FOLDER = "recbole/dataset_example/ml-100k"


def load(path=None):
    """Reads the ratings, joined with their users and items.

    Args:
        path: Folder that holds `ml-100k.inter`, `ml-100k.item` and `ml-100k.user`. Defaults to
            `None`: `.data/ml-100k` of the checkout, fetched when it is not there.

    Returns:
        A dict of arrays with one entry per rating, in the order of the file: `user_id`,
        `item_id`, `timestamp` (seconds), `age` (years) and `release_year` (0: unknown) are
        int64; `rating` (1 to 5) is float32; `gender`, `occupation` and `zip_code` are bytes.
        `genres` is ragged, so it is a pair: the bytes values of all ratings, and the int64 row
        splits. Rating `i` has the genres `values[row_splits[i]:row_splits[i + 1]]`.

    Raises:
        FileNotFoundError: `path` lacks one of the files.
        RuntimeError: the data could not be fetched.
        ValueError: a file is damaged.
    """
    folder = Path(path) if path is not None else DATA_DIR / "ml-100k"
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing and path is not None:
        raise FileNotFoundError(f"`path` must hold {FILES}. Received: {folder}, without {missing}.")
    if missing:
        _fetch(folder)

    ratings = _columns(folder / "ml-100k.inter", 4)
    users = _columns(folder / "ml-100k.user", 5)
    items = _columns(folder / "ml-100k.item", 4)
    user_ids, item_ids = ratings[0].astype(np.int64), ratings[1].astype(np.int64)
    user = _row_of(users[0].astype(np.int64), user_ids)
    item = _row_of(items[0].astype(np.int64), item_ids)
    # Two items have no year: "unkonwn" and "V".
    years = np.array([int(year) if year.isdigit() else 0 for year in items[2]], np.int64)
    return {
        "user_id": user_ids,
        "item_id": item_ids,
        "rating": ratings[2].astype(np.float32),
        "timestamp": ratings[3].astype(np.int64),
        "age": users[1].astype(np.int64)[user],
        "gender": users[2][user],
        "occupation": users[3][user],
        "zip_code": users[4][user],
        "release_year": years[item],
        "genres": _gather_ragged([genres.split() for genres in items[3]], item),
    }


def _fetch(folder):
    """Downloads the package with pip and puts the three files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that each file appears there whole or not at all.
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--dest", scratch, PACKAGE]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(
                f"pip could not download {PACKAGE}, which carries MovieLens-100K:\n{done.stderr}\n"
                f"Fetch {', '.join(FILES)} elsewhere and name their folder with --data."
            )
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in FILES:
                part = Path(scratch) / name
                with archive.open(f"{PACKAGE_FOLDER}/{name}") as source, part.open("wb") as target:
                    shutil.copyfileobj(source, target)
                part.replace(folder / name)


def _columns(path, num_columns):
    """Reads a tab-separated file with one header line as arrays of bytes, one per column."""
    rows = [line.split(b"\t") for line in path.read_bytes().splitlines()[1:]]
    bad_lines = [number for number, row in enumerate(rows, 2) if len(row) != num_columns]
    if bad_lines or not rows:
        raise ValueError(
            f"Each line of {path} must have {num_columns} columns. "
            f"Received: {len(rows)} lines, of which {bad_lines[:10]} have not."
        )
    return [np.array(column) for column in zip(*rows)]


def _row_of(known_ids, ids):
    """Returns, for each of `ids`, its position in `known_ids`."""
    order = np.argsort(known_ids)
    rows = order[np.searchsorted(known_ids, ids, sorter=order).clip(max=len(order) - 1)]
    unknown = ids[known_ids[rows] != ids]
    if unknown.size:
        raise ValueError(f"The ratings name users or items that are not listed: {unknown[:10]}.")
    return rows


def _gather_ragged(lists, rows):
    """Returns `(values, row_splits)` of `[lists[row] for row in rows]`."""
    chosen = [lists[row] for row in rows]
    row_splits = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum([len(values) for values in chosen], out=row_splits[1:])
    return np.array([value for values in chosen for value in values]), row_splits


def main():
    """Fetches or checks the data and says what it holds."""
    parser = argparse.ArgumentParser(description="Fetches MovieLens-100K, or checks a copy.")
    parser.add_argument("--data", metavar="PATH", help="folder that has the three files")
    path = parser.parse_args().data
    try:
        ratings = load(path)
    except (FileNotFoundError, RuntimeError, ValueError) as error:
        sys.exit(f"error: {error}")
    print(
        f"MovieLens-100K: {len(ratings['rating']):,} ratings of "
        f"{len(np.unique(ratings['user_id'])):,} users and "
        f"{len(np.unique(ratings['item_id'])):,} items"
    )


if __name__ == "__main__":
    main()
