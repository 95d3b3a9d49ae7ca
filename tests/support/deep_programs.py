"""Programs of any size that are deep, wide, or so shared that a walk over their trees would never end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import eqsat
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term

_N = 8


def _input(shape: tuple[int, ...] = (_N, _N)) -> Term:
    return ops.input("x", shape, "float32")


def _program(x: Term, y: Term) -> Program:
    return Program((x,), {"y": y})


def _weight(i: int, shape: tuple[int, ...] = (_N, _N)) -> Term:
    return ops.constant(np.random.default_rng(i).random(shape, dtype=np.float32) / np.float32(shape[0]))


def _rows(x: Term, start: int, stop: int) -> Term:
    return ops.slice_(x, (start,) + (0,) * (x.ndim - 1), (stop, *x.shape[1:]))


def pointwise(n: int) -> Program:
    """A chain of maps: sin, tanh, sin, ..."""
    x = y = _input()
    for i in range(n):
        y = (ops.sin, ops.tanh)[i % 2](y)
    return _program(x, y)


def mixed_pointwise(n: int) -> Program:
    """A chain that adds and multiplies by its input in turn."""
    x = y = _input()
    for i in range(n):
        y = (ops.add, ops.mul)[i % 2](ops.tanh(y), x)
    return _program(x, y)


def doubled(n: int) -> Program:
    """x + x, n times: 2^n leaves as a tree."""
    x = y = _input()
    for _ in range(n):
        y = ops.add(y, y)
    return _program(x, y)


def squared(n: int) -> Program:
    """tanh(x) * tanh(x), n times."""
    x = y = _input()
    for _ in range(n):
        t = ops.tanh(y)
        y = ops.mul(t, t)
    return _program(x, y)


def diamonds(n: int) -> Program:
    """x = sin(x) + tanh(x), n times."""
    x = y = _input()
    for _ in range(n):
        y = ops.add(ops.sin(y), ops.tanh(y))
    return _program(x, y)


def products(n: int) -> Program:
    """A chain of products by n different weights, with a nonlinear map between."""
    x = y = _input()
    for i in range(n):
        y = ops.tanh(ops.matmul(y, _weight(i)))
    return _program(x, y)


def linear_products(n: int) -> Program:
    """A chain of products by n different weights, and nothing between."""
    x = y = _input()
    for i in range(n):
        y = ops.matmul(y, _weight(i))
    return _program(x, y)


def input_products(n: int) -> Program:
    """A chain of products of inputs."""
    x, w = _input(), ops.input("w", (_N, _N), "float32")
    y = x
    for _ in range(n):
        y = ops.matmul(y, w)
    return Program((x, w), {"y": y})


def residual(n: int) -> Program:
    """A deep residual net: x + tanh(x @ w) @ v."""
    x = y = _input()
    for i in range(n):
        y = ops.add(y, ops.matmul(ops.tanh(ops.matmul(y, _weight(2 * i))), _weight(2 * i + 1)))
    return _program(x, y)


def views(n: int) -> Program:
    """Alternating reshapes and transposes."""
    x = y = _input((4, 6))
    for i in range(n):
        y = ops.transpose(y, (1, 0)) if i % 2 else ops.reshape(y, (4, 6))
    return _program(x, y)


def viewed_maps(n: int) -> Program:
    """Alternating transposes and maps."""
    x = y = _input((4, 6))
    for i in range(n):
        y = ops.transpose(y, (1, 0)) if i % 2 else ops.tanh(y)
    return _program(x, y)


def scrambled(n: int) -> Program:
    """tanh(x) plus a reshaped transpose of it, n times: as a tree of indices, 2^n of them."""
    x = y = _input((4, 6))
    for _ in range(n):
        t = ops.tanh(y)
        y = ops.add(t, ops.reshape(ops.transpose(t, (1, 0)), (4, 6)))
    return _program(x, y)


def concat_doubled(n: int) -> Program:
    """A concatenation of a value with itself, n times, of which a few elements are read."""
    x = y = _input((4,))
    for _ in range(n):
        y = ops.concat([y, y], 0)
    return _program(x, ops.tanh(_rows(y, 3, 11)))


def concat_slices(n: int) -> Program:
    """Concatenations and slices in turn."""
    x = y = _input()
    for _ in range(n):
        y = _rows(ops.concat([ops.tanh(y), y], 0), 3, 3 + _N)
    return _program(x, y)


def fan_out(n: int) -> Program:
    """One value, read by n maps, all of them outputs."""
    x = _input()
    h = ops.tanh(x)
    return Program((x,), {f"y{i}": ops.mul(h, ops.full(i + 2.0, h.shape, "float32")) for i in range(n)})


def fan_in_concat(n: int) -> Program:
    """n maps, concatenated."""
    x = _input()
    return _program(x, ops.concat([ops.mul(x, ops.full(i + 2.0, x.shape, "float32")) for i in range(n)], 0))


def fan_in_sum(n: int) -> Program:
    """n maps, summed."""
    x = _input()
    y = ops.tanh(x)
    for i in range(n):
        y = ops.add(y, ops.sin(ops.mul(x, ops.full(i + 2.0, x.shape, "float32"))))
    return _program(x, y)


def split(n: int) -> Program:
    """An array split into n, each part mapped."""
    x = ops.input("x", (n, 4), "float32")
    parts = [_rows(x, i, i + 1) for i in range(n)]
    return Program((x,), {f"y{i}": ops.tanh(part) for i, part in enumerate(parts)})


def split_sum(n: int) -> Program:
    """An array split into n, the parts mapped and summed."""
    x = ops.input("x", (n, 4), "float32")
    y = None
    for i in range(n):
        part = _rows(x, i, i + 1)
        y = part if y is None else ops.add(ops.tanh(y), part)
    assert y is not None
    return _program(x, y)


def towers(n: int) -> Program:
    """n products of one input, by different weights."""
    x = _input()
    return Program((x,), {f"y{i}": ops.matmul(x, _weight(i)) for i in range(n)})


def recurrent(n: int) -> Program:
    """An unrolled recurrent network over n steps."""
    xs = ops.input("x", (n, 1, _N), "float32")
    w, u = _weight(0), _weight(1)
    h = ops.input("h", (1, _N), "float32")
    h0, states = h, []
    for i in range(n):
        step = ops.reshape(_rows(xs, i, i + 1), (1, _N))
        h = ops.tanh(ops.add(ops.matmul(step, w), ops.matmul(h, u)))
        states.append(h)
    return Program((xs, h0), {"y": ops.concat(states, 0)})


def softmaxes(n: int) -> Program:
    """A chain of softmaxes."""
    y = eqsat.trace(lambda x: _repeat(eqsat.softmax, x, n), eqsat.spec((_N, _N)))
    return y


def _repeat(function: Callable[..., object], x: object, n: int) -> object:
    for _ in range(n):
        x = function(x)
    return x


def constant_chain(n: int) -> Program:
    """A chain of n maps of a constant, added to the input."""
    x, c = _input(), _weight(0)
    for i in range(n):
        c = (ops.sin, ops.tanh)[i % 2](c)
    return _program(x, ops.add(x, c))


def dense(n: int) -> Program:
    """Each layer reads the sum of its last eight (as in dense nets)."""
    x = _input()
    last = [x]
    for i in range(n):
        y = ops.tanh(ops.mul(last[-1], ops.full(i + 2.0, x.shape, "float32")))
        for other in last[-8:-1]:
            y = ops.add(y, other)
        last.append(y)
    return _program(x, last[-1])


def skip_to_input(n: int) -> Program:
    """Products with a skip from the first value to every layer."""
    x = y = _input()
    for i in range(n):
        y = ops.tanh(ops.add(ops.matmul(y, _weight(i)), x))
    return _program(x, y)


def u_net(n: int) -> Program:
    """n layers down and n up, each up reading its counterpart."""
    x = y = _input()
    down = []
    for i in range(n):
        y = ops.tanh(ops.matmul(y, _weight(i)))
        down.append(y)
    for i, other in enumerate(reversed(down)):
        y = ops.tanh(ops.add(ops.matmul(y, _weight(n + i)), other))
    return _program(x, y)


def reduced(n: int) -> Program:
    """A chain of x - sum(x)."""
    x = y = _input()
    for _ in range(n):
        total = ops.reduce("sum", y, (1,), True)
        y = ops.tanh(ops.sub(y, ops.broadcast(total, y.shape)))
    return _program(x, y)


SHAPES: dict[str, Callable[[int], Program]] = {
    f.__name__: f
    for f in (
        pointwise, mixed_pointwise, doubled, squared, diamonds, products, linear_products, input_products, residual,
        views, viewed_maps, scrambled, concat_doubled, concat_slices, fan_out, fan_in_concat, fan_in_sum, split,
        split_sum, towers, recurrent, softmaxes, constant_chain, dense, skip_to_input, u_net, reduced,
    )
}  # fmt: skip
