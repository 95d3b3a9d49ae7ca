"""ONNX operators that reduce axes, and the softmax family."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod

from eqsat.base.numerics import identity_of
from eqsat.frontends.onnx.operators.node import Converter, Node, Row, of_floats, row
from eqsat.frontends.terms.declined import Declined
from eqsat.program import composites, ops
from eqsat.program.term import Shape, Term

Reduction = Callable[[Term, tuple[int, ...], bool], Term]


def _axes(node: Node, from_input: int) -> tuple[int, ...]:
    """The reduced axes, counted from 0: an attribute before version `from_input`, an input since. None given: all,
    or no axis at all with noop_with_empty_axes."""
    rank = node.input(0).ndim
    given = node.attr("axes") if node.version < from_input else node.ints(1)
    if given:
        return ops.axes_of(given, rank)
    return () if node.attr("noop_with_empty_axes", 0) else ops.axes_of(None, rank)


def _reduction(reduce: Reduction, from_input: int) -> Converter:
    return lambda node: reduce(node.input(0), _axes(node, from_input), node.attr("keepdims", 1) == 1)


def _kind(kind: str) -> Reduction:
    return lambda x, axes, keepdims: ops.reduce(kind, x, axes, keepdims)


def _extreme(kind: str) -> Reduction:
    """max or min; over no elements it is the identity (since opset 18)."""

    def reduce(x: Term, axes: tuple[int, ...], keepdims: bool) -> Term:
        if all(x.shape[axis] for axis in axes):
            return ops.reduce(kind, x, axes, keepdims)
        return ops.full(identity_of(kind, x.dtype), _kept(x, axes, keepdims), x.dtype)

    return reduce


def _kept(x: Term, axes: tuple[int, ...], keepdims: bool) -> Shape:
    return tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes)


def _log_sum(x: Term, axes: tuple[int, ...], keepdims: bool) -> Term:
    return ops.log(ops.sum_(x, axes, keepdims))


def _log_sum_exp(x: Term, axes: tuple[int, ...], keepdims: bool) -> Term:
    if all(x.shape[axis] for axis in axes):
        return composites.logsumexp(x, axes, keepdims)
    return ops.full(-inf, _kept(x, axes, keepdims), x.dtype)


def _l1(x: Term, axes: tuple[int, ...], keepdims: bool) -> Term:
    return ops.sum_(ops.abs_(x), axes, keepdims)


def _sum_square(x: Term, axes: tuple[int, ...], keepdims: bool) -> Term:
    return ops.sum_(composites.square(x), axes, keepdims)


def _arg(kind: str) -> Converter:
    def convert(node: Node) -> Term:
        x, keepdims = node.input(0), node.attr("keepdims", 1) == 1
        axis = ops.axis_of(node.attr("axis", 0), x.ndim)
        if not node.attr("select_last_index", 0):
            return ops.reduce(kind, x, axis, keepdims)
        from_end = ops.reduce(kind, ops.flip(x, axis), axis, keepdims)
        return ops.sub(ops.full_like(x.shape[axis] - 1, from_end), from_end)

    return convert


def _along(build: Callable[[Term, int], Term]) -> Converter:
    """Along one axis; before opset 13, along that axis and all later axes together."""

    def convert(node: Node) -> Term:
        x = node.input(0)
        axis = node.attr("axis", -1 if node.version >= 13 else 1)
        axis = x.ndim if axis == x.ndim and node.version < 13 else ops.axis_of(axis, x.ndim)
        if not x.size:
            return x
        if node.version >= 13:
            return build(x, axis)
        rows = ops.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
        return ops.reshape(build(rows, 1), x.shape)

    return convert


def _hardmax(x: Term, axis: int) -> Term:
    """1 at the first maximum along the axis, 0 elsewhere."""
    first = ops.broadcast(ops.argmax(x, axis, True), x.shape)
    return ops.cast(ops.equal(first, ops.iota(x.shape, axis)), x.dtype)


def _lp_normalization(node: Node) -> Term:
    """x divided by the p-norm along an axis; 0 where the norm is 0."""
    x, axis, p = node.input(0), node.attr("axis", -1), node.attr("p", 2)
    if p not in (1, 2):
        raise Declined(f"p = {p}")
    norm = ops.broadcast(composites.norm2(x, axis, True) if p == 2 else _l1(x, (axis,), True), x.shape)
    zero = ops.equal(norm, ops.full_like(0, norm))
    return ops.where(zero, ops.full_like(0, x), ops.div(x, norm))


REDUCTIONS: dict[str, Row] = {
    "ArgMax": row(_arg("argmax"), 1, 11, 12, 13),
    "ArgMin": row(_arg("argmin"), 1, 11, 12, 13),
    "Hardmax": row(_along(_hardmax), 1, 11, 13),
    "LogSoftmax": row(_along(composites.log_softmax), 1, 11, 13),
    "LpNormalization": row(_lp_normalization, 1, 22, unless="p is neither 1 nor 2"),
    "ReduceL1": row(_reduction(_l1, 18), 1, 11, 13, 18),
    "ReduceL2": row(of_floats(_reduction(composites.norm2, 18)), 1, 11, 13, 18, unless="integers"),
    "ReduceLogSum": row(of_floats(_reduction(_log_sum, 18)), 1, 11, 13, 18, 28, unless="integers"),
    "ReduceLogSumExp": row(of_floats(_reduction(_log_sum_exp, 18)), 1, 11, 13, 18, 28, unless="integers"),
    "ReduceMax": row(_reduction(_extreme("max"), 18), 1, 11, 12, 13, 18, 20),
    "ReduceMean": row(_reduction(composites.mean, 18), 1, 11, 13, 18),
    "ReduceMin": row(_reduction(_extreme("min"), 18), 1, 11, 12, 13, 18, 20),
    "ReduceProd": row(_reduction(_kind("prod"), 18), 1, 11, 13, 18),
    "ReduceSum": row(_reduction(_kind("sum"), 13), 1, 11, 13),
    "ReduceSumSquare": row(_reduction(_sum_square, 18), 1, 11, 13, 18),
    "Softmax": row(_along(composites.softmax), 1, 11, 13),
}
"""One row per operator, with the since-versions whose meaning the converter covers."""
