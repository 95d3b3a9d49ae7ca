"""A busy machine does not change what is found while limits are far away."""

from __future__ import annotations

import pytest

from eqsat.egraph.saturate import _next_end


def test_an_iteration_that_was_held_up_does_not_foretell_a_much_longer_one() -> None:
    assert _next_end([0.0, 0.01, 2.01], [100, 100, 100]) == pytest.approx(4.01)
    assert _next_end([0.0, 0.01, 2.01], [100, 150, 300]) == pytest.approx(10.01)
    assert _next_end([0.0, 1.0, 3.0], [100, 150, 300]) == 7.0, "as the one before"
    assert _next_end([0.0, 1.0, 2.0], [100, 150, 300]) == 4.0, "as the e-nodes"
