"""How many planted faults the check of a result finds. A fault is a wrong number in a constant that rewriting made.

    python benchmarks/planted.py MODEL.onnx... [--half] [--each N] [--seed S] [--shape NAME=N]... [--time-limit S]

Every model is optimised once. Then one constant of the result at a time is spoilt in one way (`FAULTS`), and the result
is checked again as in `optimize`. `--half` converts the model to float16. A line shows, for each kind, how many of the
faults were found, and the CPU seconds for checking the correct result. The exit code is 1 if the correct result is
refused.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np

import eqsat
from eqsat.base.numerics import is_float
from eqsat.check.check import check
from eqsat.check.part import Check
from eqsat.cli.shared.options import parse_shapes
from eqsat.errors import CheckFailed
from eqsat.pipeline import assemble
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term, make, rebuilt, topological

Array = np.ndarray
Fault = Callable[[Array, np.random.Generator], Array | None]
"""A spoilt copy of a constant; None where the fault does not apply."""


def fault(spoil: Callable[[Array, np.random.Generator], None], dims: int = 0, integers: bool = False) -> Fault:
    """A fault of floats, or of integers, with at least so many dims. `spoil` changes a copy in place."""

    def spoilt(array: Array, rng: np.random.Generator) -> Array | None:
        if array.ndim < dims or not (array.dtype.kind == "i" if integers else is_float(str(array.dtype))):
            return None
        made = array.copy()
        spoil(made, rng)
        return None if np.array_equal(made, array) else made

    return spoilt


def element(by: float) -> Callable[[Array, np.random.Generator], None]:
    """One element, off by so many times the root mean square of all."""

    def spoil(array: Array, rng: np.random.Generator) -> None:
        size = np.sqrt(np.square(array.astype(np.float64)).mean())
        array[tuple(int(rng.integers(n)) for n in array.shape)] += array.dtype.type(by * size)

    return spoil


def row(array: Array, rng: np.random.Generator) -> None:
    array[int(rng.integers(len(array)))] = 0


def swapped_rows(array: Array, rng: np.random.Generator) -> None:
    if len(array) > 1:
        i = int(rng.integers(len(array) - 1))
        array[[i, i + 1]] = array[[i + 1, i]]


def scale(array: Array, rng: np.random.Generator) -> None:
    array *= array.dtype.type(1.01)


def column(array: Array, rng: np.random.Generator) -> None:
    array[..., int(rng.integers(array.shape[-1]))] *= array.dtype.type(1.1)


def transposed(array: Array, rng: np.random.Generator) -> None:
    """The same shape, its elements in the order of the transpose."""
    array[...] = array.swapaxes(-1, -2).reshape(array.shape).copy()


def bias(array: Array, rng: np.random.Generator) -> None:
    if sum(n > 1 for n in array.shape) == 1:
        element(0.5)(array, rng)


def index(array: Array, rng: np.random.Generator) -> None:
    place = tuple(int(rng.integers(n)) for n in array.shape)
    array[place] += -1 if array[place] else 1


FAULTS: dict[str, Fault] = {
    "element": fault(element(2.0)),
    "small element": fault(element(0.05)),
    "row": fault(row, dims=2),
    "swapped rows": fault(swapped_rows, dims=2),
    "scale 1.01": fault(scale),
    "column 1.1": fault(column, dims=2),
    "transposed": fault(transposed, dims=2),
    "bias": fault(bias),
    "index": fault(index, integers=True),
}


def replaced(terms: Sequence[Term], new: Mapping[Term, Term]) -> list[Term]:
    """Terms with some of their subterms replaced."""
    made: dict[Term, Term] = {}
    for term in topological(terms):
        made[term] = new.get(term) or rebuilt(term, [made[a] for a in term.args])
    return [made[term] for term in terms]


def in_half(program: Program) -> Program:
    """The program with float16 instead of float32."""
    made: dict[Term, Term] = {}
    for term in [*program.inputs, *program.terms()]:
        attrs = {name: "float16" if value == "float32" else value for name, value in term.attrs}
        if term.op == "constant" and term.dtype == "float32":
            with np.errstate(over="ignore"):
                limits = np.finfo(np.float16)
                array = np.clip(term.attr("value").array, limits.min, limits.max).astype(np.float16)
            made[term] = ops.constant(array)
        elif term.op == "full" and term.dtype == "float32":
            value = float(np.clip(term.attr("value"), -65504, 65504))
            made[term] = ops.full(value, term.shape, "float16")
        else:
            made[term] = make(term.op, *(made[a] for a in term.args), **attrs)
    return Program(tuple(made[t] for t in program.inputs), {n: made[t] for n, t in program.outputs.items()})


class Checked:
    """The arguments of `optimize`'s call of the check, to repeat it with a fault."""

    def __init__(self, program: Program, limit: float) -> None:
        self.calls: list[tuple[tuple[Program, Program], dict[str, Any]]] = []

        def kept(source: Program, result: Program, **options: Any) -> Check:
            self.calls.append(((source, result), options))
            return check(source, result, **options)

        with mock.patch.object(assemble, "check", kept):
            self.best = eqsat.optimize(program, time_limit=limit)
        (self.source, self.result), self.options = next(c for c in self.calls if c[1].get("cuts") is not None)
        self.options["seconds"] = None
        held = {t.attr("value").digest for t in self.source.terms() if t.op == "constant"}
        new = (t for t in self.result.terms() if t.op == "constant" and t.attr("value").digest not in held)
        self.constants = list(new)

    def check(self, spoilt: Mapping[Term, Term]) -> Check:
        """Raises CheckFailed if the fault is found."""
        options = dict(self.options)
        outputs = replaced(list(self.result.outputs.values()), spoilt)
        result = Program(self.result.inputs, dict(zip(self.result.outputs, outputs, strict=True)))
        own, terms = zip(*options["cuts"], strict=True) if options["cuts"] else ((), ())
        options["cuts"] = list(zip(own, replaced(terms, spoilt), strict=True))
        if "meanings" in options:
            keys = replaced(list(options["meanings"]), spoilt)
            options["meanings"] = dict(zip(keys, options["meanings"].values(), strict=True))
        return check(self.source, result, **options)


def measured(checked: Checked, each: int, seed: int) -> tuple[str, bool]:
    """The line of a model, and whether its correct result passes."""
    begun = time.process_time()
    try:
        right = checked.check({})
    except CheckFailed as error:
        return f"refused: {error}", False
    taken = time.process_time() - begun
    cells = []
    for name, fault in FAULTS.items():
        rng = np.random.default_rng(seed)
        found = tried = 0
        for i in rng.permutation(len(checked.constants)):
            constant = checked.constants[i]
            spoilt = fault(constant.attr("value").array, rng)
            if spoilt is None:
                continue
            tried += 1
            try:
                checked.check({constant: ops.constant(spoilt)})
            except CheckFailed:
                found += 1
            if tried == each:
                break
        cells.append(f"{name} {found}/{tried}")
    return f"check {taken:.2f} s, missed {right.missed:.2f}, {dict(right.parts)}; {', '.join(cells)}", True


def main() -> int:
    parser = argparse.ArgumentParser(description="How many planted faults the check of a result finds.")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--each", type=int, default=6, help="faults of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--time-limit", type=float, default=20.0)
    args = parser.parse_args()
    shapes = parse_shapes(args.shape)
    passed = True
    for path in args.models:
        program = eqsat.from_onnx(path, shapes=shapes)
        checked = Checked(in_half(program) if args.half else program, args.time_limit)
        line, right = measured(checked, args.each, args.seed)
        print(f"{path}{' in float16' if args.half else ''}: {line}", flush=True)
        passed &= right
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
