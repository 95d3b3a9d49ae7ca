"""Rules proved for all shapes: both sides read the same elements and combine them alike, under the guard, by z3.

Each side is written element by element: output i is a sum of products of reads `a[index]`. The index is integer
arithmetic over the digits of i, the variables of sums, and the index maps of layouts. A function that is no polynomial
stays as it is, over its operands. Dims, sizes and layouts are symbols. A layout is known only by what its table
promises (`eqsat.language.tables`), and each promise is tested on instances against the table's Python function.

The two sides are equal when their terms pair off: equal coefficients, sums over equal ranges (in another order, or two
ranges as one), and indices that z3 proves equal for each pair of reads.

Lengths are proved to agree for all shapes. Elements are proved to agree where no axis is empty, since an index over an
empty axis says nothing; `eqsat.evidence.soundness` also draws instances with empty axes.

z3 is left with integer arithmetic that is not linear, because a flat index is a polynomial in digits and dims. It may
give up: the answer is then `unknown`. It is told instance by instance that digits are unique: hi*n + lo = hi'*n + lo'
with both lo below n means that hi = hi' and lo = lo'.
"""

from __future__ import annotations

import hashlib
import inspect
import random
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from eqsat.base.numerics import DTYPES
from eqsat.errors import InputError
from eqsat.evidence.elementwise import check_values, defined_apart
from eqsat.evidence.instances import Instance, Unfit
from eqsat.evidence.promise_check import kept
from eqsat.evidence.soundness import check_rule
from eqsat.language.rule import AnyRule, Ask, Pat, Rule, patterns
from eqsat.language.tables import find
from eqsat.program.core_table import CORE

Status = Literal["proved", "refuted", "unknown", "no integers", "in code"]

_PROMISES_HELD = 25
_MOST_DRAWN = 1500


@dataclass(frozen=True, slots=True)
class GuardProof:
    """What z3 showed of a rule.

    Attributes:
        status: `proved`; `refuted` (a table breaks its promise, or the sides read different elements for some shapes);
            `unknown`; `no integers` (nothing depends on dims or layouts, and the sides differ on no value of
            `eqsat.evidence.elementwise`); `in code` (a rule of the host).
        reason: why it is unknown, or the counterexample.
        promises: table to the instances on which its function kept its promise.
        formulas: how many statements z3 proved.
        seconds: how long it took.
    """

    rule: str
    status: Status
    reason: str = ""
    promises: dict[str, int] = field(default_factory=dict)
    formulas: int = 0
    seconds: float = 0.0

    @property
    def remark(self) -> str:
        """What is wrong, for a rule that was refuted."""
        return f"refuted: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """As in `eqsat rules check --prove-guards --json`."""
        return {
            "status": self.status,
            "reason": self.reason,
            "promises": self.promises,
            "formulas": self.formulas,
            "seconds": round(self.seconds, 3),
        }


def prove_guard(rule: AnyRule, timeout: float = 5.0) -> GuardProof:
    """Prove that a rule's sides are equal for all shapes; each question to z3 has `timeout` seconds.

    Raises:
        InputError: z3 is not installed.
    """
    if not isinstance(rule, Rule):
        return GuardProof(rule.name, "in code")
    begun = time.monotonic()
    if not _has_integers(rule):
        wrong = check_values(rule)[1] or defined_apart(rule)
        return GuardProof(rule.name, "refuted" if wrong else "no integers", wrong, seconds=time.monotonic() - begun)
    try:
        from eqsat.evidence.index_proofs import prove_equation
    except ModuleNotFoundError as error:
        if error.name != "z3":
            raise
        raise InputError("--prove-guards needs z3: pip install 'eqsat[prove]'") from None

    def found(status: Status, reason: str, formulas: int = 0) -> GuardProof:
        return GuardProof(rule.name, status, reason, promises, formulas, time.monotonic() - begun)

    promises, broken = _promises(rule)
    if broken:
        return found("refuted", broken)
    silent = [ask.table for ask in _asks(rule) if find(ask.table).promise is None and _is_about_integers(ask)]
    if silent:
        return found("unknown", f"{', '.join(dict.fromkeys(silent))} promises nothing of indices")
    formulas, reason = prove_equation(rule, timeout)
    if formulas:
        return found("proved", "", formulas)
    wrong = check_rule(rule).failure
    return found("unknown", reason) if wrong is None else found("refuted", f"{reason}; {wrong}")


def fingerprint(rule: Rule) -> str:
    """What a proof of a rule is about, in eight digits: both sides, what must hold, and what tables promise of it."""
    needed = [guard for guard in rule.when if guard not in rule.worth]
    promises = [find(ask.table).promise for ask in _asks(rule)]
    texts = [inspect.getsource(getattr(promise, "func", promise)) for promise in promises if promise is not None]
    said = repr((rule.left, rule.right, needed, rule.numerics, ["".join(text.split()) for text in texts]))
    return hashlib.blake2b(said.encode(), digest_size=4).hexdigest()


def _asks(rule: Rule) -> list[Ask]:
    """What a rule must know; what only says when it pays is not among it."""
    return [guard for guard in rule.when if isinstance(guard, Ask) and guard not in rule.worth]


def _is_about_integers(ask: Ask) -> bool:
    table = find(ask.table)
    return "layout" in table.takes + table.gives


def _has_integers(rule: Rule) -> bool:
    """Whether a rule's meaning depends on dims or layouts."""
    kinds = {
        a.kind
        for side in (rule.left, rule.right)
        for part in patterns(side)
        if isinstance(part, Pat) and part.args
        for a in CORE[part.op].attrs
    }
    return not kinds.isdisjoint(("int", "layout"))


def _promises(rule: Rule) -> tuple[dict[str, int], str]:
    """How often each table kept its promise on instances of the rule; and the first that it broke."""
    asks = [ask for ask in _asks(rule) if find(ask.table).promise is not None]
    counts = dict.fromkeys((ask.table for ask in asks), 0)
    draw = random.Random(f"{rule.name}/promises")
    for _ in range(_MOST_DRAWN):
        if all(n >= _PROMISES_HELD for n in counts.values()):
            break
        try:
            instance = Instance(rule, draw, draw.choice(DTYPES))
        except Unfit:
            continue
        for guard in rule.when:
            if guard in rule.worth:
                continue
            if not instance.holds(guard):
                break
            if isinstance(guard, Ask) and find(guard.table).promise is not None:
                args, gives = ([instance.number(a) for a in part] for part in (guard.args, guard.gives))
                counts[guard.table] += 1
                if not kept(guard, args, gives):
                    return counts, f"{guard.table} breaks its promise at {_shown(args)}: it gives {_shown(gives)}"
    return counts, ""


def _shown(values: list[Any]) -> str:
    return ", ".join(str(getattr(v, "key", lambda v=v: v)()) for v in values)
