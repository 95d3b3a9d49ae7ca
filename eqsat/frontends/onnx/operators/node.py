"""A converter's view of an ONNX node, and the row that states the versions of an operator it understands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import Array, is_float
from eqsat.errors import InputError, ShapeError
from eqsat.frontends.terms.declined import Declined
from eqsat.program import ops
from eqsat.program.ir import evaluated
from eqsat.program.sizes import FOLDED, READ_WORK, Budget, foldable, work
from eqsat.program.term import Term

_MOST_INTS = 1 << 16
"""Most elements of a parameter input: shapes, axes, sizes of parts."""


class Constants:
    """The values of terms that depend on constants alone; each is computed once.

    Attributes:
        budget: the work that may still be done for them.
    """

    def __init__(self) -> None:
        self.budget = Budget(READ_WORK)
        self._constant: dict[Term, bool] = {}
        self._values: dict[Term, Array | None] = {}

    def is_constant(self, term: Term) -> bool:
        """Whether the term depends on no input, no opaque operator and no value that is too large, or too much work, to
        compute here."""
        if term not in self._constant:
            for below in operands_first([term], self._constant):
                varies = ops.row(below.op).varies or not foldable(below)
                self._constant[below] = not varies and all(self._constant[arg] for arg in below.args)
        return self._constant[term]

    def value(self, term: Term) -> Array | None:
        """The term's value; None if it is not constant, or too large or too much work to compute here."""
        if term.op == "constant":
            return term.attr("value").array
        if not self.is_constant(term) or term.size > FOLDED:
            return None
        if term not in self._values:
            self._values[term] = self._computed(term)
        return self._values[term]

    def _computed(self, term: Term) -> Array | None:
        """The value of a constant term, if that is not too much work after all that was computed before."""
        held = dict(self._held(term))
        if not self.budget.spend(sum(work(below) for below in operands_first([term], held))):
            return None
        return evaluated([term], held)[0]

    def _held(self, term: Term) -> Iterator[tuple[Term, Array]]:
        """The values below a term that are known, the uppermost."""
        seen, stack = {term}, [term]
        while stack:
            for arg in stack.pop().args:
                value = self._values.get(arg)
                if value is not None:
                    yield arg, value
                elif arg not in seen:
                    seen.add(arg)
                    stack.append(arg)


def as_attribute(value: float) -> float:
    """The number as ONNX states it, in float32: 0.01 is 0.009999999776."""
    return float(np.float32(value))


@dataclass(frozen=True)
class Node:
    """One application of an ONNX operator, its inputs converted.

    Attributes:
        op: the operator's name.
        version: since-version of the operator's definition in force (the ONNX changelog's numbers).
        attributes: by name.
        inputs: terms; None where an optional input is left out (trailing ones may be missing altogether).
        wanted: for each output whether anything reads it.
        constants: values of constant terms.
    """

    op: str
    version: int
    attributes: dict[str, Any]
    inputs: tuple[Term | None, ...]
    wanted: tuple[bool, ...]
    constants: Constants = field(repr=False)

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute, or its default; ONNX states both as float32."""
        return self.attributes.get(name, as_attribute(default) if isinstance(default, float) else default)

    def required(self, name: str) -> Any:
        """An attribute that the operator cannot do without."""
        if name not in self.attributes:
            raise InputError(f"attribute '{name}' is missing; the ONNX operator requires it")
        return self.attributes[name]

    def optional(self, index: int) -> Term | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def input(self, index: int) -> Term:
        term = self.optional(index)
        if term is None:
            raise InputError(f"input {index} is missing; the ONNX operator requires it")
        return term

    def all_inputs(self) -> list[Term]:
        """The inputs of a variadic operator, all of which must be there."""
        return [self.input(i) for i in range(max(1, len(self.inputs)))]

    def value(self, index: int) -> Array | None:
        """The value of a parameter input (a shape, axes, ...); None if it is omitted. Raises Declined if it varies."""
        term = self.optional(index)
        if term is None:
            return None
        value = self.constants.value(term)
        if value is None:
            raise Declined(f"input {index} is no constant")
        return value

    def ints(self, index: int) -> tuple[int, ...] | None:
        """A parameter input as integers."""
        value = self.value(index)
        if value is not None and value.size > _MOST_INTS:
            raise InputError(f"input {index} has {value.size} elements; at most {_MOST_INTS} make sense there")
        if (
            value is not None
            and value.dtype.kind == "f"
            and not (np.isfinite(value) & (value == np.floor(value))).all()
        ):
            raise InputError(f"input {index} holds {value.reshape(-1)[:4].tolist()}; whole numbers are taken there")
        return None if value is None else tuple(int(v) for v in value.reshape(-1))

    def required_ints(self, index: int) -> tuple[int, ...]:
        ints = self.ints(index)
        if ints is None:
            raise InputError(f"input {index} is missing; the ONNX operator requires it")
        return ints

    def scalar(self, index: int, default: Any = None) -> Any:
        """A parameter input of one element as a Python scalar."""
        value = self.value(index)
        if value is not None and not value.size:
            raise InputError(f"input {index} has no elements; one is taken there")
        return default if value is None else value.reshape(-1)[0].item()

    def whole(self, index: int, default: Any = None) -> Any:
        """A parameter input of one element as an integer."""
        ints = self.ints(index)
        if ints == ():
            raise InputError(f"input {index} has no elements; one is taken there")
        return default if ints is None else ints[0]

    def dims(self, index: int, count: int) -> tuple[int, ...]:
        """The dims of an input that must have so many."""
        shape = self.input(index).shape
        if len(shape) != count:
            raise ShapeError(f"{self.op} takes an array of {count} dims, got {list(shape)}")
        return shape

    def wants(self, index: int) -> bool:
        return index < len(self.wanted) and self.wanted[index]


Result = Term | Sequence[Term | None]
Converter = Callable[[Node], Result]


@dataclass(frozen=True)
class Row:
    """How one ONNX operator becomes terms.

    Attributes:
        convert: node to its output, or its outputs in order (trailing unwanted ones may be left out).
        since: the since-versions of the operator that `convert` understands. Another version is carried opaque.
        unless: the uses that `convert` declines, for the documentation; they are carried opaque too.
    """

    convert: Converter
    since: tuple[int, ...]
    unless: str = ""


def row(convert: Converter, *since: int, unless: str = "") -> Row:
    return Row(convert, since, unless)


def of_operands(build: Callable[..., Term]) -> Converter:
    """A function of the operands alone, all of which must be there."""
    return lambda node: build(*node.all_inputs())


def of_floats(convert: Converter) -> Converter:
    """Declines operands of integers, for which ONNX rounds a result of real numbers."""

    def checked(node: Node) -> Result:
        if not is_float(node.input(0).dtype):
            raise Declined("integers")
        return convert(node)

    return checked
