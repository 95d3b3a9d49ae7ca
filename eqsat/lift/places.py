"""Readable names and paths for the values of a program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count

from eqsat.program.ir import Program
from eqsat.program.term import Term, row

_SHOWN = 4
"""Operators that are shown of a path, nearest to the value."""

_LONGEST = 32
"""Longest name in characters that keeps an expression readable."""


class Places:
    """Paths from a program's outputs to its values.

    Attributes:
        names: the model's names for its values.
        taken: names in use, for inputs, constants and other values.
    """

    def __init__(self, program: Program) -> None:
        self.names = program.names
        self.taken = {*program.input_names, *program.outputs, *program.names.values()}
        self._reader: dict[Term, tuple[Term, int] | str] = {}
        self._constants: dict[Term, str] = {}
        self._walk(program)

    def _walk(self, program: Program) -> None:
        """Find the reader of each value that is nearest to an output."""
        level: list[Term] = []
        for name, term in program.outputs.items():
            if self._reader.setdefault(term, name) == name:
                level.append(term)
        while level:
            below: list[Term] = []
            for reader in level:
                for i, term in enumerate(reader.args):
                    if term not in self._reader:
                        self._reader[term] = reader, i
                        below.append(term)
            level = below
        ends = Counter(end for name in self.names.values() for end in _ends(name))
        for term in program.terms():
            if term.op == "constant" and term.size > 1:
                self._constants[term] = self._called(program.names.get(term), ends)
                self.taken.add(self._constants[term])

    def _called(self, name: str | None, ends: Mapping[str, int]) -> str:
        """A short name: the model's name, its last parts if they are unique, or else a number."""
        if name is not None:
            fitting = (end for end in (name, *_ends(name)) if len(end) <= _LONGEST)
            short = next((end for end in fitting if end == name or (ends[end] == 1 and end not in self.taken)), None)
            if short is not None:
                return short
        return next(c for i in count(len(self._constants)) if (c := f"c{i}") not in self.taken)

    def constant(self, term: Term) -> str | None:
        """The name of a constant of the program with more than one element: the model's name, or a numbered one."""
        return self._constants.get(term)

    def of(self, term: Term) -> str:
        """The place of a value: the model's name for it, and the last operators on the path to it from an output.

        `out > relu > add.0 > matmul` is a product that is the first operand of an addition, under a relu.
        """
        steps = [term.op]
        while not isinstance(at := self._reader.get(term, "the second program"), str):
            reader, i = at
            if not row(reader.op).view:
                several = sum(a.op not in ("constant", "full") for a in reader.args) > 1
                steps.append(f"{reader.op}.{i}" if several else reader.op)
            term = reader
        steps = steps[::-1]
        return " > ".join([at, *(["…"] * (len(steps) > _SHOWN)), *steps[-_SHOWN:]])


def _ends(name: str) -> Iterator[str]:
    """The short last parts of a dotted name, the longest first: `layer.0.query.weight`, `0.query.weight`, ..."""
    tail = name[-_LONGEST - 1 :]  # with the separator before the longest of them
    for separator in re.finditer(r"[./:]+", tail):
        yield tail[separator.end() :]
