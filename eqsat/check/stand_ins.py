"""Stand-ins: inputs of random numbers in place of values that both programs compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from eqsat.base.graphs import operands_first
from eqsat.program.term import Term, make, rebuilt, topological

MARK = "\0"
"""Begins the names of stand-ins, and of no input of a program (`eqsat.program.ops.input`)."""

_REARRANGING = ("reshape", "transpose")
"""Views that hold each element once."""


def stand_in(term: Term, number: int) -> Term:
    """The input for the value with a number."""
    return _input(f"{MARK}{number}", term)


def _input(name: str, value: Term) -> Term:
    return make("input", name=name, shape=value.shape, dtype=value.dtype)


def number_of(term: Term) -> int:
    """The number of the value that a stand-in is for, in whole or in part."""
    return int(term.attr("name").removeprefix(MARK).partition(" ")[0])


def replaced(root: Term, other: Callable[[Term], Term | None]) -> Term:
    """The term with others in place of some below it; None keeps one."""
    made: dict[Term, Term] = {}

    def below(term: Term) -> Sequence[Term]:
        new = other(term)
        if new is not None:
            made[term] = new
        return term.args if new is None else ()

    for term in operands_first([root], operands=below):
        if term not in made:
            made[term] = rebuilt(term, [made[a] for a in term.args])
    return made[root]


def narrowed(roots: Sequence[Term]) -> list[Term]:
    """Terms over inputs for what they read of stand-ins, where this is parts without common elements: slices of a
    group, or another order of its elements.

    What holds for any numbers in the parts holds for those in the whole. So equal cells that read one a group and one
    single values are equal forms, of which one is compared.
    """
    readers: dict[Term, list[Term]] = {}
    for term in topological(roots):
        for operand in term.args:
            readers.setdefault(operand, []).append(term)
    inputs = {
        part: _input(f"{term.attr('name')} {_path(part, term)}", part)
        for term in readers
        if term.op == "input" and term.attr("name").startswith(MARK)
        for part in _parts(term, readers, roots)
        if part is not term
    }
    return [replaced(root, inputs.get) for root in roots] if inputs else list(roots)


def _parts(term: Term, readers: Mapping[Term, Sequence[Term]], roots: Sequence[Term]) -> Iterator[Term]:
    """The smallest values that hold all that is read of a term, each element once."""
    waiting = [term]
    while waiting:
        term = waiting.pop()
        read = list(dict.fromkeys(readers.get(term, ())))
        rearranged = len(read) == 1 and read[0].op in _REARRANGING
        sliced = all(reader.op == "slice" for reader in read) and _apart(read)
        if term not in roots and (rearranged or sliced):
            waiting += reversed(read)
        else:
            yield term


def _path(part: Term, whole: Term) -> str:
    """The views that a part is, told as text: the name of the input for it, wherever it is read."""
    views = []
    while part is not whole:
        views.append((part.op, *(value for _, value in part.attrs)))
        (part,) = part.args
    return repr(views)


def _apart(slices: Sequence[Term]) -> bool:
    """Whether the slices of one term lie behind one another along an axis."""
    along = zip(*(_bounds(term) for term in slices), strict=True)
    return any(all(end < start for (_, end), (start, _) in pairwise(sorted(bounds))) for bounds in along)


def _bounds(term: Term) -> list[tuple[int, int]]:
    """The least and the largest index of a slice along each axis; none where it is empty."""
    ranges = [range(*each) for each in zip(*(term.attr(name) for name in ("starts", "stops", "steps")), strict=True)]
    return [(min(each[0], each[-1]), max(each[0], each[-1])) if each else (0, -1) for each in ranges]
