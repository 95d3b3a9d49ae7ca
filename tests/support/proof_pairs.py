"""Pairs of programs that are equal, and pairs that are not, for `eqsat.prove` to tell apart.

The equal ones are axioms and derived equations as published for TASO, TENSAT and XLA's simplifier. A row: name, left,
right, shapes of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import eqsat
from eqsat.program.ir import Program

Row = tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]

cat, conv, relu, pad = eqsat.concat, eqsat.conv, eqsat.relu, eqsat.pad
M35, M57, M72 = (3, 5), (5, 7), (7, 2)
IMAGE, FILTER = (1, 3, 5, 7), (4, 3, 3, 3)


def build(fn: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> Program:
    return eqsat.trace(fn, *[eqsat.spec(shape, "float64") for shape in shapes])


MATMUL: dict[str, Row] = {
    "associate": (lambda a, b, c: (a @ b) @ c, lambda a, b, c: a @ (b @ c), (M35, M57, M72)),
    "distribute": (lambda a, b, c: a @ (b + c), lambda a, b, c: a @ b + a @ c, (M35, M57, M57)),
    "transpose": (lambda a, b: (a @ b).T, lambda a, b: b.T @ a.T, (M35, M57)),
    "scale": (lambda a, b: (a * 2.0) @ b, lambda a, b: a @ (b * 2.0), (M35, M57)),
    "slice columns": (lambda a, b: (a @ b)[:, 2:5], lambda a, b: a @ b[:, 2:5], (M35, M57)),
    "join columns": (lambda a, b, c: cat([a @ b, a @ c], 1), lambda a, b, c: a @ cat([b, c], 1), (M35, M57, (5, 4))),
    "join rows": (lambda a, b, c: cat([a @ c, b @ c], 0), lambda a, b, c: cat([a, b], 0) @ c, (M35, (4, 5), M57)),
    "join along k": (
        lambda a, b, x, y: a @ x + b @ y,
        lambda a, b, x, y: cat([a, b], 1) @ cat([x, y], 0),
        (M35, (3, 7), (5, 2), M72),
    ),
    "sum of columns": (lambda a, b: (a @ b).sum(1), lambda a, b: (a @ b.sum(1, keepdims=True))[:, 0], (M35, M57)),
    "share a left factor": (
        lambda a, b, c: (relu(a @ b), relu(a @ c)),
        lambda a, b, c: (relu(a @ cat([b, c], 1))[:, :7], relu(a @ cat([b, c], 1))[:, 7:]),
        (M35, M57, (5, 2)),
    ),
}

ELEMENTWISE: dict[str, Row] = {
    "commute": (lambda a, b: a + b, lambda a, b: b + a, (M35, M35)),
    "associate": (lambda a, b, c: a * (b * c), lambda a, b, c: (a * b) * c, (M35, M35, M35)),
    "distribute": (lambda a, b, c: (a + b) * c, lambda a, b, c: a * c + b * c, (M35, M35, M35)),
    "transpose": (lambda a, b: (a * b).T, lambda a, b: a.T * b.T, (M35, M35)),
    "relu transposed": (lambda a: relu(a.T), lambda a: relu(a).T, (M35,)),
    "silu": (lambda a: eqsat.silu(a), lambda a: a / (1.0 + eqsat.exp(-a)), (M35,)),
    "exp of a sum": (lambda a, b: eqsat.exp(a + b), lambda a, b: eqsat.exp(a) * eqsat.exp(b), (M35, M35)),
    "log of exp": (lambda a: eqsat.log(eqsat.exp(a)), lambda a: a, (M35,)),
    "root of a square": (lambda a: eqsat.sqrt(a * a), lambda a: eqsat.abs(a), (M35,)),
    "cancel a factor": (lambda a, b: a * b / a, lambda a, b: b, (M35, M35)),
    "one over a sum": (lambda a, b: a / (a + b) + b / (a + b), lambda a, b: (a + b) / (a + b), (M35, M35)),
    "limits in either order": (
        lambda a: eqsat.minimum(eqsat.maximum(a, -1.0), 2.0),
        lambda a: eqsat.maximum(eqsat.minimum(a, 2.0), -1.0),
        (M35,),
    ),
    "maximum absorbs minimum": (lambda a, b: eqsat.maximum(a, eqsat.minimum(a, b)), lambda a, b: a, (M35, M35)),
    "where of not": (
        lambda a, b, c: eqsat.where(a < b, b, c),
        lambda a, b, c: eqsat.where(a >= b, c, b),
        (M35, M35, M35),
    ),
    "relu of both signs": (lambda a: relu(a) - relu(-a), lambda a: a, (M35,)),
    "maximum and minimum": (
        lambda a, b: eqsat.maximum(a, b) + eqsat.minimum(a, b),
        lambda a, b: a + b,
        (M35, M35),
    ),
    "a function of a choice": (
        lambda a, b, c: eqsat.exp(eqsat.where(a < b, b, c)),
        lambda a, b, c: eqsat.where(a < b, eqsat.exp(b), eqsat.exp(c)),
        (M35, M35, M35),
    ),
    "De Morgan": (
        lambda a, b, c: eqsat.logical_not(eqsat.logical_and(a < b, b < c)),
        lambda a, b, c: eqsat.logical_or(a >= b, b >= c),
        (M35, M35, M35),
    ),
}

MOVEMENT: dict[str, Row] = {
    "concat of relu": (lambda a, b: cat([relu(a), relu(b)], 1), lambda a, b: relu(cat([a, b], 1)), (M35, (3, 7))),
    "concat transposed": (lambda a, b: cat([a, b], 0).T, lambda a, b: cat([a.T, b.T], 1), (M35, (7, 5))),
    "concat of sums": (
        lambda a, b, x, y: cat([a + b, x + y], 1),
        lambda a, b, x, y: cat([a, x], 1) + cat([b, y], 1),
        (M35, M35, (3, 7), (3, 7)),
    ),
    "concat in two orders": (
        lambda a, b, x, y: cat([cat([a, b], 0), cat([x, y], 0)], 1),
        lambda a, b, x, y: cat([cat([a, x], 1), cat([b, y], 1)], 0),
        (M35, (2, 5), (3, 7), (2, 7)),
    ),
    "split what was joined": (lambda a, b: cat([a, b], 1)[:, :5], lambda a, b: a, (M35, (3, 7))),
    "join what was split": (lambda a: cat([a[:, :2], a[:, 2:]], 1), lambda a: a, (M35,)),
    "slice of a pad": (lambda a: pad(a, ((1, 1), (2, 2)))[1:4, 2:7], lambda a: a, (M35,)),
    "pad twice": (
        lambda a: pad(pad(a, ((1, 0), (0, 0))), ((0, 0), (0, 2))),
        lambda a: pad(a, ((1, 0), (0, 2))),
        (M35,),
    ),
    "flip twice": (lambda a: eqsat.flip(eqsat.flip(a, 0), 0), lambda a: a, (M35,)),
}

REDUCTIONS: dict[str, Row] = {
    "sum twice": (lambda a: a.sum(0).sum(0), lambda a: a.sum((0, 1)), ((3, 5, 7),)),
    "sum of a sum": (lambda a, b: (a + b).sum(1), lambda a, b: a.sum(1) + b.sum(1), (M35, M35)),
    "sum of a concat": (lambda a, b: cat([a, b], 1).sum(1), lambda a, b: a.sum(1) + b.sum(1), (M35, (3, 7))),
    "maximum of a concat": (
        lambda a, b: cat([a, b], 1).max(1),
        lambda a, b: eqsat.maximum(a.max(1), b.max(1)),
        (M35, (3, 7)),
    ),
    "mean transposed": (lambda a: a.T.mean(0), lambda a: a.mean(1), (M35,)),
    "sum of a broadcast": (
        lambda a: eqsat.broadcast_to(a.reshape((3, 1)), (3, 5)).sum(1),
        lambda a: a * 5.0,
        ((3,),),
    ),
    "softmax of a shift": (lambda a, b: eqsat.softmax(a + b, -1), lambda a, b: eqsat.softmax(a, -1), (M35, (3, 1))),
    "layernorm of a shift": (
        lambda a, g, b: eqsat.layernorm(a + 1.0, g, b),
        lambda a, g, b: eqsat.layernorm(a, g, b),
        (M35, (5,), (5,)),
    ),
    "rmsnorm scaled": (
        lambda a, g: eqsat.rmsnorm(a, g * 2.0),
        lambda a, g: eqsat.rmsnorm(a, g) * 2.0,
        (M35, (5,)),
    ),
}

CONV: dict[str, Row] = {
    "sum of filters": (
        lambda x, w, v: conv(x, w) + conv(x, v),
        lambda x, w, v: conv(x, w + v),
        (IMAGE, FILTER, FILTER),
    ),
    "join output channels": (
        lambda x, w, v: cat([conv(x, w), conv(x, v)], 1),
        lambda x, w, v: conv(x, cat([w, v], 0)),
        (IMAGE, FILTER, (2, 3, 3, 3)),
    ),
    "join input channels": (
        lambda x, y, w, v: conv(x, w) + conv(y, v),
        lambda x, y, w, v: conv(cat([x, y], 1), cat([w, v], 1)),
        (IMAGE, (1, 2, 5, 7), FILTER, (4, 2, 3, 3)),
    ),
    "scale": (lambda x, w: conv(x * 3.0, w), lambda x, w: conv(x, w) * 3.0, (IMAGE, FILTER)),
    "enlarge a filter": (
        lambda x, w: conv(x, w, pads_lo=(1, 1), pads_hi=(1, 1)),
        lambda x, w: conv(x, pad(w, ((0, 0), (0, 0), (1, 1), (1, 1))), pads_lo=(2, 2), pads_hi=(2, 2)),
        (IMAGE, FILTER),
    ),
    "groups are a concat": (
        lambda x, w, y, v: cat([conv(x, w), conv(y, v)], 1),
        lambda x, w, y, v: conv(cat([x, y], 1), cat([w, v], 0), groups=2),
        ((1, 2, 5, 5), (3, 2, 3, 3), (1, 2, 5, 5), (3, 2, 3, 3)),
    ),
    "one by one is a matmul": (
        lambda x, w: conv(x, w.reshape((4, 3, 1, 1))),
        lambda x, w: (w @ x.reshape((3, 35))).reshape((1, 4, 5, 7)),
        (IMAGE, (4, 3)),
    ),
    "average pool is a conv": (
        lambda x: eqsat.avg_pool(x, (3, 3)),
        lambda x: conv(x, eqsat.ones((3, 1, 3, 3), "float64") / 9.0, groups=3),
        (IMAGE,),
    ),
    "maximum pool of a concat": (
        lambda x, y: cat([eqsat.max_pool(x, (3, 3)), eqsat.max_pool(y, (3, 3))], 1),
        lambda x, y: eqsat.max_pool(cat([x, y], 1), (3, 3)),
        (IMAGE, (1, 2, 5, 7)),
    ),
    "relu of a maximum pool": (
        lambda x: relu(eqsat.max_pool(x, (3, 3))),
        lambda x: eqsat.max_pool(relu(x), (3, 3)),
        (IMAGE,),
    ),
}

EQUAL: dict[str, Row] = {
    f"{family}: {name}": row
    for family, rows in (
        ("matmul", MATMUL),
        ("elementwise", ELEMENTWISE),
        ("movement", MOVEMENT),
        ("reductions", REDUCTIONS),
        ("conv", CONV),
    )
    for name, row in rows.items()
}

S55 = (5, 5)

DIFFERENT: dict[str, Row] = {
    "a transpose without a swap": (lambda a, b: (a @ b).T, lambda a, b: a.T @ b.T, (S55, S55)),
    "operands swapped": (lambda a, b: a @ b, lambda a, b: b @ a, (S55, S55)),
    "subtraction swapped": (lambda a, b: a - b, lambda a, b: b - a, (M35, M35)),
    "sum of a product": (lambda a, b: (a * b).sum(1), lambda a, b: a.sum(1) * b.sum(1), (M35, M35)),
    "relu of a sum": (lambda a, b: relu(a + b), lambda a, b: relu(a) + relu(b), (M35, M35)),
    "another slice": (lambda a, b: (a @ b)[:, 2:5], lambda a, b: a @ b[:, 1:4], (M35, M57)),
    "concat swapped": (lambda a, b: cat([a, b], 1), lambda a, b: cat([b, a], 1), (M35, M35)),
    "the other axis": (lambda a: a.sum(0), lambda a: a.sum(1), (S55,)),
    "maximum of a sum": (lambda a, b: (a + b).max(1), lambda a, b: a.max(1) + b.max(1), (M35, M35)),
    "a scale too many": (lambda a, b: (a * 2.0) @ (b * 2.0), lambda a, b: (a @ b) * 2.0, (M35, M57)),
    "another pad": (lambda a: pad(a, ((1, 0), (0, 0))), lambda a: pad(a, ((0, 1), (0, 0))), (M35,)),
    "another fill": (
        lambda a: pad(a, ((1, 0), (0, 0))),
        lambda a: pad(a, ((1, 0), (0, 0)), constant_values=1.0),
        (M35,),
    ),
    "less or equal": (lambda a, b: a < b, lambda a, b: a <= b, (M35, M35)),
    "root of a square without its sign": (lambda a: eqsat.sqrt(a * a), lambda a: a, (M35,)),
    "limits too far": (
        lambda a: eqsat.minimum(eqsat.maximum(a, -1.0), 1.0),
        lambda a: eqsat.maximum(eqsat.minimum(a, 1.0), -2.0),
        (M35,),
    ),
    "De Morgan halfway": (
        lambda a, b, c: eqsat.logical_not(eqsat.logical_and(a < b, b < c)),
        lambda a, b, c: eqsat.logical_and(a >= b, b >= c),
        (M35, M35, M35),
    ),
    "a tap flipped": (
        lambda x, w: conv(x, w),
        lambda x, w: conv(x, eqsat.flip(w, 3)),
        (IMAGE, FILTER),
    ),
    "another stride of padding": (
        lambda x, w: conv(x, w, pads_lo=(1, 1), pads_hi=(1, 1)),
        lambda x, w: conv(x, w, pads_lo=(2, 2), pads_hi=(0, 0)),
        (IMAGE, FILTER),
    ),
    "groups swapped": (
        lambda x, w, v: conv(x, cat([w, v], 0), groups=2),
        lambda x, w, v: conv(x, cat([v, w], 0), groups=2),
        ((1, 4, 5, 5), (3, 2, 3, 3), (3, 2, 3, 3)),
    ),
    "softmax over the other axis": (lambda a: eqsat.softmax(a, 0), lambda a: eqsat.softmax(a, 1), (S55,)),
    "exp of a product": (lambda a, b: eqsat.exp(a * b), lambda a, b: eqsat.exp(a) * eqsat.exp(b), (M35, M35)),
    "a sum too short": (lambda a: a.sum(1), lambda a: a[:, 1:].sum(1), (M35,)),
}
