"""How far two arrays are apart: by their largest finite difference, with special values at the same places."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from eqsat.base.compare import relative_error

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("found", "want", "error"),
    [
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([1.0, 2.5, NAN, -INF], [1.0, 2.0, NAN, -INF], 0.25),
        ([1.0, INF], [1.0, 2.0], INF),
        ([1.0, 2.0], [1.0, INF], INF),
        ([INF], [-INF], INF),
        ([NAN, INF], [NAN, INF], 0.0),
        ([], [], 0.0),
        ([1.0], [1.0, 2.0], INF),
        ([3, 4], [3, 4], 0.0),
        ([3, 5], [3, 4], INF),
    ],
)
def test_the_error_is_a_share_of_the_largest_finite_magnitude(
    found: list[float], want: list[float], error: float
) -> None:
    assert relative_error(np.array(found), np.array(want)) == error


def test_a_least_scale_makes_small_values_count_for_less() -> None:
    assert relative_error(np.array([0.5]), np.array([0.25]), least=1.0) == 0.25


def test_finite_values_are_compared_in_little_memory() -> None:
    values = np.ones(1 << 20)
    tracemalloc.start()
    assert relative_error(values, values) == 0.0
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2.6 * values.nbytes
