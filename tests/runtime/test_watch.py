"""The limits of how long ranks wait for each other; tests/multi shows what comes of them."""

import pytest

from tfsparse.runtime import watch


@pytest.mark.parametrize("variable", [watch.LIMIT, watch.CHECK])
@pytest.mark.parametrize("text", ["ten", "1.5", "-1", ""])
def test_a_limit_that_is_no_number_of_seconds_is_refused(variable, text, monkeypatch):
    monkeypatch.setenv(watch.LIMIT, "60")
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueError, match=f"{variable} must be a whole number of seconds"):
        watch.limits()


@pytest.mark.parametrize(
    "limit, check, wanted",
    [(None, None, (60, 600)), ("6", None, (1, 6)), ("0", None, (60, 0)), ("100", "7", (7, 100))],
)
def test_ranks_are_asked_often_enough_for_the_limit(limit, check, wanted, monkeypatch):
    for variable, text in ((watch.LIMIT, limit), (watch.CHECK, check)):
        monkeypatch.setenv(variable, "to be restored")
        monkeypatch.delenv(variable)
        if text is not None:
            monkeypatch.setenv(variable, text)
    assert watch.limits() == wanted
