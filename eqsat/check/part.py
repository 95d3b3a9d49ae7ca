"""The comparison of some values of two programs on random inputs: in full where that is cheap, or by samples.

Of expensive values, only some elements and weighted sums along each axis are computed, and only the values that these
need (`eqsat.check.demand`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import ml_dtypes
import numpy as np

from eqsat.base.compare import relative_error
from eqsat.base.numerics import ELEMENTWISE, Array, is_float, np_dtype
from eqsat.check.cuts import Compared, varying
from eqsat.check.demand import Demanded, Inputs
from eqsat.check.inputs import Drawn
from eqsat.check.means import Means
from eqsat.check.rounding import NOISE, Pair, Rounding
from eqsat.check.strata import borders, positions
from eqsat.check.wanted import Demand, Sums, Wanted, everything
from eqsat.errors import CheckFailed
from eqsat.program import ops
from eqsat.program.term import Term, make, topological

POINTS = 2
"""Number of random inputs for parts that are evaluated in full."""

SPEED = 1_000_000_000
"""Operations per second, at least. A part that would take longer than its share of the time left is sampled."""

OVERHEAD = 5_000_000
"""Operations that take as long as preparing to evaluate a part."""

ALWAYS = 0.1
"""Share of the operations always allowed that is still computed in full when no time is left: less than choosing
samples would cost."""

PER_WEIGHT = 96
"""Operations allowed to a part for each element of its constants: reading one element takes as long."""

SAVING = 0.4
"""Largest share of an expensive part's operations for its cheapest probes; above it, it is evaluated in full, once."""

SAMPLES = (48, 24, 12, 6)
"""Elements sampled along an axis of an expensive value: the largest number that fits half of the allowed operations.
They include the first, the last, and both sides of borders (`eqsat.check.strata`)."""

CORNERS = (16, 4)
"""Elements along every axis at once, where there is no time for more: the larger number that is always allowed, or the
smaller one. Of a convolution, this reads a few windows of a few channels."""

CHOOSING = 0.03
"""Seconds from which samples along single axes are compared: choosing them takes some milliseconds for each."""

SUMS = 2
"""Weighted sums along an axis. Apart from rounding, each misses an error with probability zero."""

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest difference ever accepted, as a share of an output's scale, by the narrowest float of the program."""

LAST_PLACE = {name: max(1e-9, float(ml_dtypes.finfo(np_dtype(name)).eps)) for name in TOLERANCE}
"""Relative difference of sums above which the elements of the worst sums are compared one by one."""

NEGLIGIBLE = {name: max(1e-9, eps / 16) for name, eps in LAST_PLACE.items()}
"""Difference that needs no explanation. In float64, only the rounding of the result's constants to their type should
show; it must explain any larger difference (`eqsat.check.rounding`)."""

EXACT = 1e-9
"""`LAST_PLACE` and `NEGLIGIBLE` when constants are compared separately: then only float64 itself rounds."""

_DECIDING = frozenset({"floor", "ceil", "round", "sign", "mod", "equal", "less", "less_equal", "greater",
                       "greater_equal"})  # fmt: skip
"""Functions whose result may change entirely with the last place of an operand."""


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of a check.

    Attributes:
        max_error: the largest error relative to the scale of its output.
        points: random inputs tried.
        parts: how many parts are the same terms in both programs (`same`), were evaluated in full (`full`), or by
            samples and sums (`sampled`).
        missed: the probability that a single wrong element goes unseen, the largest over all outputs of parts. It
            concerns values that depend on inputs; constants are compared separately (`eqsat.check.folded`).
    """

    max_error: float
    points: int
    parts: Mapping[str, int] = field(default_factory=dict)
    missed: float = 0.0

    def __add__(self, other: Check) -> Check:
        """Combine two outcomes."""
        parts = {kind: n + other.parts.get(kind, 0) for kind, n in self.parts.items()}
        points = max(self.points, other.points)
        return Check(max(self.max_error, other.max_error), points, parts, max(self.missed, other.missed))

    def as_json(self) -> dict[str, object]:
        """As in the report."""
        method = "float64, sampled" if self.parts.get("sampled") else "float64"
        return {
            "passed": True,
            "max_error": self.max_error,
            "points": self.points,
            "method": method,
            "parts": dict(self.parts),
            "missed": self.missed,
        }


Special = Literal["same", "placed", "hidden"]
"""What may become of the source's NaN and infinities: nothing; one another; anything."""


class OutOfRange(CheckFailed):
    """A value is NaN or infinite in only one of the programs."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of all parts.

    Attributes:
        narrowest: the narrowest float type of the program.
        drawn: the random inputs of all parts.
        special: what may become of NaN and infinities.
        means: time and memory.
        exact: constants are compared separately, and computed in float64 here.
    """

    narrowest: str | None
    drawn: Drawn
    special: Special
    means: Means
    exact: bool


class Part:
    """Values of both programs that are compared on random inputs.

    Attributes:
        inputs: the inputs and stand-ins of both programs.
        one_sided: whether the source has one of these that the result does not have.
    """

    def __init__(self, values: Mapping[str, Compared], settings: Settings, number: int = 0) -> None:
        """`number` is the part's, for its random numbers."""
        self.values = {name: x for name, x in values.items() if not x.unchanged and x.source.size}
        self.drawn, self.special, self.exact, self.number = settings.drawn, settings.special, settings.exact, number
        self.seed = settings.drawn.seed
        narrowest = settings.narrowest or ""
        self.tolerance = TOLERANCE.get(narrowest, 0.0)
        bounds = (EXACT, EXACT) if self.exact else (LAST_PLACE.get(narrowest, 0.0), NEGLIGIBLE.get(narrowest, 0.0))
        self.last_place, self.negligible = bounds
        self.worst = self.missed = 0.0
        self.spent = 0
        terms = topological([term for x in self.values.values() for term in x])
        self.inputs = [term for term in terms if term.op == "input"]
        source, result = (_inputs_below([x[i] for x in self.values.values()]) for i in (0, 1))
        self.one_sided = not source <= result
        self.decided = _decided(terms)
        self.weights = sum(term.size for term in terms if term.op == "constant")
        self.cheap, self.allowed, self.until = 0, 0.0, math.inf
        self.means = settings.means
        wide = [term for x in self.values.values() for term in (x.source, x.meaning)]
        self.whole = Demanded({term: everything(term) for term in wide}, self.exact)

    def work(self, cheap: int) -> int:
        """Operations that the part would take if there were time enough, of which `cheap` are always allowed."""
        return OVERHEAD + min(self.whole.flops, cheap + PER_WEIGHT * self.weights)

    def least(self) -> int:
        """Operations of the cheapest comparison: in full, or by a few elements of each value."""
        return min(self.whole.flops, sum(self._corners(x).flops for x in self.values.values()))

    def run(self, points: int, cheap: int, seconds: float) -> Check:
        """Compare; on one random input only, if the next would take longer than the time left. When no time is left, in
        float64 only, and by a few elements if that saves anything.

        Args:
            points: random inputs to try.
            cheap: operations that are always allowed.
            seconds: time for this part; the cheapest probe is compared even if it takes longer.

        Raises:
            CheckFailed: a value differs.
            CheckTooLarge, CheckUndecided: even the cheapest probe takes more memory or time than there is.
        """
        self.until = time.monotonic() + seconds
        self.cheap = cheap
        self.allowed = max(ALWAYS * cheap, min(cheap + PER_WEIGHT * self.weights, SPEED * seconds))
        large = self.whole.peak_bytes() > self.means.memory
        dear = self.whole.flops > self.allowed
        probes = {name: self._probes(x) for name, x in self.values.items()} if large or dear else {}
        saving = SAVING if self._left() > 0 else 1.0
        sampled = large or (sum(p[0].flops for p in probes.values()) < saving * self.whole.flops and bool(probes))
        kind = "same" if not self.values else "sampled" if sampled else "full"
        tried, settled, took = 0, False, 0.0
        if kind == "full":
            self.means.require(self.whole, f"a value of {next(iter(self.values.values())).source.spec}")
            for point in range(points):
                if point and ((settled and (point + 1) * self.whole.flops > self.cheap) or self._left() <= took):
                    break
                begun = time.monotonic()
                self.spent += self.whole.flops
                settled = self._compare_all(point, self._left() > 0)
                tried, took = point + 1, time.monotonic() - begun
        elif kind == "sampled":
            tried = 1
            for name, x in self.values.items():
                self._sample(name, x, probes[name])
        return Check(self.worst, tried, {"same": 0, "full": 0, "sampled": 0} | {kind: 1}, self.missed)

    def _left(self) -> float:
        return 0.0 if self.means.stopped() else self.until - time.monotonic()

    def _inputs(self, point: int) -> Inputs:
        return self.drawn.values(self.inputs, point)

    def _compare_all(self, point: int, natively: bool) -> bool:
        """Compare all values on a random input, and once more in their own types if asked. False if not all are finite
        there, so that the input says little."""
        inputs, demanded = self._inputs(point), self.whole
        wide = dict(zip(demanded.wanted, demanded.run(inputs), strict=True))
        rounding = {name: Rounding((x.source, x.meaning), everything(x.source), inputs, self.exact)
                    for name, x in self.values.items()}  # fmt: skip
        for name, (s, _, q) in self.values.items():
            self._judge(name, wide[s], wide[q], rounding[name])
        if natively and not self.decided:
            native = Demanded({t: everything(t) for x in self.values.values() for t in (x.source, x.result)})
            own = dict(zip(native.wanted, native.run(inputs, "native"), strict=True))
            for name, (s, r, _) in self.values.items():
                self._judge_own(name, wide[s], own[s], own[r], rounding[name])
        return all(np.isfinite(wide[x.source]).all() for x in self.values.values())

    def _judge(self, name: str, want: Array, found: Array, rounding: Rounding) -> None:
        if self.special != "same" and want.dtype.kind == "f":
            ignored = ~np.isfinite(want)
            if self.special == "placed":
                ignored &= ~np.isfinite(found)
            want, found = np.where(ignored, 0.0, (want, found))
        error = relative_error(found, want)
        allowed = f"{self.tolerance:.0e} allowed"
        right = error <= self.tolerance
        if right and error > self.negligible and not self.decided:
            right = rounding.explains(want, found, self.negligible)
            allowed = "more than rounding explains"
        if not right:
            if not _decided(topological(rounding.pair)) and rounding.is_noise(want, found):
                return
            raise (CheckFailed if np.isfinite(error) else OutOfRange)(
                f"{name} differs from the source by {error:.2e} of its scale on random inputs "
                f"(seed {self.seed}; {allowed})"
            )
        self.worst = max(self.worst, error)

    def _judge_own(self, name: str, exact: Array, want: Array, found: Array, rounding: Rounding) -> None:
        """Compare in the program's own types. Overflow is judged by `eqsat.check.overflow`, on actual values.

        Where these are float64, `exact` rounds as `want` does, and does not show how much of `want` is rounding.
        """
        if exact.dtype.kind != "f":
            return
        a, b = found.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(exact)
        if not finite.any():
            return
        of = exact[finite]
        a, b = a[finite], b[finite]
        scale = max(float(np.abs(of).max()), float(np.finfo(np.float32).tiny))
        noise = float(np.abs(b - of).max()) / scale
        error = float(np.abs(a - b).max()) / scale
        allowed = max(self.tolerance, NOISE * noise)
        double = self.tolerance == TOLERANCE["float64"]
        if error > allowed and not (double and rounding.is_noise(exact, found.astype(np.float64))):
            raise CheckFailed(
                f"{name} differs from the source by {error:.2e} of its scale in the program's own types on random "
                f"inputs (seed {self.seed}; {allowed:.0e} allowed)"
            )

    # Samples

    def _sample(self, name: str, values: Compared, probes: Sequence[_Probe]) -> None:
        """Compare elements and sums along each axis as far as the budget allows; at least the cheapest probe."""
        unseen, before = 1.0, self.spent
        for i, probe in enumerate(probes):
            if i and (self.spent - before + probe.flops > self.allowed or self._left() <= 0):
                break
            self.spent += probe.flops
            seen = self._compare_sums(name, values, probe) if probe.sums else self._compare_some(name, values, probe)
            unseen *= 1 - seen
        self.missed = max(self.missed, unseen)

    def _probes(self, values: Compared) -> list[_Probe]:
        """The possible probes, the cheapest first: in short time, only some elements along all axes at once."""
        probes = self._axis_probes(values) if self._left() > CHOOSING else []
        most = max(self.allowed, SPEED * self._left())
        if not probes or probes[0].flops > most:
            probes = [self._corners(values)]
        fitting = [probe for probe in probes if probe.bytes <= self.means.memory]
        self.means.require((fitting or probes)[0].demanded, f"a value of {values.source.spec}")
        return fitting

    def _axis_probes(self, values: Compared) -> list[_Probe]:
        """Samples and sums along each axis, the cheapest first."""
        s = values.source
        pair = s, values.meaning
        rng = self._rng(s)
        inner = _linear_part(pair)
        inside = borders(pair)
        probes = []
        for axis, n in enumerate(s.shape):
            for count in SAMPLES:
                if n > count:
                    probe = self._probe(pair, _along(s, axis, positions(n, inside[axis], count, rng)))
                    if probe.flops <= self.allowed // 2 or count == SAMPLES[-1]:
                        probes.append(probe)
                        break
        for axis, n in enumerate(inner[0].shape):
            fits = n * PER_WEIGHT <= self.allowed and 8 * SUMS * n <= self.means.memory
            if n > SAMPLES[-1] and is_float(s.dtype) and fits:
                sums = Sums(rng.choice([-1.0, 1.0], (SUMS, n)))
                probes.append(self._probe(inner, _along(inner[0], axis, sums), sums=True))
        return sorted((probe for probe in probes if probe.bytes <= self.means.memory), key=lambda probe: probe.flops)

    def _corners(self, values: Compared) -> _Probe:
        """A few elements along all axes at once, on both sides of borders among them."""
        s = values.source
        pair = s, values.meaning
        rng, inside = self._rng(s), borders(pair)
        probes = (
            self._probe(
                pair, tuple(positions(n, of, count, rng, seen=0) for n, of in zip(s.shape, inside, strict=True))
            )
            for count in (CORNERS if self._left() > 0 else CORNERS[1:])
        )
        probe = next(probes)
        fits = probe.flops <= self.allowed and probe.bytes <= self.means.memory
        return probe if fits else next(probes, probe)

    def _rng(self, value: Term) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.number, value.size])

    def _probe(self, pair: Pair, demand: Demand, *, sums: bool = False) -> _Probe:
        demanded = Demanded(dict.fromkeys(pair, demand), self.exact)
        return _Probe(pair, demand, sums, demanded)

    def _compare_some(self, name: str, values: Compared, probe: _Probe) -> float:
        """Compare some elements, in their own types as well while there is time, and return their share of all."""
        s, r, q = values
        share = 0.0
        for point in range(POINTS):
            inputs = self._inputs(point)
            want, found = probe.demanded.run(inputs)
            rounding = Rounding((s, q), probe.demand, inputs, self.exact)
            self._judge(name, want, found, rounding)
            if self._left() > 0 and not self.decided:
                own = Demanded({s: probe.demand, r: probe.demand}).run(inputs, "native")
                self._judge_own(name, want, own[0], own[-1], rounding)  # one where both are the same term
            share = np.isfinite(want).sum() / s.size
            if share == want.size / s.size:  # otherwise logarithms or roots of negative numbers
                break
        return float(share)

    def _compare_sums(self, name: str, values: Compared, probe: _Probe) -> float:
        """Compare sums, and return the probability of seeing one wrong element: 0 if the sums overflow."""
        s, q = probe.pair
        for point in range(POINTS):
            want, found = probe.demanded.run(self._inputs(point))
            if np.isfinite(want).all() and np.isfinite(found).all():
                break
        else:
            return 0.0
        error = relative_error(found, want)
        if error <= self.last_place / math.sqrt(s.size / want.size):
            return 1.0
        # Sums over n elements are larger than the elements by sqrt(n): look at the worst one by one.
        place = np.unravel_index(np.abs(found - want).argmax(), want.shape)
        axes = [i for i, w in enumerate(probe.demand) if w is None and s.shape[i] > 1]
        axis = max(axes, key=lambda i: s.shape[i], default=None)
        if axis is None:
            return 0.0
        index = np.array([place[axis]])
        whole = values if values.source.shape == s.shape else Compared(s, q, q)
        self._compare_some(name, whole, self._probe((s, q), _along(s, axis, index)))
        return 1.0


@dataclass(frozen=True, slots=True)
class _Probe:
    pair: Pair
    demand: Demand
    sums: bool
    demanded: Demanded

    @property
    def flops(self) -> int:
        return self.demanded.flops

    @property
    def bytes(self) -> int:
        return self.demanded.peak_bytes()


def _inputs_below(roots: Sequence[Term]) -> set[Term]:
    return {term for term in topological(roots) if term.op == "input"}


def _along(term: Term, axis: int, wanted: Wanted) -> Demand:
    return (*(None,) * axis, wanted, *(None,) * (term.ndim - axis - 1))


def _linear_part(pair: Pair) -> Pair:
    """A simpler pair whose equality implies that of the pair: the operands of equal functions of one operand."""
    s, r = map(_function_last, pair)
    while s.op == r.op and s.attrs == r.attrs and s.op in ELEMENTWISE and s.op not in ("add", "sub", "neg"):
        differing = [(a, b) for a, b in zip(s.args, r.args, strict=True) if a is not b]
        if len(differing) != 1:
            break
        s, r = map(_function_last, differing[0])
    return s, r


def _function_last(term: Term) -> Term:
    """Move a unary function out of a view: view(f(x)) becomes f(view(x))."""
    views = []
    at = term
    while ops.row(at.op).view:
        views.append(at)
        (at,) = at.args
    if not views or at.op not in ops.UNARY:
        return term
    (inner,) = at.args
    for view in reversed(views):
        inner = make(view.op, inner, **dict(view.attrs))
    return make(at.op, inner)


def _decided(terms: Sequence[Term]) -> bool:
    """Whether floats computed from inputs are rounded to integers or compared, so that the last place may decide. It
    does not where the smaller or larger of two is chosen."""
    varies = {term for term in varying(terms) if not _given(term)}
    only_choose = _comparisons_that_only_choose(terms)
    for term in terms:
        if term not in only_choose and not varies.isdisjoint(term.args) and is_float(term.args[0].dtype):
            chosen = term.op == "reduce" and term.attr("kind") in ("argmax", "argmin")
            compares = term.op in _DECIDING and not (len(term.args) > 1 and term.args[0] is term.args[1])  # x == x: NaN
            if compares or chosen or (term.op == "cast" and not is_float(term.dtype)):
                return True
    return False


def _given(term: Term) -> bool:
    """Whether a term holds elements of an input as they are."""
    while ops.row(term.op).view:
        term = term.args[0]
    return term.op == "input"


def _comparisons_that_only_choose(terms: Sequence[Term]) -> set[Term]:
    """Comparisons whose only readers choose one of the two operands."""
    chooses: dict[Term, bool] = {}
    for term in terms:
        for arg in term.args:
            if arg.op in ("less", "less_equal", "greater", "greater_equal"):
                between = term.op == "where" and term.args[0] is arg and set(term.args[1:]) == set(arg.args)
                chooses[arg] = chooses.get(arg, True) and between
    return {term for term, only in chooses.items() if only}
