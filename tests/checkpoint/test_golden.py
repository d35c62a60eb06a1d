"""Checkpoints of every version that was ever written are readable for ever."""

from pathlib import Path

import numpy as np
import pytest

import tfsparse as tfs
from tests.checkpoint.make_golden import arrays_of
from tests.checkpoint.models import make_model, state_of

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
VERSIONS = sorted(GOLDEN.glob("checkpoint-v*"))


def test_there_is_one_for_each_version():
    assert [folder.name for folder in VERSIONS] == ["checkpoint-v1"]


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_a_golden_checkpoint_is_restored(folder):
    model = make_model(every_rule=True)
    assert tfs.restore(model, folder / "checkpoint") == 2
    got, wanted = arrays_of(state_of(model)), np.load(folder / "state.npz")
    assert sorted(got) == sorted(wanted.files)
    for name in wanted.files:
        np.testing.assert_array_equal(got[name], wanted[name])
