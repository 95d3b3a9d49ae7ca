"""A program at further sizes, from the same program at some sizes: numbers in it are forms of the dims.

It needs no e-graph and no search, so it serves for sizes where programs look unlike the others, such as those where a
slice is a whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import prod
from typing import Any

from eqsat.errors import EqsatError
from eqsat.frontends.onnx.dims.forms import Point, fit
from eqsat.frontends.onnx.dims.join import Apart
from eqsat.frontends.onnx.dims.ramps import ramp
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term, make

_CLOSE = 1e-6
"""Relative difference of a number over dims that rounding to float32 explains."""


@dataclass(frozen=True, slots=True)
class Written:
    """A program at one size.

    Attributes:
        program: with its constants computed.
        origins: what computed constants were computed from.
    """

    program: Program
    origins: Mapping[Term, Term]


Same = tuple[Term, ...]
"""One term at each size."""


def instantiated(
    programs: Sequence[Written], points: Sequence[Point], at: Point, named: Callable[[str], Term | None]
) -> Program:
    """The program at the sizes `at`, without names.

    Args:
        named: the constant of this name in the source at these sizes: for those that are not computed.

    Raises:
        Apart: the programs differ in more than numbers that are forms of the dims.
    """
    first = programs[0].program
    maker = _Maker(programs, points, at, named)
    try:
        inputs = maker.made([tuple(ts) for ts in zip(*(p.program.inputs for p in programs), strict=True)])
        outputs = maker.made([tuple(p.program.outputs[name] for p in programs) for name in first.outputs])
        return Program(tuple(inputs), dict(zip(first.outputs, outputs, strict=True)))
    except (EqsatError, ValueError) as error:
        raise Apart(f"it cannot be written at the largest sizes: {error}") from None


class _Maker:
    def __init__(
        self, programs: Sequence[Written], points: Sequence[Point], at: Point, named: Callable[[str], Term | None]
    ) -> None:
        self._programs, self._points, self._at, self._named = programs, points, at, named
        self._made: dict[Same, Term] = {}

    def made(self, roots: Sequence[Same]) -> list[Term]:
        """The terms at the new sizes. Raises Apart if constants are computed from each other in a circle."""
        stack = list(reversed(roots))
        begun: set[Same] = set()
        while stack:
            terms = stack[-1]
            operands = self._operands(terms)
            waiting = [each for each in operands if each not in self._made]
            if terms in self._made or not waiting:
                stack.pop()
                if terms not in self._made:
                    self._made[terms] = self._term(terms, [self._made[each] for each in operands])
            else:
                if terms in begun:
                    raise Apart("a constant is computed from itself")
                begun.add(terms)
                stack += waiting
        return [self._made[terms] for terms in roots]

    def _operands(self, terms: Same) -> list[Same]:
        if _alike(terms):
            return []
        if terms[0].op == "constant":
            origins = [p.origins.get(term) for p, term in zip(self._programs, terms, strict=True)]
            known = tuple(origin for origin in origins if origin is not None)
            return [known] if len(known) == len(terms) else []
        if len({(term.op, len(term.args)) for term in terms}) > 1:
            raise Apart(f"one size has {terms[0].op} where another has {terms[-1].op}")
        return list(zip(*(term.args for term in terms), strict=True))

    def _term(self, terms: Same, operands: Sequence[Term]) -> Term:
        first = terms[0]
        if _alike(terms):
            return first
        if first.op == "constant":
            if operands:
                return self._computed(terms, *operands)
            return self._stored(terms)
        attrs = {name: self._value([term.attr(name) for term in terms]) for name, _ in first.attrs}
        return make(first.op, *operands, **attrs)

    def _stored(self, terms: Same) -> Term:
        """A constant that the source has at each size: indices, or one with a name."""
        found = self._named(self._programs[0].program.names.get(terms[0], ""))
        if found is not None:
            return found
        indices = ramp([term.attr("value").array for term in terms], self._points)
        if indices is None:
            raise Apart("a constant is another one at each size")
        return ops.constant(indices.at(self._at), terms[0].dtype)

    def _computed(self, terms: Same, origin: Term) -> Term:
        shape = self._value([term.shape for term in terms])
        [value] = Program((), {"value": origin}).run({}).values()
        return ops.constant(value.reshape(shape))

    def _value(self, values: Sequence[Any]) -> Any:
        """An attribute at the new sizes."""
        first = values[0]
        if all(value == first for value in values):
            return first
        if all(isinstance(value, tuple) for value in values) and len({len(value) for value in values}) == 1:
            return tuple(self._value(each) for each in zip(*values, strict=True))
        if all(type(value) is int for value in values) and (form := fit(values, self._points)) is not None:
            return form.at(self._at)
        if all(isinstance(value, float) for value in values) and (number := self._ratio(values)) is not None:
            return number
        raise Apart(f"{first} at one size is {values[-1]} at another")

    def _ratio(self, values: Sequence[float]) -> float | None:
        """A number divided by a product of dims."""
        for degree in (1, 2):
            for dims in combinations_with_replacement(self._at, degree):
                sizes = [prod(point[d] for d in dims) for point in self._points]
                numbers = [value * size for value, size in zip(values, sizes, strict=True)]
                if max(numbers) - min(numbers) <= _CLOSE * max(map(abs, numbers)):
                    whole = round(numbers[0])
                    number = whole if abs(numbers[0] - whole) <= _CLOSE * abs(whole) else numbers[0]
                    return number / prod(self._at[d] for d in dims)
        return None


def _alike(terms: Same) -> bool:
    return all(term is terms[0] for term in terms)
