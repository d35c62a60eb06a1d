"""Every test that user_problems.md names exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TABLE = (ROOT / "tests" / "user_problems.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/\S+?)::([\w.]+)`", TABLE)))
CASES = re.findall(r"^\| (\d+) \| (.*?) \| (.*?) \| (.*?) \|$", TABLE, re.MULTILINE)


@pytest.mark.parametrize("path, name", NAMED)
def test_a_named_test_exists(path, name):
    text = (ROOT / path).read_text()
    if path.endswith(".cc"):
        suite, test = name.split(".")
        assert re.search(rf"TEST\({suite}, {test}\)", text)
    else:
        assert name in [
            node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)
        ]


def test_every_case_has_a_link_and_a_test_or_a_reason():
    assert len(CASES) == len({case for case, *_ in CASES}) == TABLE.count("\n| ") - 3  # heads
    for case, links, promise, held in CASES:
        assert "https://github.com/" in links, case
        assert promise and held, case
        assert "`tests/" in held or held.startswith(("not yet:", "does not apply:")), case
