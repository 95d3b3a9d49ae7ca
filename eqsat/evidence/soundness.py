"""Evidence that rules of the language are sound: random instances of each, both sides evaluated and compared.

An `exact` rule must agree bit by bit, in every element type that it applies to, on values that include NaN, infinities,
signed zeros, subnormals and extremes. A `reassociating` rule must agree exactly in a prime field where its operators
are polynomial, exactly on integers, up to rounding in floats, and must neither hide a NaN or an infinity nor make one.
A `range-changing` rule must agree where both sides are finite. A class must also be deserved: instances must show
rounding (`reassociating`) or a finite value that meets none (`range-changing`), else the class is too weak.

Values are small whole numbers, rough ones, and ones of many magnitudes, also next to the numbers that the rule names:
a bound that no small value meets shows in those.

Guards are tried from outside: on instances that every part of the guard but one admits, a part of `when` must let
something wrong through, and a part of `worth` must not. What only `worth` refuses is evidence as well, since the sides
are equal there: a rule may pay at sizes that no instance has.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice, product
from typing import Any

import numpy as np

from eqsat.base.numerics import DTYPES, FLOATS, HALVES, Array, dtype_name, is_float
from eqsat.evidence.instances import IllFormed, Instance, Unfit, Values, rough, signs, special, unbounded, whole
from eqsat.evidence.reference import Apply, Undefined, apply, close, elsewhere, exact, same_bits
from eqsat.language.rule import AnyRule, Ask, Fact, Guard, Numerics, Rule, spelled
from eqsat.layout.arithmetic import Layout

_MOST_DRAWN = 6000
_OUTSIDE = 12
"""Instances outside each part of `worth`."""

_MOST_OUTSIDE = 200
"""Instances outside a part of `when`, until one shows that it is needed."""

_DRAWN_FOR_TYPES = 1000
"""Draws after which an element type is given up in which the guard never held."""

_SHOWN = 8
_TRIES_PER_DTYPE = 40
_WITNESS_TRIES = 400
_SMALLER_TRIES = 300
"""Draws after a first counterexample; the smallest is shown."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """An instance on which the two sides differ, and in which respect."""

    bindings: Mapping[str, Any]
    left: Array
    right: Array | None
    how: str

    def __str__(self) -> str:
        shown = {k: (v.key() if isinstance(v, Layout) else v) for k, v in self.bindings.items()}
        right = "nothing: its sizes or types do not fit" if self.right is None else _shown(self.right)
        return f"with {shown}: left {_shown(self.left)}, right {right} ({self.how}, {dtype_name(self.left.dtype)})"

    @property
    def size(self) -> int:
        """What makes a counterexample hard to read."""
        return sum(v for v in self.bindings.values() if type(v) is int)


def _shown(array: Array) -> str:
    """The first elements, on one line."""
    numbers = array.tolist() if array.dtype.kind in "biu" else array.astype(np.float64).tolist()
    return f"[{', '.join(f'{v:g}' if isinstance(v, float) else str(v) for v in numbers[:_SHOWN])}]"


@dataclass(slots=True)
class Outside:
    """What instances showed that one part of a guard alone refuses.

    Attributes:
        drawn: how many there were; those on which the right side does not exist without the part are counted as well.
        differs: one on which the rule would be wrong.
        undefined: the right side is made of what the part gives, and does not exist without it.
    """

    drawn: int = 0
    differs: Counterexample | None = None
    undefined: bool = False

    @property
    def needed(self) -> bool:
        """Whether the rule would be wrong, or mean nothing, without the part."""
        return self.undefined or self.differs is not None


@dataclass(slots=True)
class Evidence:
    """What sampling a rule showed.

    Attributes:
        drawn, held: instances drawn, and those whose guard held.
        unpaid: instances that only `worth` refused, on which both sides were compared as well.
        methods: how both sides were compared: `bits`, `field`, `integers`, `float`.
        dtypes: element types of the instances.
        outside: by the text of each part of the guard that is no question of constness.
        witness: an instance that shows why the numerics class is no stricter one.
        failure: an instance on which the rule is wrong.
    """

    drawn: int = 0
    held: int = 0
    unpaid: int = 0
    methods: set[str] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    outside: dict[str, Outside] = field(default_factory=dict)
    witness: Counterexample | None = None
    failure: Counterexample | None = None


def check_rule(rule: Rule, held: int = 40, seed: int = 0) -> Evidence:
    """Draw instances until the guard has held on `held` of them and each part of it was tried from outside, or
    `_MOST_DRAWN` are drawn; stop at the first on which the rule is wrong."""
    draw = random.Random(f"{rule.name}/{seed}")
    judge = _Judge(rule, draw)
    evidence = judge.evidence
    for instance in judge.instances(_MOST_DRAWN):
        refusing = judge.refusing(instance)
        if refusing:
            judge.outside(instance, refusing)
        elif refusing is not None and (evidence.held < held or judge.dtype not in evidence.dtypes):
            evidence.held += 1
            evidence.dtypes.add(judge.dtype)
            evidence.failure = judge.difference(instance)
            if evidence.failure is None:
                judge.look_for_witness(instance)
        if evidence.failure is not None or (evidence.held >= held and judge.tried_everything()):
            break
    if evidence.failure is not None:
        judge.search_smaller()
    elif evidence.witness is None and rule.numerics != "exact":
        judge.search_witness()
    return evidence


class _Judge:
    """One rule under examination."""

    def __init__(self, rule: Rule, draw: random.Random) -> None:
        self.rule, self.draw = rule, draw
        self.evidence = Evidence()
        self.texts = dict(zip(rule.when, rule.guard_parts, strict=True))
        self.parts = [guard for guard in rule.when if not isinstance(guard, Fact) and spelled(guard) is None]
        self.evidence.outside = {
            self.texts[guard]: Outside(undefined=isinstance(guard, Ask) and bool(guard.gives)) for guard in self.parts
        }
        wanted = DTYPES if rule.numerics == "exact" else [d for d in DTYPES if d not in HALVES]
        self.dtypes = [d for d in wanted if self._fits(d)]
        self.dtype = ""

    def _fits(self, dtype: str) -> bool:
        for _ in range(_TRIES_PER_DTYPE):
            try:
                Instance(self.rule, self.draw, dtype)
            except Unfit:
                continue
            return True
        return False

    def instances(self, most: int) -> Iterator[Instance]:
        """Instances over all fitting element types."""
        if not self.dtypes:
            self.evidence.drawn = most
            return
        for dtype in islice(cycle(self.dtypes), most):
            self.evidence.drawn += 1
            self.dtype = dtype
            try:
                yield Instance(self.rule, self.draw, self.dtype)
            except Unfit:
                continue

    def refusing(self, instance: Instance) -> list[Guard] | None:
        """The parts of the guard that do not hold; None where the right side does not even exist without one."""
        refusing = []
        for guard in self.rule.when:
            if instance.holds(guard):
                continue
            if isinstance(guard, Ask) and guard.gives:
                self.evidence.outside[self.texts[guard]].drawn += 1
                return None
            refusing.append(guard)
        return refusing

    def outside(self, instance: Instance, refusing: list[Guard]) -> None:
        """Note what an instance shows that only one part of `when`, or only parts of `worth`, refuse."""
        needed = [guard for guard in refusing if guard not in self.rule.worth]
        if len(needed) > 1:
            return
        blamed = [self.evidence.outside[self.texts[guard]] for guard in needed or refusing]
        if all(seen.differs is not None or seen.drawn >= _MOST_OUTSIDE for seen in blamed):
            return
        differs = self.difference(instance)
        for seen in blamed:
            seen.drawn += 1
            seen.differs = seen.differs or differs
        if not needed:
            self.evidence.unpaid += 1
            self.evidence.failure = differs
            if differs is None:
                self.look_for_witness(instance)

    def tried_everything(self) -> bool:
        """Whether enough was seen outside every part of the guard, and every element type if it can be."""
        profit = {self.texts[guard] for guard in self.rule.worth if guard in self.parts}
        every_type = len(self.evidence.dtypes) == len(self.dtypes) or self.evidence.drawn > _DRAWN_FOR_TYPES
        return every_type and all(
            seen.needed or seen.drawn >= (_OUTSIDE if part in profit else _MOST_OUTSIDE)
            for part, seen in self.evidence.outside.items()
        )

    def difference(self, instance: Instance) -> Counterexample | None:
        """How the two sides of an instance differ more than the numerics class allows."""
        for method, values in self._methods(instance):
            found = self._compared(instance, method, values)
            if found is not None:
                return found
        return None

    def _methods(self, instance: Instance) -> list[tuple[str, Values]]:
        """(method, values) pairs in which the two sides of an instance are compared."""
        if self.rule.numerics == "exact":
            return [("bits", self.draw.choice((whole, rough, signs, instance.wide))), ("bits", special)]
        if not is_float(self.dtype):
            return [("field", whole), ("integers", whole), ("integers", instance.wide)]
        if instance.fills_with_infinity and self.rule.numerics == "reassociating":
            return [("range", unbounded)]
        # Where magnitudes differ, float32 keeps nothing of the small terms: float64 speaks for it.
        widely = [("where finite", instance.wide)] if self.dtype == "float64" else []
        if self.rule.numerics == "range-changing":
            return [("field", whole), ("where finite", whole), ("where finite", rough), *widely]
        found: list[tuple[str, Values]] = [("field", whole), ("float", whole), ("float", rough), *widely]
        return found if instance.empty else [*found, ("range", unbounded)]  # a sum of nothing knows no NaN

    def _compared(self, instance: Instance, method: str, values: Values) -> Counterexample | None:
        meaning: Apply = exact if method == "field" else apply
        leaves = instance.residues() if method == "field" else instance.arrays(values)
        try:
            left, right = instance.sides(leaves, meaning)
        except Undefined:
            return None
        except IllFormed:
            return Counterexample(instance.bindings, instance.left(leaves, meaning), None, "ill-formed")
        if method != "range":  # part of comparing floats
            self.evidence.methods.add("float" if method == "where finite" else method)
        if agree(left, right, method):
            return None
        return Counterexample(dict(instance.bindings), left, right, _HOW[method])

    def look_for_witness(self, instance: Instance) -> None:
        """Note an instance that the next stricter class would not allow."""
        if self.evidence.witness is not None or self.rule.numerics == "exact" or not is_float(self.dtype):
            return
        # Sums and products of extremes overflow in one order and not in another: only moderate values speak for
        # a change of range.
        reassociates = self.rule.numerics == "reassociating"
        method, samples = ("bits", (rough, special, signs)) if reassociates else ("range", (unbounded,))
        # Exact means so in every library: the last bits of its functions are not those of the one at hand.
        for values, meaning in product(samples, (apply, elsewhere) if reassociates else (apply,)):
            try:
                left, right = instance.sides(instance.arrays(values), meaning)
            except Undefined:
                continue
            if not agree(left, right, method):
                self.evidence.witness = Counterexample(dict(instance.bindings), left, right, _HOW[method])

    def _equal(self, instance: Instance) -> bool:
        """Whether the two sides must be equal on an instance, be it worth replacing one by the other or not."""
        refusing = self.refusing(instance)
        return refusing is not None and set(refusing) <= set(self.rule.worth)

    def search_smaller(self) -> None:
        """Draw on for a counterexample that is easier to read."""
        drawn, least = self.evidence.drawn, self.evidence.failure
        assert least is not None
        for instance in self.instances(_SMALLER_TRIES):
            if self._equal(instance):
                found = self.difference(instance)
                if found is not None and found.size < least.size:
                    least = found
        self.evidence.drawn, self.evidence.failure = drawn, least

    def search_witness(self) -> None:
        """Draw on until an instance shows why the class is no stricter one."""
        self.dtypes = [d for d in FLOATS if self._fits(d)]
        drawn = self.evidence.drawn
        for instance in self.instances(_WITNESS_TRIES):
            if self._equal(instance):
                self.look_for_witness(instance)
            if self.evidence.witness is not None:
                break
        self.evidence.drawn = drawn


_HOW = {
    "bits": "not the same bits",
    "field": "modulo a prime",
    "integers": "as integers",
    "float": "beyond rounding",
    "where finite": "where both are finite",
    "range": "one is finite where the other is not",
}


def agree(left: Array, right: Array, method: str) -> bool:
    """Whether two values are equal as a method compares them."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if method in ("bits", "field", "integers"):
        return same_bits(left, right)
    if method == "float":
        return close(left, right)
    if method == "range":
        return bool(np.array_equal(np.isfinite(left), np.isfinite(right)))
    both = np.isfinite(left) & np.isfinite(right)
    return close(left[both], right[both], "float32" if is_float(dtype_name(left.dtype)) else None)


def too_weak(rule: AnyRule, evidence: Evidence) -> Numerics | None:
    """The stricter class that no instance speaks against, where there is one."""
    compared = evidence.held or evidence.unpaid
    if rule.numerics == "exact" or evidence.witness is not None or evidence.failure is not None or not compared:
        return None
    return "exact" if rule.numerics == "reassociating" else "reassociating"
