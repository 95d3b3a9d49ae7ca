"""The check of a model with named dims: the model it came from gives the same at the ends of the ranges and inside."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.check.inputs import SEED, random_values
from eqsat.dynamic.family import Family, result_at
from eqsat.dynamic.ranges import ends, unseen
from eqsat.errors import CheckFailed, InputError
from eqsat.frontends.execution import OnnxRuntime, RuntimeRefuses
from eqsat.frontends.onnx.dims.forms import Point, shown
from eqsat.frontends.runtime import difference, tolerance_of
from eqsat.program.ir import Program
from eqsat.program.term import Term

_COMPUTED = 4e9
"""FLOPs that a runtime executes per second on one core, at least."""

_EXACT = 1e-2
"""Difference in float64, as a share of the one in the types of a program, that rounded constants explain."""

Outputs = Mapping[str, Any]
"""Values by name: arrays, or what runtimes give for sequences and maps."""

Run = Callable[[Point, list[Term]], Outputs]


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison at some sizes.

    Attributes:
        max_error: the largest difference, as a share of the scale of an output.
        by: what ran both.
        shapes: of outputs, by name.
    """

    point: Point
    max_error: float
    by: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)

    def as_json(self) -> dict[str, Any]:
        """As in the report."""
        return {"sizes": self.point, "max_error": self.max_error, "by": self.by}


def compare(
    family: Family,
    file: Path,
    seen: Sequence[Point],
    program: Program,
    inputs: Callable[[Point], list[Term]],
    ends_at: float,
) -> list[Compared]:
    """Comparisons of the model in `file` with its family, until `ends_at` (`time.monotonic`), but at least two.

    At the least sizes in float64. Then at the ends of the ranges and at sizes that are not among `seen`, in onnxruntime
    if it is installed, else in NumPy. `program` is the source at the first of `seen`.

    Raises:
        CheckFailed: they differ at some sizes; the message names them.
    """
    corners = ends(family.ranges)
    done: list[Compared] = []
    with suppress(InputError):  # an operator that only runtimes run
        done.append(_exactly(family, file, corners[0]))
    points = [corners[0], corners[-1], *unseen(family.ranges, [*seen, *corners]), *corners[1:-1]]
    tolerance = tolerance_of(program)
    wanted, found, by = _runners(family, file, program)
    work = program.stats()["flops"] / math.prod(seen[0].values())
    for point in {tuple(p.items()): p for p in points}.values():
        if len(done) > 1 and 2 * work * math.prod(point.values()) / _COMPUTED > ends_at - time.monotonic():
            continue
        terms = inputs(point)
        try:
            right = wanted(point, terms)
            error = _largest(right, found(point, terms))
        except RuntimeRefuses as error:
            raise CheckFailed(f"at {shown(point)}: {by} cannot run it: {error}") from None
        if error > tolerance:
            raise CheckFailed(f"at {shown(point)} an output differs from the source by {error:.1e} of its scale")
        done.append(Compared(point, error, by, _shapes(right)))
    return done


def _exactly(family: Family, file: Path, point: Point) -> Compared:
    """The comparison in float64, where only the constants of the result are rounded."""
    source, result = family.at(point), result_at(file, point)
    inputs = random_values(source.inputs, 1, SEED)
    right = source.run(inputs, "float64")
    error = _largest(right, result.run(inputs, "float64"))
    if error > _EXACT * tolerance_of(source):
        raise CheckFailed(f"at {shown(point)} an output differs from the source by {error:.1e} of its scale in float64")
    return Compared(point, error, "float64", _shapes(right))


def _shapes(values: Outputs) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays among the outputs."""
    return {name: value.shape for name, value in values.items() if isinstance(value, np.ndarray)}


def _largest(wanted: Outputs, found: Outputs) -> float:
    """The largest difference of values with the same name; infinite if `found` lacks one."""
    return max((difference(value, found.get(name)) for name, value in wanted.items()), default=0.0)


def _runners(family: Family, file: Path, program: Program) -> tuple[Run, Run, str]:
    """Functions from sizes and inputs to the outputs of the source and of the result; and what runs the result.

    Where operators follow the program, only a runtime gives the outputs that they make, and only if it runs the source,
    too, and random values suit all inputs. Else the values that the operators read are compared.
    """

    def by_numpy(read: Callable[[Point], Program]) -> Run:
        return lambda point, terms: read(point).run(random_values(terms, 0, SEED))

    numpy = by_numpy(family.at), by_numpy(lambda point: result_at(file, point)), "NumPy"
    try:
        runtime = OnnxRuntime()
    except ImportError:
        return numpy

    def by_runtime(path: Path) -> Run:
        names = program.file_outputs
        run = runtime.plainly(path, names)
        return lambda point, terms: dict(zip(names, run(random_values(terms, 0, SEED)), strict=True))

    source, after = numpy[0], program.header.after
    if family.path is not None:
        with suppress(RuntimeRefuses):
            source = by_runtime(family.path)
    if after is not None and (after.unheld or source is numpy[0]):
        return numpy
    try:
        return source, by_runtime(file), runtime.name
    except RuntimeRefuses as error:
        raise CheckFailed(f"{runtime.name} cannot run the result: {error}") from None
