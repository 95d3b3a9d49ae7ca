"""A few seeded cases of each kind of `benchmarks/fuzz.py`, judged in this process: no faults."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from support.benchmarks import BENCHMARKS

CASES = {
    "mutants": range(120),
    "misuse": (*range(500), 51855),
    "bombs": (*range(12), 12, 15, 16),
    "programs": range(120),
    "signals": range(6),
    "threads": range(2),
}

TAKEN = ("programs", "threads")
"""Kinds whose cases are right programs: none is refused."""


@pytest.fixture(params=CASES)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(f"fuzz_{request.param}")
    if hasattr(module, "prepare"):
        module.prepare(argparse.Namespace(models=None))
    yield module
    for name in [name for name in sys.modules if name.startswith("fuzz_")]:
        del sys.modules[name]


def test_nothing_but_results_and_single_lines(kind: ModuleType) -> None:
    name = kind.__name__.removeprefix("fuzz_")
    words = {kind.judge(kind.case(seed, None), lambda stage: None) for seed in CASES[name]}
    assert any(word.startswith("refused") for word in words) or name in TAKEN
    assert any(word.startswith("result") for word in words) or name == "signals"


def test_a_fault_is_found_shrunk_and_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """The frame itself: a case that raises, one that ends its process, one that hangs, and right ones."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    fuzz = importlib.import_module("fuzz")
    kind = ModuleType("kind")
    source = """
SECONDS, BYTES = 1.0, 1 << 34
def steps(seed): return 3
def case(seed, kept): return seed, range(3) if kept is None else kept
def judge(case, stage):
    import os, time
    seed, kept = case
    if seed % 10 == 3 and 1 in kept: raise KeyError("again")
    if seed == 5: os.abort()
    if seed == 6: time.sleep(60)
    if seed == 7: stage("foreign"); os.abort()
    return "right"
"""
    exec(source, kind.__dict__)
    words, faults = fuzz.run(kind, range(14), 30.0, 2)
    assert words == {"right": 9, "fault": 4, "foreign died": 1}
    assert sorted(seed for seed, _ in faults.values()) == [3, 5, 6]
    assert fuzz.shrunk(kind, 3, faults[next(key for key in faults if "KeyError" in key)][1].key) == [1]
    assert capsys.readouterr().out.count("KeyError: 'again'") == 1
