"""How large values may be: judged from shapes, before anything is allocated. docs/limits.md says so to users."""

from __future__ import annotations

from collections.abc import Iterable

from eqsat.base.numerics import Array
from eqsat.errors import InputError
from eqsat.program.ir import Program
from eqsat.program.term import Term, row

LARGEST = (1 << 31) - 1
"""Elements of one value: kernels count them in 32 bits."""

FOLDED = 1 << 26
"""Elements of a value that is computed ahead of time, and of each value on the way."""

FOLDED_WORK = 200_000_000_000
"""FLOPs of all operators that are computed ahead of time, beside what `Budget` allows for stored weights: seconds."""

READ_WORK = 100_000_000_000
"""FLOPs of all operators that are computed while a model is read, and of its own constants: a second."""

ELEMENT_WORK = 256
"""FLOPs of a product in the time in which one element is computed otherwise, or moved: some nanoseconds."""

WORK_OF_WEIGHTS = 16_384
"""FLOPs that are computed ahead of time for each weight that is stored, whatever a program has of them: 64 elementwise
operators of it, or its part in a product of two square matrices of so many rows."""

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


def check_folded(elements: int, what: str) -> None:
    """Raises InputError for more than FOLDED elements that have to be computed ahead of time."""
    if elements > FOLDED:
        raise InputError(f"{what}: {elements} elements; at most {FOLDED} are computed ahead of time")


def check_program(program: Program) -> None:
    """Raises InputError for a program with a value of more than LARGEST elements."""
    for term in (*program.inputs, *program.terms()):
        check_size(term, f"input {term.attr('name')!r}" if term.op == "input" else f"the result of {term.op}")


def takes_memory(term: Term) -> bool:
    """Whether computing the term, its operands given, makes more than FOLDED elements."""
    return term.size > FOLDED and term.op not in _FREE


def work(term: Term) -> int:
    """What computing a term takes, its operands given, in FLOPs of a product."""
    if term.op in _FREE:
        return 0
    own = row(term.op)
    flops = own.flops(term)
    return flops + ELEMENT_WORK * term.size if own.contraction else ELEMENT_WORK * max(flops, term.size)


def foldable(term: Term) -> bool:
    """Whether a term may be computed ahead of time where its operands are: by its size and its work alone."""
    return not takes_memory(term) and row(term.op).flops(term) <= FOLDED_WORK


class Budget:
    """Work that may still be done ahead of time, for all terms together.

    It is counted, and not timed, so that results do not depend on the machine. It grows with the elements that are
    stored: a small file cannot ask for much.
    """

    def __init__(self, most: int, stored: int = 0) -> None:
        self._left = most + WORK_OF_WEIGHTS * stored

    def grant(self, elements: int) -> None:
        """More work, for elements that a file holds."""
        self._left += WORK_OF_WEIGHTS * elements

    def spend(self, needed: int) -> bool:
        """Whether so much work may be done; if so, it is taken away."""
        if needed > self._left:
            return False
        self._left -= needed
        return True


def stored_elements(terms: Iterable[Term]) -> int:
    """Elements of the constants among some terms."""
    return sum(term.size for term in terms if term.op == "constant")
