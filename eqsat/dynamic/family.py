"""Programs with named dims: what they are at each size, and the ranges of the dims."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat.base.arguments import instance, integer, text
from eqsat.dynamic.ranges import DEFAULT, Range, checked_range
from eqsat.errors import CheckFailed, EqsatError, InputError
from eqsat.frontends.onnx.dims.forms import Point, fit_all, shown
from eqsat.frontends.onnx.read.model import from_onnx, open_dimensions
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term

if TYPE_CHECKING:
    from eqsat.frontends.onnx.read.model import ModelSource

    Source = ModelSource | Callable[[Point], Program]
    """A model, or a function from the sizes of all dims to a program."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """The program of a source at the sizes of the dims that are not fixed; of a model, the part before operators that
    no program holds. Unlike a lambda it can be pickled."""

    source: Source
    fixed: Mapping[str, int]

    def __call__(self, point: Point) -> Program:
        sizes = {**self.fixed, **point}
        return self.source(sizes) if callable(self.source) else from_onnx(self.source, sizes, head=True)


@dataclass(frozen=True, slots=True)
class Family:
    """A program at all sizes of its dims.

    Attributes:
        read: the program at some sizes.
        ranges: of its dims.
        path: the file that it was read from, if it was.
        fixed: the sizes of dims that have only one.
    """

    read: Callable[[Point], Program]
    ranges: Mapping[str, Range]
    path: Path | None
    fixed: Mapping[str, int]

    @staticmethod
    def of(source: Source, shapes: Mapping[str, int | Range] | None = None) -> Family:
        """The family of a model with these sizes and ranges of dims; dims that are not among them have `DEFAULT`.

        Raises:
            InputError: there is no dim of a name, a range is none, or the model cannot be read.
        """
        if shapes is not None:
            instance("shapes", shapes, Mapping, "a mapping from dimension to a size, or to (least, largest)")
        given = dict(shapes or {})
        for name in given:
            text("shapes: a dimension", name)
        fixed = {name: number for name, size in given.items() if (number := integer(size)) is not None}
        ranges = {name: checked_range(name, size) for name, size in given.items() if name not in fixed}
        if callable(source) and fixed:
            raise InputError(f"size {fixed} of a program from a function: give a range for each of its dims")
        fixed |= {name: low for name, (low, high) in ranges.items() if low == high}
        ranges = {name: both for name, both in ranges.items() if name not in fixed}
        if callable(source):
            return Family(_Reader(source, fixed), ranges, None, fixed)
        open_ = open_dimensions(source, {**fixed, **{name: low for name, (low, _) in ranges.items()}})
        ranges |= dict.fromkeys(open_, DEFAULT)
        path = Path(source) if isinstance(source, str | os.PathLike) else None
        return Family(_Reader(source, fixed), ranges, path, fixed)

    @property
    def largest(self) -> Point:
        """The largest sizes."""
        return {name: high for name, (_, high) in self.ranges.items()}

    def at(self, point: Point) -> Program:
        """The program at these sizes.

        Raises:
            InputError: it has none there.
        """
        try:
            program = self.read(point)
        except EqsatError as error:
            hint = "give the range of each dimension that the model is for (--shape seq=16..128), or one size where"
            hint += " several must agree (--shape rows=64)"
            raise InputError(f"at {shown(point)}: {error}; {hint}") from None
        instance("optimize_dynamic", program, Program, "a model, or a function from sizes to a Program")
        return program


def result_at(file: Path, point: Point) -> Program:
    """The program of a model that eqsat wrote, at these sizes.

    Raises:
        CheckFailed: it has none there; the message names no file, as only eqsat knows it.
    """
    try:
        return from_onnx(file, point, head=True)
    except InputError as error:
        reason = str(error).removeprefix(f"{file}: ")
        raise CheckFailed(f"at {shown(point)} the result cannot be read: {reason}") from None


def inputs_at(programs: Sequence[Program], points: Sequence[Point]) -> Callable[[Point], list[Term]] | None:
    """A function from sizes to the inputs of a program, fitted at some points; None if they are no forms of dims."""
    rows = []
    for terms in zip(*(program.inputs for program in programs), strict=True):
        forms = fit_all([term.shape for term in terms], points)
        if forms is None:
            return None
        rows.append((terms[0].attr("name"), forms, terms[0].dtype))
    return lambda point: [ops.input(name, [form.at(point) for form in forms], dtype) for name, forms, dtype in rows]
