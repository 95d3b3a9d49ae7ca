"""Writes root-mean-square norms of a result as runtimes know them: over the mean of squares, with a scale.

Optimising moves a norm's scale into the weights behind it, and factors into and out of its sum of squares. Both save
arithmetic, but a runtime finds a norm by its nodes: onnxruntime 1.32 executes Pow, ReduceMean, Add, Sqrt, Div and Mul
by a vector as one operator, and none of them so where one is missing (papers/runtimes.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import numpy as np

from eqsat.errors import InputError
from eqsat.frontends.onnx.read.written import FileNode
from eqsat.frontends.onnx.write.model import least_opset
from eqsat.frontends.onnx.write.plan import plan
from eqsat.program import composites, ops
from eqsat.program.ir import Program
from eqsat.program.term import Term, rebuilt

_WHOLE = frozenset({"RMSNormalization", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"})
"""Operators that are such a norm: a model that has them gets its norms so, for they are found by their squares."""

_NEAR_ONE = 1e-6
"""Factors of a norm that differ from 1 by the rounding of their constants."""


_FLOAT32 = np.finfo(np.float32)


class _Norm(NamedTuple):
    """factor * x / sqrt(mean(x^2) + epsilon), along the last axis."""

    x: Term
    factor: float
    epsilon: float


def norms_scaled(program: Program) -> tuple[Program, list[tuple[Term, Term]]]:
    """A program of a file, up to rounding, in which the norms that the file does not have as they are have a scale.

    Returns:
        the program itself where there are none; and pairs of equal values, before and after, operands first: each
        norm and its operand.
    """
    scaled = _scaled(program)
    norms = _norms(program, scaled)
    if not norms:
        return program, []
    whole = any(isinstance(each.spec, FileNode) and each.spec.proto().op_type in _WHOLE for each in program.written)
    made: dict[Term, Term] = {}
    equal: list[tuple[Term, Term]] = []
    for term in program.terms():
        made[term] = rebuilt(term, [made[arg] for arg in term.args])
        if term in norms:
            norm = norms[term]
            made[term] = _spelled(norm, made[norm.x], scaled.get(term), whole)
            equal += [(each, made[each]) for each in (_multiple(norm.x)[1], term)]
    outputs = {name: made[term] for name, term in program.outputs.items()}
    return replace(program, outputs=outputs), list(dict.fromkeys(equal))


def _norms(program: Program, scaled: Mapping[Term, Sequence[Term]]) -> dict[Term, _Norm]:
    """The norms that the file does not have in this form. One inside of a larger operator is left out."""
    own = {result for each in program.written for result in each.results if result is not None}
    found: dict[Term, _Norm] = {}
    for term in program.terms() if own else ():
        as_read = term in own and term in scaled and own.issuperset(scaled[term])
        norm = None if as_read else _norm(term)
        if norm is not None:
            found[term] = norm
    if not found:
        return {}
    try:
        written = plan(program, least_opset(program)).forms
    except InputError:  # it has no ONNX form: writing it says so
        return {}
    return {term: norm for term, norm in found.items() if term in written and norm.x in written[term].terms()}


def _scaled(program: Program) -> dict[Term, list[Term]]:
    """Terms that are read for their products with a vector along the last axis alone, and these products."""
    readers: dict[Term, list[Term]] = {term: [] for term in program.outputs.values()}
    plain = set(program.outputs.values())
    for term in program.terms():
        for arg, other in zip(term.args, reversed(term.args), strict=True):
            readers.setdefault(arg, []).append(term)
            if term.op != "mul" or not _vector(other):
                plain.add(arg)
    return {term: found for term, found in readers.items() if term not in plain}


def _vector(term: Term) -> bool:
    bare = term.args[0] if term.op == "broadcast" else term
    return bare.op == "constant" and bare.size > 1 and bare.size == bare.shape[-1] == term.shape[-1]


def _spelled(norm: _Norm, x: Term, scaled: Sequence[Term] | None, whole: bool) -> Term:
    """The norm of x, with a scale unless it has one and needs no other."""
    square = composites.square(x) if whole else ops.elementwise("pow", x, ops.full_like(2, x))
    mean = composites.mean(square, -1, True)
    unit = composites.div(x, ops.sqrt(composites.shifted(mean, norm.epsilon)))
    if scaled and norm.factor == 1:
        return unit
    return composites.mul(unit, ops.constant(np.full(x.shape[-1], norm.factor, np.float32)))


# Finding norms


def _norm(term: Term) -> _Norm | None:
    """The norm that a term computes, if any."""
    if term.op not in ("div", "mul") or term.dtype != "float32" or not term.ndim:
        return None
    orders = (term.args,) if term.op == "div" else (term.args, term.args[::-1])
    for x, divisor in orders:
        inner = _below(divisor, x)
        root = inner if term.op == "div" else _inverse(inner) if inner is not None else None
        if root is not None and root.op == "sqrt" and (found := _of(x, root.args[0])) is not None:
            return found
    return None


def _below(term: Term, x: Term) -> Term | None:
    """What is below the broadcast of one value for each row of x to its shape."""
    if term.op != "broadcast" or term.args[0].shape != (*x.shape[:-1], 1):
        return None
    return _unshaped(term)


def _unshaped(term: Term) -> Term:
    while term.op in ("broadcast", "reshape"):
        term = term.args[0]
    return term


def _inverse(term: Term) -> Term | None:
    """The term that this one is 1 over."""
    if term.op == "rsqrt":
        return ops.sqrt(term.args[0])
    if term.op == "reciprocal":
        return _unshaped(term.args[0])
    return _unshaped(term.args[1]) if term.op == "div" and _uniform(term.args[0]) == 1 else None


def _of(x: Term, term: Term) -> _Norm | None:
    """The norm of x by the root of a term: a multiple of the sum of its squares, and a number."""
    for total, number in (term.args, term.args[::-1]) if term.op == "add" else ():
        epsilon = _uniform(number)
        if epsilon is None or epsilon < 0:
            continue
        share = _squares(total, x)
        if share is None or not _normal(share):
            continue
        share = 1.0 if abs(share - 1) < _NEAR_ONE else share
        norm = _Norm(x, 1 / sqrt(share), epsilon / share)
        if _normal(norm.factor) and (not epsilon or _normal(norm.epsilon)):
            return norm
    return None


def _normal(number: float) -> bool:
    """Whether a number is positive, and neither overflows float32 nor loses digits there. A row of zeros is divided by
    the root of epsilon, which may not become 0."""
    return float(_FLOAT32.tiny) <= number <= float(_FLOAT32.max)


def _squares(term: Term, x: Term) -> float | None:
    """The number of times that a term is the mean of the squares of x along its last axis."""
    factor, total = _multiple(_unshaped(term))
    if total.op != "reduce" or total.attr("kind") != "sum" or total.attr("axes") != (x.ndim - 1,):
        return None
    inner, product = _multiple(total.args[0])
    if product.op != "mul" or product.shape != x.shape:
        return None
    (a, left), (b, right), (c, base) = (_multiple(each) for each in (*product.args, x))
    if left is not base or right is not base or c == 0:
        return None
    return factor * inner * a * b / (c * c) * x.shape[-1]


def _multiple(term: Term) -> tuple[float, Term]:
    """A term as a number times another one."""
    factor = 1.0
    while (found := _factor(term)) is not None:
        factor, term = factor * found[0], found[1]
    return factor, term


def _factor(term: Term) -> tuple[float, Term] | None:
    """The outermost number of a product or quotient, and the rest."""
    if term.op not in ("mul", "div"):
        return None
    a, b = term.args
    if (value := _uniform(b)) is not None and value != 0:
        return (value if term.op == "mul" else 1 / value), a
    value = _uniform(a) if term.op == "mul" else None
    return None if value is None else (value, b)


def _uniform(term: Term) -> float | None:
    """The number that all elements of a term are."""
    term = _unshaped(term)
    if term.op == "full":
        return float(term.attr("value"))
    return float(term.attr("value").array.reshape(())) if term.op == "constant" and term.size == 1 else None
