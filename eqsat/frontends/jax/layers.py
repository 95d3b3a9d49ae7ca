"""JAX primitives that sum: products, convolutions, reductions, windows, running sums."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from eqsat.base.numerics import dtype_name
from eqsat.frontends.jax.row import Builder
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.terms.windows import running, spread
from eqsat.program import ops
from eqsat.program.term import Shape, Term

Pads = Sequence[tuple[int, int]]


def _in_type(xs: Sequence[Term], dtype: Any) -> list[Term]:
    """Operands in the type that their products are summed in, if one is asked for."""
    return [x if dtype is None else ops.cast(x, dtype_name(dtype)) for x in xs]


def _dot_general(a: Term, b: Term, *, dimension_numbers: Any, preferred_element_type: Any) -> Term:
    """Axes: common ones (the batch), those of a, those of b; the contracted ones are summed over."""
    a, b = _in_type((a, b), preferred_element_type)
    (summed_a, summed_b), (batch_a, batch_b) = dimension_numbers
    own_a = [i for i in range(a.ndim) if i not in (*summed_a, *batch_a)]
    own_b = [i for i in range(b.ndim) if i not in (*summed_b, *batch_b)]
    batch, rows, columns, depth = (
        tuple(x.shape[i] for i in axes) for x, axes in ((a, batch_a), (a, own_a), (b, own_b), (a, summed_a))
    )
    left = ops.reshape(ops.transpose(a, (*batch_a, *own_a, *summed_a)), (*batch, prod(rows), prod(depth)))
    right = ops.reshape(ops.transpose(b, (*batch_b, *summed_b, *own_b)), (*batch, prod(depth), prod(columns)))
    return ops.reshape(ops.matmul(left, right), (*batch, *rows, *columns))


def _conv(
    x: Term,
    w: Term,
    *,
    window_strides: Shape,
    padding: Pads,
    lhs_dilation: Shape,
    rhs_dilation: Shape,
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
    preferred_element_type: Any,
) -> Term:
    """Any order of axes; holes in the image (a transposed convolution) are filled with zeros first."""
    if batch_group_count != 1:
        raise Declined("groups of the batch")
    image, kernel = _in_type((x, w), preferred_element_type)
    image = ops.transpose(image, dimension_numbers.lhs_spec)
    kernel = ops.transpose(kernel, dimension_numbers.rhs_spec)
    image = spread(image, (0, 0, *(n - 1 for n in lhs_dilation)), 0)
    crop = [(min(lo, 0), min(hi, 0)) for lo, hi in padding]
    image = ops.pad(image, (0, 0, *(lo for lo, _ in crop)), (0, 0, *(hi for _, hi in crop)))
    lo, hi = (tuple(max(pads[side], 0) for pads in padding) for side in (0, 1))
    out = ops.conv(image, kernel, window_strides, lo, hi, rhs_dilation, feature_group_count)
    spec = list(dimension_numbers.out_spec)
    return ops.transpose(out, [spec.index(i) for i in range(len(spec))])


def _reduction(kind: str) -> Builder:
    return lambda x, *, axes: ops.reduce(kind, x, axes)


def _truth(kind: str) -> Builder:
    """`all` is the least of booleans, `any` the greatest."""

    def build(x: Term, *, axes: Sequence[int]) -> Term:
        if x.dtype != "bool":
            raise Declined("bits of integers")
        return ops.cast(ops.reduce(kind, ops.cast(x, "int32"), axes), "bool")

    return build


def _place(kind: str) -> Builder:
    """The first place of the extreme value."""
    return lambda x, *, axes, index_dtype: ops.cast(ops.reduce(kind, x, axes), dtype_name(index_dtype))


def _windows(kind: str) -> Builder:
    """A reduction over windows along any axes; those with windows of one element are a batch."""

    def build(
        x: Term,
        *,
        window_dimensions: Shape,
        window_strides: Shape,
        padding: Pads,
        base_dilation: Shape,
        window_dilation: Shape,
    ) -> Term:
        per_axis = list(zip(window_dimensions, window_strides, padding, window_dilation, strict=True))
        slid = [i for i, (size, step, pads, _) in enumerate(per_axis) if (size, step, *pads) != (1, 1, 0, 0)]
        if any(n != 1 for n in base_dilation) or any(n < 0 for pads in padding for n in pads):
            raise Declined("windows over an array with holes, or cropped")
        if not slid:
            return x
        order = [i for i in range(x.ndim) if i not in slid] + slid
        moved = ops.transpose(x, order)
        outer = moved.shape[: x.ndim - len(slid)]
        image = ops.reshape(moved, (1, prod(outer), *moved.shape[len(outer) :]))
        kernel, steps, pads, apart = zip(*(per_axis[i] for i in slid), strict=True)
        lo, hi = zip(*pads, strict=True)
        found = ops.pool(kind, image, kernel, steps, lo, hi, apart)
        out = ops.reshape(found, (*outer, *found.shape[2:]))
        return ops.transpose(out, [order.index(i) for i in range(x.ndim)])

    return build


def _running(kind: str) -> Builder:
    return lambda x, *, axis, reverse: running(kind, x, axis, reverse)


LAYERS: dict[str, Builder] = {
    "argmax": _place("argmax"),
    "argmin": _place("argmin"),
    "conv_general_dilated": _conv,
    "cummax": _running("max"),
    "cumsum": _running("sum"),
    "dot_general": _dot_general,
    "reduce_and": _truth("min"),
    "reduce_max": _reduction("max"),
    "reduce_min": _reduction("min"),
    "reduce_or": _truth("max"),
    "reduce_prod": _reduction("prod"),
    "reduce_sum": _reduction("sum"),
    "reduce_window_max": _windows("max"),
    "reduce_window_sum": _windows("sum"),
}
