"""Certificates verify for the programs that they are about, and no corrupted one does."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import CheckFailed, InputError
from eqsat.program.core import make
from eqsat.program.ir import Program
from eqsat.proof.certify import CHECKABLE, certify
from eqsat.verify.checker import Congruence, Terms, verify
from support.cli import eqsat as command
from support.cli import printed, refusal
from support.proof_pairs import MATMUL, build

W = np.arange(35.0).reshape(5, 7) / 10 - 1

FOLDED = (lambda a: (a @ W).sum(1), lambda a: a @ W.sum(1), ((3, 5),))
"""A sum is pushed into a constant, which is then folded."""

PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    **{name: row for name, row in MATMUL.items() if name != "join along k"},  # by a rule in code that adds up
    "folded": FOLDED,
}


@cache
def certified(name: str) -> tuple[Program, Program, str]:
    left, right, shapes = PAIRS[name]
    first, second = build(left, shapes), build(right, shapes)
    return first, second, certify(first, second, 10.0)


@pytest.mark.parametrize("name", PAIRS)
def test_certificates_verify(name: str):
    first, second, text = certified(name)
    found = verify(first, second, text, CHECKABLE)
    assert found.rules + found.values + found.elements == len([x for x in text.splitlines()[1:] if '"term"' not in x])


def test_a_folded_constant_is_computed_again():
    assert verify(*certified("folded"), CHECKABLE).values == 1
    left, _, shapes = FOLDED
    other = W.sum(1) * (1 + 1e-9)
    with pytest.raises(CheckFailed):
        certify(build(left, shapes), build(lambda a: a @ other, shapes), 2.0)


def dropped(rng: random.Random, lines: list[Any]) -> None:
    del lines[rng.randrange(1, len(lines))]


def wrong_rule(rng: random.Random, lines: list[Any]) -> None:
    line = rng.choice([x for x in lines if "rule" in x])
    line["rule"] = rng.choice([rule.name for rule in CHECKABLE if rule.name != line["rule"]])


def wrong_place(rng: random.Random, lines: list[Any]) -> None:
    line = rng.choice([x for x in lines if "rule" in x])
    line["at"] = rng.choice([i for i in range(20) if i != line["at"]])


def wrong_program(rng: random.Random, lines: list[Any]) -> None:
    lines[0][rng.choice(["first", "second"])] = f"{rng.getrandbits(128):032x}"


def invented(rng: random.Random, lines: list[Any]) -> None:
    kind = rng.choice(["values", "elements"])
    lines.insert(rng.randrange(1, len(lines) + 1), {kind: [0, rng.randrange(1, 6)]})


def wrong_term(rng: random.Random, lines: list[Any]) -> None:
    terms = [x["term"] for x in lines if "term" in x]
    if not terms:
        return wrong_place(rng, lines)
    term = rng.choice(terms)
    if term[1] and rng.random() < 0.5:
        i = rng.randrange(len(term[1]))
        value = term[1][i]
        term[1][i] = value + 1 if isinstance(value, int) else {"layout": "1|2,1"} if isinstance(value, dict) else "max"
    else:
        i = rng.randrange(len(term[2]))
        term[2][i] += 1
    return None


MUTATIONS = (dropped, wrong_rule, wrong_place, wrong_program, invented, wrong_term)


@pytest.mark.parametrize("seed", range(102))
def test_no_corrupted_certificate_verifies(seed: int):
    rng = random.Random(seed)
    first, second, text = certified(list(PAIRS)[seed % len(PAIRS)])
    lines = [json.loads(line) for line in text.splitlines()]
    mutation = MUTATIONS[seed // len(PAIRS) % len(MUTATIONS)]
    if len(lines) == 1:  # both are one program in the core
        mutation = wrong_program
    elif mutation in (wrong_rule, wrong_place, wrong_term) and not any("rule" in x for x in lines):
        mutation = dropped
    mutation(rng, lines)
    with pytest.raises(CheckFailed):
        verify(first, second, "\n".join(map(json.dumps, lines)), CHECKABLE)


@pytest.mark.parametrize("text", ["", "{}", "[]", "no JSON", '{"certificate": 99}'])
def test_what_is_no_certificate_is_bad_input(text: str):
    first, second, _ = certified("associate")
    with pytest.raises(InputError):
        verify(first, second, text, CHECKABLE)


def test_congruence_follows_operands_upward():
    x, y = (make("In", (name, 4, "float32")) for name in "xy")
    terms = Terms()
    numbers = terms.add_nodes([x, y, *(make("Un", ("exp",), (make("Un", ("neg",), (a,)),)) for a in (x, y))])
    assert not Congruence(terms, []).equal(*numbers[2:])
    assert Congruence(terms, [(numbers[0], numbers[1])]).equal(*numbers[2:])


def test_the_command_line_writes_and_verifies(tmp_path: Any):
    first, second, _ = certified("folded")
    a, b, proof = tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "b.proof"
    eqsat.to_onnx(first, a)
    eqsat.to_onnx(second, b)
    printed("certify", a, b, "-o", proof)
    assert printed("verify", a, b, proof).startswith("verified")
    assert json.loads(printed("verify", a, b, proof, "--json", "-"))["verdict"] == "verified"
    assert "not about" in refusal("verify", b, a, proof, code=1)
    assert command("verify", a, b, a).exit_code == 3
