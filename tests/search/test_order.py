"""In which order forms are searched, and for how long at most."""

from __future__ import annotations

import pytest

from eqsat.search.limits import SEARCH

CONVNEXT = [9, 26, 29, 54, 121, 130, 130]


@pytest.mark.parametrize(
    ("left", "sizes", "order"),
    [
        (20.0, CONVNEXT, [130, 130, 121, 54, 29, 26, 9]),  # time for all: what ends last is short
        (20.0, [10, 300, 400], [10, 300, 400]),  # for none of the large ones, and what the small one leaves is theirs
        (20.0, [10, 20, 100, 400], [100, 20, 10, 400]),  # for all but the largest
        (0.0, [10, 20], [10, 20]),
    ],
)
def test_the_largest_form_that_there_is_time_for_is_next(left: float, sizes: list[int], order: list[int]) -> None:
    waiting, taken = list(sizes), []
    while waiting:
        place, seconds = SEARCH.next_form(left, left, waiting, SEARCH.expected)
        assert 0 <= seconds <= left
        taken.append(waiting.pop(place))
        left -= min(seconds, SEARCH.expected(taken[-1])) / 2
    assert taken == order


def test_a_form_gets_no_more_time_than_is_left() -> None:
    assert SEARCH.next_form(3.0, 3.0, [50], SEARCH.expected) == (0, 3.0)


def test_a_large_form_leaves_time_for_those_that_no_other_process_can_search() -> None:
    waiting = [9, 26, 29, 54, 121]
    assert SEARCH.expected(121) < 4.5
    assert SEARCH.next_form(4.5, 4.5, waiting, SEARCH.expected) == (4, 4.5)
    place, seconds = SEARCH.next_form(4.5, 0.0, waiting, SEARCH.expected)
    assert waiting[place] == 54, "the large one has what the others leave"
    assert SEARCH.expected(54) <= seconds < 4.5
