"""Lower and upper bounds of the exact values of a program at one input.

What its constants mean lies between bounds, too: they may have been rounded, or computed from others ahead of time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.base.numerics import INTS, Array, is_float, np_dtype, take
from eqsat.layout.arithmetic import Layout
from eqsat.program.core import CAST, CoreProgram, Node, topological
from eqsat.program.evaluation import Arrays, Operand, read
from eqsat.proof.normal_form.scalars import rational
from eqsat.proof.values.intervals import (
    BINARY,
    INTEGER,
    REDUCTIONS,
    UNARY,
    Interval,
    cast,
    integral,
    matrix_product,
    middle_of,
    outward,
    point,
    unknown_where,
    where_undefined,
)

_LOOSE_ULPS = 4.0
"""Of its own type, by which a constant may be off that was rounded, or computed from others ahead of time."""

_MOST_MISSING = 12
"""Binary exponents that no element of a constant has between two that some have, and that still are of one scale."""

_MOST_READ = 64
"""Different values of a constant that are read as simplest rationals: divisors are, weights are taken as they are."""

_OPAQUE_ERROR = 1e-5
"""Of the largest element: what operators that are carried, and run in their own types, may round."""

Exact = Collection[tuple[object, ...]]


class OutOfTime(Exception):
    """The bounds were not finished in time."""


def constants_of(program: CoreProgram) -> set[tuple[object, ...]]:
    """The constants of a program, each by what makes it equal to one of another program."""
    return {node.attrs for node in topological(program.roots) if node.op in ("Const", "Full")}


def rounded(program: CoreProgram, exact: Exact) -> set[str]:
    """Types of the constants that may have been rounded (see `enclose`)."""
    found: set[str] = set()
    for node in topological(program.roots):
        if node.dtype not in found and node.op in ("Const", "Full"):
            values = np.asarray(program.constants.get(node.attrs[0], node.attrs[0]))
            found |= {node.dtype} if _inexact(node, values, exact) is not None else set()
    return found


def looseness(node: Node, values: Array, exact: Exact) -> Array | float:
    """By how much rounding, or computing it from others ahead of time, may have changed each element of a constant."""
    finite = _inexact(node, values, exact)
    if finite is None:
        return 0.0
    info = ml_dtypes.finfo(np_dtype(node.dtype))
    return _LOOSE_ULPS * (float(info.eps) * _scales(finite) + float(info.smallest_subnormal))


def _inexact(node: Node, values: Array, exact: Exact) -> Array | None:
    """The finite elements of a constant, zero for others, if rounding may have changed some; else None."""
    if node.op not in ("Const", "Full") or not is_float(node.dtype) or node.attrs in exact:
        return None
    finite = np.where(np.isfinite(values), values, 0.0).astype(np.float64)
    return None if (finite == np.rint(finite)).all() else finite


def _scales(values: Array) -> Array | float:
    """For each element the largest magnitude of those like it: between them no binary exponents are missing, but few.

    Numbers that stand for minus infinity in a mask are far from the scores that they were added to.
    """
    sizes = np.abs(values)
    exponents = np.frexp(sizes)[1]
    lowest = exponents[sizes > 0].min()
    places = np.maximum(exponents - lowest, 0)
    present = np.flatnonzero(np.bincount(places.reshape(-1)))
    ends = [*present[:-1][np.diff(present) > _MOST_MISSING], present[-1]]
    if len(ends) == 1:
        return float(sizes.max())
    largest = [float(sizes[places <= end].max()) for end in ends]
    return np.asarray(largest)[np.searchsorted(ends, places)]


def meant(node: Node, values: Array, exact: Exact) -> Interval:
    """Bounds of a constant: of the simplest rationals that round to its elements, as proofs read them."""
    held = point(values)
    if is_float(node.dtype) and np.unique(held.lo[: 2 * _MOST_READ]).size <= _MOST_READ:
        distinct, places = np.unique(held.lo, return_inverse=True)
        if distinct.size <= _MOST_READ:
            bounds = np.array([_simplest(float(value), node.dtype) for value in distinct]).reshape(-1, 2)
            held = Interval(*bounds[places].T)
    pad = looseness(node, values, exact)
    return outward(held.lo - pad, held.hi + pad) if np.any(pad) else held


def _simplest(value: float, dtype: str) -> tuple[float, float]:
    """Bounds of a constant, which proofs read as the simplest rational that rounds to it."""
    if not math.isfinite(value):
        return value, value
    exact = rational(float(value), single=dtype != "float64")
    near = float(exact)
    if exact == near:
        return near, near
    return math.nextafter(near, -math.inf), math.nextafter(near, math.inf)


def enclose(program: CoreProgram, inputs: Mapping[str, Array], exact: Exact, deadline: float) -> dict[str, Interval]:
    """Bounds of the outputs by name, flat, for one input.

    Args:
        inputs: arrays by name; their elements are taken as they are.
        exact: constants that both programs have (see `constants_of`); any other float that is not a whole number may
            have been rounded.
        deadline: by `time.monotonic`.

    Raises:
        InputError: an index is out of range.
        OutOfTime: the deadline has passed.
    """
    run = _Enclosing(program, inputs, exact)
    order = topological(program.roots)
    readers = dict.fromkeys(order, 0)
    for node in [*program.roots, *(a for n in order for a in n.args)]:
        readers[node] += 1
    values: dict[Node, Interval] = {}
    with np.errstate(all="ignore"):
        for node in order:
            if time.monotonic() > deadline:
                raise OutOfTime
            values[node] = integral(run.value(node, [values[a] for a in node.args]), node.dtype)
            for arg in node.args:
                readers[arg] -= 1
                if not readers[arg]:
                    del values[arg]
    return {name: values[root] for name, root in zip(program.root_names, program.roots, strict=True)}


class _Enclosing(Arrays[Interval]):
    """Bounds of a core operator from those of its operands."""

    def __init__(self, program: CoreProgram, inputs: Mapping[str, Array], exact: Exact) -> None:
        self._program, self._inputs, self._exact = program, inputs, exact

    def value(self, node: Node, args: list[Interval]) -> Interval:
        self._node = node
        return self.of(node.op, node.attrs, args)

    def parts(self, value: Interval) -> tuple[Array, ...]:
        return value

    def like(self, value: Interval, parts: Sequence[Array]) -> Interval:
        return Interval(*parts)

    def dtype_of(self, value: Interval) -> str:
        return "float64"

    def input(self, name: str, size: int, dtype: str) -> Interval:
        return point(self._inputs[name].reshape(-1))

    def constant(self, digest: str, size: int, dtype: str) -> Interval:
        return meant(self._node, self._program.constants[digest], self._exact)

    def number(self, value: Any, dtype: str) -> Interval:
        return meant(self._node, np.full(1, value, np_dtype(dtype)), self._exact)

    def elementwise(self, fn: str, *args: Interval) -> Interval:
        if fn.startswith(CAST):
            return cast(args[0], fn.removeprefix(CAST))
        if len(args) == 1:
            return UNARY[fn](args[0])
        a, b = args
        whole = self._node.args[0].dtype in INTS
        bounds = INTEGER[fn] if whole and fn in INTEGER else BINARY[fn]
        return where_undefined(a.undefined | b.undefined, bounds(a, b))

    def where(self, condition: Interval, this: Interval, other: Interval) -> Interval:
        yes, no = condition.lo == 1, condition.hi == 0
        lo = np.where(yes, this.lo, np.where(no, other.lo, np.minimum(this.lo, other.lo)))
        hi = np.where(yes, this.hi, np.where(no, other.hi, np.maximum(this.hi, other.hi)))
        unknown = ~yes & ~no & (this.undefined | other.undefined)
        return where_undefined(condition.undefined, unknown_where(unknown, Interval(lo, hi)))

    def matmul(self, left: Interval, right: Interval) -> Interval:
        return matrix_product(left, right)

    def reduce(self, fn: str, values: Interval) -> Interval:
        *rows, length = values.lo.shape
        return REDUCTIONS[fn](values.shaped((prod(rows), length))).shaped((*rows,))

    def view(self, array: Interval, layout: Layout) -> Interval:
        return Interval(*(read(np.ascontiguousarray(bound), layout) for bound in array))

    def take(self, values: Interval, index: Interval, axis: int) -> Interval:
        known = index.lo == index.hi
        at = np.where(known, index.lo, 0).astype(np.int64)
        found = self.moved(lambda x: take(x, at, axis), values)
        along = known.reshape([-1 if i == axis else 1 for i in range(found.lo.ndim)])
        return unknown_where(np.broadcast_to(~along, found.lo.shape), found)

    def call(self, key: str, index: int, args: Sequence[Operand[Interval]], size: int, dtype: str) -> Interval:
        operands = [a.value for a in args]
        middles = [middle_of(a) for a in operands]
        value = np.asarray(self._program.opaque[key].run(middles)[index]).reshape(-1).astype(np.float64)
        widths = [float(np.max(a.hi - a.lo, initial=0.0)) for a in operands]
        scales = [float(np.max(np.abs(x), initial=0.0)) for x in middles]
        pad = _OPAQUE_ERROR * float(np.max(np.abs(value), initial=0.0)) if is_float(dtype) else 0.0
        sure = all(w <= 1e-9 * s for w, s in zip(widths, scales, strict=True))
        return unknown_where(np.full(value.shape, not sure), Interval(value - pad, value + pad))
