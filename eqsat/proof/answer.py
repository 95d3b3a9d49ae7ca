"""Answers of `prove`, as text, as HTML and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from eqsat.errors import escaped
from eqsat.proof.normal_form.elements import Agreement
from eqsat.proof.values.refute import Difference

Verdict = Literal["proved", "refuted", "unknown"]
Method = Literal["rules", "normal form", "sweep", "points", ""]

_MOST_SHOWN = 100
"""Steps that a notebook shows."""


@dataclass(slots=True)
class Proof:
    """The answer.

    Attributes:
        verdict: `proved`, `refuted` or `unknown`.
        method: `rules` (an e-graph), `sweep` (an e-graph for each cut of the programs), `normal form` (element by
            element), `points` (a counterexample).
        steps: rule, before, after: how the first becomes the second; of a sweep the values that are equal, by name.
        difference: the input that refutes.
        assumed: what was assumed of inputs, as it was written.
        certificate: a text that `eqsat.verify.checker` checks, if one was asked for and found.
        uncertified: why none was found.
        reason: one line for people.
        within_rounding: of an unknown answer, the largest difference of outputs that was seen, and what rounding may
            make there.
    """

    verdict: Verdict
    method: Method
    seconds: float
    reason: str
    steps: list[dict[str, str]] = field(default_factory=list)
    difference: Difference | None = None
    stats: dict[str, Any] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    certificate: str | None = None
    uncertified: str = ""
    within_rounding: tuple[float, float] | None = None

    def __bool__(self) -> bool:
        return self.verdict == "proved"

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {self.reason}" + "".join(f"; assuming {text}" for text in self.assumed)]
        for i, step in enumerate(self.steps, 1):
            lines += [f"{i}. {step['rule']}", f"   {step['before']}", f" = {step['after']}"]
        return "\n".join(map(escaped, lines))

    def _repr_html_(self) -> str:
        from eqsat.html.fragments import fragment

        shown = {"verdict": self.verdict, "reason": self.reason, "assumed": self.assumed}
        return fragment("proof", **shown, steps=self.steps[:_MOST_SHOWN], left_out=len(self.steps[_MOST_SHOWN:]))

    def as_json(self) -> dict[str, Any]:
        """The answer as `eqsat prove --json` writes it (schema 1)."""
        data: dict[str, Any] = {
            "schema": 1,
            "verdict": self.verdict,
            "method": self.method,
            "seconds": round(self.seconds, 3),
            "reason": self.reason,
            "steps": self.steps,
        }
        if self.assumed:
            data["assume"] = self.assumed
        if self.difference is not None:
            d = self.difference
            data["counterexample"] = {
                "output": d.output,
                "index": list(d.index),
                "inputs": {name: _plain(a) for name, a in d.inputs.items()},
                "first": {name: _plain(a) for name, a in d.left.items()},
                "second": {name: _plain(a) for name, a in d.right.items()},
                "decided_by": [
                    {"input": x.name, "index": list(x.index), "value": _plain_value(x.value)} for x in d.decided
                ],
            }
        return data


def refuted(found: Difference, points: int) -> Proof:
    """By a counterexample, the last of so many inputs."""
    return Proof("refuted", "points", 0.0, f"{found}, on input {points} of those tried", difference=found)


def by_elements(elements: Agreement) -> Proof:
    """By equal normal forms of all output elements."""
    laws = f" with {', '.join(elements.laws)}" if elements.laws else ""
    reason = f"all {elements.elements} output elements have equal normal forms{laws}"
    step = {
        "rule": "normal-form-of-elements",
        "before": "the first element of the first output",
        "after": elements.sample,
    }
    return Proof("proved", "normal form", 0.0, reason, steps=[step])


def _plain_value(value: Any) -> Any:
    """A number for JSON."""
    return value if isinstance(value, int) or np.isfinite(value) else str(value)


def _plain(array: np.ndarray) -> Any:
    """Nested lists for JSON; what JSON has no word for (NaN, infinities) as text."""
    if array.dtype.kind not in "fV":
        return array.tolist()
    flat = [x if np.isfinite(x) else str(x) for x in array.astype(np.float64).reshape(-1).tolist()]
    return {"shape": list(array.shape), "values": flat}
