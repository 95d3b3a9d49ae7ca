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
        name, (kind, corrupt) = rng.choice(list(CORRUPTIONS.items()))
        lines = [json.loads(line) for line in text.splitlines()]
        found = [line for line in lines if kind in line]
        if found and corrupt(rng, rng.choice(found), lines):
            return name, "\n".join(map(json.dumps, lines)) + "\n"


Corrupt = Callable[[random.Random, dict[str, Any], Lines], bool]
"""Changes a line of its kind, or the lines; says whether it did: False where it has no place."""


def _moved(key: str, steps: tuple[int, ...]) -> Corrupt:
    """A number of a list that is another one."""

    def corrupt(rng: random.Random, line: dict[str, Any], lines: Lines) -> bool:
        line[key][rng.randrange(len(line[key]))] += rng.choice(steps)
        return True

    return corrupt


def _dropped(rng: random.Random, line: dict[str, Any], lines: Lines) -> bool:
    found = [i for i, each in enumerate(lines) if i and not {"term", "leaf"} & set(each)]
    if found:
        del lines[rng.choice(found)]
    return bool(found)


def _other_rule(rng: random.Random, line: dict[str, Any], lines: Lines) -> bool:
    line["rule"] = rng.choice([rule.name for rule in CHECKABLE if rule.name != line["rule"]])
    return True


def _other_place(rng: random.Random, line: dict[str, Any], lines: Lines) -> bool:
    line["at"] += rng.choice([-1, 1])
    return True


def _other_program(rng: random.Random, head: dict[str, Any], lines: Lines) -> bool:
    head[rng.choice(["first", "second"])] = f"{rng.getrandbits(128):032x}"
    return True


def _invented(rng: random.Random, line: dict[str, Any], lines: Lines) -> bool:
    last = max((i for i, each in enumerate(lines) if "proves" in each), default=0)
    lines.insert(rng.randrange(last + 1, len(lines) + 1), {"values": [0, rng.randrange(1, 6)]})
    return True


def _other_operand(rng: random.Random, line: dict[str, Any], lines: Lines) -> bool:
    operands = line["term"][2]
    if operands:
        operands[rng.randrange(len(operands))] += 1
    return bool(operands)


def _other_attribute(rng: random.Random, line: dict[str, Any], lines: Lines) -> bool:
    attributes = line["term"][1]
    if not attributes:
        return False
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


CORRUPTIONS: dict[str, tuple[str, Corrupt]] = {
    "a line dropped": ("certificate", _dropped),
    "another rule": ("rule", _other_rule),
    "a rule at another place": ("rule", _other_place),
    "another program": ("certificate", _other_program),
    "values said to be equal": ("certificate", _invented),
    "another operand": ("term", _other_operand),
    "another attribute": ("term", _other_attribute),
    "a lemma that claims another value": ("proves", _moved("proves", (1,))),
    "runs of other sizes": ("into", _moved("into", (-1, 1))),
    "elements of another value moved": ("moves", _moved("moves", (-1, 1))),
    "a lemma used on another value": ("use", _moved("on", (-1, 1))),
}
"""What each corruption does, and the key of the lines that it changes. The first line's key is `certificate`."""
