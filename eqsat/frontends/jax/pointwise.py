"""JAX primitives that work element by element. Operands have one shape; a number may stand for a whole array."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

from eqsat.base.numerics import INTS, dtype_name, is_float
from eqsat.frontends.jax.row import Builder
from eqsat.frontends.terms.bits import bitwise, bitwise_not
from eqsat.frontends.terms.declined import Declined
from eqsat.program import composites, ops
from eqsat.program.composites import broadcasting
from eqsat.program.term import Term

_NEAREST_EVEN = 1
"""`jax.lax.RoundingMethod.TO_NEAREST_EVEN`; the other one rounds halves away from zero."""


def _unary(name: str) -> Builder:
    return lambda x: ops.elementwise(name, x)


def _binary(name: str) -> Builder:
    return partial(broadcasting, name)


def _round(x: Term, *, rounding_method: Any) -> Term:
    if int(rounding_method) == _NEAREST_EVEN:
        return ops.round_(x)
    size = ops.abs_(x)
    below = ops.floor(size)
    far = ops.greater_equal(ops.sub(size, below), ops.full_like(0.5, x))
    return ops.mul(ops.sign(x), ops.where(far, composites.shifted(below, 1.0), below))


def _integer_pow(x: Term, *, y: int) -> Term:
    """Repeated squares, as XLA computes it."""
    if y < 0 and x.dtype in INTS:
        raise Declined("a negative power of integers")
    found, square, left = None, x, abs(y)
    while left:
        if left & 1:
            found = square if found is None else ops.mul(found, square)
        left >>= 1
        square = composites.square(square) if left else square
    if found is None:
        return ops.full_like(1, x)
    return ops.reciprocal(found) if y < 0 else found


def _select(which: Term, *cases: Term) -> Term:
    """The case of this number, for each element; of two cases the second where `which` is true."""
    if which.dtype == "bool":
        return broadcasting("where", which, cases[1], cases[0]) if len(cases) == 2 else cases[0]
    found = cases[-1]
    for number in reversed(range(len(cases) - 1)):
        here = ops.less_equal(which, ops.full_like(number, which))
        found = broadcasting("where", here, cases[number], found)
    return found


def _integral(name: str) -> Builder:
    """A function that rounds to integers: integers stay as they are."""
    return lambda x: ops.elementwise(name, x) if is_float(x.dtype) else x


def _same(*xs: Term, **places: Any) -> list[Term]:
    """The parameters say where results lie, and what they are called."""
    return list(xs)


POINTWISE: dict[str, Builder] = {
    **{name: _unary(name) for name in ("neg", "abs", "sign", "sqrt", "rsqrt", "exp", "log", "log1p", "erf", "tanh",
                                       "sin", "cos")},
    **{name: _integral(name) for name in ("floor", "ceil")},
    **{name: _binary(name) for name in ("add", "sub", "mul", "div", "pow", "max", "min")},
    **{name: bitwise(name) for name in ("and", "or", "xor")},
    "add_any": _binary("add"),
    "clamp": lambda low, x, high: composites.clip(x, low, high),
    "convert_element_type": lambda x, *, new_dtype: ops.cast(x, dtype_name(new_dtype)),
    "eq": _binary("equal"),
    "erfc": lambda x: ops.sub(ops.full_like(1, x), ops.erf(x)),
    "exp2": lambda x: ops.pow_(ops.full_like(2, x), x),
    "expm1": lambda x: composites.shifted(ops.exp(x), -1.0),
    "ge": _binary("greater_equal"),
    "gt": _binary("greater"),
    "integer_pow": _integer_pow,
    "is_finite": lambda x: ops.less(ops.abs_(x), ops.full_like(inf, x)),
    "le": _binary("less_equal"),
    "logistic": _unary("sigmoid"),
    "lt": _binary("less"),
    "ne": composites.not_equal,
    "not": bitwise_not,
    "rem": composites.fmod,
    "round": _round,
    "select_n": _select,
    "square": composites.square,
    "tan": lambda x: ops.div(ops.sin(x), ops.cos(x)),
    **dict.fromkeys(("copy", "device_put", "name", "optimization_barrier", "sharding_constraint", "stop_gradient"),
                    _same),
}  # fmt: skip
