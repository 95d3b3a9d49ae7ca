"""Products: scales and biases into constants, siblings, broadcasts, reshapes; sums of products as products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import eqsat
from support.migraphx_pairs.common import Row, along, cat, lit, stretch


def _dot_horiz(x: Any, seeds: Sequence[int], shape: tuple[int, ...]) -> tuple[Any, Any]:
    both = x @ cat([lit(*shape, seed=s) for s in seeds], -1)
    return both[..., : shape[-1]], both[..., shape[-1] :]


def _skinny(a: Any, b: Any) -> Any:
    return (stretch(eqsat.expand_dims(a, -2), (*a.shape[:-1], b.shape[-1], a.shape[-1]))
            * eqsat.expand_dims(eqsat.swapaxes(b, -1, -2), -3)).sum(-1)  # fmt: skip


PRODUCTS: dict[str, Row] = {
    "dot_add": (
        lambda x: (lit(2, 2) + x) @ lit(2, 2, seed=1),
        lambda x: x @ lit(2, 2, seed=1) + lit(2, 2) @ lit(2, 2, seed=1),
        ((2, 2),),
    ),
    "dot_horiz": (
        lambda x: x @ lit(3, 2, 2) + x @ lit(3, 2, 2, seed=1),
        lambda x: (lambda parts: parts[0] + parts[1])(_dot_horiz(x, (0, 1), (3, 2, 2))),
        ((3, 2, 2),),
    ),
    "dot_horiz_same_constant": (
        lambda x: x @ lit(3, 2, 2) + x @ lit(3, 2, 2),
        lambda x: (lambda parts: parts[0] + parts[1])(_dot_horiz(x, (0, 0), (3, 2, 2))),
        ((3, 2, 2),),
    ),
    "dot_horiz_reshape": (
        lambda x: (x @ lit(3, 4, 4)).reshape(3, 4, 2, 2) + (x @ lit(3, 4, 4, seed=1)).reshape(3, 4, 2, 2),
        lambda x: (lambda parts: parts[0].reshape(3, 4, 2, 2) + parts[1].reshape(3, 4, 2, 2))(
            _dot_horiz(x, (0, 1), (3, 4, 4))
        ),
        ((3, 4, 4),),
    ),
    "dot_fusion_reshape": (
        lambda x: ((x @ lit(2, 320, 320)).reshape(2, 256, 8, 40), x @ lit(2, 320, 320, seed=1)),
        lambda x: (lambda parts: (parts[0].reshape(2, 256, 8, 40), parts[1]))(_dot_horiz(x, (0, 1), (2, 320, 320))),
        ((2, 256, 320),),
    ),
    "dot_broadcast_different_rank": (
        lambda x, y: stretch(x, (2, 96, 192)) @ stretch(y, (2, 192, 384)),
        lambda x, y: stretch(stretch(x, (96, 192)) @ y, (2, 96, 384)),
        ((192,), (192, 384)),
    ),
    "dot_broadcast_unsqueezed_input": (
        lambda x, y: stretch(x, (2, 2, 8, 8)) @ stretch(y, (2, 2, 8, 8)),
        lambda x, y: stretch(stretch(x.reshape(1, 8), (8, 8)) @ y, (2, 2, 8, 8)),
        ((1, 1, 1, 8), (8, 8)),
    ),
    "dot_slice": (
        lambda x: (x @ lit(32, 96))[:, 32:64],
        lambda x: x @ lit(32, 96)[:, 32:64],
        ((16, 32),),
    ),
    "mul_dot_a": (
        lambda x: (x * lit(1, 1, 32)) @ lit(2, 32, 128),
        lambda x: x @ (lit(2, 32, 128) * lit(1, 1, 32).transpose(0, 2, 1)),
        ((2, 256, 32),),
    ),
    "mul_dot_b": (
        lambda x: lit(2, 256, 32) @ (x * lit(1, 32, 1)),
        lambda x: (lit(2, 256, 32) * lit(1, 32, 1).transpose(0, 2, 1)) @ x,
        ((2, 32, 128),),
    ),
    "dot_mul_a": (
        lambda x: (x @ lit(2, 32, 128)) * lit(1, 1, 128),
        lambda x: x @ (lit(2, 32, 128) * lit(1, 1, 128)),
        ((2, 256, 32),),
    ),
    "dot_mul_b": (
        lambda x: (lit(2, 256, 32) @ x) * lit(1, 256, 1),
        lambda x: (lit(2, 256, 32) * lit(1, 256, 1)) @ x,
        ((2, 32, 128),),
    ),
    "reshape_reshape_dot": (
        lambda x: (lit(2, 10, 32, 16).reshape(20, 32, 16) @ x.reshape(20, 16, 32)).reshape(2, 10, 32, 32),
        lambda x: lit(2, 10, 32, 16) @ x,
        ((2, 10, 16, 32),),
    ),
    "reshape_dot": (
        lambda x: x.reshape(2, 64, 32) @ stretch(lit(32, 32), (2, 32, 32)),
        lambda x: (x @ stretch(lit(32, 32), (2, 8, 32, 32))).reshape(2, 64, 32),
        ((2, 8, 8, 32),),
    ),
    "reshape_dot_flipped": (
        lambda x: stretch(lit(16, 8), (16, 16, 8)) @ x.reshape(16, 8, 32),
        lambda x: (stretch(lit(16, 8), (2, 8, 16, 8)) @ x).reshape(16, 16, 32),
        ((2, 8, 8, 32),),
    ),
    "reshape_dot_broadcast": (
        lambda x: x.reshape(2, 64, 32) @ along(lit(32), 1, (2, 32, 32)),
        lambda x: (x @ along(lit(32), 2, (2, 8, 32, 32))).reshape(2, 64, 32),
        ((2, 8, 8, 32),),
    ),
    "reshape_dot_broadcast_2": (
        lambda x: x.reshape(128, 32) @ along(lit(32), 1, (32, 32)),
        lambda x: (x @ along(lit(32), 3, (2, 8, 32, 32))).reshape(128, 32),
        ((2, 8, 8, 32),),
    ),
    "dot_skinny_rewrite": (_skinny, lambda a, b: a @ b, ((1, 128), (128, 4))),
    "dot_skinny_m2_rewrite": (_skinny, lambda a, b: a @ b, ((2, 128), (128, 4))),
    "dot_batched_skinny_rewrite": (_skinny, lambda a, b: a @ b, ((4, 1, 128), (4, 128, 8))),
    "dot_batched_m2_rewrite": (_skinny, lambda a, b: a @ b, ((1, 12, 2, 128), (1, 12, 128, 64))),
    "dot_softmax_return_rewrite": (
        lambda a, b: eqsat.softmax(_skinny(a, b)),
        lambda a, b: eqsat.softmax(a @ b),
        ((1, 12, 1, 128), (1, 12, 128, 128)),
    ),
    "dot_mul_softmax_return_rewrite": (
        lambda a, b, s: eqsat.softmax(_skinny(a, b) * s),
        lambda a, b, s: eqsat.softmax((a @ b) * s),
        ((1, 12, 1, 128), (1, 12, 128, 128), (1,)),
    ),
}
