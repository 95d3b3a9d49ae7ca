"""The check that every result passes before it is returned: source and result on random inputs.

Both are evaluated in float64, with what depends on constants alone in the program's own element types, and once more
wholly in those types. The cost is about that of reading the weights: what is cheap is evaluated in full, of what is not
some elements and weighted sums along each axis are, with nothing that these do not need (`eqsat.check.demand`). Where
the optimiser says which values of both programs correspond, each part between them is checked by itself.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from eqsat.base.numerics import ELEMENTWISE, dtype_name, is_float, np_dtype
from eqsat.check.demand import Demand, Demanded, Sums, Wanted, everything
from eqsat.check.rounding import NOISE, Pair, Rounding, scale
from eqsat.check.strata import borders, positions
from eqsat.errors import CheckFailed, CheckTooLarge
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term, make, topological

SEED = 0
"""Of the random inputs."""

POINTS = 2
"""Random inputs of what is evaluated in full."""

CHEAP = 1_000_000_000
"""Operations, shared by all parts, that are always allowed: about a tenth of a second."""

DECIDING = 3
"""Times as many random inputs where the whole program decides about a part that differs: it may hide a fault there."""

SPEED = 1_000_000_000
"""Operations that are evaluated in a second, at least: a part that takes longer than the time left is sampled."""

ALWAYS = 0.1
"""Share of what is always allowed where there is no time left: less than choosing samples costs."""

PER_WEIGHT = 96
"""Operations of a part that are allowed for each element of its constants: reading one takes as long."""

SAVING = 0.4
"""Share of the operations of a dear part that its cheapest probes may take: else it is evaluated in full, once."""

SAMPLES = (48, 24, 12, 6)
"""Elements along an axis of what is too dear to evaluate in full, the first and the last and the sides of borders
(`eqsat.check.strata`) among them: the most that half of the allowed operations give."""

SUMS = 2
"""Weighted sums along an axis: each misses an error with probability zero, but for rounding."""

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest difference, as a share of an output's scale, by the narrowest float of the program, whatever explains it."""

LAST_PLACE = {name: max(1e-9, float(ml_dtypes.finfo(np_dtype(name)).eps)) for name in TOLERANCE}
"""Difference that sums of elements may have before the elements of the largest are looked at, as a share of each."""

NEGLIGIBLE = {name: max(1e-9, eps / 16) for name, eps in LAST_PLACE.items()}
"""Difference up to which nothing needs an explanation. In float64 only the rounding of the result's constants to their
type may show: what is more has to be explained by it (`eqsat.check.rounding`)."""

_DECIDING = frozenset({"floor", "ceil", "round", "sign", "mod", "equal", "less", "less_equal", "greater",
                       "greater_equal"})  # fmt: skip
"""Functions that make much of a difference in the last place."""

Array = np.ndarray
Left = Callable[[], float]
"""Seconds left."""


@dataclass(frozen=True, slots=True)
class Check:
    """Outcome.

    Attributes:
        max_error: the largest error relative to the scale of its output.
        points: random inputs tried.
        parts: how many parts of the program are the same terms in both (`same`), were evaluated in full (`full`), by
            samples and sums (`sampled`).
        missed: the largest probability, over all outputs of parts, that one wrong element of it goes unseen.
    """

    max_error: float
    points: int
    parts: Mapping[str, int] = field(default_factory=dict)
    missed: float = 0.0

    def __add__(self, other: Check) -> Check:
        """Both outcomes as one."""
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


def check(
    source: Program,
    result: Program,
    points: int | None = None,
    seed: int = SEED,
    seconds: float | None = None,
    cuts: Sequence[Sequence[Pair]] = (),
    finite: bool = False,
    memory: int | None = None,
) -> Check:
    """Compare both programs on random inputs.

    Args:
        points: random inputs to try; `POINTS` by default.
        seconds: time for all parts; of one that would take longer than what is left, the cheapest probe is taken.
        cuts: values inside the programs that correspond, in groups that are checked together, each group after those
            that it depends on. What reads them is checked on random values in their place.
        memory: bytes that values may take; by default as many as there are.
        finite: compare only where the source is finite: rewriting may hide NaN and infinities.

    Raises:
        CheckFailed: an output is missing, has another shape or dtype, or differs.
        CheckTooLarge: not even samples of a value can be computed within `memory`.
    """
    if list(source.outputs) != list(result.outputs):
        raise CheckFailed(f"outputs {list(result.outputs)} are not those of the source, {list(source.outputs)}")
    for name, term in source.outputs.items():
        other = result.outputs[name]
        if (term.shape, term.dtype) != (other.shape, other.dtype):
            raise CheckFailed(f"output {name!r} is {other.spec} where the source gives {term.spec}")
    begun = time.monotonic()

    def left() -> float:
        return math.inf if seconds is None else seconds - (time.monotonic() - begun)

    narrowest = max((t.dtype for t in source.terms() if is_float(t.dtype)), key=TOLERANCE.__getitem__, default=None)
    outputs = {f"output {name!r}": (term, result.outputs[name]) for name, term in source.outputs.items()}
    wanted = POINTS if points is None else points
    try:
        found = Check(0.0, 0)
        for number, pairs in enumerate(_parts(cuts, outputs)):
            part = _Part(pairs, narrowest, seed, CHEAP // (1 + len(cuts)), finite, memory, number, left())
            found = part.run(wanted, left) + found
    except _OutOfRange:
        # Values as they occur may lie where both are defined; random ones in their place need not.
        if not cuts:
            raise
        return _Part(outputs, narrowest, seed, CHEAP, finite, memory, seconds=left()).run(wanted, left)
    except CheckTooLarge:
        raise
    except CheckFailed as inside:
        # Random values in place of some that are tied to each other say nothing: the whole programs decide.
        if not cuts:
            raise
        try:
            return _Part(outputs, narrowest, seed, sys.maxsize, finite, memory).run(DECIDING * wanted, left)
        except CheckFailed:
            raise inside from None
    return found


def _parts(cuts: Sequence[Sequence[Pair]], outputs: Mapping[str, Pair]) -> Iterator[dict[str, Pair]]:
    """What to compare: each group over inputs in place of the values of the groups before it."""
    before: tuple[dict[Term, Term], dict[Term, Term]] = ({}, {})
    number = 0
    varies = _varying(topological([term for group in cuts for pair in group for term in pair]))
    for group in cuts:
        pairs = [(s, r) for s, r in group if s.args and s not in before[0] and s in varies and r in varies]
        part = {f"the value {s.spec}": _over((s, r), before) for s, r in pairs}
        for s, r in pairs:
            stand_in = ops.input(f"%{number}", s.shape, s.dtype)
            number += 1
            before[0][s], before[1][r] = stand_in, stand_in
        yield {f"{name} inside ({i})": pair for i, (name, pair) in enumerate(part.items())}
    yield {name: _over(pair, before) for name, pair in outputs.items()}


def _varying(order: Sequence[Term]) -> set[Term]:
    """The terms that depend on inputs, of terms in order: others have no value but their own."""
    found: set[Term] = set()
    for term in order:
        if term.op in ("input", "opaque") or not found.isdisjoint(term.args):
            found.add(term)
    return found


def _over(pair: Pair, before: tuple[dict[Term, Term], dict[Term, Term]]) -> Pair:
    s, r = (_replaced(term, known) for term, known in zip(pair, before, strict=True))
    return s, r


def _replaced(root: Term, known: Mapping[Term, Term]) -> Term:
    """A term with some below it replaced."""
    if not known:
        return root
    memo = dict(known)
    stack = [(root, False)]
    while stack:
        term, ready = stack.pop()
        if term in memo:
            continue
        if ready or not term.args:
            args = [memo[a] for a in term.args]
            same = all(a is b for a, b in zip(args, term.args, strict=True))
            memo[term] = term if same else make(term.op, *args, **dict(term.attrs))
        else:
            stack.append((term, True))
            stack.extend((a, False) for a in term.args if a not in memo)
    return memo[root]


class _OutOfRange(CheckFailed):
    """A value is NaN or infinite in one program alone."""


class _Part:
    """Some pairs of values, compared on random inputs."""

    def __init__(
        self,
        pairs: Mapping[str, Pair],
        narrowest: str | None,
        seed: int,
        cheap: int,
        finite: bool,
        memory: int | None,
        number: int = 0,
        seconds: float = math.inf,
    ) -> None:
        self.pairs = {name: pair for name, pair in pairs.items() if pair[0] is not pair[1]}
        bounds = (TOLERANCE, LAST_PLACE, NEGLIGIBLE)
        self.tolerance, self.last_place, self.negligible = (d.get(narrowest or "", 0.0) for d in bounds)
        self.seed, self.finite, self.number = seed, finite, number
        self.worst = self.missed = 0.0
        self._drawn: tuple[int, dict[str, Array]] | None = None
        terms = topological([term for pair in self.pairs.values() for term in pair])
        self.inputs = [term for term in terms if term.op == "input"]
        self.decided = _decided(terms)
        weights = sum(term.size for term in terms if term.op == "constant")
        self.allowed = max(ALWAYS * cheap, min(cheap + PER_WEIGHT * weights, SPEED * seconds))
        self.memory = math.inf if memory is None else memory
        self.whole = Demanded({term: everything(term) for pair in self.pairs.values() for term in pair})

    def run(self, points: int, left: Left) -> Check:
        """Compare; with no seconds left, on one random input.

        Raises:
            CheckFailed: a value differs.
        """
        large = self.whole.peak_bytes() > self.memory
        probes = {name: self._probes(pair) for name, pair in self.pairs.items()} if large or self._dear() else {}
        sampled = large or (sum(p[0].flops for p in probes.values()) < SAVING * self.whole.flops and bool(probes))
        kind = "same" if not self.pairs else "sampled" if sampled else "full"
        tried = 0
        if kind == "full":
            for point in range(points):
                if point and ((point + 1) * self.whole.flops > self.allowed or left() <= 0):
                    break
                self._compare_all(point)
                tried = point + 1
        elif kind == "sampled":
            tried = 1
            for name, pair in self.pairs.items():
                self._sample(name, pair, probes[name], left)
        return Check(self.worst, tried, {"same": 0, "full": 0, "sampled": 0} | {kind: 1}, self.missed)

    def _dear(self) -> bool:
        return self.whole.flops > self.allowed

    def _values(self, point: int) -> dict[str, Array]:
        if self._drawn is None or self._drawn[0] != point:
            self._drawn = point, random_values(self.inputs, point, self.seed)
        return self._drawn[1]

    def _compare_all(self, point: int) -> None:
        inputs, demanded = self._values(point), self.whole
        wide = dict(zip(demanded.wanted, demanded.run(inputs), strict=True))
        own = None if self.decided else dict(zip(demanded.wanted, demanded.run(inputs, "native"), strict=True))
        for name, (s, r) in self.pairs.items():
            self._judge(name, wide[s], wide[r], Rounding((s, r), everything(s), inputs))
            if own is not None:
                self._judge_own(name, wide[s], own[s], own[r])

    def _judge(self, name: str, want: Array, found: Array, rounding: Rounding) -> None:
        if self.finite and want.dtype.kind == "f":
            want, found = np.where(np.isfinite(want), (want, found), 0.0)
        error = relative_error(found, want)
        allowed = f"{self.tolerance:.0e} allowed"
        right = error <= self.tolerance
        if right and error > self.negligible and not self.decided:
            right = rounding.explains(want, found, self.negligible)
            allowed = "more than rounding explains"
        if not right:
            if not self.decided and rounding.is_noise(want, found):
                return
            raise (CheckFailed if np.isfinite(error) else _OutOfRange)(
                f"{name} differs from the source by {error:.2e} of its scale on random inputs "
                f"(seed {self.seed}; {allowed})"
            )
        self.worst = max(self.worst, error)

    def _judge_own(self, name: str, exact: Array, want: Array, found: Array) -> None:
        """In the program's own types. Overflow is judged by `eqsat.check.overflow`, on values as they occur."""
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

    def _sample(self, name: str, pair: Pair, probes: Sequence[_Probe], left: Left) -> None:
        """Elements and sums along each axis, as far as they are cheap together; at least the cheapest probe."""
        unseen, spent = 1.0, 0
        for i, probe in enumerate(probes):
            spent += probe.flops
            if i and (spent > self.allowed or left() <= 0):
                break
            if probe.sums:
                seen = self._compare_sums(name, pair, probe)
            else:
                seen = self._compare_some(name, pair, probe.demand)
            unseen *= 1 - seen
        self.missed = max(self.missed, unseen)

    def _probes(self, pair: Pair) -> list[_Probe]:
        """All that could be compared, the cheapest first."""
        s, _ = pair
        rng = np.random.default_rng([self.seed, self.number, s.size])
        inner = _linear_part(pair)
        inside = borders(pair)
        probes = []
        for axis, n in enumerate(s.shape):
            for count in SAMPLES:
                if n > count:
                    probe = _Probe.of(pair, _along(s, axis, positions(n, inside[axis], count, rng)), sums=False)
                    if probe.flops <= self.allowed // 2 or count == SAMPLES[-1]:
                        probes.append(probe)
                        break
        for axis, n in enumerate(inner[0].shape):
            if n > SAMPLES[-1] and is_float(s.dtype):
                sums = Sums(rng.choice([-1.0, 1.0], (SUMS, n)))
                probes.append(_Probe.of(inner, _along(inner[0], axis, sums), sums=True))
        fitting = [
            probe for probe in probes or [_Probe.of(pair, everything(s), sums=False)] if probe.bytes <= self.memory
        ]
        if not fitting:
            raise CheckTooLarge(
                f"a value of {s.spec} cannot be checked within the memory limit, {self.memory / 2**20:.0f} MiB left"
            )
        return sorted(fitting, key=lambda probe: probe.flops)

    def _compare_some(self, name: str, pair: Pair, demand: Demand) -> float:
        """Compare some elements; their share of all."""
        s, r = pair
        demanded = Demanded({s: demand, r: demand})
        share = 0.0
        for point in range(POINTS):
            inputs = self._values(point)
            want, found = demanded.run(inputs)
            self._judge(name, want, found, Rounding(pair, demand, inputs))
            if not self.decided:
                self._judge_own(name, want, *demanded.run(inputs, "native"))
            share = np.isfinite(want).sum() / s.size
            if share == want.size / s.size:  # else logarithms or roots of negative numbers, which say nothing
                break
        return float(share)

    def _compare_sums(self, name: str, pair: Pair, probe: _Probe) -> float:
        """Compare sums; the probability of seeing one wrong element: none where they overflow."""
        s, r = probe.pair
        demanded = Demanded({s: probe.demand, r: probe.demand})
        for point in range(POINTS):
            want, found = demanded.run(self._values(point))
            if np.isfinite(want).all() and np.isfinite(found).all():
                break
        else:
            return 0.0
        error = relative_error(found, want)
        if error <= self.last_place / math.sqrt(s.size / want.size):
            return 1.0
        # Sums over n elements are larger than each by sqrt(n): the worst are looked at one by one.
        place = np.unravel_index(np.abs(found - want).argmax(), want.shape)
        axes = [i for i, w in enumerate(probe.demand) if w is None and s.shape[i] > 1]
        axis = max(axes, key=lambda i: s.shape[i], default=None)
        if axis is None:
            return 0.0
        index = np.array([place[axis]])
        self._compare_some(name, pair if pair[0].shape == s.shape else probe.pair, _along(s, axis, index))
        return 1.0


@dataclass(frozen=True, slots=True)
class _Probe:
    pair: Pair
    demand: Demand
    sums: bool
    flops: int
    bytes: int

    @staticmethod
    def of(pair: Pair, demand: Demand, *, sums: bool) -> _Probe:
        demanded = Demanded(dict.fromkeys(pair, demand))
        return _Probe(pair, demand, sums, demanded.flops, demanded.peak_bytes())


def _along(term: Term, axis: int, wanted: Wanted) -> Demand:
    return (*(None,) * axis, wanted, *(None,) * (term.ndim - axis - 1))


def _linear_part(pair: Pair) -> Pair:
    """Values that make the pair equal if they are: what the same functions of one operand are applied to."""
    s, r = map(_function_last, pair)
    while s.op == r.op and s.attrs == r.attrs and s.op in ELEMENTWISE and s.op not in ("add", "sub", "neg"):
        differing = [(a, b) for a, b in zip(s.args, r.args, strict=True) if a is not b]
        if len(differing) != 1:
            break
        s, r = map(_function_last, differing[0])
    return s, r


def _function_last(term: Term) -> Term:
    """A view of a function of one operand as the function of the view."""
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
    """Whether floats that depend on inputs are rounded to integers or compared: the last place may then decide."""
    varies = _varying(terms)
    for term in terms:
        if term.args and term.args[0] in varies and is_float(term.args[0].dtype):
            chosen = term.op == "reduce" and term.attr("kind") in ("argmax", "argmin")
            compares = term.op in _DECIDING and not (len(term.args) > 1 and term.args[0] is term.args[1])  # x == x: NaN
            if compares or chosen or (term.op == "cast" and not is_float(term.dtype)):
                return True
    return False


def relative_error(found: Array, want: Array) -> float:
    """Largest difference as a share of the largest finite magnitude of `want`; infinite where NaN or Inf differ."""
    if not is_float(dtype_name(want.dtype)):
        return 0.0 if found.shape == want.shape and found.tobytes() == want.tobytes() else np.inf
    finite = np.isfinite(want)
    special = ~finite
    if not np.array_equal(found[special], want[special], equal_nan=True) or not np.isfinite(found[finite]).all():
        return np.inf
    if not finite.any():
        return 0.0
    return float(np.abs(found[finite] - want[finite]).max()) / scale(want[finite])


def random_inputs(program: Program, points: int, seed: int) -> Iterator[dict[str, Array]]:
    """Inputs by name: normal values, at every other point their magnitudes (logarithms and roots need those)."""
    for point in range(points):
        yield random_values(program.inputs, point, seed)


def random_values(inputs: Sequence[Term], point: int, seed: int) -> dict[str, Array]:
    """Values of input terms by name: normal ones, at odd points their magnitudes."""
    rng = np.random.default_rng([seed, point])
    values: dict[str, Array] = {}
    for term in inputs:
        shape, dtype = term.shape, np_dtype(term.dtype)
        if is_float(term.dtype):
            drawn = rng.standard_normal(shape, np.float32 if dtype.itemsize < 8 else np.float64)
            values[term.attr("name")] = (np.abs(drawn) if point % 2 else drawn).astype(dtype)
        else:
            values[term.attr("name")] = rng.integers(0, 2, shape).astype(dtype)
    return values
