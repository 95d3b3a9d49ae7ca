"""The comparison of some values of two programs on random inputs: in full where that is cheap, or by samples.

Of expensive values, only some elements and weighted sums along each axis are computed, and only the values that these
need (`eqsat.check.demand`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import ml_dtypes
import numpy as np

from eqsat.base.compare import relative_error
from eqsat.base.numerics import ELEMENTWISE, Array, is_float, np_dtype
from eqsat.check.cuts import Compared, varying
from eqsat.check.demand import Demanded
from eqsat.check.inputs import random_values
from eqsat.check.rounding import NOISE, Pair, Rounding
from eqsat.check.strata import borders, positions
from eqsat.check.wanted import Demand, Sums, Wanted, everything
from eqsat.errors import CheckFailed, CheckTooLarge
from eqsat.program import ops
from eqsat.program.term import Term, make, topological

POINTS = 2
"""Number of random inputs for parts that are evaluated in full."""

SPEED = 1_000_000_000
"""Operations per second, at least. A part that would take longer than the time left is sampled."""

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

Left = Callable[[], float]
"""Returns the seconds left."""


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
        special: what may become of NaN and infinities.
        exact: constants are compared separately, and computed in float64 here.
    """

    narrowest: str | None
    seed: int
    special: Special
    memory: int | None
    exact: bool


class Part:
    """Values of both programs that are compared on random inputs."""

    def __init__(
        self,
        values: Mapping[str, Compared],
        settings: Settings,
        cheap: int,
        number: int = 0,
        seconds: float = math.inf,
    ) -> None:
        """`cheap` operations are always allowed; `number` is the part's, for its random numbers."""
        self.values = {name: x for name, x in values.items() if x.source is not x.meaning}
        self.seed, self.special, self.exact, self.number = settings.seed, settings.special, settings.exact, number
        narrowest = settings.narrowest or ""
        self.tolerance = TOLERANCE.get(narrowest, 0.0)
        bounds = (EXACT, EXACT) if self.exact else (LAST_PLACE.get(narrowest, 0.0), NEGLIGIBLE.get(narrowest, 0.0))
        self.last_place, self.negligible = bounds
        self.worst = self.missed = 0.0
        self.spent = 0
        self._drawn: tuple[int, dict[str, Array]] | None = None
        terms = topological([term for x in self.values.values() for term in x])
        self.inputs = [term for term in terms if term.op == "input"]
        self.decided = _decided(terms)
        weights = sum(term.size for term in terms if term.op == "constant")
        self.cheap = cheap
        self.allowed = max(ALWAYS * cheap, min(cheap + PER_WEIGHT * weights, SPEED * seconds))
        self.memory = math.inf if settings.memory is None else settings.memory
        wide = [term for x in self.values.values() for term in (x.source, x.meaning)]
        self.whole = Demanded({term: everything(term) for term in wide}, self.exact)

    def run(self, points: int, left: Left) -> Check:
        """Compare; on one random input only, if the next would take longer than the time left. When no time is left, in
        float64 only, and by the cheapest probe if it saves anything.

        Raises:
            CheckFailed: a value differs.
        """
        large = self.whole.peak_bytes() > self.memory
        dear = self.whole.flops > self.allowed
        probes = {name: self._probes(x) for name, x in self.values.items()} if large or dear else {}
        saving = SAVING if left() > 0 else 1.0
        sampled = large or (sum(p[0].flops for p in probes.values()) < saving * self.whole.flops and bool(probes))
        kind = "same" if not self.values else "sampled" if sampled else "full"
        tried, settled, took = 0, False, 0.0
        if kind == "full":
            for point in range(points):
                if point and ((settled and (point + 1) * self.whole.flops > self.cheap) or left() <= took):
                    break
                begun = time.monotonic()
                self.spent += self.whole.flops
                settled = self._compare_all(point, left() > 0)
                tried, took = point + 1, time.monotonic() - begun
        elif kind == "sampled":
            tried = 1
            for name, x in self.values.items():
                self._sample(name, x, probes[name], left)
        return Check(self.worst, tried, {"same": 0, "full": 0, "sampled": 0} | {kind: 1}, self.missed)

    def _inputs(self, point: int) -> dict[str, Array]:
        if self._drawn is None or self._drawn[0] != point:
            self._drawn = point, random_values(self.inputs, point, self.seed)
        return self._drawn[1]

    def _compare_all(self, point: int, natively: bool) -> bool:
        """Compare all values on a random input, and once more in their own types if asked. False if not all are finite
        there, so that the input says little."""
        inputs, demanded = self._inputs(point), self.whole
        wide = dict(zip(demanded.wanted, demanded.run(inputs), strict=True))
        own: dict[Term, Array] = {}
        if natively and not self.decided:
            native = Demanded({t: everything(t) for x in self.values.values() for t in (x.source, x.result)})
            own = dict(zip(native.wanted, native.run(inputs, "native"), strict=True))
        for name, (s, r, q) in self.values.items():
            self._judge(name, wide[s], wide[q], Rounding((s, q), everything(s), inputs, self.exact))
            if own:
                self._judge_own(name, wide[s], own[s], own[r])
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

    def _judge_own(self, name: str, exact: Array, want: Array, found: Array) -> None:
        """Compare in the program's own types. Overflow is judged by `eqsat.check.overflow`, on actual values."""
        if exact.dtype.kind != "f":
            return
        a, b = found.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(exact)
        if not finite.any():
            return
        a, b, exact = a[finite], b[finite], exact[finite]
        scale = max(float(np.abs(exact).max()), float(np.finfo(np.float32).tiny))
        noise = float(np.abs(b - exact).max()) / scale
        error = float(np.abs(a - b).max()) / scale
        allowed = max(self.tolerance, NOISE * noise)
        if error > allowed:
            raise CheckFailed(
                f"{name} differs from the source by {error:.2e} of its scale in the program's own types on random "
                f"inputs (seed {self.seed}; {allowed:.0e} allowed)"
            )

    # Samples

    def _sample(self, name: str, values: Compared, probes: Sequence[_Probe], left: Left) -> None:
        """Compare elements and sums along each axis as far as the budget allows; at least the cheapest probe."""
        unseen, before = 1.0, self.spent
        for i, probe in enumerate(probes):
            if i and (self.spent - before + probe.flops > self.allowed or left() <= 0):
                break
            self.spent += probe.flops
            if probe.sums:
                seen = self._compare_sums(name, values, probe, left)
            else:
                seen = self._compare_some(name, values, probe.demand, left)
            unseen *= 1 - seen
        self.missed = max(self.missed, unseen)

    def _probes(self, values: Compared) -> list[_Probe]:
        """All possible probes, the cheapest first."""
        s = values.source
        pair = s, values.meaning
        rng = np.random.default_rng([self.seed, self.number, s.size])
        inner = _linear_part(pair)
        inside = borders(pair)
        probes = []
        for axis, n in enumerate(s.shape):
            for count in SAMPLES:
                if n > count:
                    probe = self._probe(pair, _along(s, axis, positions(n, inside[axis], count, rng)), sums=False)
                    if probe.flops <= self.allowed // 2 or count == SAMPLES[-1]:
                        probes.append(probe)
                        break
        for axis, n in enumerate(inner[0].shape):
            if n > SAMPLES[-1] and is_float(s.dtype) and n * PER_WEIGHT <= self.allowed:
                sums = Sums(rng.choice([-1.0, 1.0], (SUMS, n)))
                probes.append(self._probe(inner, _along(inner[0], axis, sums), sums=True))
        fitting = [
            probe for probe in probes or [self._probe(pair, everything(s), sums=False)] if probe.bytes <= self.memory
        ]
        if not fitting:
            raise CheckTooLarge(
                f"a value of {s.spec} cannot be checked within the memory limit, {self.memory / 2**20:.0f} MiB left"
            )
        return sorted(fitting, key=lambda probe: probe.flops)

    def _probe(self, pair: Pair, demand: Demand, *, sums: bool) -> _Probe:
        demanded = Demanded(dict.fromkeys(pair, demand), self.exact)
        return _Probe(pair, demand, sums, demanded.flops, demanded.peak_bytes())

    def _compare_some(self, name: str, values: Compared, demand: Demand, left: Left) -> float:
        """Compare some elements, in their own types as well while there is time, and return their share of all."""
        s, r, q = values
        demanded = Demanded({s: demand, q: demand}, self.exact)
        share = 0.0
        for point in range(POINTS):
            inputs = self._inputs(point)
            want, found = demanded.run(inputs)
            self._judge(name, want, found, Rounding((s, q), demand, inputs, self.exact))
            if left() > 0 and not self.decided:
                own = Demanded({s: demand, r: demand}).run(inputs, "native")
                self._judge_own(name, want, own[0], own[-1])  # one where both are the same term
            share = np.isfinite(want).sum() / s.size
            if share == want.size / s.size:  # otherwise logarithms or roots of negative numbers
                break
        return float(share)

    def _compare_sums(self, name: str, values: Compared, probe: _Probe, left: Left) -> float:
        """Compare sums, and return the probability of seeing one wrong element: 0 if the sums overflow."""
        s, q = probe.pair
        demanded = Demanded({s: probe.demand, q: probe.demand}, self.exact)
        for point in range(POINTS):
            want, found = demanded.run(self._inputs(point))
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
        self._compare_some(name, whole, _along(s, axis, index), left)
        return 1.0


@dataclass(frozen=True, slots=True)
class _Probe:
    pair: Pair
    demand: Demand
    sums: bool
    flops: int
    bytes: int


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
    """Whether floats that depend on inputs are rounded to integers or compared, so that the last place may decide."""
    varies = varying(terms)
    for term in terms:
        if term.args and term.args[0] in varies and is_float(term.args[0].dtype):
            chosen = term.op == "reduce" and term.attr("kind") in ("argmax", "argmin")
            compares = term.op in _DECIDING and not (len(term.args) > 1 and term.args[0] is term.args[1])  # x == x: NaN
            if compares or chosen or (term.op == "cast" and not is_float(term.dtype)):
                return True
    return False
