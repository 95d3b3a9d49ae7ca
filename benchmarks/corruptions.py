"""Ways to corrupt a certificate: none of what they leave may verify (`eqsat/verify/`)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from eqsat.rules import CHECKABLE

Lines = list[dict[str, Any]]


def corrupted(text: str, rng: random.Random) -> tuple[str, str]:
    """The name of a corruption, and the certificate with it, which differs from what it was."""
    while True:
        name, corrupt = rng.choice(list(CORRUPTIONS.items()))
        lines = [json.loads(line) for line in text.splitlines()]
        if corrupt(rng, lines):
            return name, "\n".join(map(json.dumps, lines)) + "\n"


def _one(rng: random.Random, lines: Lines, kind: str) -> dict[str, Any] | None:
    found = [line for line in lines if kind in line]
    return rng.choice(found) if found else None


def _dropped(rng: random.Random, lines: Lines) -> bool:
    found = [i for i, line in enumerate(lines) if i and not {"term", "leaf"} & set(line)]
    if found:
        del lines[rng.choice(found)]
    return bool(found)


def _other_rule(rng: random.Random, lines: Lines) -> bool:
    line = _one(rng, lines, "rule")
    if line is not None:
        line["rule"] = rng.choice([rule.name for rule in CHECKABLE if rule.name != line["rule"]])
    return line is not None


def _other_place(rng: random.Random, lines: Lines) -> bool:
    line = _one(rng, lines, "rule")
    if line is not None:
        line["at"] += rng.choice([-1, 1])
    return line is not None


def _other_program(rng: random.Random, lines: Lines) -> bool:
    lines[0][rng.choice(["first", "second"])] = f"{rng.getrandbits(128):032x}"
    return True


def _invented(rng: random.Random, lines: Lines) -> bool:
    last = max((i for i, line in enumerate(lines) if "proves" in line), default=0)
    lines.insert(rng.randrange(last + 1, len(lines) + 1), {"values": [0, rng.randrange(1, 6)]})
    return True


def _other_operand(rng: random.Random, lines: Lines) -> bool:
    line = _one(rng, lines, "term")
    if line is None or not line["term"][2]:
        return False
    line["term"][2][rng.randrange(len(line["term"][2]))] += 1
    return True


def _other_attribute(rng: random.Random, lines: Lines) -> bool:
    line = _one(rng, lines, "term")
    if line is None or not line["term"][1]:
        return False
    attributes = line["term"][1]
    i = rng.randrange(len(attributes))
    match attributes[i]:
        case bool(value):
            attributes[i] = not value
        case int(value) | float(value):
            attributes[i] = value + 1
        case dict():
            attributes[i] = {"layout": "1|2,1"}
        case _:
            attributes[i] = "max"
    return True


def _other_claim(rng: random.Random, lines: Lines) -> bool:
    line = _one(rng, lines, "proves")
    if line is not None:
        line["proves"][rng.randrange(2)] += 1
    return line is not None


def _other_runs(rng: random.Random, lines: Lines) -> bool:
    line = _one(rng, lines, "into")
    if line is not None:
        line["into"][rng.randrange(len(line["into"]))] += rng.choice([-1, 1])
    return line is not None


def _other_moves(rng: random.Random, lines: Lines) -> bool:
    line = _one(rng, lines, "moves")
    if line is not None:
        line["moves"][rng.randrange(2)] += rng.choice([-1, 1])
    return line is not None


def _other_leaf(rng: random.Random, lines: Lines) -> bool:
    line = _one(rng, lines, "use")
    if line is None:
        return False
    i = rng.randrange(len(line["on"]))
    line["on"][i] += rng.choice([-1, 1])
    return True


CORRUPTIONS: dict[str, Callable[[random.Random, Lines], bool]] = {
    "a line dropped": _dropped,
    "another rule": _other_rule,
    "a rule at another place": _other_place,
    "another program": _other_program,
    "values said to be equal": _invented,
    "another operand": _other_operand,
    "another attribute": _other_attribute,
    "a lemma that claims another value": _other_claim,
    "runs of other sizes": _other_runs,
    "elements of another value moved": _other_moves,
    "a lemma used on another value": _other_leaf,
}
"""Each changes the lines, and says whether it did: False where it has no place."""
