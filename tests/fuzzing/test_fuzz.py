"""A few seeded cases of each kind, judged in this process: no faults. And the search for faults itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eqsat.fuzzing.kinds import KINDS, kind
from eqsat.fuzzing.search import again, cases, save, search, shrunk
from eqsat.runs.store import Store
from support.cli import document, eqsat, printed, refusal

CASES = {
    "mutants": range(120),
    "misuse": (*range(500), 51855),
    "bombs": (*range(12), 12, 15, 16),
    "programs": range(120),
    "pieces": range(20),
    "signals": range(6),
    "threads": range(2),
}

TAKEN = ("programs", "threads")
"""Kinds whose cases are right programs: none is refused."""


@pytest.mark.parametrize("name", KINDS)
def test_nothing_but_results_and_single_lines(name: str) -> None:
    row = kind(name)
    words = {row.judge(row.case(seed, None, ()), lambda stage: None) for seed in CASES[name]}
    assert any(word.startswith("refused") for word in words) or name in TAKEN
    assert any(word.startswith("result") for word in words) or name == "signals"
    assert "result, kernels checked" in words or name != "programs"


OWN = "support.faulty_kind"


def test_faults_are_told_apart_by_cause_shrunk_and_saved(tmp_path: Path) -> None:
    """Of 14 cases one ends its process, one hangs, one dies in foreign code, and two raise the same."""
    with Store(tmp_path / "results.sqlite") as store:
        found = search(cases({OWN: 14}, 0, {}, 60.0), store, 2)
    assert found.words[OWN] == {"right": 9, "fault": 4, "foreign: its process died (SIGABRT)": 1}
    faults = {cause: seed for (_, cause), (seed, _) in found.faults.items()}
    causes = "KeyError in faulty_kind.py:judge", "its process died (SIGABRT)", "no answer after 3 s"
    assert faults == dict(zip(causes, (3, 5, 6), strict=True))
    (fault,) = (seen for (_, cause), (_, seen) in found.faults.items() if cause == causes[0])
    kept = shrunk(OWN, 3, causes[0], {})
    assert kept == [1]
    saved = save(tmp_path / "faults", OWN, 3, kept, {}, fault)
    assert saved.with_suffix(".txt").read_text() == "(3, [1])"
    assert again(saved).cause == causes[0]
    assert "KeyError: 'again'" in eqsat("fuzz", "--again", saved).stdout
    saved.write_text(json.dumps(json.loads(saved.read_text()) | {"kept": [0, 2]}))
    assert printed("fuzz", "--again", saved) == "right\n"
    saved.write_text("[]")
    assert "does not describe a case" in refusal("fuzz", "--again", saved)


def test_the_command_counts_outcomes_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    told = printed("fuzz", "--kind", "bombs", "--minutes", "0", "-o", tmp_path)
    assert told == ""
    first = document("fuzz", "--programs", "6", "--models", "4", "-o", tmp_path)
    assert first["cases"] == 10
    assert set(first["outcomes"]) == {"programs", "pieces", "mutants"}
    assert document("fuzz", "--programs", "6", "--models", "4", "-o", tmp_path) == first
    assert "did you mean bombs" in refusal("fuzz", "--kind", "bomb")
