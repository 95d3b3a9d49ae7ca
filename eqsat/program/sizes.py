"""How large values may be: judged from shapes, before anything is allocated. docs/limits.md says so to users."""

from __future__ import annotations

from eqsat.base.numerics import Array
from eqsat.errors import InputError
from eqsat.program.ir import Program
from eqsat.program.term import Term

LARGEST = (1 << 31) - 1
"""Elements of one value: kernels count them in 32 bits."""

FOLDED = 1 << 26
"""Elements of a value that is computed ahead of time, and of each value on the way."""

FOLDED_WORK = 200_000_000_000
"""FLOPs of one operator that is computed ahead of time: seconds."""

MOST_DIMS = 32
"""Dims of one value; NumPy has 64, and windows double them."""

_FREE = frozenset({"constant", "full", "broadcast", "slice", "transpose"})
"""Operators whose results take no memory of their own."""


def check_size(term: Term | Array, what: str) -> None:
    """Raises InputError for a value of more than LARGEST elements, or MOST_DIMS dims."""
    if term.ndim > MOST_DIMS:
        raise InputError(f"{what} has {term.ndim} dims; at most {MOST_DIMS} are handled")
    if term.size > LARGEST:
        raise InputError(f"{what} has shape {term.shape}: {term.size} elements; at most {LARGEST} are handled")


def check_program(program: Program) -> None:
    """Raises InputError for a program with a value of more than LARGEST elements."""
    for term in (*program.inputs, *program.terms()):
        check_size(term, f"input {term.attr('name')!r}" if term.op == "input" else f"the result of {term.op}")


def takes_memory(term: Term) -> bool:
    """Whether computing the term, its operands given, makes more than FOLDED elements."""
    return term.size > FOLDED and term.op not in _FREE
