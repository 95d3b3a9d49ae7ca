"""Bitwise operators, of booleans alone: programs have no bits."""

from __future__ import annotations

from collections.abc import Callable

from eqsat.frontends.terms.declined import Declined
from eqsat.program import composites, ops
from eqsat.program.composites import broadcasting
from eqsat.program.term import Term


def bitwise(name: str) -> Callable[..., Term]:
    """`and`, `or` or `xor` of the operands `self` and `other`; it raises Declined for integers."""

    def build(self: Term, other: Term) -> Term:
        if self.dtype != "bool":
            raise Declined("bits of integers")
        return composites.not_equal(self, other) if name == "xor" else broadcasting(name, self, other)

    return build


def bitwise_not(self: Term) -> Term:
    """Of integers in two's complement, too: ~x = -1 - x."""
    return ops.not_(self) if self.dtype == "bool" else ops.sub(ops.full_like(-1, self), self)
