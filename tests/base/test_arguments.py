"""Checks of arguments: numbers of Python and of NumPy are taken alike, and nothing else is a number."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from eqsat.base.arguments import LONGEST, flag, integer, real, seconds, whole
from eqsat.errors import InputError


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_whole_numbers(value: Any) -> None:
    assert type(integer(value)) is int
    assert whole("n", value, 3) == 3


@pytest.mark.parametrize("value", [True, np.True_, 3.0, np.float32(3), "3", None, np.arange(3), int])
def test_what_is_no_whole_number(value: Any) -> None:
    assert integer(value) is None
    with pytest.raises(InputError, match="expected a whole number"):
        whole("n", value, 0)


@pytest.mark.parametrize("value", [2, 2.0, np.int8(2), np.float16(2), np.float64(2), Fraction(2)])
def test_real_numbers(value: Any) -> None:
    assert type(real(value)) is float
    assert seconds("time", value) == 2.0


@pytest.mark.parametrize("value", [False, np.False_, 2j, "2", None, np.ones(2), -1, float("nan")])
def test_what_is_no_time(value: Any) -> None:
    with pytest.raises(InputError, match="expected seconds"):
        seconds("time", value)


@pytest.mark.parametrize("value", [10**400, 1e300, float("inf"), np.float64("inf")])
def test_longer_than_anyone_waits_is_as_long_as_threads_wait(value: Any) -> None:
    assert seconds("time", value) == LONGEST
    assert real(10**400) is None


def test_flags() -> None:
    assert flag("on", np.True_) is flag("on", True) is True
    for value in (1, "no", None, np.ones(1, bool)):
        with pytest.raises(InputError, match="takes True or False"):
            flag("on", value)
