"""Values in messages: always a short text on one line, whatever they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqsat.base.arguments import LONGEST, guarded, seconds, shown, text
from eqsat.errors import InputError


class Silent:
    def __repr__(self) -> str:
        raise ValueError("not mine to say")


def nested(depth: int) -> list[Any]:
    deep: list[Any] = []
    for _ in range(depth):
        deep = [deep]
    return deep


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Silent(), "an object of type Silent"),
        (nested(5000), "an object of type list"),
        (10**5000, "an object of type int"),
        ({"a": np.zeros((1, 2))}, "{'a': array([[0., 0.]])}"),
        (np.zeros((2, 3)), "ndarray of shape (2, 3) and dtype float64"),
        ("a\ud800", "'a\\ud800'"),
    ],
    ids=["silent", "nested", "digits", "mapping", "array", "surrogate"],
)
def test_every_value_has_a_short_text(given: object, said: str) -> None:
    assert shown(given) == said


@pytest.mark.parametrize("value", [{"a": np.zeros((2, 2))}, np.array([Silent()], object)])
def test_a_text_has_one_line(value: object) -> None:
    assert shown(value).isprintable()


def test_a_type_error_of_wrong_arguments_has_one_line() -> None:
    with pytest.raises(TypeError) as caught:
        guarded("f", lambda x: x + "")({"a": np.zeros((2, 2))})
    assert str(caught.value).isprintable()


def test_more_seconds_than_a_float_holds_are_the_longest_limit() -> None:
    assert seconds("limit", 10**400) == seconds("limit", float("inf")) == LONGEST


@pytest.mark.parametrize("value", [3, "", "a\ud800", None])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(InputError):
        text("name", value)
