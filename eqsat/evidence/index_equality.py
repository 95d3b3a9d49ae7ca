"""Whether two sums of products of reads are equal: their terms pair off, and z3 proves each pair of reads equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import z3

from eqsat.evidence.index_facts import Facts
from eqsat.evidence.index_terms import (
    INVERSE,
    READ,
    Atom,
    Choice,
    Function,
    Product,
    Sum,
    head,
    lone,
    negated,
    replaced,
    substituted,
)
from eqsat.language.rule import Lit

EXTREMES = {form(fn): form(other) for fn, other in (("max", "min"), ("min", "max")) for form in (str, Lit)}
"""Each extreme, and the one that it is of negated values."""


class Equality:
    """Comparisons under what is known.

    Attributes:
        proved: statements that z3 proved.
        reason: what could not be proved.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.proved = 0
        self.reason = ""

    def proves(self, statement: Any, of_shapes: bool = False) -> bool:
        """Whether a statement follows from what is known, or from what is known of shapes alone."""
        known = self.facts.follows_from_shapes(statement) if of_shapes else self.facts.follows(statement)
        if known:
            self.proved += 1
        else:
            self.reason = self.facts.doubt(statement)
        return known

    def equal(self, left: Sum, right: Sum) -> bool:
        """Whether the terms of the difference of two sums cancel in pairs."""
        rest = [self._settled(term) for term in (*left, *negated(right))]
        while rest:
            term = replace(rest[0], coefficient=-rest[0].coefficient)
            found = next((i for i, other in enumerate(rest) if i and self.same_product(term, other)), None)
            if found is None:
                self.reason = self.reason or "the terms of both sides do not pair off"
                return False
            rest = [*rest[1:found], *rest[found + 1 :]]
        return True

    def _settled(self, term: Product) -> Product:
        """A product without sums that come to one: of shares of a count, and of the shares of a whole.

        x/n added up over n is x, and x[k] / (x[0] + x[1] + ...) added up over k is one. What is zero but at certain
        places is added up over these.
        """
        term = self._where_kept(term)
        for at, (k, size) in enumerate(term.bound):
            for share in term.atoms:
                rest = replace(term, bound=(*term.bound[:at], *term.bound[at + 1 :]))
                rest = replace(rest, atoms=tuple(a for a in term.atoms if a is not share))
                found = self._without_shares(rest, share, k, size)
                if found is not None:
                    return self._settled(found)
        return term

    def _where_kept(self, term: Product) -> Product:
        """A product that a promised injection says to be zero elsewhere, added up over where it may be something."""
        for k, size in term.bound:
            for kept in self.facts.kept:
                condition = z3.substitute(kept.condition, (kept.place, k))
                if any(_chooses(a, condition) for a in term.atoms) and self.facts.same_size(kept.whole, size):
                    others = [(self.facts.variable(n), n) for n in kept.sizes]
                    rest = tuple(b for b in term.bound if not b[0].eq(k))
                    place = kept.injection(*(v for v, _ in others))
                    there = substituted(replace(term, bound=(*rest, *others)), [(k, place)])
                    return replace(there, atoms=tuple(a for a in there.atoms if not self._is_one(a)))
        return term

    def _is_one(self, of: Atom) -> bool:
        """Whether what is zero or one, as a fill is read or not, is one."""
        if isinstance(of, Function | Choice) or not (z3.is_app_of(of, z3.Z3_OP_ITE) and of.arg(2).eq(READ)):
            return False
        return self.facts.follows(z3.Not(of.arg(0)))

    def _without_shares(self, rest: Product, share: Atom, k: Any, size: Any) -> Product | None:
        """What the sum over k of the rest, multiplied by a share of a whole, is; None where it is no such sum."""
        if isinstance(share, Function) and share.name == INVERSE:
            return self._without_parts(rest, share, k, size)
        count = None if isinstance(share, Function | Choice) else self.facts.shares.get(share.sexpr())
        if count is None or not self.facts.same_size(count, size):
            return None
        return self.fixed(rest, k, size)

    def _without_parts(self, rest: Product, share: Function, k: Any, size: Any) -> Product | None:
        """The same where the share is the inverse of a whole, and the rest holds its part k."""
        whole = share.args[0][0]
        if len(share.args[0]) > 1 or whole.coefficient != 1 or len(whole.bound) != 1:
            return None
        ((c, count),) = whole.bound
        part = substituted(whole, [(c, k)]).atoms
        heads = set(map(head, part))
        mine = tuple(a for a in rest.atoms if head(a) in heads)
        others = tuple(a for a in rest.atoms if head(a) not in heads)
        holds = (
            self.facts.same_size(count, size)
            and len(mine) == len(part)
            and self._same_atoms(mine, part)
            and self.fixed(Product(1, (), (share,)), k, size) is not None
        )
        return self.fixed(replace(rest, atoms=others), k, size) if holds else None

    def fixed(self, term: Product, k: Any, size: Any) -> Product | None:
        """A product at any one place of a variable below a size, if it is the same at all; None if it is not known to
        be."""
        place, forget = self.facts.another(k, size)
        other = substituted(term, [(k, place)])
        if self.same_product(term, other):
            return other
        forget()
        return None

    def same_product(self, a: Product, b: Product) -> bool:
        """Whether two products are equal, their sums in any order."""
        if a.coefficient != b.coefficient or sorted(map(head, a.atoms)) != sorted(map(head, b.atoms)):
            return False
        return any(self._same_atoms(a.atoms, other.atoms) for other in self._respelled(a, b))

    def _respelled(self, a: Product, b: Product) -> Iterator[Product]:
        """`b` over the variables of `a`: by a promised bijection, in every order that fits the ranges, two as one."""
        for sizes, others, maps in self.facts.bijections.values():
            mine, theirs = self._ranging(a.bound, sizes), self._ranging(b.bound, others)
            if mine is not None and theirs is not None:
                variables = [v for v, _ in mine]
                pairs = [(v, f(*variables)) for (v, _), f in zip(theirs, maps, strict=True)]
                rest, kept = _without(a.bound, mine), _without(b.bound, theirs)
                if len(rest) == len(kept):
                    yield from self._reordered(replace(a, bound=rest), substituted(replace(b, bound=kept), pairs))
        yield from self._reordered(a, b)

    def _ranging(self, bound: Sequence[tuple[Any, Any]], sizes: Sequence[Any]) -> list[tuple[Any, Any]] | None:
        """Variables that range below these sizes, one for each; None where there are none."""
        found: list[tuple[Any, Any]] = []
        for size in sizes:
            fits = (p for p in _without(bound, found) if self.facts.same_size(p[1], size))
            one = next(fits, None)
            if one is None:
                return None
            found.append(one)
        return found

    def _reordered(self, a: Product, b: Product) -> Iterator[Product]:
        """`b` over the variables of `a`, in every order that fits the ranges; two of them may be one of `b`."""
        if len(a.bound) == len(b.bound):
            for order in permutations(a.bound):
                pairs = list(zip(b.bound, order, strict=True))
                if all(self.facts.same_size(x, y) for (_, x), (_, y) in pairs):
                    yield substituted(b, [(v, u) for (v, _), (u, _) in pairs])
            return
        for (u, m), (v, n) in permutations(a.bound, 2) if len(a.bound) > len(b.bound) else ():
            others = tuple(p for p in a.bound if not (p[0].eq(u) or p[0].eq(v)))
            for w, size in b.bound:
                if self.facts.same_size(m * n, size):
                    kept = tuple(p for p in b.bound if not p[0].eq(w))
                    merged = substituted(replace(b, bound=kept), [(w, self.facts.join((u, v), (m, n)))])
                    yield from self._reordered(replace(a, bound=others), merged)

    def _same_atoms(self, left: Sequence[Atom], right: Sequence[Atom]) -> bool:
        """Whether the factors of two products pair off."""
        if not left:
            return True
        first, *others = left
        return any(
            head(other) == head(first)
            and self._same_atom(first, other)
            and self._same_atoms(others, [*right[:i], *right[i + 1 :]])
            for i, other in enumerate(right)
        )

    def _same_atom(self, a: Atom, b: Atom) -> bool:
        if isinstance(a, Function) and isinstance(b, Function):
            return self._same_function(a, b)
        if isinstance(a, Choice) and isinstance(b, Choice):
            return self._same_choice(a, b)
        if isinstance(a, Function | Choice) or isinstance(b, Function | Choice):
            return False
        if a.num_args() == 1 and a.decl().eq(b.decl()) and a.arg(0).sort() == z3.IntSort():
            return self.proves(a.arg(0) == b.arg(0))  # two reads of one array
        return self.proves(a == b)

    def _same_function(self, a: Function, b: Function) -> bool:
        if a.name != b.name or len(a.args) != len(b.args):
            return False
        if a.bound is None or b.bound is None:
            return all(self.equal(x, y) for x, y in zip(a.args, b.args, strict=True))
        for there in self._walked(a, b):
            if self.equal(a.args[0], replaced(b.args[0], [(b.bound[0], there)])):
                return True
        return self._folded_twice(a, b) or self._folded_twice(b, a)

    def _walked(self, a: Function, b: Function) -> Iterator[Any]:
        """What the variable of the fold `b` may be for that of `a`: it takes every value below its size, and equally
        often where that matters."""
        assert a.bound is not None
        assert b.bound is not None
        (u, m), (_, n) = a.bound, b.bound
        if self.facts.same_size(m, n):
            yield u
        for sizes, others, maps in self.facts.bijections.values():
            if len(sizes) == 1 and self.facts.same_size(m, sizes[0]):
                for size, there in zip(others, maps, strict=True):
                    if (len(others) == 1 or _idempotent(a.name)) and self.facts.same_size(n, size):
                        yield there(u)

    def _folded_twice(self, nested: Function, flat: Function) -> bool:
        """Whether a fold of folds is one fold over both ranges."""
        inner = lone(nested.args[0])
        if not isinstance(inner, Function) or inner.name != nested.name:
            return False
        assert nested.bound is not None
        assert inner.bound is not None
        assert flat.bound is not None
        (u, m), (v, n) = nested.bound, inner.bound
        if not self.facts.same_size(m * n, flat.bound[1]):
            return False
        return self.equal(inner.args[0], replaced(flat.args[0], [(flat.bound[0], self.facts.join((u, v), (m, n)))]))

    def _same_choice(self, a: Choice, b: Choice) -> bool:
        """Whether two choices have one condition, one fill, and equal sums where nothing is filled."""
        if not self.proves(a.condition == b.condition):
            return False
        if not self.proves(z3.Implies(a.condition, a.fill == b.fill)):
            return False
        with self.facts.where(z3.Not(a.condition)):
            return self.equal(a.inner, b.inner)


def _chooses(of: Atom, condition: Any) -> bool:
    """Whether a value is decided by a condition."""
    return not isinstance(of, Function | Choice) and z3.is_app_of(of, z3.Z3_OP_ITE) and of.arg(0).eq(condition)


def _idempotent(fold: Any) -> bool:
    """Whether it does not matter to a fold how often it meets an element."""
    return fold[1] in EXTREMES


def _without(bound: Sequence[tuple[Any, Any]], gone: Sequence[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple(p for p in bound if not any(p[0].eq(q[0]) for q in gone))
