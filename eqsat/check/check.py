"""The check of every result before it is returned: source and result are compared on random inputs.

Both are evaluated in float64, except that values computed from constants alone use the program's own element types.
Then both are evaluated once more entirely in those types. The cost is about that of reading the weights: cheap parts
are evaluated in full; for expensive parts only some elements and weighted sums along each axis are computed, and only
the values that these need (`eqsat.check.demand`). If the optimiser says which values of the two programs correspond,
each part between such values is checked by itself.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import ml_dtypes
import numpy as np

from eqsat.base.compare import relative_error
from eqsat.base.numerics import ELEMENTWISE, is_float, np_dtype
from eqsat.check import folded
from eqsat.check.demand import Demanded
from eqsat.check.rounding import NOISE, Pair, Rounding
from eqsat.check.strata import borders, positions
from eqsat.check.wanted import Demand, Sums, Wanted, everything
from eqsat.errors import CheckFailed, CheckTooLarge
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term, make, topological

SEED = 0
"""Seed of the random inputs."""

POINTS = 2
"""Number of random inputs for parts that are evaluated in full."""

CHEAP = 1_000_000_000
"""Operations, shared by all parts, that are always allowed: about a tenth of a second."""

DECIDING = 3
"""Factor on the number of random inputs when a part differs and the whole program decides: it may hide the fault."""

SPEED = 1_000_000_000
"""Operations per second, at least. A part that would take longer than the time left is sampled."""

ALWAYS = 0.1
"""Share of `CHEAP` that is still computed in full when no time is left: less than choosing samples would cost."""

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

Array = np.ndarray
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


def check(
    source: Program,
    result: Program,
    points: int | None = None,
    seed: int = SEED,
    seconds: float | None = None,
    cuts: Sequence[Sequence[Pair]] = (),
    finite: bool = False,
    memory: int | None = None,
    meanings: Mapping[Term, Term] | None = None,
) -> Check:
    """Compare both programs on random inputs.

    Args:
        points: random inputs to try; `POINTS` by default.
        seconds: time for all parts; a part that would take longer than the time left gets only its cheapest probe.
        cuts: pairs of corresponding values inside the programs, in groups that are checked together; each group comes
            after the groups it depends on. Their readers are checked on random values in their place.
        memory: bytes that values may take; by default all that is available.
        finite: compare only where the source is finite, since rewriting may hide NaN and infinities.
        meanings: for outputs of the result and values in `cuts`, the same terms with each constant that was computed
            ahead of time replaced by its computation. Each such constant is then compared with its computation
            separately, and the source with these terms, where only float64 itself rounds.

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

    exact, meant = bool(meanings), dict(meanings or {})
    if meant:
        rng = np.random.default_rng(seed)
        native = {term for term in source.terms() if term.args}
        for origin in folded.origins(list(meant.items())):
            folded.compare(origin, rng, native)
    narrowest = max((t.dtype for t in source.terms() if is_float(t.dtype)), key=TOLERANCE.__getitem__, default=None)
    settings = _Settings(narrowest, seed, finite, memory, exact)
    outputs = {
        f"output {name!r}": Compared(term, other := result.outputs[name], meant.get(other, other))
        for name, term in source.outputs.items()
    }
    groups = [[Compared(s, r, meant.get(r, r)) for s, r in group] for group in cuts]
    wanted = POINTS if points is None else points
    known: dict[object, Check] = {}
    try:
        found = Check(0.0, 0)
        for number, values in enumerate(_parts(groups, outputs)):
            form = _form(values.values()) if exact else number
            if form not in known:
                known[form] = _compared(values, settings, CHEAP // (1 + len(cuts)), wanted, left, number)
            found = known[form] + found
    except _OutOfRange:
        # Actual values may lie where both programs are defined; random values in their place need not.
        if not cuts:
            raise
        return _compared(outputs, settings, CHEAP, wanted, left)
    except CheckTooLarge:
        raise
    except CheckFailed as inside:
        # Random values in place of values that depend on each other prove nothing: the whole programs decide.
        if not cuts:
            raise
        try:
            return _compared(outputs, settings, sys.maxsize, DECIDING * wanted, left)
        except CheckFailed:
            raise inside from None
    return found


def _compared(
    values: Mapping[str, Compared], settings: _Settings, cheap: int, points: int, left: Left, number: int = 0
) -> Check:
    """Compare the values of a part.

    Raises:
        CheckFailed: they differ.
    """
    seconds = math.inf if cheap == sys.maxsize else left()
    try:
        return _Part(values, settings, cheap, number, seconds).run(points, left)
    except CheckTooLarge:
        raise
    except CheckFailed:
        if not settings.exact or not _computes_ahead([x.source for x in values.values()]):
            raise
    # Constant terms of the source are rounded in its own types, and may occur in the result unchanged.
    own = {name: x._replace(meaning=x.result) for name, x in values.items()}
    return _Part(own, replace(settings, exact=False), cheap, number, seconds).run(points, left)


def _computes_ahead(roots: Sequence[Term]) -> bool:
    """Whether anything is computed, not only moved, from constants alone."""
    order = topological(roots)
    varies = _varying(order)
    return any(term.args and term not in varies and not ops.row(term.op).view for term in order)


class Compared(NamedTuple):
    """A value of the source, the corresponding value of the result, and its meaning: the result's value, with constants
    that were computed ahead of time replaced by their computation."""

    source: Term
    result: Term
    meaning: Term


def _parts(cuts: Sequence[Sequence[Compared]], outputs: Mapping[str, Compared]) -> Iterator[dict[str, Compared]]:
    """The parts to compare: in each group, the values of earlier groups are replaced by inputs."""
    before: tuple[dict[Term, Term], ...] = ({}, {}, {})
    number = 0
    varies = _varying(topological([term for group in cuts for values in group for term in values]))
    for group in cuts:
        kept = [x for x in group if x.source.args and x.source not in before[0] and varies.issuperset(x)]
        part = {f"the value {x.source.spec}": _over(x, before) for x in kept}
        for x in kept:
            stand_in = ops.input(f"%{number}", x.source.shape, x.source.dtype)
            number += 1
            for replaced, term in zip(before, x, strict=True):
                replaced[term] = stand_in
        yield {f"{name} inside ({i})": values for i, (name, values) in enumerate(part.items())}
    yield {name: _over(values, before) for name, values in outputs.items()}


def _form(values: Iterable[Compared]) -> object:
    """A key that is equal for parts that differ only in their inputs and the numbers in their constants. Once constants
    are compared separately, checking one such part is enough."""
    order = topological([term for x in values for term in x])
    place = {term: i for i, term in enumerate(order)}
    shape = []
    for term in order:
        attrs = () if term.op in ("input", "constant") else term.attrs
        shape.append((term.op, term.shape, term.dtype, attrs, tuple(place[a] for a in term.args)))
    return (tuple(shape), tuple(place[term] for x in values for term in x))


def _varying(order: Sequence[Term]) -> set[Term]:
    """The terms that depend on inputs; `order` holds operands first."""
    found: set[Term] = set()
    for term in order:
        if term.op in ("input", "opaque") or not found.isdisjoint(term.args):
            found.add(term)
    return found


def _over(values: Compared, before: tuple[dict[Term, Term], ...]) -> Compared:
    return Compared(*(_replaced(term, known) for term, known in zip(values, before, strict=True)))


def _replaced(root: Term, known: Mapping[Term, Term]) -> Term:
    """The term with known terms below it replaced."""
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
    """A value is NaN or infinite in only one of the programs."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings of all parts.

    Attributes:
        narrowest: the narrowest float type of the program.
        exact: constants are compared separately, and computed in float64 here.
    """

    narrowest: str | None
    seed: int
    finite: bool
    memory: int | None
    exact: bool


class _Part:
    """Values of both programs that are compared on random inputs."""

    def __init__(
        self,
        values: Mapping[str, Compared],
        settings: _Settings,
        cheap: int,
        number: int = 0,
        seconds: float = math.inf,
    ) -> None:
        self.values = {name: x for name, x in values.items() if x.source is not x.meaning}
        self.seed, self.finite, self.exact, self.number = settings.seed, settings.finite, settings.exact, number
        narrowest = settings.narrowest or ""
        self.tolerance = TOLERANCE.get(narrowest, 0.0)
        bounds = (EXACT, EXACT) if self.exact else (LAST_PLACE.get(narrowest, 0.0), NEGLIGIBLE.get(narrowest, 0.0))
        self.last_place, self.negligible = bounds
        self.worst = self.missed = 0.0
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
        """Compare; on one random input only, if the next would take longer than the time left.

        Raises:
            CheckFailed: a value differs.
        """
        large = self.whole.peak_bytes() > self.memory
        probes = {name: self._probes(x) for name, x in self.values.items()} if large or self._dear() else {}
        sampled = large or (sum(p[0].flops for p in probes.values()) < SAVING * self.whole.flops and bool(probes))
        kind = "same" if not self.values else "sampled" if sampled else "full"
        tried, settled, took = 0, False, 0.0
        if kind == "full":
            for point in range(points):
                if point and ((settled and (point + 1) * self.whole.flops > self.cheap) or left() <= took):
                    break
                begun = time.monotonic()
                settled = self._compare_all(point)
                tried, took = point + 1, time.monotonic() - begun
        elif kind == "sampled":
            tried = 1
            for name, x in self.values.items():
                self._sample(name, x, probes[name], left)
        return Check(self.worst, tried, {"same": 0, "full": 0, "sampled": 0} | {kind: 1}, self.missed)

    def _dear(self) -> bool:
        return self.whole.flops > self.allowed

    def _inputs(self, point: int) -> dict[str, Array]:
        if self._drawn is None or self._drawn[0] != point:
            self._drawn = point, random_values(self.inputs, point, self.seed)
        return self._drawn[1]

    def _compare_all(self, point: int) -> bool:
        """Compare all values on a random input. False if not all are finite there, so that the input says little."""
        inputs, demanded = self._inputs(point), self.whole
        wide = dict(zip(demanded.wanted, demanded.run(inputs), strict=True))
        own: dict[Term, Array] = {}
        if not self.decided:
            native = Demanded({t: everything(t) for x in self.values.values() for t in (x.source, x.result)})
            own = dict(zip(native.wanted, native.run(inputs, "native"), strict=True))
        for name, (s, r, q) in self.values.items():
            self._judge(name, wide[s], wide[q], Rounding((s, q), everything(s), inputs, self.exact))
            if own:
                self._judge_own(name, wide[s], own[s], own[r])
        return all(np.isfinite(wide[x.source]).all() for x in self.values.values())

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
        unseen, spent = 1.0, 0
        for i, probe in enumerate(probes):
            spent += probe.flops
            if i and (spent > self.allowed or left() <= 0):
                break
            if probe.sums:
                seen = self._compare_sums(name, values, probe)
            else:
                seen = self._compare_some(name, values, probe.demand)
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
            if n > SAMPLES[-1] and is_float(s.dtype):
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

    def _compare_some(self, name: str, values: Compared, demand: Demand) -> float:
        """Compare some elements, and return their share of all elements."""
        s, r, q = values
        demanded = Demanded({s: demand, q: demand}, self.exact)
        share = 0.0
        for point in range(POINTS):
            inputs = self._inputs(point)
            want, found = demanded.run(inputs)
            self._judge(name, want, found, Rounding((s, q), demand, inputs, self.exact))
            if not self.decided:
                own = Demanded({s: demand, r: demand}).run(inputs, "native")
                self._judge_own(name, want, own[0], own[-1])  # one where both are the same term
            share = np.isfinite(want).sum() / s.size
            if share == want.size / s.size:  # otherwise logarithms or roots of negative numbers
                break
        return float(share)

    def _compare_sums(self, name: str, values: Compared, probe: _Probe) -> float:
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
        self._compare_some(
            name, values if values.source.shape == s.shape else Compared(s, q, q), _along(s, axis, index)
        )
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
    varies = _varying(terms)
    for term in terms:
        if term.args and term.args[0] in varies and is_float(term.args[0].dtype):
            chosen = term.op == "reduce" and term.attr("kind") in ("argmax", "argmin")
            compares = term.op in _DECIDING and not (len(term.args) > 1 and term.args[0] is term.args[1])  # x == x: NaN
            if compares or chosen or (term.op == "cast" and not is_float(term.dtype)):
                return True
    return False


def random_inputs(program: Program, points: int, seed: int) -> Iterator[dict[str, Array]]:
    """Inputs by name: normal values, and at every other point their magnitudes, for logarithms and roots."""
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
