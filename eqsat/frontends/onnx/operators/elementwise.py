"""ONNX operators that work element by element, with multidirectional broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from math import inf

from eqsat.base.numerics import INTS, is_float
from eqsat.errors import InputError
from eqsat.frontends.onnx.operators.node import Converter, Node, Row, broadcasting, row
from eqsat.program import composites, ops
from eqsat.program.term import Term


def _unary(name: str) -> Converter:
    return lambda node: ops.elementwise(name, node.input(0))


def _binary(name: str) -> Converter:
    return lambda node: broadcasting(name, node.input(0), node.input(1))


def _variadic(name: str) -> Converter:
    return lambda node: reduce(partial(broadcasting, name), node.all_inputs())


def _composite(build: Callable[..., Term], **defaults: float) -> Converter:
    """A composite of one tensor whose parameters are the node's attributes of those names."""
    return lambda node: build(node.input(0), **{name: node.attr(name, value) for name, value in defaults.items()})


def _mean(node: Node) -> Term:
    terms = node.all_inputs()
    total = reduce(partial(broadcasting, "add"), terms)
    return ops.div(total, ops.full_like(len(terms), total))


def _pow(node: Node) -> Term:
    """The result has the base's type; a square is a product, which rounds the same."""
    base, exponent = node.input(0), node.input(1)
    value = node.constants.value(exponent)
    if value is not None and value.size == 1 and value.reshape(-1)[0] == 2 and exponent.ndim <= base.ndim:
        return ops.mul(base, base)
    if base.dtype in INTS and is_float(exponent.dtype):
        exact = broadcasting("pow", ops.cast(base, "float64"), ops.cast(exponent, "float64"))
        return ops.cast(exact, base.dtype)
    return broadcasting("pow", base, ops.cast(exponent, base.dtype))


def _mod(node: Node) -> Term:
    """fmod=0: the sign of the divisor; fmod=1: C's fmod, the sign of the dividend."""
    a, b = node.input(0), node.input(1)
    if not node.attr("fmod", 0):
        return broadcasting("mod", a, b)
    return composites.fmod(a, b)


def _clip(node: Node) -> Term:
    """The bounds are attributes before opset 11, since then tensors of one element, of any rank."""
    if node.version < 11:
        return composites.clip(node.input(0), node.attr("min"), node.attr("max"))
    low, high = (None if bound is None else ops.reshape(bound, ()) for bound in (node.optional(1), node.optional(2)))
    return composites.clip(node.input(0), low, high)


def _gelu(node: Node) -> Term:
    return composites.gelu(node.input(0), node.attr("approximate", "none"))


def _is_nan(node: Node) -> Term:
    x = node.input(0)
    return ops.not_(ops.equal(x, x))


def _is_inf(node: Node) -> Term:
    x = node.input(0)
    signs = [(inf, node.attr("detect_positive", 1)), (-inf, node.attr("detect_negative", 1))]
    found = [ops.equal(x, ops.full_like(value, x)) for value, detect in signs if detect]
    return reduce(ops.or_, found) if found else ops.full(False, x.shape, "bool")


def _tan(node: Node) -> Term:
    x = node.input(0)
    return ops.div(ops.sin(x), ops.cos(x))


def _xor(node: Node) -> Term:
    return ops.not_(broadcasting("equal", node.input(0), node.input(1)))


def _prelu(node: Node) -> Term:
    x = node.input(0)
    slope = ops.broadcast(node.input(1), x.shape)
    zero = ops.full_like(0, x)
    return ops.where(ops.less(x, zero), ops.mul(slope, x), x)


def _dropout(node: Node) -> list[Term]:
    """At inference the input itself; the mask keeps everything."""
    x = node.input(0)
    training = node.scalar(2, False) if node.version >= 12 else False
    ratio = node.scalar(1, 0.5) if node.version >= 12 else 0.0
    if training and ratio != 0:
        raise InputError("training mode drops elements at random; export the model for inference")
    return [x, ops.full(True, x.shape, "bool")]


def _random(node: Node) -> Term:
    raise InputError("random numbers make no deterministic program; replace the node with a constant or an input")


ELEMENTWISE: dict[str, Row] = {
    "Abs": row(_unary("abs"), 6, 13),
    "Add": row(_binary("add"), 7, 13, 14),
    "And": row(_binary("and"), 7),
    "Bernoulli": row(_random, 15, 22),
    "Ceil": row(_unary("ceil"), 6, 13),
    "Clip": row(_clip, 6, 11, 12, 13),
    "Cos": row(_unary("cos"), 7, 22),
    "Div": row(_binary("div"), 7, 13, 14),
    "Dropout": row(_dropout, 7, 10, 12, 13, 22),
    "Elu": row(_composite(composites.elu, alpha=1.0), 6, 22),
    "Equal": row(_binary("equal"), 7, 11, 13, 19),
    "Erf": row(_unary("erf"), 9, 13),
    "Exp": row(_unary("exp"), 6, 13),
    "Floor": row(_unary("floor"), 6, 13),
    "Gelu": row(_gelu, 20),
    "Greater": row(_binary("greater"), 7, 9, 13),
    "GreaterOrEqual": row(_binary("greater_equal"), 12, 16),
    "HardSigmoid": row(_composite(composites.hard_sigmoid, alpha=0.2, beta=0.5), 6, 22),
    "IsInf": row(_is_inf, 10, 20),
    "IsNaN": row(_is_nan, 9, 13, 20),
    "LeakyRelu": row(_composite(composites.leaky_relu, alpha=0.01), 6, 16),
    "Less": row(_binary("less"), 7, 9, 13),
    "LessOrEqual": row(_binary("less_equal"), 12, 16),
    "Log": row(_unary("log"), 6, 13),
    "Max": row(_variadic("max"), 6, 8, 12, 13),
    "Mean": row(_mean, 6, 8, 13),
    "Min": row(_variadic("min"), 6, 8, 12, 13),
    "Mod": row(_mod, 10, 13, 28),
    "Mul": row(_binary("mul"), 7, 13, 14),
    "Multinomial": row(_random, 7, 22),
    "Neg": row(_unary("neg"), 6, 13),
    "Not": row(_unary("not"), 1),
    "Or": row(_binary("or"), 7),
    "PRelu": row(_prelu, 7, 9, 16),
    "Pow": row(_pow, 7, 12, 13, 15),
    "RandomNormal": row(_random, 1, 22),
    "RandomNormalLike": row(_random, 1, 22),
    "RandomUniform": row(_random, 1, 22),
    "RandomUniformLike": row(_random, 1, 22),
    "Reciprocal": row(_unary("reciprocal"), 6, 13),
    "Relu": row(_unary("relu"), 6, 13, 14),
    "Round": row(_unary("round"), 11, 22),
    "Selu": row(_composite(composites.selu, alpha=1.6732631921768188, gamma=1.0507010221481323), 6, 22),
    "Sigmoid": row(_unary("sigmoid"), 6, 13),
    "Sign": row(_unary("sign"), 9, 13),
    "Sin": row(_unary("sin"), 7, 22),
    "Softplus": row(_composite(composites.softplus), 1, 22),
    "Sqrt": row(_unary("sqrt"), 6, 13),
    "Sub": row(_binary("sub"), 7, 13, 14),
    "Sum": row(_variadic("add"), 6, 8, 13),
    "Tan": row(_tan, 7, 22),
    "Tanh": row(_unary("tanh"), 6, 13),
    "Xor": row(_xor, 7),
}
"""One row per operator, with the since-versions whose meaning the converter covers."""

RANDOM = frozenset(name for name, row in ELEMENTWISE.items() if row.convert is _random)
"""Operators that are refused, for no program is deterministic with them."""
