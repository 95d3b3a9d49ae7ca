"""Constants of a shaped program computed ahead of time: what a lifted program still does to them."""

from __future__ import annotations

import numpy as np

from eqsat import ops
from eqsat.ir import Program, Term, make
from eqsat.numerics import np_dtype

_KEPT = frozenset({"constant", "full", "iota", "broadcast"})
"""Constant terms that stay: they cost nothing to hold, and folding a broadcast would only make it larger."""


def fold_constants(program: Program) -> Program:
    """The program with every subterm of constants evaluated (in float64, rounded once), broadcasts aside."""
    folded: dict[Term, Term] = {}
    for term in program.terms():
        folded[term] = _rebuild(term, [folded[a] for a in term.args])
    outputs = {name: folded[term] for name, term in program.outputs.items()}
    return Program(program.inputs, outputs)


def _rebuild(term: Term, args: list[Term]) -> Term:
    if args and term.op not in _KEPT and term.op != "opaque" and all(map(_is_constant, args)):
        return _evaluated(term, args)
    same = all(a is b for a, b in zip(args, term.args, strict=True))
    return term if same else make(term.op, *args, **dict(term.attrs))


def _is_constant(term: Term) -> bool:
    """Whether a rebuilt term holds no input: a kept one over kept ones."""
    return term.op in _KEPT and all(map(_is_constant, term.args))


def _evaluated(term: Term, args: list[Term]) -> Term:
    precision = "native" if ops.row(term.op).view else "float64"
    value = Program((), {"value": make(term.op, *args, **dict(term.attrs))}).run({}, precision)["value"]
    # Contiguous arrays have a dimension at least: a scalar takes its shape back.
    return ops.constant(np.ascontiguousarray(value.astype(np_dtype(term.dtype))).reshape(term.shape))
