"""Constants of two programs that may have been computed ahead of time on one side: whether they agree."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eqsat.base.numerics import Array, is_float
from eqsat.check.part import LAST_PLACE, TOLERANCE
from eqsat.program.core import Node, evaluate
from eqsat.proof.signatures import Signature, signature

_SHARE = 0.1
"""Of the tolerance of its type: what the rounding of a constant that was computed ahead of time may come to, at its
scale. A type without a tolerance has no rounding."""


class Ahead:
    """Compares constants, computed in float64.

    Attributes:
        values: digest to stored values.
        rounded: pairs that agree up to rounding alone, and their largest difference in units in the last place of
            their type, at their scale.
    """

    def __init__(self, values: Mapping[str, Array]) -> None:
        self.values = values
        self.rounded: dict[tuple[Node, Node], float] = {}
        self._agree: dict[tuple[Node, Node], bool] = {}
        self._signatures: dict[Node, Signature] = {}

    def signature(self, node: Node) -> Signature:
        """The signature of a constant."""
        if node not in self._signatures:
            self._signatures[node] = signature(node.dtype, [self._value(node)])
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
        a, b = self._value(left), self._value(right)
        if not is_float(left.dtype):
            return bool((a == b).all())
        with np.errstate(all="ignore"):
            gap = float(np.where(a == b, 0.0, np.abs(a - b)).max(initial=0.0))
            scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
        agree = gap <= _SHARE * TOLERANCE[left.dtype] * scale
        if gap and agree:
            self.rounded[left, right] = gap / (LAST_PLACE[left.dtype] * scale)
        return agree

    def _value(self, node: Node) -> Array:
        [value] = evaluate([node], {}, self.values, precision="float64")
        return value
