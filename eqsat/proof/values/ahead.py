"""Constants of two programs that may have been computed ahead of time on one side: whether they agree, by the terms of
certificates (`eqsat.verify.definitions`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import Array, is_float
from eqsat.check.part import TOLERANCE
from eqsat.errors import CheckFailed
from eqsat.layout.arithmetic import Layout
from eqsat.program.core import Node, evaluate, make
from eqsat.program.node import flops, is_folded
from eqsat.proof.values.signatures import Signature, signature
from eqsat.verify.definitions import Definitions
from eqsat.verify.rounding import LAST_PLACE, ROUNDING, adds_up, only_moves, units_apart

_SHARE = 0.1
"""Of the tolerance of its type: what the rounding of a constant that was computed ahead of time may come to, at its
scale. A type without a tolerance has no rounding."""

_MOST_KEPT = 1 << 24
"""Elements of values that are kept, in float64."""

MOST_FOLDED = 1 << 24
"""Elements of a constant that is computed so as to be compared."""


class Ahead:
    """Computes and compares constants.

    Attributes:
        values: digest to stored values.
        rounded: pairs that agree up to rounding alone, and their largest difference in units in the last place of
            their type, at their scale.
        layouts: values that constants steer, and as which views of one input, if any (`eqsat.proof.steered`).
    """

    def __init__(self, values: Mapping[str, Array], programs: Sequence[Sequence[Node]]) -> None:
        """`programs`: the outputs of each."""
        self.values = values
        self._definitions = Definitions(programs, values, self._apart)
        self.layouts: dict[Node, Layout | None] = {}
        self.rounded: dict[tuple[Node, Node], float] = {}
        self._agree: dict[tuple[Node, Node], bool] = {}
        self._signatures: dict[Node, Signature] = {}
        self._numbers: dict[Node, Node | None] = {}
        self._kept: dict[Node, Array] = {}
        self._fixed: dict[Node, bool] = {}

    def signature(self, node: Node) -> Signature:
        """The signature of a constant."""
        if node not in self._signatures:
            self._signatures[node] = signature(node.dtype, [self.value(node)])
        return self._signatures[node]

    def agree(self, left: Node, right: Node) -> bool:
        """Whether two constants are equal, up to the rounding of what may have been computed ahead of time."""
        if left is right:
            return True
        if (left.size, left.dtype) != (right.size, right.dtype):
            return False
        if (left, right) not in self._agree:
            self._agree[left, right] = self._compare(left, right)
        return self._agree[left, right]

    def _compare(self, left: Node, right: Node) -> bool:
        try:
            units = self._definitions.equal(left, right)
        except CheckFailed:
            return False
        if units:
            self.rounded[left, right] = units
        return True

    def _apart(self, left: Node, right: Node, meanings: Mapping[Node, Array]) -> float:
        """As `eqsat.verify.rounding.rounding`, within the tolerance of the type, and computing little twice."""
        if meanings:
            a, b = evaluate([left, right], {}, self.values, precision="float64", known=meanings)
        else:
            a, b = self.value(left), self.value(right)
        unit = LAST_PLACE[left.dtype]
        units = units_apart(a, b, unit, adds_up([left, right]))
        if not units <= min(_SHARE * TOLERANCE[left.dtype] / unit, ROUNDING):
            raise CheckFailed(f"both are {units:.3g} units apart")
        if not np.isfinite(a).all() and not (only_moves(left) and only_moves(right)):
            raise CheckFailed("a constant that is computed is not finite")
        return units

    def value(self, node: Node) -> Array:
        """The elements of a constant."""
        [value] = evaluate([node], {}, self.values, None, "float64", self._keep, self._kept)
        return value.astype(np.float64) if is_float(node.dtype) else value

    def _keep(self, node: Node, value: Array, args: list[Array]) -> Array:
        """Keep what takes more work than its size: an e-graph holds the same product of weights in many constants."""
        if flops(node) > node.size <= _MOST_KEPT:
            self._kept[node] = value
            while sum(each.size for each in self._kept.values()) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return value

    def number(self, node: Node) -> Node | None:
        """The number that all elements of a computed constant are, as a node; None if they differ, or are no number."""
        if node not in self._numbers:
            value = self.value(node) if node.size <= MOST_FOLDED else np.arange(2)
            same = value.size and (value == value[0]).all()
            number = make("Full", (value[0].item(), node.size, node.dtype)) if same else None
            self._numbers[node] = number if number is not None and self.agree(node, number) else None
        return self._numbers[node]

    def is_fixed(self, node: Node) -> bool:
        """Whether a value depends on constants alone."""
        for below in () if node in self._fixed else operands_first([node], self._fixed):
            self._fixed[below] = is_folded(below.op) and all(self._fixed[a] for a in below.args)
        return self._fixed[node]
