"""ONNX operators that work element by element, with multidirectional broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from math import inf

import numpy as np

from eqsat.base.numerics import Array, dtype_name, is_float, np_dtype
from eqsat.errors import InputError
from eqsat.frontends.onnx.operators.node import Converter, Node, Row, of_floats, of_operands, row
from eqsat.frontends.terms.declined import Declined
from eqsat.program import composites, ops
from eqsat.program.composites import broadcasting
from eqsat.program.term import Term

SAME: dict[str, tuple[str, *tuple[int, ...]]] = {
    "abs": ("Abs", 6, 13),
    "add": ("Add", 7, 13, 14),
    "and": ("And", 7),
    "ceil": ("Ceil", 6, 13),
    "cos": ("Cos", 7, 22),
    "div": ("Div", 7, 13, 14),
    "equal": ("Equal", 7, 11, 13, 19),
    "erf": ("Erf", 9, 13),
    "exp": ("Exp", 6, 13),
    "floor": ("Floor", 6, 13),
    "greater": ("Greater", 7, 9, 13),
    "greater_equal": ("GreaterOrEqual", 12, 16),
    "less": ("Less", 7, 9, 13),
    "less_equal": ("LessOrEqual", 12, 16),
    "log": ("Log", 6, 13),
    "mul": ("Mul", 7, 13, 14),
    "neg": ("Neg", 6, 13),
    "not": ("Not", 1),
    "or": ("Or", 7),
    "reciprocal": ("Reciprocal", 6, 13),
    "round": ("Round", 11, 22),
    "sigmoid": ("Sigmoid", 6, 13),
    "sign": ("Sign", 9, 13),
    "sin": ("Sin", 7, 22),
    "sqrt": ("Sqrt", 6, 13),
    "sub": ("Sub", 7, 13, 14),
    "tanh": ("Tanh", 6, 13),
}
"""Operators of programs that are one ONNX operator, to read and to write: its name, and its since-versions."""


ACTIVATIONS: dict[str, Callable[..., Term]] = {
    "Elu": composites.elu,
    "HardSigmoid": composites.hard_sigmoid,
    "LeakyRelu": composites.leaky_relu,
    "Relu": ops.relu,
    "Sigmoid": ops.sigmoid,
    "Softplus": composites.softplus,
    "Tanh": ops.tanh,
}
"""Functions that layers apply by name."""

PARAMETERS = {"Elu": {"alpha": 1.0}, "HardSigmoid": {"alpha": 0.2, "beta": 0.5}, "LeakyRelu": {"alpha": 0.01}}
"""What some of them take besides their operand, in this order, with defaults."""


def _same(name: str) -> Converter:
    return of_operands(partial(broadcasting, name))


def _folded(name: str) -> Converter:
    """A binary operator of any number of operands, from the first to the last."""
    return of_operands(lambda *terms: reduce(partial(broadcasting, name), terms))


def _composite(build: Callable[..., Term], **defaults: float) -> Converter:
    """A composite of one tensor whose parameters are the node's attributes of those names."""
    return lambda node: build(node.input(0), **{name: node.attr(name, value) for name, value in defaults.items()})


def _mean(*terms: Term) -> Term:
    total = reduce(partial(broadcasting, "add"), terms)
    return ops.div(total, ops.full_like(len(terms), total))


def _pow(node: Node) -> Term:
    """The result has the base's type; a square is a product, which rounds the same."""
    base, exponent = node.input(0), node.input(1)
    value = node.constants.value(exponent)
    if value is not None and value.size == 1 and value.reshape(-1)[0] == 2 and exponent.ndim <= base.ndim:
        return ops.mul(base, base)
    known = value is not None and _fits(value, base.dtype)
    dtype = base.dtype if known else _power_dtype(base.dtype, exponent.dtype)
    return ops.cast(broadcasting("pow", ops.cast(base, dtype), ops.cast(exponent, dtype)), base.dtype)


def _fits(exponents: Array, dtype: str) -> bool:
    """Whether a type holds all of these exponents."""
    if is_float(dtype_name(exponents.dtype)) and not is_float(dtype):
        return False
    with np.errstate(all="ignore"):
        return bool(np.all(exponents.astype(np_dtype(dtype)).astype(exponents.dtype) == exponents))


def _power_dtype(base: str, exponent: str) -> str:
    """The type to compute a power in: the first that holds both, as in onnxruntime and the standard's reference. The
    parity of an exponent, which decides about a sign, is lost where it is rounded to the base's type."""
    operands = np_dtype(base), np_dtype(exponent)
    types = (base, "int64", "float32", "float64")
    return next((t for t in types if all(np.can_cast(each, np_dtype(t)) for each in operands)), "float64")


def _mod(node: Node) -> Term:
    """fmod=0: the sign of the divisor; fmod=1: C's fmod, the sign of the dividend."""
    a, b = node.input(0), node.input(1)
    return composites.fmod(a, b) if node.attr("fmod", 0) else broadcasting("mod", a, b)


def _clip(node: Node) -> Term:
    """The bounds are attributes before opset 11, since then tensors of one element, of any rank."""
    if node.version < 11:
        return composites.clip(node.input(0), node.attr("min"), node.attr("max"))
    low, high = (None if bound is None else ops.reshape(bound, ()) for bound in (node.optional(1), node.optional(2)))
    return composites.clip(node.input(0), low, high)


def _is_inf(node: Node) -> Term:
    x = node.input(0)
    signs = [(inf, node.attr("detect_positive", 1)), (-inf, node.attr("detect_negative", 1))]
    found = [ops.equal(x, ops.full_like(value, x)) for value, detect in signs if detect]
    return reduce(ops.or_, found) if found else ops.full(False, x.shape, "bool")


def _prelu(x: Term, slope: Term) -> Term:
    negative = ops.less(x, ops.full_like(0, x))
    return ops.where(negative, ops.mul(ops.broadcast(slope, x.shape), x), x)


def _dropout(node: Node) -> list[Term]:
    """At inference the input itself; the mask keeps everything. Ratio and training mode are inputs since opset 12."""
    x = node.input(0)
    if node.version >= 12 and not _known_zero(node, 2, False) and not _known_zero(node, 1, 0.5):
        raise InputError("training mode drops elements at random; export the model for inference, its mode constant")
    return [x, ops.full(True, x.shape, "bool")]


def _known_zero(node: Node, index: int, default: float) -> bool:
    try:
        return node.scalar(index, default) == 0
    except Declined:
        return False


def _random(node: Node) -> Term:
    raise no_random()


def no_random() -> InputError:
    """The error for an operator of `RANDOM`."""
    return InputError("random numbers make no deterministic program; replace the node with a constant or an input")


ELEMENTWISE: dict[str, Row] = {
    **{name: row(_same(op), *since) for op, (name, *since) in SAME.items()},
    "Bernoulli": row(_random, 15, 22),
    "Celu": row(_composite(composites.celu, alpha=1.0), 12, 28),
    "Clip": row(_clip, 6, 11, 12, 13),
    "Dropout": row(_dropout, 7, 10, 12, 13, 22),
    "Elu": row(_composite(composites.elu, **PARAMETERS["Elu"]), 6, 22),
    "Erf": row(of_floats(_same("erf")), *SAME["erf"][1:], unless="integers"),
    "Gelu": row(lambda node: composites.gelu(node.input(0), node.attr("approximate", "none")), 20),
    "HardSigmoid": row(_composite(composites.hard_sigmoid, **PARAMETERS["HardSigmoid"]), 6, 22),
    "IsInf": row(_is_inf, 10, 20),
    "IsNaN": row(of_operands(lambda x: composites.not_equal(x, x)), 9, 13, 20),
    "LeakyRelu": row(_composite(composites.leaky_relu, **PARAMETERS["LeakyRelu"]), 6, 16),
    "Max": row(_folded("max"), 6, 8, 12, 13),
    "Mean": row(of_operands(_mean), 6, 8, 13),
    "Min": row(_folded("min"), 6, 8, 12, 13),
    "Mod": row(_mod, 10, 13, 28),
    "Multinomial": row(_random, 7, 22),
    "PRelu": row(of_operands(_prelu), 7, 9, 16),
    "Pow": row(_pow, 7, 12, 13, 15),
    "RandomNormal": row(_random, 1, 22),
    "RandomNormalLike": row(_random, 1, 22),
    "RandomUniform": row(_random, 1, 22),
    "RandomUniformLike": row(_random, 1, 22),
    "Relu": row(_same("relu"), 6, 13, 14),
    "Selu": row(_composite(composites.selu, alpha=1.6732631921768188, gamma=1.0507010221481323), 6, 22),
    "Softplus": row(of_operands(composites.softplus), 1, 22),
    "Sum": row(_folded("add"), 6, 8, 13),
    "Tan": row(of_operands(lambda x: ops.div(ops.sin(x), ops.cos(x))), 7, 22),
    "Xor": row(of_operands(composites.not_equal), 7),
}
"""One row per operator, with the since-versions whose meaning the converter covers."""

RANDOM = frozenset(name for name, row in ELEMENTWISE.items() if row.convert is _random)
"""Operators that are refused, for no program is deterministic with them."""
