"""Evidence for every rule, of the language or of the host: what `eqsat rules check` and the loading of user rules run.

Rows of the rule language are judged by `eqsat.evidence.soundness`, rules of the host by `eqsat.evidence.host_evidence`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from eqsat.base.arguments import instance, whole
from eqsat.evidence.host_evidence import check_host_rule
from eqsat.evidence.soundness import Evidence, check_rule, too_weak
from eqsat.language.rule import AnyRule, HostRule, Rule, spelled

HELD = 40
"""Instances on which the guard of a rule must hold before it counts as judged."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was seen of one rule.

    Attributes:
        rule, numerics: its name and declared class.
        held: instances on which its guard held, or equalities that it stated.
        unpaid: instances that only `worth` refused; they are evidence as well.
        drawn: instances drawn, or e-graphs that it was run on.
        methods: how both sides were compared: `bits`, `field` (modulo a prime), `integers`, `float`.
        dtypes: element types of the instances.
        guard: what its guard turned out to be: `needed`, `worth` (only saves work), `in code` (of a host rule), `none`.
        needless: parts of `when` without which the rule was just as right.
        stricter: the numerics class that it deserves, where the declared one is too weak.
        counterexample: where both sides differ; empty for a sound rule.
        seconds: how long it took.
    """

    rule: str
    numerics: str
    held: int
    drawn: int
    methods: list[str]
    dtypes: list[str]
    guard: str
    needless: list[str]
    stricter: str | None
    counterexample: str
    seconds: float
    unpaid: int = 0
    outside: dict[str, int] = field(default_factory=dict)
    """Instances outside each part of the guard."""

    @property
    def verdict(self) -> str:
        """`sound`, `unsound`, `not seen` (the guard never held), `over-classed` or `needless guard`."""
        if self.counterexample:
            return "unsound"
        if not self.held and not self.unpaid:
            return "not seen"
        if self.stricter:
            return "over-classed"
        return "needless guard" if self.needless else "sound"

    @property
    def remark(self) -> str:
        """What is to be done about a rule that is not just sound."""
        match self.verdict:
            case "unsound":
                return f"wrong {self.counterexample}"
            case "not seen":
                return f"its guard held on none of {self.drawn} instances"
            case "over-classed":
                return f"could be {self.stricter}: no instance shows why it is only {self.numerics}"
            case "needless guard":
                return f"just as right without {'; '.join(self.needless)}: drop it, or move it to worth="
        return ""

    def as_json(self) -> dict[str, Any]:
        """As a row of `eqsat rules check --json`."""
        return {
            "rule": self.rule,
            "numerics": self.numerics,
            "verdict": self.verdict,
            "held": self.held,
            "unpaid": self.unpaid,
            "drawn": self.drawn,
            "methods": self.methods,
            "dtypes": self.dtypes,
            "guard": self.guard,
            "outside": self.outside,
            "needless": self.needless,
            "stricter": self.stricter,
            "counterexample": self.counterexample,
            "seconds": round(self.seconds, 3),
        }


def judge(rule: AnyRule, held: int = HELD, seed: int = 0) -> Judgement:
    """Look for a counterexample, a witness for the numerics class, and a need for each part of the guard.

    Raises:
        InputError: an argument is not as above.
    """
    instance("judge", rule, (Rule, HostRule), "a rule (eqsat.rules.ALL, rule(...))")
    held, seed = whole("held", held, 1), whole("seed", seed, 0)
    begun = time.monotonic()
    evidence = check_rule(rule, held=held, seed=seed) if isinstance(rule, Rule) else check_host_rule(rule, seed)
    return Judgement(
        rule=rule.name,
        numerics=rule.numerics,
        held=evidence.held,
        drawn=evidence.drawn,
        methods=sorted(evidence.methods),
        dtypes=sorted(evidence.dtypes),
        guard=_guard(rule, evidence),
        needless=_needless(rule, evidence),
        stricter=too_weak(rule, evidence),
        counterexample="" if evidence.failure is None else str(evidence.failure),
        seconds=time.monotonic() - begun,
        unpaid=evidence.unpaid,
        outside={part: seen.drawn for part, seen in evidence.outside.items()},
    )


def _guard(rule: AnyRule, evidence: Evidence) -> str:
    if isinstance(rule, HostRule):
        return "in code" if rule.guard_text else "none"
    if any(seen.needed for seen in evidence.outside.values()):
        return "needed"
    return "worth" if any(spelled(guard) is None for guard in rule.when) else "none"


def _needless(rule: AnyRule, evidence: Evidence) -> list[str]:
    """Parts of `when` that no instance needs. What is asked of constness never changes what is equal to what."""
    if isinstance(rule, HostRule):
        return []
    parts = zip(rule.when, rule.guard_parts, strict=True)
    required = [text for guard, text in parts if guard not in rule.worth]
    return [text for text in required if text in evidence.outside and not evidence.outside[text].needed]
