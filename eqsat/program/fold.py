"""Constant expressions of a program, computed ahead of time in their own types, as a runtime would.

Every operator runs by NumPy in its own dtype and in the order of the program (`Program.run`), so that the bits are
those of the source. NumPy decides for programs from ONNX too, where another runtime may round a logarithm to the other
neighbour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import pack

import numpy as np

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import COMPARE, ELEMENTWISE, FLOATS, itemsize
from eqsat.program import ops
from eqsat.program.ir import Program, evaluated
from eqsat.program.sizes import FOLDED_WORK, READ_WORK, Budget, stored_elements, takes_memory, work
from eqsat.program.term import ConstArray, Shape, Term, distinguish, make, named, rebuilt, topological

LIMIT = 1 << 26
"""Elements beyond which nothing is folded, nor anything that is computed from it: 256 MiB in float32."""

WORK = 10_000_000_000
"""FLOPs that folding a source may take in all: fractions of a second. What follows stays as it was written."""

_KEPT = frozenset({"constant", "full", "iota", "broadcast"})
"""Constant terms that stay: they cost nothing to hold, and folding a broadcast would only make it larger."""

_MOVES = frozenset({"concat", "pad"})
"""Operators that copy elements and compute nothing, besides views: the e-graph sees through them."""

ADDING = frozenset({"matmul", "conv", "pool", "reduce", "cumsum"})
"""Operators that add up: in another order, their last bits are others."""

_JUMPS = frozenset({"floor", "ceil", "round", "sign", "mod", "cast", "reduce", *COMPARE})
"""Operators that may turn the last bit of a float into another number."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A program whose constants are final.

    Attributes:
        program: over the values of `computed`.
        before: over their terms.
        computed: the largest terms that were folded, operands first.
        values: what they became.
    """

    program: Program
    before: Program
    computed: tuple[Term, ...]
    values: tuple[Term, ...] = ()


def fold_source(program: Program, exact: bool = False) -> Folded:
    """The program with its constant expressions computed, bit by bit as `Program.run` computes them.

    An elementwise operator of broadcasts becomes the broadcast of one. Left as they are: data movement, and a result
    that takes more bytes than the constants that it is computed from, since the program may be cheaper without it (a
    product of two thin matrices), unless it decides something by the last bit of a float (rounded to an integer,
    compared). With `exact` only movement stays: nothing could be re-associated.
    """
    written: dict[Term, Term] = {}
    narrowed = _narrowed(program, written)
    needed = _needed(narrowed, _foldable(narrowed, exact))
    if not needed:
        return Folded(narrowed, narrowed, ())
    computed = evaluated(_in_order(needed, written), {})
    values = {term: _constant(value, term) for term, value in zip(needed, computed, strict=True)}
    return Folded(_substituted(narrowed, values), narrowed, tuple(needed), tuple(values.values()))


def fold_constants(
    program: Program, inside: Sequence[Term] = (), source: Program | None = None
) -> tuple[Program, list[Term]]:
    """The program with every subterm of constants evaluated, broadcasts, views and pads of the source aside: what
    lifting left.

    What would take much memory or work (`eqsat.program.sizes`) stays, and so does anything that is computed from it.

    Returns:
        the program, and what became of the terms `inside` it.
    """
    own = source.terms() if source else []
    views = {term for term in own if term.op == "pad" or ops.row(term.op).view}
    folded: dict[Term, Term] = {}
    constant: dict[Term, bool] = {}
    order = topological([*program.outputs.values(), *inside])
    budget = Budget(FOLDED_WORK, stored_elements(order))
    for term in order:
        over = rebuilt(term, [folded[a] for a in term.args])
        held = over.op in _KEPT or over in views
        known = all(constant[a] for a in over.args)
        computed = not held and known and _computable(over) and budget.spend(work(over))
        folded[term] = _computed(over) if computed else over
        constant[folded[term]] = known and (held or folded[term] is not over)
    outputs = {name: folded[term] for name, term in program.outputs.items()}
    return Program(program.inputs, outputs), [folded[term] for term in inside]


def _computable(term: Term) -> bool:
    """Whether a term over constants may be computed ahead of time."""
    varies = not term.args or term.op == "opaque"
    return not varies and not takes_memory(term) and ops.row(term.op).flops(term) <= FOLDED_WORK


def _computed(term: Term) -> Term:
    """The constant that a term computes. If it is large, its digest is that of the computation: to read the values
    takes longer than to compute most."""
    own = np.ascontiguousarray(evaluated([term], {})[0])
    if own.base is None:
        own.flags.writeable = False  # nobody else holds it, so that it need not be copied
    constant = ConstArray(own.reshape(term.shape))
    distinguish(constant.array, lambda: _name(term))
    return ops.constant(constant.array)


def _name(term: Term) -> str:
    names: dict[Term, str] = {}
    for each in operands_first([term], names):
        # The bits of floats: NaN is written alike with either sign.
        how = [pack("d", v) if isinstance(v, float) else v for _, v in each.attrs]
        if each.op == "constant":
            how = [each.attr("value").digest]
        names[each] = named(f"{each.op} {each.shape} {each.dtype} {how} {[names[a] for a in each.args]}")
    return names[term]


def _constant(value: np.ndarray, term: Term) -> Term:
    # Contiguous arrays have a dimension at least: a scalar takes its shape back.
    return ops.constant(np.ascontiguousarray(value).reshape(term.shape))


# Elementwise operators of broadcasts


def _narrowed(program: Program, written: dict[Term, Term]) -> Program:
    """The program with elementwise operators of constants computed before these are broadcast, and not after.

    `written` gets, for each operator that adds up constants, its term in the program as it was.
    """
    made: dict[Term, Term] = {}
    constant: dict[Term, bool] = {}
    for term in program.terms():
        constant[term] = _never_varies(term, constant)
        made[term] = rebuilt(term, [made[a] for a in term.args])
        if constant[term] and made[term].args and (term.op in ELEMENTWISE or term.op in ("where", "cast")):
            made[term] = _narrow(made[term])
        elif constant[term] and term.op in ADDING:
            written[made[term]] = term
    return _with_names(program, made)


def _narrow(term: Term) -> Term:
    least = tuple(max(ns) for ns in zip(*(_least_shape(a) for a in term.args), strict=True))
    if least == term.shape or not term.size:
        return term
    narrow = make(term.op, *(_at_shape(a, least) for a in term.args), **dict(term.attrs))
    return ops.broadcast(narrow, term.shape)


def _least_shape(term: Term) -> Shape:
    """The dims of a term, 1 where it repeats itself for being a broadcast."""
    if term.op == "full":
        return (1,) * term.ndim
    if term.op != "broadcast":
        return term.shape
    inner = term.args[0].shape
    return (1,) * (term.ndim - len(inner)) + inner


def _at_shape(term: Term, shape: Shape) -> Term:
    """A term of a larger shape that repeats itself along the axes where `shape` has 1."""
    if term.op == "full":
        return ops.full(term.attr("value"), shape, term.dtype)
    if term.op != "broadcast":
        return term
    return ops.broadcast(ops.reshape(term.args[0], _least_shape(term)), shape)


def _in_order(needed: Sequence[Term], written: Mapping[Term, Term]) -> list[Term]:
    """Terms with what adds up as it is written: NumPy's order depends on how operands lie in memory.

    Where that is too much work, all stays as it is.
    """
    made: dict[Term, Term] = {}
    for term in topological(needed):
        made[term] = written.get(term) or rebuilt(term, [made[a] for a in term.args])
    found = [made[term] for term in needed]
    order = topological(found)
    budget = Budget(READ_WORK, stored_elements(order))
    few = sum(ops.row(t.op).flops(t) for t in order) <= WORK and not any(map(takes_memory, order))
    return found if few and budget.spend(sum(map(work, order))) else list(needed)


# What is folded


def _foldable(program: Program, exact: bool) -> set[Term]:
    """Terms of constants that compute, and whose values may take their place."""
    found: set[Term] = set()
    bytes_read: dict[Term, int] = {}
    constant: dict[Term, bool] = {}
    spent = 0
    budget = Budget(READ_WORK, stored_elements(program.terms()))
    for term in program.terms():
        spent += ops.row(term.op).flops(term) if _never_varies(term, constant) else 0
        small = term.size <= LIMIT and spent <= WORK
        constant[term] = _never_varies(term, constant) and small and budget.spend(work(term))
        if not constant[term]:
            continue
        own = term.size * itemsize(term.dtype)
        bytes_read[term] = sum(bytes_read[a] for a in dict.fromkeys(term.args)) if term.args else own
        if _computes(term) and (exact or own <= bytes_read[term] or _decides(term)):
            found.add(term)
        bytes_read[term] = min(own, bytes_read[term])
    return found


def _never_varies(term: Term, constant: Mapping[Term, bool]) -> bool:
    return not ops.row(term.op).varies and all(constant[a] for a in term.args)


def _computes(term: Term) -> bool:
    floats = term.op == "cast" and term.dtype in FLOATS and term.args[0].dtype in FLOATS
    widens = floats and itemsize(term.dtype) > itemsize(term.args[0].dtype)
    return bool(term.args) and not ops.row(term.op).view and term.op not in _MOVES and not widens


def _decides(term: Term) -> bool:
    """Whether a value depends on the last bit of floats by more than its own last bits."""
    if term.args[0].dtype not in FLOATS or term.op not in _JUMPS:
        return False
    return term.dtype not in FLOATS or term.op not in ("cast", "reduce")


def _needed(program: Program, foldable: set[Term]) -> list[Term]:
    """The foldable terms that others than foldable ones read, operands first."""
    seen: set[Term] = set()
    stack = list(program.outputs.values())
    while stack:
        term = stack.pop()
        if term not in seen:
            seen.add(term)
            stack += () if term in foldable else term.args
    return [t for t in program.terms() if t in seen and t in foldable]


def _substituted(program: Program, values: Mapping[Term, Term]) -> Program:
    made: dict[Term, Term] = {}
    for term in program.terms():
        made[term] = values.get(term) or rebuilt(term, [made[a] for a in term.args])
    return _with_names(program, made)


def _with_names(program: Program, made: Mapping[Term, Term]) -> Program:
    outputs = {name: made[term] for name, term in program.outputs.items()}
    names = {made.get(term, term): name for term, name in program.names.items()}
    written = tuple(each.over(made) for each in program.written)
    return Program(program.inputs, outputs, names, written, header=program.header)
