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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from eqsat.base.numerics import is_float
from eqsat.check import folded
from eqsat.check.cuts import Compared, Cuts, varying
from eqsat.check.inputs import SEED, Drawn
from eqsat.check.means import Left, Means
from eqsat.check.part import POINTS, SPEED, TOLERANCE, Check, OutOfRange, Part, Settings, Special
from eqsat.check.rounding import Pair
from eqsat.errors import CheckFailed, CheckTooLarge, CheckUndecided
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term, topological

CHEAP = 1_000_000_000
"""Operations, shared by all parts, that are always allowed: about a tenth of a second."""

FOR_PARTS = 0.5
"""Share of the time that is kept for parts: once only this much is left, constants are compared in the cheapest way."""

_SAME = Check(0.0, 0, {"same": 1, "full": 0, "sampled": 0})
"""The outcome of a part whose values are the same terms in both programs."""

DECIDING = 3
"""Factor on the number of random inputs when a part differs and the whole program decides: it may hide the fault."""


def check(
    source: Program,
    result: Program,
    points: int | None = None,
    seed: int = SEED,
    seconds: float | None = None,
    cuts: Sequence[Pair] = (),
    special: Special = "same",
    meanings: Mapping[Term, Term] | None = None,
    means: Means | None = None,
) -> Check:
    """Compare both programs on random inputs.

    Args:
        points: random inputs to try; `POINTS` by default.
        seconds: time for all parts, which share it by their work; a part that would take longer than its share is
            compared by samples, in short time only by a few elements. Once no time is left, every part still is.
        cuts: pairs of corresponding values inside the programs, operands first in the source. Their readers are checked
            on random values in their place (`eqsat.check.cuts`).
        special: what rewriting may make of NaN and infinities: `same`, nothing; `placed`, a NaN of an infinity and the
            like, at the same places; `hidden`, anything: compare only where the source is finite.
        meanings: for outputs of the result and values in `cuts`, the same terms with each constant that was computed
            ahead of time replaced by its computation. Each such constant is then compared with its computation
            separately, and the source with these terms, where only float64 itself rounds.
        means: the memory, when the check is given up, and whether to hurry; without limits by default.

    Raises:
        CheckFailed: an output is missing, has another shape or dtype, or differs.
        CheckUndecided: a value inside differs over random numbers in place of others, which may be for these, and there
            is no time to compare the outputs; or not even samples of a value can be computed in time.
        CheckTooLarge: not even samples of a value can be computed within the memory.
    """
    if list(source.outputs) != list(result.outputs):
        raise CheckFailed(f"outputs {list(result.outputs)} are not those of the source, {list(source.outputs)}")
    for name, term in source.outputs.items():
        other = result.outputs[name]
        if (term.shape, term.dtype) != (other.shape, other.dtype):
            raise CheckFailed(f"output {name!r} is {other.spec} where the source gives {term.spec}")
    if not cuts and not meanings and all(term is result.outputs[name] for name, term in source.outputs.items()):
        return _SAME  # as below, without a walk through all terms
    begun = time.monotonic()
    means = means or Means()

    def left() -> float:
        if means.stopped():
            return 0.0
        return math.inf if seconds is None else seconds - (time.monotonic() - begun)

    exact, meant = bool(meanings), dict(meanings or {})
    if meant:
        rng = np.random.default_rng(seed)
        native = {term for term in source.terms() if term.args}
        for origin in folded.origins(list(meant.items())):
            hurried = seconds is not None and left() <= FOR_PARTS * seconds
            folded.compare(origin, rng, native, hurried, left, means)
    narrowest = max((t.dtype for t in source.terms() if is_float(t.dtype)), key=TOLERANCE.__getitem__, default=None)
    settings = Settings(narrowest, Drawn(seed), special, means, exact)
    outputs = {
        f"output {name!r}": Compared(term, other := result.outputs[name], meant.get(other, other))
        for name, term in source.outputs.items()
    }
    return _Comparison([Compared(s, r, meant.get(r, r)) for s, r in cuts], outputs, settings, points, left).run()


class _Comparison:
    """Two programs that are compared part by part."""

    def __init__(
        self,
        inside: Sequence[Compared],
        outputs: Mapping[str, Compared],
        settings: Settings,
        points: int | None,
        left: Left,
    ) -> None:
        self.outputs, self.settings, self.left = outputs, settings, left
        self.points = POINTS if points is None else points
        self.cuts = Cuts([*inside, *outputs.values()])
        names = [f"the value {x.source.spec} inside ({i})" for i, x in enumerate(inside)]
        self.parts = [{name: i} for i, name in enumerate(names)]
        self.parts.append({name: len(inside) + i for i, name in enumerate(outputs)})
        self.forms: dict[tuple[Compared, ...], object] = {}
        self.known: dict[object, Check | CheckFailed] = {}
        self.waiting: dict[object, Part] = {}
        """Parts to be evaluated, which share what is left of `CHEAP` and of the time."""
        self.differed: set[frozenset[Term]] = set()
        """The inputs and stand-ins of parts that differed."""
        self.each = CHEAP
        self.work = 0
        """Operations that all waiting parts would take with time enough, `each` of them always allowed."""
        self.spent = 0

    def run(self) -> Check:
        """Compare all parts.

        Raises:
            CheckFailed: one differs.
        """
        tries = [self._tries(numbers) for numbers in self.parts]
        first = [next(values) for values in tries]
        for number, values in enumerate(first):
            if not _unchanged(values) and (form := self._form(values)) not in self.waiting:
                self.waiting[form] = Part(values, self.settings, number)
        self.each = CHEAP // max(1, len(self.waiting))
        self.work = sum(part.work(self.each) for part in self.waiting.values())
        found = Check(0.0, 0)
        for i, further in enumerate(tries):
            if _unchanged(first[i]):
                found = _SAME + found
                continue
            compared: Check | CheckFailed | None = None
            for values, part in self._in_turn(first[i], further, i):
                compared = self._compared(values, i, part)
                if isinstance(compared, Check):
                    found = compared + found
                    break
                if values == self.outputs:
                    raise compared
            else:
                assert isinstance(compared, CheckFailed)
                return self._whole(compared)
        return found

    def _tries(self, numbers: Mapping[str, int]) -> Iterator[dict[str, Compared]]:
        """The values of a part, over fewer and fewer stand-ins."""
        over = {name: self.cuts.over(number) for name, number in numbers.items()}
        values = {name: next(each) for name, each in over.items()}
        further: dict[str, Compared] = values
        while further:
            values = values | further
            yield values
            further = {name: value for name, each in over.items() if (value := next(each, None)) is not None}

    def _in_turn(
        self, first: dict[str, Compared], further: Iterable[dict[str, Compared]], number: int
    ) -> Iterator[tuple[dict[str, Compared], Part | None]]:
        """The tries of a part. Any one that passes is a proof, and what fails only takes time. So one that there is no
        time for is put off until the one after it is no cheaper: fewer stand-ins may take less work, though they mostly
        take more, and making a try takes time too. Those that will hardly pass come last: over values over which
        another part differed, or over some that only the source reads (`Cuts.over`).
        """
        dear: tuple[dict[str, Compared], Part] | None = None
        doubtful: list[tuple[dict[str, Compared], Part]] = []
        part = self.waiting.get(form := self._form(first))
        if part is not None and self._differed(part):
            self.work -= self.waiting.pop(form).work(self.each)
            doubtful.append((first, part))
        else:
            yield first, None
        for values in further:
            part = Part(values, self.settings, number)
            work = part.whole.flops
            if part.one_sided or self._differed(part):
                doubtful.append((values, part))
            elif work <= max(CHEAP, SPEED * self.left()) or (dear and work < dear[1].whole.flops):
                yield values, part
            else:
                if dear:
                    yield dear
                dear = values, part
        if dear:
            yield dear
        yield from sorted(doubtful, key=lambda x: x[1].whole.flops)

    def _differed(self, part: Part) -> bool:
        """Whether another part over the same values differed: they depend on each other, and results rely on it."""
        return frozenset(part.inputs) in self.differed

    def _form(self, values: Mapping[str, Compared]) -> object:
        compared = tuple(values.values())
        if not self.settings.exact:
            return compared
        if compared not in self.forms:
            self.forms[compared] = _form(compared)
        return self.forms[compared]

    def _compared(self, values: Mapping[str, Compared], number: int, part: Part | None) -> Check | CheckFailed:
        """Compare a part, unless an equal one was; the error if it differs. None: it may be among those that wait.

        The error has no traceback: its frames hold this comparison, and those of callers all that a search made.

        Raises:
            CheckTooLarge, CheckUndecided: it cannot be compared.
        """
        form = self._form(values)
        if form not in self.known:
            try:
                self.known[form] = self._next(form, values, number, part)
            except (CheckTooLarge, CheckUndecided):
                raise
            except CheckFailed as error:
                self.known[form] = error.with_traceback(None)
        return self.known[form]

    def _next(self, form: object, values: Mapping[str, Compared], number: int, given: Part | None) -> Check:
        """Compare a part in its share of the time and operations left.

        Raises:
            CheckFailed: it differs.
        """
        part = self.waiting.pop(form, None)
        if part is None:
            part = given or Part(values, self.settings, number)
            self.work += part.work(self.each)
        share = part.work(self.each) / self.work
        self.work -= part.work(self.each)
        cheap = max(0, CHEAP - self.spent) // (len(self.waiting) + 1)
        try:
            return self._judged(part, values, cheap, self.points, share * self.left())
        except CheckFailed:
            self.differed.add(frozenset(part.inputs))
            raise

    def _whole(self, inside: CheckFailed) -> Check:
        """Compare the outputs without any cut: random values in place of values that depend on each other prove
        nothing, and may lie where the programs are not defined though the actual values do not.

        Raises:
            CheckFailed: they differ.
            CheckUndecided: the time left is too short to say.
        """
        part = Part(self.outputs, self.settings)
        samples = isinstance(inside, OutOfRange)
        points = DECIDING * self.points
        work = 2 * (part.least() if samples else points * part.whole.flops)  # in float64 and in the program's own types
        if work > max(CHEAP, SPEED * self.left()):
            raise CheckUndecided(f"{inside}, if random numbers stand for values inside") from None
        if samples:
            return self._judged(part, self.outputs, CHEAP, self.points, self.left())
        try:
            return self._judged(part, self.outputs, sys.maxsize, points, math.inf)
        except CheckFailed:
            raise inside from None

    def _judged(self, part: Part, values: Mapping[str, Compared], cheap: int, points: int, seconds: float) -> Check:
        """Compare the values of a part, for which so many operations are always allowed, in so much time."""
        try:
            return self._run(part, cheap, points, seconds)
        except (CheckTooLarge, CheckUndecided):
            raise
        except CheckFailed:
            if not self.settings.exact or not _computes_ahead([x.source for x in values.values()]):
                raise
        # Constant terms of the source are rounded in its own types, and may occur in the result unchanged.
        own = {name: x._replace(meaning=x.result) for name, x in values.items()}
        again = Part(own, replace(self.settings, exact=False), part.number)
        return self._run(again, cheap, points, seconds)

    def _run(self, part: Part, cheap: int, points: int, seconds: float) -> Check:
        try:
            return part.run(points, cheap, seconds)
        finally:
            self.spent += part.spent


def _unchanged(values: Mapping[str, Compared]) -> bool:
    return all(x.unchanged for x in values.values())


def _computes_ahead(roots: Sequence[Term]) -> bool:
    """Whether anything is computed, not only moved, from constants alone."""
    order = topological(roots)
    varies = varying(order)
    return any(term.args and term not in varies and not ops.row(term.op).view for term in order)


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
