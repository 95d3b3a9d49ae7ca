"""Looking for an input on which two programs differ: both are run in float64 on structured and on random points."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from eqsat.errors import InputError
from eqsat.ir import Program, Term
from eqsat.numerics import Array, is_float, np_dtype

EXACT, ROUNDED = 1e-9, 1e-5
"""Differences below this share of an output's scale are rounding: EXACT, or ROUNDED where more than float64 rounds."""

_JUMPS = frozenset({"floor", "ceil", "round", "sign", "mod", "less", "less_equal", "greater", "greater_equal", "equal"})
_DIVIDES = frozenset({"div", "mod", "pow"})
_ROUNDS = 3
_MORE_ROUNDS_SECONDS = 0.3
_LEAST_ONE_SIDED = 3
"""Generic points on which one program has finite values alone, and the other none, before that is a difference."""

_INTEGER_SPREAD = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """An input on which two programs differ: arrays by name, and the first output that shows it."""

    inputs: Mapping[str, Array]
    output: str
    index: tuple[int, ...]
    left: Mapping[str, Array]
    right: Mapping[str, Array]

    def __str__(self) -> str:
        left, right = self.left[self.output][self.index], self.right[self.output][self.index]
        where = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        return f"{self.output}{where} is {left} in the first and {right} in the second"


@dataclass(frozen=True, slots=True)
class Point:
    """A kind of input.

    Attributes:
        draw: floats of a shape; integers are a few times as large, rounded.
        generic: away from poles and jumps.
        truths: the share of booleans that are true.
    """

    name: str
    draw: Callable[[tuple[int, ...], np.random.Generator], Array]
    generic: bool = False
    truths: float = 0.5


POINTS: tuple[Point, ...] = (
    Point("normal", lambda shape, rng: rng.standard_normal(shape)),
    Point("positive", lambda shape, rng: rng.uniform(0.5, 2.0, shape), generic=True, truths=0.2),
    Point("whole", lambda shape, rng: rng.integers(-3, 4, shape).astype(np.float64), truths=0.8),
    Point("ones", lambda shape, rng: np.ones(shape), truths=1.0),
    Point("negative", lambda shape, rng: -rng.uniform(0.5, 2.0, shape)),
    Point("zeros", lambda shape, rng: np.zeros(shape), truths=0.0),
    Point("large", lambda shape, rng: 100.0 * rng.standard_normal(shape), truths=0.1),
    Point("small", lambda shape, rng: 0.01 * rng.standard_normal(shape), truths=0.9),
    Point("positive again", lambda shape, rng: rng.uniform(0.1, 4.0, shape), generic=True),
)
"""Inputs to try, in order."""

_OFF_JUMPS = frozenset({"normal", "positive", "positive again"})
_WHOLE = frozenset({"whole", "ones", "zeros"})
_ROUNDED = frozenset(
    {"exp", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "erf", "tanh", "sigmoid", "sin", "cos", "div", "pow"}
)


@dataclass(frozen=True, slots=True)
class Search:
    """What trying points showed: a difference, or how many points agreed.

    `defined` says that somewhere both programs had finite results: without that, agreement says nothing.
    """

    found: Difference | None
    points: int
    defined: bool


def refute(left: Program, right: Program, names: Mapping[str, str], seconds: float, seed: int = 0) -> Search:
    """Try to tell two programs apart, outputs in order; `names` maps inputs of `right` to those of `left`."""
    begun = time.monotonic()
    tolerance = ROUNDED if _rounds(left) or _rounds(right) else EXACT
    points, defined = 0, False
    one_sided: Counter[str] = Counter()
    for again in range(_ROUNDS):
        for point, inputs in _points(left, right, names, seed + again):
            outputs = _outputs(left, right, names, inputs)
            if outputs is None:
                continue
            points += 1
            expected, found = outputs
            for name, want in expected.items():
                where = _first_difference(want, found[name], tolerance)
                one_sided[name] += point.generic and _one_sided(want, found[name])
                if where is not None and not _beyond_rounding(left, right, names, inputs, want, found[name], tolerance):
                    where = None
                if where is None and one_sided[name] >= _LEAST_ONE_SIDED:
                    where = (0,) * want.ndim
                if where is not None:
                    return Search(Difference(inputs, name, where, expected, found), points, True)
                defined |= bool(np.isfinite(want.astype(np.float64)).any()) or want.size == 0
            if time.monotonic() - begun > (min(seconds, _MORE_ROUNDS_SECONDS) if again else seconds):
                return Search(None, points, defined)
    return Search(None, points, defined)


def _outputs(
    left: Program, right: Program, names: Mapping[str, str], inputs: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, Array]] | None:
    """What both programs make of inputs, by the names of the first; None where one of them has no value."""
    first = {n: inputs[n] for n in left.input_names}
    second = {n: inputs[names[n]] for n in right.input_names}
    try:
        if _divides_by_zero(left, first) or _divides_by_zero(right, second):
            return None
        expected, found = left.run(first, "float64"), right.run(second, "float64")
    except InputError:
        return None  # an index out of range
    return expected, dict(zip(expected, found.values(), strict=True))


def _points(
    left: Program, right: Program, names: Mapping[str, str], seed: int
) -> Iterator[tuple[Point, dict[str, Array]]]:
    terms = {t.attr("name"): t for t in left.inputs}
    terms |= {names[t.attr("name")]: t for t in right.inputs if names[t.attr("name")] not in terms}
    both = [t for program in (left, right) for t in program.terms()]
    used = {t.op for t in both}
    rows = min((t.args[0].shape[t.attr("axis")] for t in both if t.op == "gather"), default=0)
    usable = {point.name for point in POINTS}
    if used & _JUMPS:  # rounding must not decide on which side of a jump a value lies
        exact = not (used & _ROUNDED or _fractions(left) or _fractions(right))
        usable = _OFF_JUMPS | _WHOLE if exact else _OFF_JUMPS
    for i, point in enumerate(POINTS):
        if point.name not in usable:
            continue
        rng = np.random.default_rng([seed, i])
        values = {name: _values(term, point, rng, rows, bool(used & _DIVIDES)) for name, term in terms.items()}
        yield point, values


def _values(term: Term, point: Point, rng: np.random.Generator, rows: int, divides: bool) -> Array:
    """An input: integers are indices of `rows` rows where there are such, and not 0 where there is a quotient.

    Points that are not generic also try indices beyond the rows, which a remainder may bring back.
    """
    if is_float(term.dtype):
        values = point.draw(term.shape, rng)
    elif term.dtype == "bool":
        values = rng.random(term.shape) < point.truths
    elif rows and point.generic:
        values = rng.integers(0, rows, term.shape)
    elif rows:
        values = rng.integers(-2 * rows, 2 * rows, term.shape)
    else:
        values = np.rint(point.draw(term.shape, rng) * _INTEGER_SPREAD).astype(np.int64)
        if divides:
            values = np.where(values == 0, 1, values)
    return np.asarray(values).astype(np_dtype(term.dtype))


def _divides_by_zero(program: Program, inputs: Mapping[str, Array]) -> bool:
    """Whether an integer is divided by zero: then the program has no value."""
    divisors = [t.args[1] for t in program.terms() if t.op in ("div", "mod") and not is_float(t.dtype)]
    if not divisors:
        return False
    asked = Program(program.inputs, {str(i): t for i, t in enumerate(dict.fromkeys(divisors))})
    return any((value == 0).any() for value in asked.run(inputs, "float64").values())


def _rounds(program: Program) -> bool:
    """Whether a run in float64 rounds more than float64 does: fractions as constants, opaque operators."""
    return _fractions(program) or any(t.op == "opaque" for t in program.terms())


def _fractions(program: Program) -> bool:
    """Whether a constant of a narrow float type holds anything but whole numbers: those carry rounding."""
    for term in program.terms():
        if term.op in ("constant", "full", "pad") and is_float(term.dtype):
            value = term.attr("value")
            array = np.asarray(value.array if term.op == "constant" else value, dtype=np.float64)
            finite = array[np.isfinite(array)]
            if (finite != np.round(finite)).any():
                return True
    return False


def _first_difference(want: Array, found: Array, tolerance: float) -> tuple[int, ...] | None:
    """Where two outputs differ clearly; None where they agree, or only one of them is finite."""
    if want.dtype.kind not in "fV":
        differs = want != found
    else:
        a, b = want.astype(np.float64), found.astype(np.float64)
        both = np.isfinite(a) & np.isfinite(b)
        scale = max((float(np.abs(x[both]).max(initial=0.0)) for x in (a, b)), default=0.0)
        with np.errstate(invalid="ignore"):
            differs = both & (np.abs(a - b) > tolerance * max(scale, 1e-3))
    return tuple(int(i) for i in np.argwhere(differs)[0]) if differs.any() else None


def _beyond_rounding(
    left: Program,
    right: Program,
    names: Mapping[str, str],
    inputs: Mapping[str, Array],
    want: Array,
    found: Array,
    tolerance: float,
) -> bool:
    """Whether outputs differ by more than what rounding leaves where large intermediate values cancel."""
    if want.dtype.kind not in "fV":
        return True
    first = {n: inputs[n] for n in left.input_names}
    second = {n: inputs[names[n]] for n in right.input_names}
    scale = max(_largest_intermediate(left, first), _largest_intermediate(right, second))
    with np.errstate(invalid="ignore"):
        gap = np.abs(want.astype(np.float64) - found.astype(np.float64))
    return bool((gap[np.isfinite(gap)] > tolerance * scale).any())


def _largest_intermediate(program: Program, inputs: Mapping[str, Array]) -> float:
    """The largest finite magnitude among all floats that a program computes of its inputs."""
    varying: set[Term] = set()
    for term in program.terms():
        if term.op == "input" or any(arg in varying for arg in term.args):
            varying.add(term)
    asked = {str(i): t for i, t in enumerate(program.terms()) if t in varying and is_float(t.dtype)}
    values = Program(program.inputs, asked).run(inputs, "float64").values() if asked else ()
    return max((float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in values), default=0.0)


def _one_sided(want: Array, found: Array) -> bool:
    """Whether one output is finite everywhere and the other nowhere."""
    a, b = (np.isfinite(x.astype(np.float64)) for x in (want, found))
    return bool(want.size and ((a.all() and not b.any()) or (b.all() and not a.any())))
