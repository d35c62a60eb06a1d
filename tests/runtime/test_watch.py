"""Who waits for whom is told from counts alone."""

from tfsparse.runtime.watch import Waits


def waiting(steps):
    """The answers of a `Waits` for two ranks to `[(seconds, {collective: counts})]`."""
    waits = Waits(2)
    return [waits.update(begun, now) for now, begun in steps]


def test_nobody_waits_while_ranks_are_level_or_before_they_begin():
    assert waiting([(0, {}), (60, {}), (120, {"a": [5, 5]}), (900, {"a": [5, 5]})])[-1] == (0, {})


def test_a_wait_lasts_from_where_it_was_first_seen_until_a_rank_begins():
    stuck = {"a": [2, 1], "b": [1, 1]}
    answers = waiting([(0, stuck), (60, stuck), (120, stuck), (180, {"a": [2, 2], "b": [1, 1]})])
    assert answers == [(0, {"a": [2, 1]}), (60, {"a": [2, 1]}), (120, {"a": [2, 1]}), (0, {})]


def test_a_rank_that_is_always_ahead_is_no_wait_while_both_go_on():
    answers = waiting([(60 * i, {"a": [10 * i + 1, 10 * i]}) for i in range(1, 50)])
    assert all(waited == 0 for waited, _ in answers)


def test_ranks_in_different_collectives_wait_in_both():
    stuck = {"a": [1, 0], "b": [0, 1]}
    assert waiting([(0, stuck), (600, stuck)])[-1] == (600, stuck)


def test_what_a_failed_step_left_behind_counts_no_more_when_ranks_go_on():
    left = {"a": [1, 0], "b": [0, 1]}
    on = [(60 * i, {**left, "c": [10 * i, 10 * i]}) for i in range(1, 4)]
    assert waiting([(0, left), *on, (2000, on[-1][1])])[-1] == (0, {})
    # A new wait in one of them is seen.
    stuck = {**on[-1][1], "a": [2, 0]}
    assert waiting([(0, left), *on, (240, stuck), (840, stuck)])[-1] == (600, {"a": [2, 0]})


def test_a_rank_that_comes_late_to_one_and_never_to_the_other_is_waited_for():
    first = {"a": [1, 0], "b": [1, 0]}  # two tables, looked up side by side
    then = {"a": [1, 1], "b": [1, 0]}
    assert waiting([(0, first), (60, then), (660, then)])[-1] == (600, {"b": [1, 0]})


def test_a_difference_that_was_made_good_is_no_wait():
    level = {"a": [2, 2], "b": [1, 0], "c": [9, 9]}
    before = {"a": [1, 1], "b": [1, 0], "c": [8, 8]}
    good = {**level, "b": [1, 1]}
    assert waiting([(0, before), (60, level), (120, good), (900, good)])[-1] == (0, {})
