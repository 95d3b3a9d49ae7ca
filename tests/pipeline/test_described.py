"""Results are explained while they are checked."""

from __future__ import annotations

import threading

import pytest

import eqsat
from eqsat.errors import CheckFailed
from eqsat.pipeline import describe
from support.programs import weight


def chain() -> eqsat.Program:
    """A program that a rule makes cheaper."""
    return eqsat.trace(lambda x: (x @ weight(16, 16)) @ weight(16, 4), eqsat.spec((64, 16)))


def test_the_explanation_begins_before_the_check_ends(monkeypatch: pytest.MonkeyPatch):
    begun = threading.Event()
    verify, explain = describe.verify, describe.explain

    def explains(*given):
        begun.set()
        return explain(*given)

    def checks(*given):
        assert begun.wait(30)
        return verify(*given)

    monkeypatch.setattr(describe, "explain", explains)
    monkeypatch.setattr(describe, "verify", checks)
    report = eqsat.optimize(chain()).report
    assert report["check"]["passed"]
    assert report["derived"]
    assert list(report["rules"]) == ["matmul-of-constants-right"]


def test_the_explanation_ends_when_the_check_refuses(monkeypatch: pytest.MonkeyPatch):
    verify, explain = describe.verify, describe.explain
    refused: list[CheckFailed] = []
    left = []

    def explains(*given):
        left.append(given[5])
        return explain(*given)

    def checks(*given):
        if not refused:
            refused.append(CheckFailed("differs"))
            raise refused[0]
        return verify(*given)

    monkeypatch.setattr(describe, "explain", explains)
    monkeypatch.setattr(describe, "verify", checks)
    report = eqsat.optimize(chain()).report
    assert report["fallback"]["refused"] == ["differs"]
    assert report["source"]["predicted_us"] == report["result"]["predicted_us"]
    assert all(seconds() == 0.0 for seconds in left)


def test_an_error_of_the_explanation_is_that_of_the_result(monkeypatch: pytest.MonkeyPatch):
    def explains(*given):
        raise CheckFailed("a step does not hold")

    monkeypatch.setattr(describe, "explain", explains)
    with pytest.raises(CheckFailed, match="a step does not hold"):
        eqsat.optimize(chain())


def test_its_time_counts_from_the_end_of_the_check(monkeypatch: pytest.MonkeyPatch):
    verify, explain = describe.verify, describe.explain
    left = []

    def explains(problem, core, parts, solved, rules, seconds, *further):
        left.append(seconds())
        checked.wait(30)
        left.append(seconds())
        return explain(problem, core, parts, solved, rules, seconds, *further)

    def checks(*given):
        found = verify(*given)
        checked.set()
        return found

    checked = threading.Event()
    monkeypatch.setattr(describe, "explain", explains)
    monkeypatch.setattr(describe, "verify", checks)
    eqsat.optimize(chain(), explain_time=5.0)
    assert left[0] == 5.0
    assert 4.0 < left[1] <= 5.0
