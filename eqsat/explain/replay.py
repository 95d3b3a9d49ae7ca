"""Replaying steps: both sides of a rewrite are evaluated, and must agree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.base.compare import relative_error
from eqsat.base.numerics import COMPARE, is_float, random_array
from eqsat.check.demand import nudged
from eqsat.check.part import TOLERANCE
from eqsat.check.rounding import is_noise
from eqsat.errors import CheckFailed
from eqsat.program.core import Node, evaluate, flops, topological
from eqsat.program.node import make, substitute

WORK = 5_000_000_000
"""Operations allowed for replaying all steps of an explanation: a quarter of a second on one core. An element that is
made or moved counts as `_ELEMENT` operations."""

_ELEMENT = 100
_RANGE = 3
_JUMPS = frozenset({"floor", "ceil", "round", "sign", "mod", *COMPARE, "argmax", "argmin"})


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of evaluating both sides of a step.

    Attributes:
        done: both were evaluated, on finite values everywhere. False if that is too much work, or an operator cannot
            be run.
        error: largest difference as a share of the scale; None where nothing was evaluated.
    """

    done: bool
    error: float | None


UNTRIED = Replay(False, None)


@dataclass(frozen=True, slots=True)
class Claim:
    """Two sides of a step that should be equal; `operands` are the values of the rule's variables."""

    rule: str
    before: Node
    after: Node
    operands: tuple[Node, ...]


class Replayer:
    """Evaluates both sides of steps, the cheapest first, within a budget of work, and until it is `late`."""

    def __init__(self, work: int = WORK, late: Callable[[], bool] = lambda: False) -> None:
        self._left, self._late = work, late
        self._leaves: dict[Node, np.ndarray] = {}

    def replay(self, claims: Sequence[Claim]) -> list[Replay]:
        """Evaluate claims on whole numbers, which is exact unless there is a division.

        A rule holds for any operands, so the subterms that both sides share are replaced by inputs. Only if the sides
        then differ (a host rule may have looked into its operands) are the shared subterms computed as well.

        Raises:
            CheckFailed: the sides of one differ: the rule is unsound.
        """
        found = [UNTRIED] * len(claims)
        if self._left <= 0 or self._late():
            return found
        sides = [_cut([c.before, c.after], _inner(c)) for c in claims]
        for i in sorted(range(len(claims)), key=lambda i: _work(sides[i])):
            found[i] = self._replayed(claims[i], sides[i])
        return found

    def _replayed(self, claim: Claim, shallow: Sequence[Node]) -> Replay:
        for sides in (shallow, [claim.before, claim.after]):
            if self._late() or not self._affords(sides):
                return UNTRIED
            outcome = self._compared(*sides)
            if outcome is not None:
                return outcome
        raise CheckFailed(f"step {claim.rule}: {claim.before!r} and {claim.after!r} differ when evaluated")

    def _compared(self, before: Node, after: Node) -> Replay | None:
        """The replay of two sides; None where they differ."""
        order = topological([before, after])
        values = {n.attrs[0]: self._value(n) for n in order if n.op in ("In", "Const")}
        left, right = evaluate([before, after], values, values, precision="float64")
        tolerance = max((TOLERANCE[n.dtype] for n in order if n.dtype in TOLERANCE), default=0.0)
        if left.shape == right.shape:
            both = np.isfinite(left) & np.isfinite(right)
            whole = bool(both.all())
            error = relative_error(right, left) if whole else relative_error(right[both], left[both])
            if error <= tolerance:
                return Replay(whole, float(error))
            if left.dtype.kind == "f" and is_noise(left[both], right[both], [o[both] for o in self._otherwise(before)]):
                return UNTRIED
        if any(str(attr) in _JUMPS for n in order for attr in n.attrs):
            return UNTRIED  # a rounded constant may move a value across a jump
        return None

    def _otherwise(self, before: Node) -> list[np.ndarray]:
        """A side with other rounding: in its own types, and on slightly different numbers."""
        leaves = [n for n in topological([before]) if n.op in ("In", "Const")]
        rng = np.random.default_rng(before.size)
        own = {n.attrs[0]: self._value(n) for n in leaves}
        moved = {name: nudged(values, rng) for name, values in own.items()}
        return [
            evaluate([before], own, own, precision="native")[0].astype(np.float64),
            evaluate([before], moved, moved, precision="float64")[0],
        ]

    def _value(self, leaf: Node) -> np.ndarray:
        """Whole numbers for a leaf, the same in every step."""
        if leaf not in self._leaves:
            rng = np.random.default_rng([len(self._leaves), leaf.size])
            if is_float(leaf.dtype):
                self._leaves[leaf] = rng.integers(1, _RANGE + 1, leaf.size).astype(np.float64)
            else:
                self._leaves[leaf] = random_array((leaf.size,), leaf.dtype, rng)
        return self._leaves[leaf]

    def _affords(self, sides: Sequence[Node]) -> bool:
        work = _work(sides)
        if work > self._left or any(n.op in ("Opaque", "Gather") for n in topological(sides)):
            return False
        self._left -= work
        return True


def _inner(claim: Claim) -> list[Node]:
    """The values that both sides share: the operands of the rule; if some are not known, the largest common values."""
    left, right = set(topological([claim.before])), set(topological([claim.after]))
    shared = [n for n in claim.operands if n in left and n in right]
    if len(shared) < len(claim.operands):
        shared += largest_shared(claim.after, left)
    return [n for n in dict.fromkeys(shared) if n.args and n is not claim.before and n is not claim.after]


def largest_shared(root: Node, others: Collection[Node]) -> list[Node]:
    """The largest values under a root that are also in a given set."""
    found: dict[Node, None] = {}
    stack, seen = list(root.args), set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in others:
            found[node] = None
        else:
            stack += node.args
    return list(found)


def _work(sides: Sequence[Node]) -> int:
    return sum(_ELEMENT * n.size + flops(n) for n in topological(sides))


def _cut(sides: Sequence[Node], operands: Collection[Node]) -> list[Node]:
    stand_ins = {n: make("In", (f"operand {i}", n.size, n.dtype)) for i, n in enumerate(operands)}
    return substitute(sides, stand_ins)
