"""Constants of two programs that may have been computed ahead of time on one side: whether they agree.

They are computed in float64, or in their own types where a float decides an integer or a truth value on the way:
there the last bit may matter, as in the buckets of relative positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import Array, is_float
from eqsat.check.part import LAST_PLACE, TOLERANCE
from eqsat.layout.arithmetic import Layout
from eqsat.program.constants import constant_node
from eqsat.program.core import CoreProgram, Node, evaluate, make
from eqsat.program.node import flops, is_folded, substitute
from eqsat.program.term import ConstArray
from eqsat.proof.values.signatures import Signature, signature
from eqsat.verify.rounding import ROUNDING, absorbed, adds_up, units_apart

_SHARE = 0.1
"""Of the tolerance of its type: what the rounding of a constant that was computed ahead of time may come to, at its
scale. A type without a tolerance has no rounding."""

_MOST_KEPT = 1 << 24
"""Elements of values that are kept, in float64."""

MOST_FOLDED = 1 << 24
"""Elements of a constant that is computed so as to be compared."""


def decided_ahead(program: CoreProgram) -> CoreProgram:
    """The program with each integer and truth value as a constant that floats decide and no input: what rounding, or a
    logarithm of zero, does on the way to it is not seen from outside."""
    ahead = Ahead(program.constants)
    constants = dict(program.constants)
    found: dict[Node, Node] = {}
    seen: set[Node] = set()
    stack = list(program.roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if not is_float(node.dtype) and ahead.decides(node) and ahead.is_fixed(node):
            found[node] = constant_node(ConstArray(ahead.value(node)), constants)
        else:
            stack += node.args
    return replace(program, roots=tuple(substitute(program.roots, found)), constants=constants)


class Ahead:
    """Computes and compares constants.

    Attributes:
        values: digest to stored values.
        rounded: pairs that agree up to rounding alone, and their largest difference in units in the last place of
            their type, at their scale.
        layouts: values that constants steer, and as which views of one input, if any (`eqsat.proof.steered`).
    """

    def __init__(self, values: Mapping[str, Array]) -> None:
        self.values = values
        self.layouts: dict[Node, Layout | None] = {}
        self.rounded: dict[tuple[Node, Node], float] = {}
        self._agree: dict[tuple[Node, Node], bool] = {}
        self._signatures: dict[Node, Signature] = {}
        self._numbers: dict[Node, Node | None] = {}
        self._kept: dict[Node, Array] = {}
        self._decides: dict[Node, bool] = {}
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
        a, b = self.value(left), self.value(right)
        if not is_float(left.dtype):
            return bool((a == b).all())
        sums = adds_up([left, right])
        units = units_apart(a, b, LAST_PLACE[left.dtype], sums)
        agree = units <= min(_SHARE * TOLERANCE[left.dtype] / LAST_PLACE[left.dtype], ROUNDING)
        if agree and (units or sums) and absorbed(left, right):
            return False
        if units and agree:
            self.rounded[left, right] = units
        return agree

    def value(self, node: Node) -> Array:
        """The elements of a constant."""
        if self.decides(node):
            [value] = evaluate([node], {}, self.values)
        else:
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
        """The number that all elements of a computed constant are, as a node; None if they differ."""
        if node not in self._numbers:
            value = self.value(node) if node.size <= MOST_FOLDED else np.arange(2)
            same = value.size and (value == value[0]).all()
            self._numbers[node] = make("Full", (value[0].item(), node.size, node.dtype)) if same else None
        return self._numbers[node]

    def is_fixed(self, node: Node) -> bool:
        """Whether a value depends on constants alone."""
        for below in () if node in self._fixed else operands_first([node], self._fixed):
            self._fixed[below] = is_folded(below.op) and all(self._fixed[a] for a in below.args)
        return self._fixed[node]

    def decides(self, node: Node) -> bool:
        """Whether a float decides an integer or a truth value on the way to a constant."""
        for below in () if node in self._decides else operands_first([node], self._decides):
            here = not is_float(below.dtype) and any(is_float(a.dtype) for a in below.args)
            self._decides[below] = here or any(self._decides[a] for a in below.args)
        return self._decides[node]
