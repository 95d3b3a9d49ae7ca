"""Looking for an input on which two programs differ: both are run in float64 on structured and on random points."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from eqsat.base.numerics import Array, is_float
from eqsat.errors import InputError
from eqsat.program.core import CoreProgram, evaluate, lower, topological
from eqsat.program.ir import Program
from eqsat.program.node import flops
from eqsat.proof.normal_form.assumptions import Bounds
from eqsat.proof.values.enclosure import OutOfTime, constants_of, enclose, rounded
from eqsat.proof.values.intervals import Interval
from eqsat.proof.values.noise import SAMPLES, Overflow, noise, valued
from eqsat.proof.values.points import TYPICAL, Point, drawn, inputs_of_both, inputs_to_try, numbered_rows
from eqsat.verify.decided import decided_ahead

_NOTICED = 1e-13
"""Elements that differ by less than this share of themselves are not worth a closer look."""

_CONSTANTS = 1e-5
"""Differences below this share of an output's scale may come from constants that were rounded ahead of time."""

_NOISE, _MANY_FLOPS = 1e-12, 10**8
"""Of the scale of an output, and of a program."""

_MOST_BOUNDED_FLOPS = 10**9
"""Of both programs, up to which bounds are tried and rounding is sampled more than once. An evaluation beyond takes
longer than a second on one core, and bounds of programs of this size are too wide."""

_CLEAR = 1e-3
"""Of an output's scale: differences of programs of this size that are smaller are left to a proof first. To see whether
rounding made them takes several times as long as an evaluation."""

_TOO_WIDE = 1e3
"""Bounds that are wider than differences by this factor say nothing of them."""

_BEYOND_NOISE = 30.0
"""Of the largest change that moving every value within its rounding makes: sums of constants that were computed ahead
round once for each term, more than the noise moves them."""

_ROUNDED_SHARE = 0.1
"""Of a difference of programs that were proved equal to those asked about, up to rounded constants: the most that these
may account for."""

_BOUNDS_SHARE = 0.3
"""Of the time, for the bounds at one input."""

_LOOK_FACTOR = 3.0
"""Times the given time that a difference at first sight may take to be sure of: then nothing else is left to do."""

_ROUNDS = 3
_MORE_ROUNDS_SECONDS = 0.3
_LEAST_ONE_SIDED = 3
"""Points on which one program has finite values alone, and the other none, before that is a difference. Within bounds
it is none: they may be where one of them is not defined."""


@dataclass(frozen=True, slots=True)
class Decider:
    """An element of an input without whose value two programs do not differ at some place."""

    name: str
    index: tuple[int, ...]
    value: float | int | bool

    def __str__(self) -> str:
        return f"{_place(self.name, self.index)} = {self.value}"


@dataclass(frozen=True, slots=True)
class Difference:
    """An input on which two programs differ: arrays by name, and the first output that shows it.

    `decided` are the elements of inputs that it hangs on: with others in their place there, the difference is gone.
    """

    inputs: Mapping[str, Array]
    output: str
    index: tuple[int, ...]
    left: Mapping[str, Array]
    right: Mapping[str, Array]
    decided: Sequence[Decider] = ()

    def __str__(self) -> str:
        left, right = self.left[self.output][self.index], self.right[self.output][self.index]
        decided = f", where {' and '.join(map(str, self.decided))}" if self.decided else ""
        return f"{_place(self.output, self.index)} is {left} in the first and {right} in the second{decided}"


_REDRAWN = 3
"""Times that an input is drawn anew before it counts as one that decides nothing."""

_DECIDING_SECONDS = 0.5
_DOUBTS = 3
"""Inputs on which rounding may have made a difference, before what a sweep proves is asked."""

_ENOUGH = 3
"""Points on which programs agree that take longer to evaluate: then the time is better spent on a proof."""

_MOST_DECIDERS = 256
"""Elements of an input that are tried as the one that decides."""

_Outputs = Mapping[str, Array]
"""Of one program, by the names of the first."""


@dataclass(frozen=True, slots=True)
class Search:
    """What trying points showed: a difference, or how many points agreed.

    `defined` says that somewhere both programs had finite results: without that, agreement says nothing. `unsure` is
    the largest difference that was seen and that rounding may have made, `at` the input that showed it, and `rounding`
    the most that it may make there, None where that was not looked at; `infinite` says that infinities or NaN decided
    some of these. `more` says that it ended because inputs take long to evaluate, and others are left.
    """

    found: Difference | None
    points: int
    defined: bool
    unsure: float = 0.0
    infinite: bool = False
    more: bool = False
    rounding: float | None = None
    at: Mapping[str, Array] = field(default_factory=dict)


def refute(
    left: Program,
    right: Program,
    names: Mapping[str, str],
    seconds: float,
    seed: int = 0,
    bounds: Mapping[str, Bounds] | None = None,
) -> Search:
    """Try to tell two programs apart, outputs in order; `names` maps inputs of `right` to those of `left`.

    A difference is one that neither rounding nor constants rounded ahead of time can make: the bounds of both sides
    over the real numbers (`eqsat.proof.values.intervals`) do not overlap.
    """
    return Refutation(left, right, names, seed, bounds).look(seconds)


class Refutation:
    """A search for an input that tells two programs apart, as `refute`; it may be ended early, and gone on with."""

    def __init__(
        self,
        left: Program,
        right: Program,
        names: Mapping[str, str],
        seed: int = 0,
        bounds: Mapping[str, Bounds] | None = None,
        cores: tuple[CoreProgram, CoreProgram] | None = None,
    ) -> None:
        """`cores` are both programs in the core, over the inputs of the first, where they are known."""
        self._cores = cores or (lower(left), lower(right).with_inputs(names))
        self._pair = _Pair(left, right, names, self._cores)
        self._tolerance = self._pair.tolerance()
        self._bounds = bounds or {}
        self._untried = (
            (again, point, inputs)
            for again in range(_ROUNDS)
            for point, inputs in inputs_to_try(left, right, names, seed + again, self._bounds)
        )
        self._one_sided: Counter[str] = Counter()
        self._points, self._defined, self._unsure = 0, False, 0.0
        self._at: Mapping[str, Array] = {}
        self._doubts = 0
        self._least = 0.0

    @property
    def large(self) -> bool:
        """Whether evaluating takes so long that only clear differences count at first sight."""
        return self._pair.large

    def first_look(self, seconds: float) -> Search:
        """Try inputs: of a program that takes long to evaluate only one, and there only what differs clearly; of others
        until rounding may have made a few differences, for which what a sweep proves says more."""
        self._least = _CLEAR if self.large else 0.0
        return self.look(seconds, 1, _DOUBTS)

    def first_look_at(self, flat: Mapping[str, Array], outputs: Sequence[Sequence[Array]], seconds: float) -> Search:
        """What one of the `typical` inputs and the outputs of both programs on it show clearly; all flat."""
        self._least = _CLEAR
        self._pair.begin(seconds)
        self._points += 1
        inputs, named = self._pair.named(flat, outputs)
        found = None
        if not self._pair.divides_by_zero(inputs):
            with suppress(OutOfTime):
                found = self._difference(TYPICAL, inputs, named, False)
        return self._search(found, True)

    def look(self, seconds: float, enough: int = _ENOUGH, doubts: float = math.inf) -> Search:
        """Try inputs that were not tried before, until time is up, `enough` took long to evaluate, or as many as
        `doubts` showed a difference that rounding may have made."""
        begun = time.monotonic()
        self._pair.begin(seconds)
        slow = 0
        for again, point, inputs in self._untried:
            evaluated = time.monotonic()
            outputs = self._pair.outputs(inputs)
            if outputs is None:
                continue
            quick = time.monotonic() - evaluated < _DECIDING_SECONDS
            self._points += 1
            try:
                found = self._difference(point, inputs, outputs, quick)
            except OutOfTime:
                break
            if found is not None:
                return self._search(found)
            slow += not quick
            late = time.monotonic() - begun > (min(seconds, _MORE_ROUNDS_SECONDS) if again else seconds)
            if late or slow == enough or self._doubts >= doubts:
                break
        return self._search(None, slow == enough or self._doubts >= doubts)

    def told_apart(self, proved: CoreProgram, seconds: float) -> Search:
        """The same for a program that was proved equal to the second, up to rounded constants. A difference counts
        where these account for little of it; it says what the two programs make of its input."""
        other = Refutation(*self._pair.programs, self._pair.names, bounds=self._bounds, cores=(self._cores[0], proved))
        search = other.look(seconds)
        return search if search.found is None else replace(search, found=self._confirmed(search.found))

    def _confirmed(self, found: Difference) -> Difference | None:
        outputs = self._pair.outputs(found.inputs)
        if outputs is None:
            return None
        proved, own, other = (float(side[found.output][found.index]) for side in (found.right, outputs[1], found.left))
        close = own == proved or abs(own - proved) <= _ROUNDED_SHARE * abs(proved - other)
        return replace(found, left=outputs[0], right=outputs[1]) if close else None

    def _doubt(self, inputs: Mapping[str, Array], gap: float) -> None:
        if gap > self._unsure:
            self._unsure, self._at = gap, inputs

    def _search(self, found: Difference | None, more: bool = False) -> Search:
        pair = self._pair
        return Search(found, self._points, self._defined, self._unsure, pair.infinite, more, pair.rounding, self._at)

    def _difference(
        self, point: Point, inputs: Mapping[str, Array], outputs: Sequence[_Outputs], quick: bool
    ) -> Difference | None:
        """What one input shows. Raises OutOfTime where that cannot be said in time."""
        expected, found = outputs
        doubted = False
        for name, want in expected.items():
            both = np.isfinite(want.astype(np.float64)) & np.isfinite(found[name].astype(np.float64))
            self._defined |= bool(both.any()) or want.size == 0
            where = None
            differs = _differences(want, found[name], self._tolerance)
            if differs.any():
                doubted = True
                self._doubt(inputs, float(_gap(want, found[name])[differs].max()))
                differs &= _differences(want, found[name], max(self._tolerance, self._least))
            if differs.any():
                where = _first(self._pair.apart(inputs, name, outputs, differs))
            if not self._bounds and _one_sided(want, found[name]) and self._pair.one_sided(inputs, name, point.generic):
                self._one_sided[name] += 1
            if where is None and self._one_sided[name] >= _LEAST_ONE_SIDED:
                where, quick = (0,) * want.ndim, False
            if where is not None:
                at = name, where
                decided = _deciders(self._pair, inputs, at, self._tolerance, self._bounds) if quick else []
                return Difference(inputs, name, where, expected, found, decided)
        self._doubts += doubted
        return None


class _Pair:
    """Outputs of two programs and their bounds, by the names of the first."""

    def __init__(
        self, left: Program, right: Program, names: Mapping[str, str], cores: tuple[CoreProgram, CoreProgram]
    ) -> None:
        self.programs, self.names = (left, right), names
        self._left, self._right = map(decided_ahead, cores)
        self._exact = constants_of(self._left) & constants_of(self._right)
        self._flops = sum(map(flops, topological([*self._left.roots, *self._right.roots])))
        self._of: Mapping[str, Array] | None = None
        self._known: dict[str, tuple[Interval, Interval]] = {}
        self._noise_of: Mapping[str, Array] | None = None
        self._noises: dict[str, Array] = {}
        self._valued_of: Mapping[str, Array] | None = None
        self._valued: dict[str, tuple[bool | None, bool | None]] = {}
        self.large = self._too_wide = self._flops > _MOST_BOUNDED_FLOPS

        self.rounding: float | None = None
        """The most that rounding may make where it may account for a difference, if that was looked at."""
        self.infinite = False
        """Whether a difference was left open because of values that are infinite or not defined."""
        self.begin(0.0)

    def begin(self, seconds: float) -> None:
        """Say how long what follows may take."""
        self._seconds, self._deadline = seconds, time.monotonic() + _LOOK_FACTOR * seconds

    def tolerance(self) -> float:
        """The share of an output's scale that says nothing: constants that only one side has may account for it, or in
        a large program the rounding of float64, for which bounds are too wide."""
        types = rounded(self._left, self._exact) | rounded(self._right, self._exact)
        opaque = bool(self._left.opaque or self._right.opaque)
        return _CONSTANTS if opaque or types - {"float64"} else _NOISE * (self._flops > _MANY_FLOPS)

    def outputs(self, inputs: Mapping[str, Array]) -> tuple[_Outputs, _Outputs] | None:
        """What both programs make of inputs, by the names of the first; None where one of them has no value.

        What both compute is computed once.
        """
        left, right = self._left, self._right
        if self.divides_by_zero(inputs):
            return None
        flat = {name: np.asarray(array).reshape(-1) for name, array in inputs.items()}
        constants, opaque = {**right.constants, **left.constants}, {**right.opaque, **left.opaque}
        try:
            values = evaluate([*left.roots, *right.roots], flat, constants, opaque, "float64")
        except InputError:
            return None  # an index out of range
        count = len(left.roots)
        return self.named(flat, (values[:count], values[count:]))[1]

    def divides_by_zero(self, inputs: Mapping[str, Array]) -> bool:
        """Whether an integer is divided by zero in one of the programs: then it has no value. True where an index is
        out of range on the way."""
        theirs = {name: inputs[mine] for name, mine in self.names.items()}
        try:
            return any(_divides_by_zero(*side) for side in zip(self.programs, (inputs, theirs), strict=True))
        except InputError:
            return True

    def named(
        self, flat: Mapping[str, Array], outputs: Sequence[Sequence[Array]]
    ) -> tuple[dict[str, Array], tuple[_Outputs, _Outputs]]:
        """Flat inputs and outputs in their shapes, by the names of the first program."""
        inputs = {n: flat[n].reshape(t.shape) for n, t in inputs_of_both(*self.programs, self.names).items()}
        shaped = [
            {n: v.reshape(s) for n, v, s in zip(self._left.root_names, values, side.root_shapes, strict=True)}
            for side, values in zip((self._left, self._right), outputs, strict=True)
        ]
        return inputs, (shaped[0], shaped[1])

    def apart(self, inputs: Mapping[str, Array], name: str, outputs: Sequence[_Outputs], where: Array) -> Array:
        """Where, among some places of an output, both sides have values that cannot be equal.

        By bounds; where these grow too wide to say anything of a difference, it must be far larger than noise.
        """
        gap = _gap(*(side[name] for side in outputs))
        if not self._too_wide:
            try:
                left, right = (side.shaped(gap.shape) for side in self._bounds(inputs)[name])
            except OutOfTime:
                self._too_wide = True
            else:
                found = where & left.apart(right)
                with np.errstate(all="ignore"):
                    width = np.maximum(left.hi - left.lo, right.hi - right.lo)[where] / gap[where]
                self._too_wide = not found.any() and bool((width > _TOO_WIDE).all())
                if not self._too_wide:
                    self.infinite |= not (left.bounded & right.bounded)[where].all()
                    self._note((width * gap[where])[~found[where]])
                    return found
        scale = float(gap[np.isfinite(gap)].max(initial=0.0))
        with np.errstate(over="ignore"):
            noticed = np.broadcast_to(_BEYOND_NOISE * self._noise(inputs, name, outputs), gap.shape)
        self.infinite |= bool(np.isinf(noticed[where]).any())
        found = where & (gap > noticed) & (gap > _CONSTANTS * scale)
        self._note(noticed[where & ~found])
        return found

    def _note(self, rounding: Array) -> None:
        """Keep the most that rounding may make at some places."""
        self.rounding = max(self.rounding or 0.0, float(rounding[np.isfinite(rounding)].max(initial=0.0)))

    def _noise(self, inputs: Mapping[str, Array], name: str, outputs: Sequence[_Outputs]) -> Array | float:
        if self._noise_of is not inputs:
            self._noise_of, self._noises = inputs, self._noise_at(inputs, outputs)
        return self._noises.get(name, math.inf)

    def _noise_at(self, inputs: Mapping[str, Array], outputs: Sequence[_Outputs]) -> dict[str, Array]:
        """By how much rounding moves the outputs of both programs, by name; empty where an overflow decides."""
        samples = 1 if self._flops > _MOST_BOUNDED_FLOPS else SAMPLES
        sides = zip((self._left, self._right), outputs, strict=True)
        try:
            moved = [
                noise(side, inputs, list(clean.values()), self._exact, self._deadline, samples) for side, clean in sides
            ]
        except Overflow:
            return {}
        return {name: one + other for name, one, other in zip(outputs[0], *moved, strict=True)}

    def one_sided(self, inputs: Mapping[str, Array], name: str, generic: bool) -> bool:
        """Whether one side has values everywhere, and the other none: by bounds, which say so of poles and jumps as
        well, at generic inputs alone; else by what infinite masks leave, wherever rounding falls."""
        if generic:
            with suppress(OutOfTime):
                left, right = self._bounds(inputs)[name]
                if any(bool(a.bounded.all() and b.undefined.all()) for a, b in ((left, right), (right, left))):
                    return True
        if self._valued_of is not inputs:
            sides = [valued(side, inputs, self._exact, self._deadline) for side in (self._left, self._right)]
            self._valued_of, self._valued = (
                inputs,
                dict(zip(self._left.root_names, zip(*sides, strict=True), strict=True)),
            )
        return set(self._valued[name]) == {True, False}

    def _bounds(self, inputs: Mapping[str, Array]) -> dict[str, tuple[Interval, Interval]]:
        if self._of is not inputs:
            until = min(self._deadline, time.monotonic() + _BOUNDS_SHARE * self._seconds)
            left, right = (enclose(side, inputs, self._exact, until) for side in (self._left, self._right))
            self._of, self._known = inputs, {n: (left[n], b) for n, b in zip(left, right.values(), strict=True)}
        return self._known


def _deciders(
    pair: _Pair,
    inputs: Mapping[str, Array],
    at: tuple[str, tuple[int, ...]],
    tolerance: float,
    bounds: Mapping[str, Bounds],
) -> list[Decider]:
    """The elements that a difference hangs on: of each input that has it gone once other values are drawn for it."""
    output, where = at
    rows = numbered_rows(t for program in pair.programs for t in program.terms())
    deadline = time.monotonic() + _DECIDING_SECONDS

    def still(changed: Mapping[str, Array]) -> bool:
        outputs = pair.outputs(changed)
        return outputs is not None and bool(_differences(outputs[0][output], outputs[1][output], tolerance)[where])

    found: list[Decider] = []
    for name, term in inputs_of_both(*pair.programs, pair.names).items():
        for seed in range(_REDRAWN):
            if time.monotonic() > deadline:
                return found
            rng = np.random.default_rng(seed)
            other = drawn(term, TYPICAL, rng, rows.get(term), divides=True)
            other = bounds[name].within(other, rng) if name in bounds else other
            if still({**inputs, name: other}):
                continue
            places = list(np.ndindex(term.shape))[:_MOST_DECIDERS]
            for place in places:
                one = inputs[name].copy()
                one[place] = other[place]
                if not still({**inputs, name: one}):
                    found.append(Decider(name, place, inputs[name][place].item()))
                    break
            break
    return found


def _place(name: str, index: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def _divides_by_zero(program: Program, inputs: Mapping[str, Array]) -> bool:
    """Whether an integer is divided by zero: then the program has no value."""
    divisors = [t.args[1] for t in program.terms() if t.op in ("div", "mod") and not is_float(t.dtype)]
    if not divisors:
        return False
    asked = Program(program.inputs, {str(i): t for i, t in enumerate(dict.fromkeys(divisors))})
    given = {name: inputs[name] for name in program.input_names}
    return any((value == 0).any() for value in asked.run(given, "float64").values())


def _gap(want: Array, found: Array) -> Array:
    """How far two outputs are apart."""
    with np.errstate(invalid="ignore"):
        return np.abs(want.astype(np.float64) - found.astype(np.float64))


def _differences(want: Array, found: Array, tolerance: float) -> Array:
    """Where two outputs differ at first sight; not where only one of them is finite."""
    if want.dtype.kind not in "fV":
        return want != found
    sizes = [np.abs(x.astype(np.float64)) for x in (want, found)]
    both = np.isfinite(sizes[0]) & np.isfinite(sizes[1])
    scale = max(float(size[both].max(initial=0.0)) for size in sizes)
    with np.errstate(invalid="ignore"):
        return both & (_gap(want, found) > np.maximum(tolerance * scale, _NOTICED * np.maximum(*sizes)))


def _first(where: Array) -> tuple[int, ...] | None:
    return tuple(int(i) for i in np.argwhere(where)[0]) if where.any() else None


def _one_sided(want: Array, found: Array) -> bool:
    """Whether one output is finite everywhere and the other nowhere."""
    a, b = (np.isfinite(x.astype(np.float64)) for x in (want, found))
    return bool(want.size and ((a.all() and not b.any()) or (b.all() and not a.any())))
