"""Reductions: split, fused, of repeated values, of reshaped rows."""

from __future__ import annotations

from typing import Any

import eqsat
from support.migraphx_pairs.common import Row, relu, stretch


def _repeated_sum(x: Any, axis: int | tuple[int, ...]) -> Any:
    return stretch(x.sum(axis, keepdims=True), x.shape)


def _clipped(x: Any) -> Any:
    low = _repeated_sum(eqsat.sqrt(x), 1)
    high = stretch(eqsat.sqrt(x).sum(1, keepdims=True) + relu(x).sum(1, keepdims=True), x.shape)
    return eqsat.minimum(eqsat.maximum(x, low), high)


def _sums_of_rows(x: Any, y: Any, z: Any) -> Any:
    inner = stretch(x.sum(2, keepdims=True) + y, x.shape) - x
    rest = _repeated_sum(inner, 2) - x
    return _repeated_sum(rest.reshape(z.shape), (2, 3)) + z


def _sums_of_rows_reshaped(x: Any, y: Any, z: Any) -> Any:
    shape = (2, 2, 16, 8, 8)
    xr, yr, zr = x.reshape(shape), y.reshape(2, 2, 16, 1, 1), z.reshape(shape)
    inner = stretch(xr.sum((3, 4), keepdims=True) + yr, shape) - xr
    return (_repeated_sum(_repeated_sum(inner, (3, 4)) - xr, (3, 4)) + zr).reshape(z.shape)


def _split_reduce(x: Any) -> Any:
    a, b = x[:, :1], x[:, 1:]
    return a.sum((0, 2)), a.mean((0, 2)), b.sum((0, 2)), b.mean((0, 2))


def _whole_reduce(x: Any) -> Any:
    total, mean = x.sum((0, 2)), x.mean((0, 2))
    return total[:1], mean[:1], total[1:], mean[1:]


REDUCTIONS: dict[str, Row] = {
    "split_reduce1": (_split_reduce, _whole_reduce, ((3, 2, 4),)),
    "split_reduce2": (
        lambda x: (x[:, :1].sum((0, 2)), x[:, :1].mean((0, 1)), x[:, 1:].sum((0, 2)), x[:, 1:].mean((0, 1))),
        lambda x: (x.sum((0, 2))[:1], x[:, :1].mean((0, 1)), x.sum((0, 2))[1:], x[:, 1:].mean((0, 1))),
        ((3, 2, 4),),
    ),
    "scalar_multibroadcast": (
        lambda x: stretch(eqsat.sqrt(x), (8, 20, 20)).sum((1, 2)),
        lambda x: stretch(eqsat.sqrt(x) * 400.0, (8,)),
        ((1,),),
    ),
    "pointwise_broadcast_reduce_reshape": (
        lambda x: (stretch(eqsat.sqrt(x), (2, 3)) + _repeated_sum(stretch(eqsat.sqrt(x), (2, 3)), 1)).reshape(6),
        lambda x: stretch(eqsat.sqrt(x) * 4.0, (2, 3)).reshape(6),
        ((2, 1),),
    ),
    "reduce_reduce": (
        lambda x: eqsat.sqrt(eqsat.abs((_repeated_sum(x, 1) - x).sum(1))),
        lambda x: eqsat.sqrt(eqsat.abs(x.sum(1) * 2.0)),
        ((2, 3),),
    ),
    "parallel_reduce_reduce": (
        lambda x: x.sum(1) + (x * x).sum(1),
        lambda x: (x * x).sum(1) + x.sum(1),
        ((2, 3),),
    ),
    "parallel_reduce_reduce_broadcast": (_clipped, _clipped, ((2, 3),)),
    "reduce_reduce_mismatch_axis": (lambda x: x.sum(1).sum(1), lambda x: x.sum((1, 2)), ((4, 2, 3),)),
    "pointwise_reduce_broadcast": (
        lambda x: (stretch(eqsat.sqrt(x.sum(1, keepdims=True)), (2, 3)) + x).sum(1) + x.sum(1),
        lambda x: (eqsat.sqrt(x.sum(1)) * 3.0 + x.sum(1)) + x.sum(1),
        ((2, 3),),
    ),
    "reduce_reduce_broadcast": (
        lambda x: (_repeated_sum(x, 1) + x).sum(1),
        lambda x: x.sum(1) * 3.0,
        ((4, 2, 3),),
    ),
    "reduce_reshape_pointwise1": (
        lambda x, y: _repeated_sum(x, 1).reshape(8, 8, 2, 2) + y,
        lambda x, y: _repeated_sum(x.reshape(8, 8, 2, 2), (2, 3)) + y,
        ((64, 4), (8, 8, 2, 2)),
    ),
    "reduce_reshape_pointwise2": (
        lambda x, y: _repeated_sum(x, 2).reshape(2, 320, 8, 8) + y,
        lambda x, y: (_repeated_sum(x.reshape(2, 32, 10, 8, 8), (2, 3, 4)) + y.reshape(2, 32, 10, 8, 8)).reshape(
            2, 320, 8, 8
        ),
        ((2, 32, 640), (2, 320, 8, 8)),
    ),
    "reduce_contiguous_reshape_pointwise": (
        lambda x, y: _repeated_sum(x.transpose((1, 0, 2)), 2).reshape(2, 320, 8, 8) + y,
        lambda x, y: (
            _repeated_sum(x.transpose((1, 0, 2)).reshape(2, 32, 10, 8, 8), (2, 3, 4)) + y.reshape(2, 32, 10, 8, 8)
        ).reshape(2, 320, 8, 8),
        ((32, 2, 640), (2, 320, 8, 8)),
    ),
    "reduce_reshape_reduce": (
        _sums_of_rows,
        _sums_of_rows_reshaped,
        ((2, 32, 64), (2, 32, 1), (4, 16, 8, 8)),
    ),
    "split_pointwise": (
        lambda x: eqsat.sqrt(x) + _repeated_sum(eqsat.sqrt(x), 2),
        lambda x: eqsat.sqrt(x) + stretch(eqsat.sqrt(x).sum(2, keepdims=True), (2, 3, 256)),
        ((2, 3, 256),),
    ),
    "sequence_reduces": (
        lambda x: _repeated_sum(x - _repeated_sum(x, 2), 2) + x,
        lambda x: stretch(x.sum(2, keepdims=True) * -63.0, (2, 3, 64)) + x,
        ((2, 3, 64),),
    ),
    "parallel_reduce": (
        lambda x: x.sum(2) * (x * x).sum(2),
        lambda x: (x * x).sum(2) * x.sum(2),
        ((2, 3, 32),),
    ),
    "double_split_live": (
        lambda x: (
            stretch((x * x).sum(2, keepdims=True) + eqsat.sqrt(x.sum(2, keepdims=True)), (2, 3, 32))
            * stretch(eqsat.sqrt(x.sum(2, keepdims=True)), (2, 3, 32))
        ),
        lambda x: stretch(
            ((x * x).sum(2, keepdims=True) + eqsat.sqrt(x.sum(2, keepdims=True))) * eqsat.sqrt(x.sum(2, keepdims=True)),
            (2, 3, 32),
        ),
        ((2, 3, 32),),
    ),
    "used_twice_fused": (
        lambda x, y: ((x + y) + x) + ((x + y) + y),
        lambda x, y: x * 3.0 + y * 3.0,
        ((2, 3), (2, 3)),
    ),
    "double_add": (lambda x, y, z: (x + y) + z, lambda x, y, z: x + (y + z), ((2, 3),) * 3),
}
