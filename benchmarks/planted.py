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
from eqsat.program.term import Term, make, topological

Array = np.ndarray
Fault = Callable[[Array, np.random.Generator], Array | None]
"""A spoilt copy of a constant; None where the fault does not apply."""


def element(array: Array, rng: np.random.Generator, by: float = 2.0) -> Array | None:
    """One element, off by twice the root mean square of all."""
    if not is_float(str(array.dtype)):
        return None
    spoilt = array.copy()
    size = np.sqrt(np.square(array.astype(np.float64)).mean())
    place = tuple(int(rng.integers(n)) for n in array.shape)
    spoilt[place] = array[place] + array.dtype.type(by * size)
    return spoilt


def small_element(array: Array, rng: np.random.Generator) -> Array | None:
    return element(array, rng, 0.05)


def row(array: Array, rng: np.random.Generator) -> Array | None:
    if array.ndim < 2 or not is_float(str(array.dtype)):
        return None
    spoilt = array.copy()
    spoilt[int(rng.integers(len(array)))] = 0
    return spoilt


def swapped_rows(array: Array, rng: np.random.Generator) -> Array | None:
    if array.ndim < 2 or len(array) < 2:
        return None
    i = int(rng.integers(len(array) - 1))
    spoilt = array.copy()
    spoilt[[i, i + 1]] = array[[i + 1, i]]
    return None if np.array_equal(spoilt, array) else spoilt


def scale(array: Array, rng: np.random.Generator) -> Array | None:
    return (array * array.dtype.type(1.01)).astype(array.dtype) if is_float(str(array.dtype)) else None


def column(array: Array, rng: np.random.Generator) -> Array | None:
    if array.ndim < 2 or not is_float(str(array.dtype)):
        return None
    spoilt = array.copy()
    spoilt[..., int(rng.integers(array.shape[-1]))] *= array.dtype.type(1.1)
    return spoilt


def transposed(array: Array, rng: np.random.Generator) -> Array | None:
    """The same shape, its elements in the order of the transpose."""
    if array.ndim < 2 or min(array.shape[-2:]) < 2:
        return None
    return np.ascontiguousarray(array.swapaxes(-1, -2)).reshape(array.shape)


def bias(array: Array, rng: np.random.Generator) -> Array | None:
    return element(array, rng, 0.5) if sum(n > 1 for n in array.shape) == 1 else None


def index(array: Array, rng: np.random.Generator) -> Array | None:
    if array.dtype.kind != "i":
        return None
    spoilt = array.copy()
    place = tuple(int(rng.integers(n)) for n in array.shape)
    spoilt[place] += -1 if array[place] else 1
    return spoilt


FAULTS: dict[str, Fault] = {
    "element": element,
    "small element": small_element,
    "row": row,
    "swapped rows": swapped_rows,
    "scale 1.01": scale,
    "column 1.1": column,
    "transposed": transposed,
    "bias": bias,
    "index": index,
}


def replaced(terms: Sequence[Term], new: Mapping[Term, Term]) -> list[Term]:
    """Terms with some of their subterms replaced."""
    made: dict[Term, Term] = {}
    for term in topological(terms):
        args = [made[a] for a in term.args]
        made[term] = new.get(term) or (make(term.op, *args, **dict(term.attrs)) if args else term)
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
