"""`jit` with named dims: one search for all sizes."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat.dynamic import optimize as driver
from eqsat.errors import InputError

RNG = np.random.default_rng(0)
A, B, C = (RNG.standard_normal(shape).astype(np.float32) for shape in ((96, 8), (8, 96), (96, 8)))


def test_one_search_serves_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[object] = []
    once = driver.candidate
    monkeypatch.setattr(driver, "candidate", lambda *given: searches.append(given) or once(*given))

    @eqsat.jit(dynamic={"x": ("rows", None), "y": (None, "rows")}, ranges={"rows": (1, 40)}, time_limit=10)
    def chain(x, y):  # type: ignore[no-untyped-def]
        return {"z": x @ A @ B @ C, "w": y @ x}

    first = 0
    for rows in (5, 1, 17, 40, 41):
        x = RNG.standard_normal((rows, 96)).astype(np.float32)
        y = RNG.standard_normal((3, rows)).astype(np.float32)
        found = chain(x, y)
        np.testing.assert_allclose(found["z"], x @ A @ B @ C, 1e-3, 1e-2)
        np.testing.assert_allclose(found["w"], y @ x, 1e-3, 1e-3)
        first = first or len(searches)
    assert len(searches) == first > 0


@pytest.mark.parametrize("ranges", [{"rows": (3, 3)}, {"rows": (3, 3), "columns": (1, 8)}])
def test_a_range_may_hold_one_size(ranges: dict[str, tuple[int, int]]) -> None:
    columns = "columns" if "columns" in ranges else None
    f = eqsat.jit(lambda x: x * 2, dynamic={"x": ("rows", columns)}, ranges=ranges, time_limit=5)
    for rows in (3, 4):
        x = np.ones((rows, 5), np.float32)
        np.testing.assert_array_equal(f(x), x * 2)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [(((2, 3, 4), (3, 2)), "x has 3 axes, but 2 names"), (((2, 3), (3, 5)), "'rows' is 2 on one axis and 5")],
)
def test_axes_that_do_not_fit_are_refused(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    f = eqsat.jit(lambda x, y: x @ y, dynamic={"x": ("rows", None), "y": (None, "rows")})
    with pytest.raises(InputError, match=message):
        f(*(np.zeros(shape, np.float32) for shape in shapes))
