"""Slices of one tensor: joined again, computed whole, reordered with reshapes and transposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import eqsat
from support.migraphx_pairs.common import TWO, Row, add_relu, along, cat, relu


def _reorder_reshape(batch: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def before(x: Any) -> Any:
        a, b, c = (s.reshape(batch, 64, 10, 16) for s in eqsat.split(x, 3, 2))
        return (a.transpose((0, 2, 1, 3)) + b.transpose((0, 2, 1, 3))) @ c.transpose((0, 2, 3, 1))

    def after(x: Any) -> Any:
        a, b, c = eqsat.split(x.reshape(batch, 64, 30, 16), 3, 2)
        return (a.transpose((0, 2, 1, 3)) + b.transpose((0, 2, 1, 3))) @ c.transpose((0, 2, 3, 1))

    return before, after


def _reorder_reshape_move_axis(batch: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def before(x: Any) -> Any:
        a, b, c = (s.reshape(batch, 64, 4, 32) for s in eqsat.split(x, 3, 2))
        return (a.transpose((0, 2, 1, 3)) + b.transpose((0, 2, 1, 3))) @ c.transpose((0, 2, 3, 1))

    def after(x: Any) -> Any:
        a, b, c = eqsat.split(x.reshape(batch, 64, 4, 96), 3, 3)
        return (a.transpose((0, 2, 1, 3)) + b.transpose((0, 2, 1, 3))) @ c.transpose((0, 2, 3, 1))

    return before, after


def _reorder_reshape_diff_dims(batch: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def before(x: Any) -> Any:
        a, b, c = eqsat.split(x, 3, 2)
        return a.reshape(batch, 32, 3, 32), b.reshape(batch, 48, 2, 32), c.reshape(batch, 32, 3, 32)

    def after(x: Any) -> Any:
        whole = x.reshape(batch, 32, 3, 96)
        return whole[..., :32], x[..., 32:64].reshape(batch, 48, 2, 32), whole[..., 64:]

    return before, after


def _reorder_transpose(x: Any) -> Any:
    a, b, c = (s.transpose((0, 2, 1)) for s in eqsat.split(x, 3, 2))
    return (a + b) * c


def _reorder_transposed(x: Any) -> Any:
    a, b, c = eqsat.split(x.transpose((0, 2, 1)), 3, 1)
    return (a + b) * c


def _multi_reshape(x: Any) -> Any:
    a, b, c = eqsat.split(x.transpose((2, 0, 3, 1, 4)), 3, 0)
    product = a.reshape(32, 32, 20) @ b.reshape(32, 32, 20).transpose((0, 2, 1))
    return b.reshape(2, 16, 32, 20), c.reshape(2, 16, 32, 20), product, c.reshape(32, 32, 20)


def _multi_reshaped(x: Any) -> Any:
    t = x.transpose((2, 0, 3, 1, 4))
    flat, tall = t.reshape(96, 32, 20), t.reshape(6, 16, 32, 20)
    return tall[2:4], tall[4:6], flat[:32] @ flat[32:64].transpose((0, 2, 1)), flat[64:]


SPLIT, SPLIT_PART = ((3, 2, 4), "int32"), (3, 1, 4)


def _split_add_relu(x: Any) -> tuple[Any, Any]:
    return add_relu(x[:, :1], x[:, 1:], SPLIT_PART)


def _whole_add_relu(x: Any) -> Any:
    return relu(x + along(TWO, 1, (3, 2, 4)))


SLICES: dict[str, Row] = {
    "slice_concat": (
        lambda x, y: cat([x[:128], x[128:], y[:128], y[128:]]),
        lambda x, y: cat([x, y]),
        ((256,), (256,)),
    ),
    "slice_concat_non_uniform": (
        lambda x, y: cat([x[:64], x[64:192], x[192:], y[:64], y[64:192], y[192:]]),
        lambda x, y: cat([x, y]),
        ((256,), (256,)),
    ),
    "split_add_relu": (
        lambda x: sum(_split_add_relu(x)[1:], _split_add_relu(x)[0]),
        lambda x: _whole_add_relu(x)[:, :1] + _whole_add_relu(x)[:, 1:],
        (SPLIT,),
    ),
    "split_add_relu_reshape": (
        lambda x: _split_add_relu(x)[0].reshape(3, 4) + _split_add_relu(x)[1].reshape(3, 4),
        lambda x: _whole_add_relu(x)[:, :1].reshape(3, 4) + _whole_add_relu(x)[:, 1:].reshape(3, 4),
        (SPLIT,),
    ),
    "split_add_relu_concat_same_axis": (lambda x: cat(_split_add_relu(x), 1), _whole_add_relu, (SPLIT,)),
    "split_add_relu_used_multiple_split1": (
        lambda x: x[:, :1] + (_split_add_relu(x)[0] + _split_add_relu(x)[1]),
        lambda x: x[:, :1] + (_whole_add_relu(x)[:, :1] + _whole_add_relu(x)[:, 1:]),
        (SPLIT,),
    ),
    "split_add_relu_used_multiple_split2": (
        lambda x: relu(x[:, :1]) + (_split_add_relu(x)[0] + _split_add_relu(x)[1]),
        lambda x: relu(x[:, :1]) + (_whole_add_relu(x)[:, :1] + _whole_add_relu(x)[:, 1:]),
        (SPLIT,),
    ),
    **{f"reorder_reshape_slice {b}": (*_reorder_reshape(b), ((b, 64, 480),)) for b in (1, 4)},
    **{f"reorder_reshape_slice_move_axis1 {b}": (*_reorder_reshape_move_axis(b), ((b, 256, 96),)) for b in (4, 8)},
    "reorder_reshape_slice_move_axis2": (
        lambda x: (
            (x[:, :32].reshape(1, 16, 8, 32) + x[:, 32:64].reshape(1, 16, 8, 32)) * x[:, 64:].reshape(1, 16, 8, 32)
        ),
        lambda x: (
            (x.reshape(1, 16, 8, 96)[..., :32] + x.reshape(1, 16, 8, 96)[..., 32:64])
            * x.reshape(1, 16, 8, 96)[..., 64:]
        ),
        ((128, 96),),
    ),
    "reorder_reshape_slice_multi_rsp": (_multi_reshape, _multi_reshaped, ((2, 32, 3, 16, 20),)),
    "reorder_reshape_slice_partial": (
        lambda x: (
            (x[:8].reshape(2, 4, 96) + x[8:16].reshape(2, 4, 96)) * x[16:24].reshape(2, 4, 96),
            x[24:],
        ),
        lambda x: (
            (x.reshape(32, 4, 96)[:2] + x.reshape(32, 4, 96)[2:4]) * x.reshape(32, 4, 96)[4:6],
            x[24:],
        ),
        ((128, 96),),
    ),
    **{f"reorder_reshape_slice_diff_dims {b}": (*_reorder_reshape_diff_dims(b), ((b, 96, 96),)) for b in (4, 8)},
    **{f"reorder_slice_trans {b}": (_reorder_transpose, _reorder_transposed, ((b, 64, 480),)) for b in (1, 8)},
    "double_slice1": (lambda x: x[32:256][32:64], lambda x: x[64:96], ((256,),)),
    "double_slice2": (lambda x: x[32:128][:32], lambda x: x[32:64], ((256,),)),
    "double_slice_multi_axes": (lambda x: x[32:128][:, :32], lambda x: x[32:128, :32], ((256, 128),)),
    "transpose_slice": (
        lambda x: tuple(s.transpose((0, 2, 1, 3)) for s in eqsat.split(x, 3, 2)),
        lambda x: tuple(eqsat.split(x.transpose((0, 2, 1, 3)), 3, 1)),
        ((1, 96, 36, 16),),
    ),
    "transpose_slice_unsqueeze": (
        lambda x: tuple(x.transpose((0, 2, 3, 1))[:, i : i + 8] for i in (0, 16, 32)),
        lambda x: tuple(x.reshape(4, 64, 12, 8, 16).transpose((2, 0, 3, 4, 1))[i] for i in (0, 2, 4)),
        ((4, 64, 96, 16),),
    ),
    "transpose_slice_diff_perm": (
        lambda x: (
            x[:, :, :12].transpose((0, 2, 1, 3)),
            x[:, :, 12:24].transpose((0, 2, 3, 1)),
            x[:, :, 24:].transpose((0, 2, 1, 3)),
        ),
        lambda x: (
            x.transpose((0, 2, 1, 3))[:, :12],
            x.transpose((0, 2, 1, 3))[:, 12:24].transpose((0, 1, 3, 2)),
            x.transpose((0, 2, 1, 3))[:, 24:],
        ),
        ((1, 96, 36, 16),),
    ),
    "transpose_slice_non_packed_axis": (
        lambda x: eqsat.sqrt(x.transpose((0, 2, 1, 3))[:, :12]),
        lambda x: eqsat.sqrt(x.reshape(2, 96, 3, 12, 16).transpose((2, 0, 3, 1, 4))[0]),
        ((2, 96, 36, 16),),
    ),
    "transpose_slice_non_packed_multi_axis": (
        lambda x: (
            x.transpose((0, 2, 1, 3))[:, :12],
            x.transpose((0, 2, 1, 3))[:, 12:24].transpose((0, 1, 3, 2)),
            x.transpose((0, 2, 1, 3))[:, 24:],
        ),
        lambda x: (
            x.reshape(2, 96, 3, 12, 16).transpose((2, 0, 3, 1, 4))[0],
            x.reshape(2, 96, 3, 12, 16).transpose((2, 0, 3, 1, 4))[1].transpose((0, 1, 3, 2)),
            x.reshape(2, 96, 3, 12, 16).transpose((2, 0, 3, 1, 4))[2],
        ),
        ((2, 96, 36, 16),),
    ),
}
