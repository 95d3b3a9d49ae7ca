"""ATen operators that work element by element, with broadcasting and promotion of element types."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log
from typing import Any

from eqsat.base.numerics import INTS, is_float
from eqsat.frontends.terms.bits import bitwise, bitwise_not
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.torch.operators.row import Row, as_term
from eqsat.frontends.torch.operators.tensors import name_of
from eqsat.program import composites, ops
from eqsat.program.composites import broadcasting
from eqsat.program.term import Term


def _unary(name: str) -> Callable[..., Term]:
    return lambda self: ops.elementwise(name, self)


def _integral(name: str) -> Callable[..., Term]:
    """A function that rounds to integers: integers stay as they are."""
    return lambda self: self if self.dtype in INTS else ops.elementwise(name, self)


def _sign(self: Term) -> Term:
    """NaN has the sign 0 in torch."""
    found = ops.sign(self)
    return ops.where(ops.equal(self, self), found, ops.full_like(0, self)) if is_float(self.dtype) else found


def _binary(name: str) -> Callable[..., Term]:
    return lambda self, other: broadcasting(name, self, other)


def _scaled_by(other: Term, alpha: float) -> Term:
    return other if alpha == 1 else ops.mul(other, ops.broadcast(as_term(alpha, other.dtype), other.shape))


def _div_mode(self: Term, other: Term, rounding_mode: str | None) -> Term:
    """Integers, toward zero or down; torch rounds quotients of floats by a procedure of its own."""
    if self.dtype not in INTS or rounding_mode is None:
        raise Declined("a rounded quotient of floats, or an exact one of integers")
    return (composites.floor_div if rounding_mode == "floor" else composites.div)(self, other)


def _pow(self: Term, exponent: Term) -> Term:
    """Squares and roots by their own operators, as torch computes them."""
    value = exponent.attr("value") if exponent.op == "full" else None
    if value == 2:
        return composites.square(self)
    if value in (0.5, -0.5) and is_float(self.dtype):
        return ops.sqrt(self) if value > 0 else ops.rsqrt(self)
    return broadcasting("pow", self, exponent)


def _logical(name: str) -> Callable[..., Term]:
    return lambda self, other: broadcasting(name, ops.cast(self, "bool"), ops.cast(other, "bool"))


def _not_equal(self: Term, other: Term) -> Term:
    return composites.not_equal(self, other)


def _clamp(self: Term, min: Term | None = None, max: Term | None = None) -> Term:
    return composites.clip(self, min, max)


def _where(condition: Term, self: Term, other: Term) -> Term:
    return broadcasting("where", ops.cast(condition, "bool"), self, other)


def _elu(self: Term, alpha: float, scale: float, input_scale: float) -> Term:
    negative = composites.scaled(composites.shifted(ops.exp(composites.scaled(self, input_scale)), -1.0), alpha)
    found = ops.where(ops.greater(self, ops.full_like(0, self)), self, negative)
    return composites.scaled(found, scale)


def _log(base: float) -> Callable[..., Term]:
    return lambda self: composites.scaled(ops.log(self), 1 / log(base))


def _trunc(self: Term) -> Term:
    return ops.mul(ops.sign(self), ops.floor(ops.abs_(self))) if is_float(self.dtype) else self


def _is_inf(self: Term) -> Term:
    if not is_float(self.dtype):
        return ops.full(False, self.shape, "bool")
    return ops.equal(ops.abs_(self), ops.full_like(inf, self))


def _to_copy(self: Term, dtype: Any) -> Term:
    return self if dtype is None else ops.cast(self, name_of(dtype))


_ONE, _TWO = ("self",), ("self", "other")
_PAIRS = {
    "add": lambda self, other, alpha: composites.add(self, _scaled_by(other, alpha)),
    "sub": lambda self, other, alpha: composites.sub(self, _scaled_by(other, alpha)),
    "rsub": lambda self, other, alpha: composites.sub(other, _scaled_by(self, alpha)),
    "mul": lambda self, other: broadcasting("and" if self.dtype == "bool" else "mul", self, other),
    "fmod": lambda self, other: composites.fmod(self, other),
    "remainder": _binary("mod"),
}
_COMPARISONS = {
    "eq": _binary("equal"), "ne": _not_equal, "lt": _binary("less"), "le": _binary("less_equal"),
    "gt": _binary("greater"), "ge": _binary("greater_equal"),
}  # fmt: skip
_BITS = ("and", "or", "xor")


POINTWISE: dict[str, Row] = {
    **{f"{name}.default": Row(_unary(name), _ONE, floats=True)
       for name in ("sqrt", "rsqrt", "reciprocal", "exp", "log", "log1p", "erf", "tanh", "sigmoid", "sin", "cos")},
    **{f"{name}.default": Row(_unary(name)) for name in ("neg", "abs", "relu")},
    "sign.default": Row(_sign),
    **{f"{name}.default": Row(_integral(name)) for name in ("floor", "ceil", "round")},
    **{f"{name}.{kind}": Row(build, _TWO) for name, build in (_PAIRS | _COMPARISONS).items()
       for kind in ("Tensor", "Scalar")},
    **{f"div.{kind}": Row(_binary("div"), _TWO, floats=True) for kind in ("Tensor", "Scalar")},
    **{f"div.{kind}_mode": Row(_div_mode, _TWO) for kind in ("Tensor", "Scalar")},
    **{f"pow.{how}": Row(_pow, ("self", "exponent")) for how in ("Tensor_Scalar", "Tensor_Tensor", "Scalar")},
    "maximum.default": Row(_binary("max"), _TWO),
    "minimum.default": Row(_binary("min"), _TWO),
    "logical_not.default": Row(lambda self: ops.not_(ops.cast(self, "bool"))),
    "logical_and.default": Row(_logical("and")),
    "logical_or.default": Row(_logical("or")),
    "logical_xor.default": Row(lambda self, other: _not_equal(ops.cast(self, "bool"), ops.cast(other, "bool"))),
    **{f"bitwise_{name}.{kind}": Row(bitwise(name), _TWO) for name in _BITS for kind in ("Tensor", "Scalar")},
    "bitwise_not.default": Row(bitwise_not),
    **{f"clamp.{how}": Row(_clamp, ("self", "min", "max")) for how in ("default", "Tensor")},
    "clamp_min.default": Row(_clamp, ("self", "min")),
    "clamp_max.default": Row(_clamp, ("self", "max")),
    "exp2.default": Row(lambda self: ops.pow_(ops.full_like(2, self), self), _ONE, floats=True),
    "log2.default": Row(_log(2), _ONE, floats=True),
    "log10.default": Row(_log(10), _ONE, floats=True),
    "trunc.default": Row(_trunc),
    "hardtanh.default": Row(lambda self, min_val, max_val: composites.clip(self, min_val, max_val)),
    "where.self": Row(_where, _TWO),
    "elu.default": Row(_elu, _ONE, floats=True),
    "leaky_relu.default": Row(lambda self, negative_slope: composites.leaky_relu(self, negative_slope)),
    "gelu.default": Row(lambda self, approximate: composites.gelu(self, approximate)),
    "silu.default": Row(lambda self: composites.silu(self)),
    "isnan.default": Row(lambda self: _not_equal(self, self)),
    "isinf.default": Row(_is_inf),
    "_to_copy.default": Row(_to_copy),
    **{f"{name}.default": Row(lambda self: self)
       for name in ("alias", "clone", "detach", "lift_fresh_copy", "contiguous")},
}  # fmt: skip
