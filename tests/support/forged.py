"""Certificates that somebody writes by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import CheckFailed
from eqsat.program.ir import Program
from eqsat.rules import CHECKABLE
from eqsat.verify.checker import Numbered, sealed
from eqsat.verify.pairing import lowered


class Forged:
    """The lines of a certificate that somebody writes by hand, of two programs, or of two functions of x[4]."""

    def __init__(self, left: Any, right: Any, dtype: str = "float32") -> None:
        spec = eqsat.spec((4,), dtype)
        programs = [each if isinstance(each, Program) else eqsat.trace(each, spec) for each in (left, right)]
        self.pair = lowered(*programs)
        self.numbered = Numbered(*self.pair)
        self.dtype = dtype
        self.count = len(self.numbered.terms.rows)
        self.lines: list[Any] = [self.numbered.head()]

    def stored(self, op: str) -> list[int]:
        return [i for i, row in enumerate(self.numbered.terms.rows) if row[0] == op]

    def number(self, value: float, dtype: str | None = None) -> int:
        return self.term("Full", [value, 4, dtype or self.dtype])

    def of(self, fn: str, *args: int) -> int:
        """A function of one or two terms."""
        return self.term("Un" if len(args) == 1 else "Bin", [fn], *args)

    def array(self, values: np.ndarray) -> int:
        """An array that no model has, joined of numbers."""
        elements = [self.term("Full", [float(v), 1, self.dtype]) for v in values]
        return self.term("Cat", [], *elements)

    def term(self, op: str, attrs: list[Any], *args: int) -> int:
        self.lines.append({"term": [op, attrs, list(args)]})
        self.count += 1
        return self.count - 1

    def say(self, **line: Any) -> None:
        self.lines.append(line)

    def seal_error(self, match: str) -> None:
        """See that sealing fails, with a message that matches."""
        with pytest.raises(CheckFailed, match=match):
            self.seal()

    def seal(self) -> str:
        return sealed(*self.pair, "\n".join(map(json.dumps, self.lines)) + "\n", CHECKABLE)
