"""How terms are written in ONNX: forms, their parameters, and the use of ONNX's own broadcasting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from eqsat.base.numerics import Array, np_dtype
from eqsat.frontends.onnx.file.load import CODE_OF_DTYPE, NEWEST_OPSET, TENSOR_TYPE, schema_of
from eqsat.program.ops import row
from eqsat.program.term import Shape, Term


@dataclass(frozen=True, eq=False)
class Param:
    """A constant that belongs to the form and not to the program: axes, a target shape, a scalar operand."""

    array: Array
    role: str


@dataclass(frozen=True, eq=False)
class Form:
    """A future ONNX node.

    Attributes:
        op: the ONNX operator; 'Identity' is free if its operand's name can be used.
        inputs: operands. A form is a node of its own, written first and once, however many read it; None is an omitted
            optional input.
        attrs: the node's attributes; None omits an attribute.
        outputs: the terms that the node computes, None for one that nothing reads; empty if it computes only the term
            that it represents.
        type: shape and dtype of a form that another one reads.
        least: the first opset whose definition of the operator has the attributes used.
    """

    op: str
    inputs: tuple[Operand, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[Term | None, ...] = ()
    type: tuple[Shape, str] | None = None
    least: int = 0

    def terms(self) -> Iterator[Term]:
        """The terms that the form reads, itself or through forms among its operands."""
        for operand in self.inputs:
            if isinstance(operand, Term):
                yield operand
            elif isinstance(operand, Form):
                yield from operand.terms()

    def forms(self) -> Iterator[Form]:
        """This form and the forms that it reads."""
        yield self
        for operand in self.inputs:
            if isinstance(operand, Form):
                yield from operand.forms()


Operand = Term | Form | Param | None


def form(op: str, *inputs: Operand, **attrs: Any) -> Form:
    """A node that computes the term it represents."""
    return Form(op, inputs, attrs)


def front(term: Term, op: str, *inputs: Operand, **attrs: Any) -> Form:
    """A node that another one reads; its result has the type of `term`."""
    return Form(op, inputs, attrs, type=(term.shape, term.dtype))


def typed(shape: Sequence[int], dtype: str, op: str, *inputs: Operand, **attrs: Any) -> Form:
    """A node that another one reads; its result has this type."""
    return Form(op, inputs, attrs, type=(tuple(shape), dtype))


def ints(values: Sequence[int], role: str) -> Param:
    return Param(np.array(values, np.int64), role)


def scalar(value: Any, dtype: str, shape: Shape = ()) -> Param:
    return Param(np.full(shape, value, np_dtype(dtype)), "scalar")


# Broadcasting


def narrow(term: Term) -> Operand:
    """The operand whose broadcast to `term.shape` is `term`, for use where ONNX broadcasts by itself."""
    below = term
    while row(below.op).view:
        below = below.args[0]
    if below.op == "full":
        return scalar(below.attr("value"), term.dtype)
    while term.op == "broadcast":
        term = term.args[0]
    return ramp(term) if term.op == "iota" and term.shape[term.attr("axis")] <= MOST_STORED else term


MOST_STORED = 1 << 20
"""Elements of a ramp that is stored: longer ones are computed where the model runs."""


def ramp(term: Term) -> Param | Form:
    """0, 1, 2, ... along an iota's axis, of size 1 along the axes after it."""
    axis = term.attr("axis")
    n, shape = term.shape[axis], (-1, *(1,) * (term.ndim - axis - 1))
    if n <= MOST_STORED:
        return Param(np.arange(n).astype(np_dtype(term.dtype)).reshape(shape), "range")
    values = Form("Range", tuple([scalar(each, "int64") for each in (0, n, 1)]), type=((n,), "int64"))
    if term.dtype != "int64":
        values = Form("Cast", (values,), {"to": CODE_OF_DTYPE[term.dtype]}, type=((n,), term.dtype))
    return Form("Reshape", (values, ints(shape, "shape")), type=((n, *shape[1:]), term.dtype))


def shape_of(operand: Operand) -> Shape:
    if isinstance(operand, Term):
        return operand.shape
    assert isinstance(operand, Param)  # forms of long ramps are not narrowed
    return operand.array.shape


def broadcastable(args: Sequence[Term], shape: Shape) -> tuple[Operand, ...]:
    """Each operand as small as possible such that ONNX's broadcasting of all of them still gives `shape`."""
    operands: list[Operand] = list(args)
    for i, arg in enumerate(args):
        narrowed = narrow(arg)
        for candidate in (narrowed, _ranked(narrowed, len(shape))):
            trial = [*operands[:i], candidate, *operands[i + 1 :]]
            if np.broadcast_shapes(*map(shape_of, trial)) == shape:
                operands = trial
                break
    return tuple(operands)


def _ranked(operand: Operand, rank: int) -> Operand:
    """A parameter with leading dims of size 1, which give the result its rank."""
    if not isinstance(operand, Param):
        return operand
    return Param(operand.array.reshape((1,) * (rank - operand.array.ndim) + operand.array.shape), operand.role)


# Element types


@cache
def admits(op: str, dtypes: tuple[str | None, ...], opset: int) -> bool:
    """Whether the operator's definition at that opset exists and takes operands of these dtypes (None: any)."""
    schema = schema_of(op, opset)
    if schema is None:
        return False
    formals = [schema.inputs[min(i, len(schema.inputs) - 1)] for i in range(len(dtypes))]
    return all(d is None or TENSOR_TYPE[d] in f.types for d, f in zip(dtypes, formals, strict=True))


def opset_for(form: Form, start: int) -> int | None:
    """The first opset from `start` on at which ONNX admits the form with its element types.

    None if there is none up to NEWEST_OPSET (or `start` if that is later).
    """
    least = max(start, *(each.least for each in form.forms()))
    wanted = [(each.op, tuple(_dtype(operand) for operand in each.inputs)) for each in form.forms()]
    for opset in range(least, max(start, NEWEST_OPSET) + 1):
        if all(admits(op, dtypes, opset) for op, dtypes in wanted):
            return opset
    return None


def _dtype(operand: Operand) -> str | None:
    if isinstance(operand, Term):
        return operand.dtype
    if isinstance(operand, Param):
        return operand.array.dtype.name
    return operand.type[1] if operand is not None and operand.type else None
