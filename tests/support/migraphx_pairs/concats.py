"""Concatenations: of equal operators, of slices, nested, sliced again; look-ups joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import eqsat
from support.migraphx_pairs.common import ONE, TWO, Row, add_relu, along, cat, ints, lit, relu, stretch


def _concat_repeated(shape: Sequence[int], axis: int) -> Callable[..., Any]:
    return lambda x, y: cat([stretch(x, shape), stretch(y, shape)], axis)


def _gathers(*tables: np.ndarray) -> tuple[Callable[..., Any], Callable[..., Any]]:
    starts = np.cumsum([0, *(len(t) for t in tables)])[:-1].astype(np.int32)

    def before(i: Any, j: Any, k: Any, m: Any) -> Any:
        return cat([eqsat.take(t, index, 0) for t, index in zip(tables, (i, j, k, m), strict=True)])

    def after(i: Any, j: Any, k: Any, m: Any) -> Any:
        counted = [eqsat.remainder(index, len(t)) for index, t in zip((i, j, k, m), tables, strict=True)]
        moved = [index + int(start) for index, start in zip(counted, starts, strict=True)]
        return eqsat.take(cat(tables), cat(moved), 0)

    return before, after


def _uneven(x: Any, y: Any, z: Any) -> Any:
    whole = cat([x, y, z], 1)
    return whole[:, :100] + whole[:, 320:420], whole[:, 100:160] + whole[:, 420:], whole[:, 160:320] + z


def _several_uses(x: Any, y: Any, z: Any) -> Any:
    a, b, c = eqsat.split(cat([x, y, z], 1), 3, 1)
    return a + z, c + x, ((a - z) + (c - x)) - b


ROW, FOUR = (2, 160), (1, 2, 3, 4)

CONCATS: dict[str, Row] = {
    "concat_add_relu": (
        lambda x, y: cat([relu(x + 1), relu(y + 2)]),
        lambda x, y: relu(cat([x, y]) + TWO),
        (ONE, ONE),
    ),
    "concat_add_relu_partial": (
        lambda x, y: cat([x + y, relu(x + 1), relu(y + 2)]),
        lambda x, y: cat([x + y, relu(cat([x, y]) + TWO)]),
        (ONE, ONE),
    ),
    "concat_add_relu_partial_broadcast": (
        lambda x, y: cat([x + y, along(ints(1), 1, (2, 1, 4, 5)), along(ints(2), 1, (2, 1, 4, 5))], 1),
        lambda x, y: cat([x + y, along(TWO, 1, (2, 2, 4, 5))], 1),
        (((2, 1, 4, 5), "int32"),) * 2,
    ),
    "concat_add_relu_broadcast_different_axis": (
        lambda x, y: cat(add_relu(x, y, (2, 1, 4, 5)), 1),
        lambda x, y: relu(cat([x, y], 1) + along(TWO, 1, (2, 2, 4, 5))),
        (((2, 1, 4, 5), "int32"),) * 2,
    ),
    "concat_add_relu_broadcast_same_axis": (
        lambda x, y: cat(add_relu(x, y, (2, 1, 4, 5)), 0),
        lambda x, y: relu(cat([x, y], 0) + cat([along(ints(1), 1, (2, 1, 4, 5)), along(ints(2), 1, (2, 1, 4, 5))], 0)),
        (((2, 1, 4, 5), "int32"),) * 2,
    ),
    "concat_convert_fusion": (
        lambda x, y: cat([x.astype("float16"), y.astype("float16")]),
        lambda x, y: cat([x, y]).astype("float16"),
        ((64,), (64,)),
    ),
    "concat_slice_different_axis_2": (
        lambda x, y: (cat([x, y], 1)[:1], x + cat([x, y], 1)[:, 160:]),
        lambda x, y: (cat([x, y], 1)[:1], x + y),
        (ROW, ROW),
    ),
    "concat_slice_in_same_order": (
        lambda x, y: cat([x, y], 1)[:, :160] + cat([x, y], 1)[:, 160:],
        lambda x, y: x + y,
        (ROW, ROW),
    ),
    "concat_slice_in_reverse_order": (
        lambda x, y: cat([x, y], 1)[:, 160:] + cat([x, y], 1)[:, :160],
        lambda x, y: y + x,
        (ROW, ROW),
    ),
    "concat_slice_inorder_with_empty_slice": (
        lambda x, y: (cat([x, y], 1)[:, :160] + cat([x, y], 1)[:, 160:], cat([x, y], 1)[:, 320:]),
        lambda x, y: (x + y, cat([x, y], 1)[:, 320:]),
        (ROW, ROW),
    ),
    "concat_slice_uneven_len_1": (
        _uneven,
        lambda x, y, z: (x[:, :100] + z[:, :100], x[:, 100:] + z[:, 100:], y + z),
        (ROW, ROW, ROW),
    ),
    "concat_slice_multiple_slice_use": (
        _several_uses,
        lambda x, y, z: (x + z, z + x, ((x - z) + (z - x)) - y),
        (ROW, ROW, ROW),
    ),
    "concat_slice_with_multiple_concat_outs": (
        lambda x, y, z, w: (cat([x, y, z], 1) + w, cat([x, y, z], 1)[:, 160:320] + z),
        lambda x, y, z, w: (cat([x, y, z], 1) + w, y + z),
        (ROW, ROW, ROW, (2, 480)),
    ),
    "concat_multibroadcasts1": (
        _concat_repeated((2, 3, 4), 2),
        lambda x, y: stretch(cat([x, y], 1), (2, 3, 8)),
        ((3, 4), (3, 4)),
    ),
    "concat_multibroadcasts2": (
        _concat_repeated((3, 2, 4), 0),
        lambda x, y: stretch(cat([x, y], 0), (6, 2, 4)),
        ((3, 1, 4), (3, 1, 4)),
    ),
    "concat_multibroadcasts3": (
        _concat_repeated((3, 2, 4), 2),
        lambda x, y: stretch(cat([x, y], 2), (3, 2, 8)),
        ((3, 1, 4), (3, 1, 4)),
    ),
    "concat_transpose1": (
        lambda x, y: cat([x.transpose((0, 1, 3, 2)), y.transpose((0, 1, 3, 2))], 2).transpose((0, 1, 3, 2)),
        lambda x, y: cat([x, y], 3),
        (FOUR, FOUR),
    ),
    "concat_transpose2": (
        lambda x, y: cat([x.transpose((0, 2, 3, 1)), y.transpose((0, 2, 3, 1))], -1).transpose((0, 2, 3, 1)),
        lambda x, y: cat([x, y], 1).transpose((0, 3, 1, 2)),
        (FOUR, FOUR),
    ),
    "concat_transpose3": (
        lambda x, y: cat([x.transpose((0, 2, 3, 1)), y.transpose((0, 2, 3, 1))], 3).transpose((0, 2, 3, 1)),
        lambda x, y: cat([x, y], 1).transpose((0, 3, 1, 2)),
        (FOUR, (1, 5, 3, 4)),
    ),
    "concat_of_one": (lambda x: relu(cat([x], 1)), lambda x: relu(x), (FOUR,)),
    "nested_concat": (
        lambda x, y: cat([cat([x, y], 1), cat([y, x], 1)], 1),
        lambda x, y: cat([x, y, y, x], 1),
        (FOUR, FOUR),
    ),
    "nested_concat_partial": (
        lambda x, y: cat([cat([x, y], 1), cat([y, x], 1), lit(1, 4, 3, 4)], 1),
        lambda x, y: cat([x, y, y, x, lit(1, 4, 3, 4)], 1),
        (FOUR, FOUR),
    ),
    "gather_horiz_fusion": (
        *_gathers(lit(3, 2), lit(4, 2, seed=1), lit(2, 2, seed=2), lit(5, 2, seed=3)),
        tuple(((n,), "int32") for n in (2, 3, 1, 2)),
    ),
}
