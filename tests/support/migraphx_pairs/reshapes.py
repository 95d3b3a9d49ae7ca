"""Reshapes, transposes and broadcasts, of each other and past elementwise operators."""

from __future__ import annotations

from typing import Any

import numpy as np

import eqsat
from support.migraphx_pairs.common import Row, cat, lit, relu, stretch


def _nested_reshapes(x: Any) -> Any:
    for shape in ((1, 2, 3, 4, 5, 42), (1, 2, 12, 5, 42), (2, 12, 5, 42), (2, 60, 42), (120, 42), (5040,)):
        x = x.reshape(shape)
    return x


def _transposes(x: Any, *orders: tuple[int, ...]) -> Any:
    for order in orders:
        x = x.transpose(order)
    return x


SIX, PERM = (2, 2, 2, 2, 5, 5), (0, 3, 4, 1, 5, 2)
RESIZE = np.array([0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 2, 2, 2, 3, 3, 3] * 2).reshape(1, 2, 4, 6)

RESHAPES: dict[str, Row] = {
    "broadcast_transpose": (
        lambda x: stretch(x, (2, 3, 5)).transpose((2, 0, 1)),
        lambda x: stretch(x.reshape(1, 1, 5).transpose((2, 0, 1)), (5, 2, 3)),
        ((5,),),
    ),
    "broadcast_transpose_opt": (
        lambda x: stretch(x, (2, 3, 5)).transpose((1, 0, 2)),
        lambda x: stretch(x.reshape(1, 1, 5), (3, 2, 5)),
        ((5,),),
    ),
    "broadcast_transpose_scalar": (lambda x: stretch(x, (2, 3)).T, lambda x: stretch(x, (3, 2)), ((1,),)),
    "broadcast_transpose_scalar_multi_use": (
        lambda x: (stretch(x, (2, 3)).T, stretch(x, (2, 3))),
        lambda x: (stretch(x, (3, 2)), stretch(x, (2, 3))),
        ((1,),),
    ),
    "double_transpose": (lambda x: eqsat.sqrt(x).T.T, lambda x: eqsat.sqrt(x), ((2, 2),)),
    "transpose_partial1": (
        lambda x: _transposes(x, (1, 0, 2), (1, 2, 0)),
        lambda x: x.transpose((0, 2, 1)),
        ((1, 2, 3),),
    ),
    "transpose_partial2": (
        lambda x: _transposes(x, (1, 0, 2), (1, 2, 0), (1, 0, 2)),
        lambda x: x.transpose((2, 0, 1)),
        ((1, 2, 3),),
    ),
    "transpose_partial3": (
        lambda x: _transposes(x, (1, 0, 2), (1, 2, 0), (1, 0, 2), (1, 0, 2)),
        lambda x: x.transpose((0, 2, 1)),
        ((1, 2, 3),),
    ),
    "nop_transpose3": (
        lambda x, y: cat([x, y], 3).transpose((0, 1, 2, 3)).transpose((0, 1, 3, 2)),
        lambda x, y: cat([x, y], 3).transpose((0, 1, 3, 2)),
        ((1, 2, 3, 4), (1, 2, 3, 4)),
    ),
    "nop_convert": (lambda x: relu(x).astype("float32"), lambda x: relu(x), ((1, 2, 3),)),
    "nested_reshape": (_nested_reshapes, lambda x: x.reshape(5040), ((1, 2, 3, 4, 5, 6, 7),)),
    "nested_reshape_squeeze": (lambda x: x.reshape(1, 2, 12)[0], lambda x: x.reshape(2, 12), ((1, 2, 3, 4),)),
    "nested_squeeze_reshape": (lambda x: x[0].reshape(2, 12), lambda x: x.reshape(2, 12), ((1, 2, 3, 4),)),
    "multibroadcast_simplify": (
        lambda x: stretch(x, (1, 2, 3, 4)) * stretch(x, (1, 2, 3, 4)),
        lambda x: x * x,
        ((1, 2, 3, 4),),
    ),
    "multibroadcast_unsqueeze_scalar": (
        lambda x: stretch(x, (2,)).reshape(2, 1) * stretch(x, (2,)).reshape(2, 1),
        lambda x: stretch(x, (2, 1)) * stretch(x, (2, 1)),
        ((1,),),
    ),
    "optimize_resize": (
        lambda x: eqsat.softmax(eqsat.take(x.reshape(4), RESIZE, 0), 1),
        lambda x: eqsat.softmax(stretch(x.reshape(1, 1, 2, 1, 2, 1), (1, 2, 2, 2, 2, 3)).reshape(1, 2, 4, 6), 1),
        ((1, 1, 2, 2),),
    ),
    "optimize_where_true": (
        lambda x, y: eqsat.take(cat([x, y]).reshape(12), np.arange(6, 12).reshape(1, 1, 3, 2), 0),
        lambda x, y: y,
        ((1, 1, 3, 2), (1, 1, 3, 2)),
    ),
    "reshape_cont": (
        lambda x, y: stretch(x, (2, 4, 6)).reshape(2, 2, 2, 6) + y,
        lambda x, y: (stretch(x, (2, 4, 6)) + y.reshape(2, 4, 6)).reshape(2, 2, 2, 6),
        ((1, 4, 1), (2, 2, 2, 6)),
    ),
    "reshape_unary_transpose": (
        lambda x: relu(x.reshape(SIX)).transpose(PERM),
        lambda x: relu(x).reshape(SIX).transpose(PERM),
        ((2, 8, 5, 5),),
    ),
    "literal_reshape_unary_transpose_pointwise": (
        lambda x: x + relu(eqsat.reshape(lit(2, 8, 5, 5), SIX)).transpose(PERM),
        lambda x: x + relu(lit(2, 8, 5, 5)).reshape(SIX).transpose(PERM),
        ((2, 2, 5, 2, 5, 2),),
    ),
    "reshape_unary_transpose_pointwise": (
        lambda x, y: relu(x.reshape(SIX)).transpose(PERM) + y,
        lambda x, y: relu(x.reshape(SIX).transpose(PERM)) + y,
        ((2, 8, 5, 5), (2, 2, 5, 2, 5, 2)),
    ),
    "pointwise_reshape_unary": (
        lambda x, y: relu((x + y).reshape(SIX)),
        lambda x, y: relu(x + y).reshape(SIX),
        ((2, 8, 5, 5), (2, 8, 5, 5)),
    ),
}
