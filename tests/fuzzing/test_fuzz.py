"""A few seeded cases of each kind, judged in this process: no faults. And the search for faults itself."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from eqsat.fuzzing import bundles, large, programs
from eqsat.fuzzing.kinds import KINDS, kind
from eqsat.fuzzing.programs import BLOCK
from eqsat.fuzzing.search import again, cases, save, search, shrunk
from eqsat.runs.store import Store
from eqsat.testing import random_inputs
from support.cli import document, eqsat, printed, refusal

CASES = {
    "mutants": range(120),
    "misuse": (*range(500), 51855),
    "bombs": (*range(12), 12, 15, 16),
    "programs": range(0, 17 * 120, 17),
    "bundles": range(1, 9),
    "large": range(6),
    "pieces": range(20),
    "signals": range(6),
    "threads": range(2),
}

TAKEN = ("programs", "bundles", "large", "threads")
"""Kinds whose cases are right programs: none is refused."""


@pytest.mark.parametrize("name", KINDS)
def test_nothing_but_results_and_single_lines(name: str) -> None:
    row = kind(name)
    words: set[str] = set()
    for seed in CASES[name]:
        found = row.judge(row.case(seed, None, ()), lambda stage: None)
        words.update([found] if isinstance(found, str) else found)
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
    told = json.loads(eqsat("fuzz", "--again", saved, "--json", "-").stdout)
    assert (told["cause"], list(told["outcomes"])) == (causes[0], ["fault"])
    saved.write_text(json.dumps(json.loads(saved.read_text()) | {"kept": [0, 2]}))
    assert printed("fuzz", "--again", saved) == "right\n"
    other = save(saved.parent, OWN, 3, kept, {}, fault, [saved.with_suffix(".txt")])
    assert other == saved.with_stem(f"{saved.stem}-again")
    saved.write_text("[]")
    assert "does not describe a case" in refusal("fuzz", "--again", saved)
    saved.write_bytes(b"\xff")
    assert "not JSON" in refusal("fuzz", "--again", saved)


BUNDLED = "support.faulty_bundles"


def test_a_fault_of_a_bundle_belongs_to_its_parts_or_to_those_that_have_it_together() -> None:
    """Of 9 bundles of 8 cases the last is right; the fourth is wrong where two of its cases come together."""
    with Store(":memory:") as store:
        found = search(cases({BUNDLED: 9}, 0, {}, 60.0), store, 2)
    alone = {"right": 54, "fault": 9, "foreign: its process died (SIGABRT)": 1}
    assert found.words == {OWN: alone, BUNDLED: {"fault": 1, "right": 8}}
    assert {name: seed for (name, _), (seed, _) in found.faults.items() if name == BUNDLED} == {BUNDLED: 3}
    assert shrunk(BUNDLED, 3, "ValueError in faulty_bundles.py:judge", {}) == [1, 6]


def test_programs_of_a_bundle_that_share_a_product_are_right() -> None:
    made = bundles.case(18002429, None, [])
    assert "fault" not in bundles.judge(made, lambda _: None)


def test_a_wrong_rule_is_found_in_a_bundle_and_shown_by_the_program_that_it_spoils(tmp_path: Path) -> None:
    with Store(":memory:") as store:
        found = search(cases({"support.wrong_bundles": 1}, 1, {}, 60.0), store, 1)
    assert found.cases == BLOCK
    (((name, cause), (seed, fault)),) = found.faults.items()
    assert (name, seed // BLOCK) == ("support.wrong_programs", 1)
    kept = shrunk(name, seed, cause, {})
    assert len(kept) < kind(name).steps(seed)
    saved = save(tmp_path, name, seed, kept, {}, fault)
    assert " min(" in saved.with_suffix(".txt").read_text()
    assert again(saved).cause == cause
    saved.write_text(saved.read_text().replace(name, "programs"))
    assert again(saved).words.keys() <= {"result", "result, kernels checked"}


@pytest.mark.parametrize("seed", [224055876, 224103648, 406000546])
def test_the_noise_of_a_value_that_has_cancelled_is_no_fault(seed: int) -> None:
    """The layer norm of equal values: its sign, which the check refuses to judge, and in float64 with values of 1e8.

    The last is the sum of a norm, of which float32 makes zero as float64 does.
    """
    assert programs.judge(programs.case(seed, None, []), lambda text: None) == "result"


def test_programs_of_a_bundle_that_say_nothing_are_judged_by_themselves() -> None:
    judged = bundles.judge(bundles.case(29003822, [4, 6, 7]), lambda text: None)
    assert judged == Counter({"result": 3})


def test_a_value_that_is_its_own_minimum_grows_no_further_than_egglog_counts() -> None:
    """The least of two equal numbers is the least of four, and so on: rules for siblings double the array each time."""
    judged = large.judge(large.case(500000294, [3, 10]), lambda text: None)
    assert judged == Counter({"result": 2})


@pytest.mark.parametrize("name", ["...", ".os", "a b.c", "a..b"])
def test_what_is_no_name_of_a_module_is_no_kind(name: str) -> None:
    assert refusal("fuzz", "--kind", name).startswith(f"unknown kind of cases {name!r}")


def test_a_module_without_cases_is_no_kind() -> None:
    assert "the module os.path is no kind of cases: it has no BYTES" in refusal("fuzz", "--kind", "os.path")


def test_the_same_seeds_have_the_same_verdicts() -> None:
    """In processes that judge other cases, too: a bundle, and one whose programs are judged one by one."""
    asked = {"bundles": 2}
    with Store(":memory:") as one, Store(":memory:") as two:
        first, again = search(cases(asked, 31, {}, 60.0), one, 1), search(cases(asked, 31, {}, 60.0), two, 2)
    assert (first.cases, first.faults) == (2 * BLOCK, {})
    assert again.words == first.words


def test_the_programs_of_a_bundle_are_apart() -> None:
    """Joined, each computes the bits that it computes alone."""
    members = bundles.case(4, None).cases
    whole = bundles.joined(members)
    inputs = {made.seed: random_inputs(made.program, made.seed) for made in members}
    given = {f"p{seed}_{name}": array for seed, own in inputs.items() for name, array in own.items()}
    found = whole.program.run(given)
    assert len(whole.program.inputs) == sum(len(made.program.inputs) for made in members)
    for made in members:
        assert (made.policy, made.device) == (whole.policy, whole.device)
        for name, wanted in made.program.run(inputs[made.seed]).items():
            np.testing.assert_array_equal(found[f"p{made.seed}_{name}"], wanted)


def test_the_command_counts_outcomes_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    told = printed("fuzz", "--kind", "bombs", "--minutes", "0", "-o", tmp_path / "one")
    assert told.startswith("no case was judged: ")
    few = "fuzz", "--programs", "2", "--models", "2", "--seed", "1", "-o"
    first = document(*few, tmp_path / "one")
    assert first["cases"] == BLOCK + 1 + 2
    assert set(first["outcomes"]) == {"bundles", "pieces", "mutants"}
    assert document(*few, tmp_path / "one") == first
    assert "did you mean bombs" in refusal("fuzz", "--kind", "bomb")
