"""Replaying steps: both sides of a rewrite are evaluated, and must agree."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.check import TOLERANCE, relative_error
from eqsat.core import Node, evaluate, flops, topological
from eqsat.errors import CheckFailed
from eqsat.node import make
from eqsat.numerics import COMPARE, random_array
from eqsat.segments import substitute

WORK = 6_000_000_000
"""Elements and operations that all steps of an explanation may take together: half a second on one core."""

_RANGE = 3
_JUMPS = frozenset({"floor", "ceil", "round", "sign", "mod", *COMPARE, "argmax", "argmin"})


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of evaluating both sides of a step.

    Attributes:
        done: both were evaluated, on finite values everywhere. False where that is too much work, or where an operator
            cannot be run.
        error: largest difference as a share of the scale; None where nothing was evaluated.
    """

    done: bool
    error: float | None


class Replayer:
    """Evaluates both sides of steps, as long as there is work left to spend on it."""

    def __init__(self, work: int = WORK) -> None:
        self._left = work

    def replay(self, rule: str, before: Node, after: Node, operands: Sequence[Node] = ()) -> Replay:
        """Evaluate both sides on whole numbers, exact as long as no division takes part.

        A rule holds whatever its operands are, so that these are replaced by inputs; only where the sides then differ
        (a rule of the host may have looked into its operands) are they computed as well.

        Raises:
            CheckFailed: the sides differ: the rule is unsound.
        """
        cut = [n for n in dict.fromkeys(operands) if n.args and n is not before and n is not after]
        for sides in (_cut([before, after], cut), [before, after]):
            order = topological(sides)
            work = sum(n.size + flops(n) for n in order)
            if work > self._left or any(n.op in ("Opaque", "Gather") for n in order):
                return Replay(False, None)
            self._left -= work
            found = _compared(*sides)
            if found is not None:
                return found
        raise CheckFailed(f"step {rule}: {before!r} and {after!r} differ when evaluated")


def _cut(sides: Sequence[Node], operands: Collection[Node]) -> list[Node]:
    stand_ins = {n: make("In", (f"operand {i}", n.size, n.dtype)) for i, n in enumerate(operands)}
    return substitute(sides, stand_ins)


def _compared(before: Node, after: Node) -> Replay | None:
    """The replay of two sides; None where they differ."""
    order = topological([before, after])
    rng = np.random.default_rng(0)
    leaves = {n.attrs[0]: n for n in order if n.op in ("In", "Const")}
    values = {name: _whole(n, rng) for name, n in sorted(leaves.items())}
    left, right = evaluate([before, after], values, values, precision="float64")
    tolerance = max((TOLERANCE[n.dtype] for n in order if n.dtype in TOLERANCE), default=0.0)
    if left.shape == right.shape:
        both = np.isfinite(left) & np.isfinite(right)
        error = relative_error(right[both], left[both])
        if error <= tolerance:
            return Replay(bool(both.all()), float(error))
    if any(str(attr) in _JUMPS for n in order for attr in n.attrs):
        return Replay(False, None)  # a rounded constant may put a value on the other side of a jump
    return None


def _whole(node: Node, rng: np.random.Generator) -> np.ndarray:
    if node.dtype.startswith(("float", "bfloat")):
        return rng.integers(1, _RANGE + 1, node.size).astype(np.float64)
    return random_array((node.size,), node.dtype, rng)
