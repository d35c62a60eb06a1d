"""What all tests share."""

import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest

# Before TensorFlow is loaded: its start-up notices would bury a failure.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

SEED = 0


@pytest.fixture(autouse=True)
def seeds():
    """Every test draws the same numbers, alone or in any order."""
    random.seed(SEED)
    np.random.seed(SEED)
    if "tensorflow" in sys.modules:  # tests of the C++ core do without it
        sys.modules["tensorflow"].random.set_seed(SEED)


@pytest.fixture(scope="session")
def data_dir():
    """The folder of real data sets, which are not part of the project."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("TFSPARSE_TEST_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set TFSPARSE_TEST_DATA to the folder that has it")
    return folder
