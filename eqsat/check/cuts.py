"""Where a check cuts two programs: at values that both hold.

Each value is compared over the values below it, with random numbers in their place. So every part of a program is
evaluated by itself, and a part that rewriting left alone need not be evaluated at all. This is sound, since values
stand in only for those that come after them. It may refuse equal programs, if values below depend on each other (a row
and its mean): then it is compared again with fewer stand-ins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from eqsat.check.demand import Demanded
from eqsat.check.stand_ins import narrowed, number_of, replaced, stand_in
from eqsat.check.wanted import count_of, everything
from eqsat.program.term import Term, topological, unviewed

_ROUNDS = 4
"""Most times that stand-ins give way by themselves. A value that differs then hardly ever agrees over fewer of them."""

_ROUNDS_ABOVE = 64
"""Most times that stand-ins give way with those computed from them: a value of NASNet took 17. If they differ after
that, comparing the value may fail."""


class Compared(NamedTuple):
    """A value of the source, the corresponding value of the result, and its meaning: the result's value, with constants
    that were computed ahead of time replaced by their computation."""

    source: Term
    result: Term
    meaning: Term

    @property
    def unchanged(self) -> bool:
        """Whether the result computes it as the source does."""
        return self.source is self.meaning


class _Read(NamedTuple):
    """A value over stand-ins, and the numbers of the stand-ins and inputs that each program reads."""

    over: Compared
    source: set[int]
    result: set[int]

    @property
    def alike(self) -> bool:
        """Whether the result reads all that the source reads."""
        return self.source <= self.result


class Cuts:
    """Values of two programs, each to be compared over those before it.

    Values of the result that are views of one term, such as slices of a group, are cut at that term, their base: in
    the source, the same views of one stand-in take their places. Bases are numbered by the first such value.

    Args:
        values: operands first in the source. Each may be cut, except constants and inputs.
    """

    def __init__(self, values: Sequence[Compared]) -> None:
        self._values = values
        order = topological([term for x in values for term in x])
        varies = varying(order)
        inputs = [term for term in order if term.op == "input"]
        self._input = {term: len(values) + i for i, term in enumerate(inputs)}
        self._source: dict[Term, int] = {}
        self._result: dict[Term, int] = {}
        self._meant = {unviewed(x.meaning): unviewed(x.result) for x in values}
        self._base: list[int] = []
        self._stand_ins: dict[int, Term] = {}
        for number, x in enumerate(values):
            base = unviewed(x.result)
            cut = x.source.args and base.args and varies.issuperset(x)
            self._base.append(self._result.setdefault(base, number) if cut else number)
            if cut:
                self._source.setdefault(x.source, number)
        self._below = self._all_below()

    def _all_below(self) -> list[int]:
        """The bases and inputs that each base is computed from in either program, directly or not, as a bit set."""
        found = [0] * len(self._values)
        for cuts in (self._source, self._result):
            reads: dict[Term, int] = {}
            for term in topological(list(cuts)):
                mask = 0
                for a in term.args:
                    mask |= reads[a]
                if term in cuts:
                    base = self._base[cuts[term]]
                    found[base] |= mask
                    mask |= 1 << base
                reads[term] = mask | (1 << self._input[term] if term in self._input else 0)
        return found

    def over(self, number: int) -> Iterator[Compared]:
        """A value over stand-ins for values before it: over all of them, and then over fewer and fewer.

        Stand-ins that only one of the programs reads give way first: a value that the other program computes itself.
        Where there is one that only the source reads, the value is compared last: random numbers in its place would
        hardly ever agree with what the result computes, and to see them differ takes as long as to see that they do
        not.

        If that is not enough, all that are computed from these give way too, such as a group that holds the value. Of
        these, the last values go before others. A value that differs over the stand-ins of the source, and over more in
        the result, may differ only for those of the source: a group reads what its other members need. Then other
        stand-ins give way that are computed from others. In the end, where the value shares its base, all do, the last
        ones first: a sum and a mean of zeros are one value of the result, whose stand-in is not zero.
        """
        value = self._values[number]
        over_all = self._over(value, number, frozenset())
        if over_all.unchanged:
            yield over_all  # it agrees
            return

        @cache  # both walks begin with all stand-ins, and may go on alike
        def without(whole: frozenset[int]) -> _Read:
            over = self._over(value, number, whole) if whole else over_all
            return _Read(over, *self._read(over))

        first = without(frozenset())
        last = [] if first.alike else [first.over]
        if not last:
            yield first.over
        for above in (False, True):
            for fewer in self._over_fewer(without, above, self._base[number] != number):
                if fewer.alike:
                    yield fewer.over
                else:
                    last.append(fewer.over)
        yield from last

    def _over_fewer(self, without: Callable[[frozenset[int]], _Read], above: bool, shared: bool) -> Iterator[_Read]:
        """A value over fewer and fewer stand-ins; with `above`, those computed from others give way with these, and if
        its base is `shared`, all in the end."""
        whole: frozenset[int] = frozenset()
        for _ in range(_ROUNDS_ABOVE if above else _ROUNDS):
            read = without(whole)
            further = read.source ^ read.result
            if above:
                further = self._and_above(further, read.source | read.result)
            further = self._last(further)
            if above:
                both = read.source | read.result
                further = further or self._tied(both) or (self._last(both) if shared else set())
            if whole and (read.alike or not further):
                yield read
            if not further:
                break
            whole |= further

    def _last(self, bases: Collection[int]) -> set[int]:
        """Those that no other one is computed from."""
        below = [(base, self._below[base]) for base in bases if base < len(self._below)]
        return {base for base, _ in below if not any(mask >> base & 1 for other, mask in below if other != base)}

    def _and_above(self, bases: set[int], others: Collection[int]) -> set[int]:
        """These, and the others that are computed from them."""
        mask = _bits(bases)
        return bases | {base for base in others if base < len(self._below) and self._below[base] & mask}

    def _tied(self, bases: Collection[int]) -> set[int]:
        """Those that are computed from others."""
        mask = _bits(bases)
        return {base for base in bases if base < len(self._below) and self._below[base] & mask & ~(1 << base)}

    def _read(self, over: Compared) -> tuple[set[int], set[int]]:
        """The numbers of the stand-ins and inputs of which each program reads at least one element."""
        source, result = (Demanded({term: everything(term)}) for term in over[:2])
        return self._numbers(source), self._numbers(result)

    def _numbers(self, demanded: Demanded) -> set[int]:
        read = [t for t in demanded.order if t.op == "input" and count_of(t, demanded.demand[t])]
        return {self._input[t] if t in self._input else number_of(t) for t in read}

    def _stand_in(self, cut: int) -> Term:
        """What takes the place of a value in the source: as the result has it, a view of the stand-in for its base."""
        if cut not in self._stand_ins:
            result = self._values[cut].result
            base = unviewed(result)
            made = replaced(result, lambda t: stand_in(base, self._base[cut]) if t is base else None)
            self._stand_ins[cut] = made
        return self._stand_ins[cut]

    def _over(self, value: Compared, number: int, whole: Collection[int]) -> Compared:
        def cut_at(term: Term, cuts: Mapping[Term, int]) -> int | None:
            cut = cuts.get(term, number)
            return cut if cut < number and self._base[cut] not in whole else None

        def in_source(term: Term) -> Term | None:
            cut = cut_at(term, self._source)
            return None if cut is None else self._stand_in(cut)

        def in_result(term: Term) -> Term | None:
            cut = cut_at(term, self._result)
            return None if cut is None else stand_in(term, cut)

        source, result = replaced(value.source, in_source), replaced(value.result, in_result)
        if value.meaning is value.result:
            return Compared(*narrowed((source, result, result)))
        meant = _alike(value.meaning, value.result, lambda term: cut_at(term, self._result) is not None)
        meaning = replaced(value.meaning, lambda term: in_result(meant.get(term) or self._meant.get(term, term)))
        return Compared(*narrowed((source, result, meaning)))


def varying(order: Sequence[Term]) -> set[Term]:
    """The terms that depend on inputs; `order` holds operands first."""
    found: set[Term] = set()
    for term in order:
        if term.op in ("input", "opaque") or not found.isdisjoint(term.args):
            found.add(term)
    return found


def _alike(meaning: Term, result: Term, cut: Callable[[Term], bool]) -> dict[Term, Term]:
    """The terms of a meaning that stand where the result has a cut one. A value may have several meanings, as parts of
    a program compute constants ahead of time in different ways."""
    found: dict[Term, Term] = {}
    seen: set[Term] = set()
    pairs = [(meaning, result)]
    while pairs:
        meant, own = pairs.pop()
        if meant in seen or meant is own:
            continue
        seen.add(meant)
        if cut(own):
            found[meant] = own
        elif meant.op == own.op and len(meant.args) == len(own.args):
            pairs += zip(meant.args, own.args, strict=True)
    return found


def _bits(numbers: Collection[int]) -> int:
    return sum(1 << number for number in set(numbers))
