"""Explanations as values: steps that are ready for display."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat.explain.narration import alike, closing
from eqsat.html.fragments import fragment
from eqsat.program.printer import Pieces, joined
from eqsat.program.term import Term

FOLD = "fold-constants"
"""The name of the step that is no rule: computing a constant expression ahead of time."""


@dataclass(frozen=True, slots=True)
class ShownStep:
    """One step, ready for display.

    Attributes:
        rule: its name; used from right to left where `backwards`.
        before, after: two ways to write one value, over the same terms, which have names in `called`.
        type: of that value, as in `f32[348,768]`.
        where: the place of that value in the source, or the step whose result it is part of.
        alike: the number of the first step that differs from this one only in names, sizes and places.
        called: the names of terms; other inputs keep their own names.
        names: the type and meaning of each name.
        times: how often the step is used: once for every equal part of the program.
        assumed: no match of the rule was found again; it is only known that the rule made this value.
        replayed, error: whether both sides were evaluated, and their largest difference.
    """

    rule: str
    before: Pieces
    after: Pieces
    type: str
    where: str
    alike: int
    called: Mapping[Term, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    backwards: bool = False
    times: int = 1
    assumed: bool = False
    replayed: bool = True
    error: float | None = None

    def as_json(self) -> dict[str, Any]:
        """As in the report."""
        return {
            "rule": self.rule,
            "before": joined(self.before, self.called),
            "after": joined(self.after, self.called),
            "type": self.type,
            "where": self.where,
            "names": self.names,
            "backwards": self.backwards,
            "times": self.times,
            "assumed": self.assumed,
            "replayed": self.replayed,
            "error": self.error,
            "alike": self.alike,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a result follows from its source: the steps, and whether they are complete."""

    steps: list[ShownStep]
    derived: bool

    def _repr_html_(self) -> str:
        steps = [step.as_json() for step in self.steps]
        end = closing({"steps": steps, "derived": self.derived})
        return fragment("steps", steps=alike(steps), closing=end)
