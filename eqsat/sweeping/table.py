"""What a sweep found, as rows; what each rule has a part in; what got worse since an earlier sweep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eqsat.base.arguments import real, shown
from eqsat.base.files import read_json
from eqsat.errors import InputError, missing
from eqsat.runs.task import Outcome, Task

FILE = "sweep.json"
"""The document of a sweep, in its folder."""

TOLERANCE = 0.001
"""A price that is higher by at most this share is no regression: searches may end with another tie."""


@dataclass(frozen=True, slots=True)
class Row:
    """A model on a device under a policy.

    Attributes:
        digest: of the model's files.
        found: the figures of `eqsat.sweeping.model`, or `refused`, or `failed`: why there are none.
        seconds: what the search took when it was done; 0.0 in a row that was read from a file.
    """

    model: str
    device: str
    numerics: str
    digest: str
    found: Mapping[str, Any]
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.model, self.device, self.numerics

    @property
    def fault(self) -> str:
        """Why there are no figures, in one line; empty where there are."""
        return self.found.get("refused") or self.found.get("failed") or ""

    @property
    def price(self) -> float:
        """Predicted microseconds of the result; infinite where there is none."""
        return math.inf if self.fault else self.found["result_predicted_us"]

    @property
    def gain(self) -> float:
        """How many times less the result is predicted to take than the program as written."""
        return self.found["source_predicted_us"] / self.price if self.price else 1.0

    @property
    def gap(self) -> float:
        """How far the price may be above the least, as a share of it."""
        return (self.price - self.found["lower_bound_us"]) / self.price if self.price else 0.0


def row(task: Task, outcome: Outcome) -> Row:
    """The row of a task of `eqsat.sweeping.model`."""
    found = outcome.result if outcome.value is not None else {"failed": outcome.failure}
    given = task.given
    name, device, policy = task.places["name"], given["device"], given["numerics"]
    return Row(name, device, policy, given["model"], found, outcome.seconds)


@dataclass(frozen=True, slots=True)
class Earned:
    """What a rule has a part in: the rows whose steps use it, its steps there, and the microseconds these rows save."""

    rule: str
    rows: int
    steps: int
    saved_us: float


def earned(rows: Iterable[Row]) -> list[Earned]:
    """What the rules earned, the most first. Rules that are used in one row share its gain: each is given all of it."""
    by_rule: dict[str, list[Row]] = {}
    for each in rows:
        for rule in each.found.get("rules", ()):
            by_rule.setdefault(rule, []).append(each)
    found = [
        Earned(
            rule,
            len(using),
            sum(each.found["rules"][rule] for each in using),
            round(math.fsum(each.found["source_predicted_us"] - each.price for each in using), 6),
        )
        for rule, using in by_rule.items()
    ]
    return sorted(found, key=lambda e: (-e.saved_us, e.rule))


def document(rows: Sequence[Row]) -> dict[str, Any]:
    """The sweep as JSON (schema 1): the same bytes wherever and in whatever order its tasks were done."""
    return {
        "schema": 1,
        "rows": [
            {"model": r.model, "device": r.device, "numerics": r.numerics, "digest": r.digest, **r.found} for r in rows
        ],
        "rules": [{"rule": e.rule, "rows": e.rows, "steps": e.steps, "saved_us": e.saved_us} for e in earned(rows)],
    }


def read(folder: Path) -> list[Row]:
    """The rows of an earlier sweep.

    Raises:
        InputError: the folder holds none.
    """
    path = folder / FILE
    if not path.exists():
        raise InputError(f"{folder}: holds no {FILE}; give the folder of an earlier sweep")
    try:
        return [_described(given) for given in read_json(path, "the document of a sweep")["rows"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is not the document of a sweep ({missing(error)})") from None


def _described(given: Mapping[str, Any]) -> Row:
    """A row of a document.

    Raises:
        ValueError, KeyError, TypeError: it is none: what sweeps are compared by is missing, or of another kind.
    """
    found = dict(given)
    model, device, numerics, digest = (found.pop(name) for name in ("model", "device", "numerics", "digest"))
    made = Row(model, device, numerics, digest, found)
    for text in (*made.key, made.digest, made.fault):
        if not isinstance(text, str):
            raise ValueError(f"{shown(text)} is no text")
    price = real(found["result_predicted_us"]) if not made.fault else 0.0
    if price is None or not 0 <= price < math.inf:
        raise ValueError(f"a price of {shown(found['result_predicted_us'])}")
    return made


def worse(now: Sequence[Row], before: Sequence[Row]) -> list[str]:
    """What got worse, one line for each row: a higher price, or no result any more. Other models are not compared."""
    earlier = {r.key: r for r in before}
    lines = []
    for new in now:
        old = earlier.get(new.key)
        if old is None or old.digest != new.digest or old.fault:
            continue
        name = " ".join(new.key)
        if new.fault:
            lines.append(f"{name}: had a result, now {new.fault}")
        elif new.price > old.price * (1 + TOLERANCE):
            lines.append(f"{name}: {new.price:.3f} us, {old.price:.3f} us before ({new.price / old.price - 1:+.1%})")
    return lines
