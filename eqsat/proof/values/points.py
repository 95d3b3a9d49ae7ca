"""Points: inputs on which two programs are run to tell them apart, structured and random."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.base.numerics import Array, is_float, np_dtype
from eqsat.program.ir import Program
from eqsat.program.term import Term
from eqsat.proof.normal_form.assumptions import Bounds

_HIDDEN = 0.2
"""The share of whole numbers that are 0 where they may be masks."""

_NUMBERING = frozenset(
    {"cast", "transpose", "reshape", "broadcast", "slice", "concat", "pad", "where", "add", "sub", "mod", "gather"}
)
"""Operators behind which an input may still number rows: most of its values stay below the rows that there are."""

JUMPS = frozenset({"floor", "ceil", "round", "sign", "mod", "less", "less_equal", "greater", "greater_equal", "equal"})
_DIVIDES = frozenset({"div", "mod", "pow"})
_OFF_JUMPS = frozenset({"normal", "positive", "unmasked", "positive again"})
_WHOLE = frozenset({"whole", "ones", "zeros"})
_ROUNDED = frozenset(
    {"exp", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "erf", "tanh", "sigmoid", "sin", "cos", "div", "pow"}
)

_INTEGER_SPREAD = 3


@dataclass(frozen=True, slots=True)
class Point:
    """A kind of input.

    Attributes:
        draw: floats of a shape; integers are a few times as large, rounded.
        generic: away from poles and jumps.
        truths: the share of booleans that are true.
        hides_nothing: integers that number no rows are 1, as in a mask of everything.
    """

    name: str
    draw: Callable[[tuple[int, ...], np.random.Generator], Array]
    generic: bool = False
    truths: float = 0.5
    hides_nothing: bool = False


def _magnitudes(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """A power of ten for each row: norms of some rows then hang on their epsilon."""
    return 10.0 ** rng.integers(-6, 2, [*shape[:-1], 1][: len(shape)])


POINTS: tuple[Point, ...] = (
    Point("normal", lambda shape, rng: rng.standard_normal(shape)),
    Point("positive", lambda shape, rng: rng.uniform(0.5, 2.0, shape), generic=True, truths=0.2),
    Point("unmasked", lambda shape, rng: rng.standard_normal(shape), truths=1.0, hides_nothing=True),
    Point("magnitudes", lambda shape, rng: rng.standard_normal(shape) * _magnitudes(shape, rng)),
    Point("whole", lambda shape, rng: rng.integers(-3, 4, shape).astype(np.float64), truths=0.8),
    Point("ones", lambda shape, rng: np.ones(shape), truths=1.0),
    Point("negative", lambda shape, rng: -rng.uniform(0.5, 2.0, shape)),
    Point("zeros", lambda shape, rng: np.zeros(shape), truths=0.0),
    Point("large", lambda shape, rng: 100.0 * rng.standard_normal(shape), truths=0.1),
    Point("small", lambda shape, rng: 0.01 * rng.standard_normal(shape), truths=0.9),
    Point("tiny", lambda shape, rng: 1e-4 * rng.standard_normal(shape)),
    Point("faint", lambda shape, rng: 1e-6 * rng.standard_normal(shape)),
    Point("positive again", lambda shape, rng: rng.uniform(0.1, 4.0, shape), generic=True),
)
"""Inputs to try, in order. An epsilon shows on small inputs, where it is as large as its other addend."""

_GENERIC = tuple(point for point in POINTS if point.generic)

TYPICAL = _GENERIC[0]


def typical(
    left: Program, right: Program, names: Mapping[str, str], bounds: Mapping[str, Bounds]
) -> list[dict[str, Array]]:
    """Inputs away from poles and jumps, flat, by the names of the first program.

    Of whole numbers a few are 0 where that divides nothing: they may be masks.
    """
    divides = _divides([*left.terms(), *right.terms()])
    rng = np.random.default_rng(0)

    def masked(values: Array) -> Array:
        hidden = rng.random(values.shape) < _HIDDEN
        return values if is_float(values.dtype.name) or divides else np.where(hidden, 0, values).astype(values.dtype)

    points = [values for _, values in inputs_to_try(left, right, names, 0, bounds, _GENERIC)]
    return [{n: (v if n in bounds else masked(v)).reshape(-1) for n, v in values.items()} for values in points]


def elements_tried(left: Program, right: Program) -> int:
    """Float64 elements that trying two programs holds at least: typical inputs, and the outputs of both."""
    inputs = max(sum(term.size for term in program.inputs) for program in (left, right))
    return len(_GENERIC) * inputs + sum(t.size for program in (left, right) for t in program.outputs.values())


def inputs_to_try(
    left: Program,
    right: Program,
    names: Mapping[str, str],
    seed: int,
    bounds: Mapping[str, Bounds],
    kinds: Sequence[Point] = POINTS,
) -> Iterator[tuple[Point, dict[str, Array]]]:
    """One input of each of these kinds for two programs, by the names of the first; of two with jumps only such kinds
    on which rounding does not decide on which side of a jump a value lies."""
    terms = inputs_of_both(left, right, names)
    both = [t for program in (left, right) for t in program.terms()]
    used = {t.op for t in both}
    rows, divides = numbered_rows(both), _divides(both)
    usable = {point.name for point in POINTS}
    if used & JUMPS:
        exact = not (used & _ROUNDED or _fractions(left) or _fractions(right))
        usable = _OFF_JUMPS | _WHOLE if exact else _OFF_JUMPS
    for i, point in enumerate(POINTS):
        if point.name not in usable or point not in kinds:
            continue
        rng = np.random.default_rng([seed, i])
        values = {name: drawn(term, point, rng, rows.get(term), divides) for name, term in terms.items()}
        yield point, {n: bounds[n].within(v, rng) if n in bounds else v for n, v in values.items()}


def inputs_of_both(left: Program, right: Program, names: Mapping[str, str]) -> dict[str, Term]:
    """The inputs of both, by the names of the first."""
    terms = {t.attr("name"): t for t in left.inputs}
    return terms | {names[t.attr("name")]: t for t in right.inputs if names[t.attr("name")] not in terms}


def _divides(terms: Iterable[Term]) -> bool:
    """Whether integers are divided by others, or raised to their powers."""
    return any(t.op in _DIVIDES and not is_float(t.dtype) for t in terms)


def numbered_rows(terms: Iterable[Term]) -> dict[Term, int]:
    """Inputs that gathers read as numbers of rows, and the rows of the smallest table that each of them has."""
    found: dict[Term, int] = {}
    for gather in (t for t in terms if t.op == "gather"):
        rows: int = gather.args[0].shape[gather.attr("axis")]
        stack, seen = [gather.args[1]], {gather.args[1]}
        while stack:
            at = stack.pop()
            if at.op == "input":
                found[at] = min(rows, found.get(at, rows))
            elif at.op in _NUMBERING:
                stack += (a for a in at.args if a not in seen)
                seen.update(at.args)
    return found


def drawn(term: Term, point: Point, rng: np.random.Generator, rows: int | None, divides: bool) -> Array:
    """An input: integers are indices of `rows` rows where it numbers some, else not 0 where there is a quotient.

    Typical integers are 0 or 1, as masks are. Points that are not generic also try indices beyond the rows, which a
    remainder may bring back.
    """
    if is_float(term.dtype):
        values = point.draw(term.shape, rng)
    elif term.dtype == "bool":
        values = rng.random(term.shape) < point.truths
    elif rows and (point.generic or point.hides_nothing):
        values = rng.integers(0, rows, term.shape)
    elif rows:
        reach = rows * int(rng.integers(1, 3))
        values = rng.integers(-reach, reach, term.shape)
    elif point.hides_nothing:
        values = np.ones(term.shape)
    elif point is TYPICAL and term.size > 1 and not divides:
        values = rng.random(term.shape) >= _HIDDEN
    else:
        values = np.rint(point.draw(term.shape, rng) * _INTEGER_SPREAD).astype(np.int64)
        if divides:
            values = np.where(values == 0, 1, values)
    return np.asarray(values).astype(np_dtype(term.dtype))


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
