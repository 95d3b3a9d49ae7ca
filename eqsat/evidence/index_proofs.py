"""Both sides of a rule, element by element over symbols, and the proof that they are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import permutations
from operator import mul
from typing import Any

import z3

from eqsat.base.numerics import ELEMENTWISE, REDUCTIONS
from eqsat.evidence.index_facts import Beyond, Facts
from eqsat.evidence.index_terms import (
    FILLED,
    INVERSE,
    ONE,
    READ,
    VALUE,
    Atom,
    Choice,
    Function,
    Product,
    Sum,
    applied,
    atom,
    constant,
    head,
    lone,
    negated,
    operands,
    replaced,
    substituted,
    summed,
    times,
    value_of,
)
from eqsat.language.rule import Attr, Lit, Pat, Pattern, Rule, Var
from eqsat.program.core_table import CORE, CoreOp


def prove_equation(rule: Rule, timeout: float) -> tuple[int, str]:
    """How many statements prove a rule's sides equal for all shapes; 0 and the first that failed where they do not."""
    reasons = []
    for radices in (*_output_radices(rule.right), *_output_radices(rule.left), None):
        equation = _Equation(rule, timeout)
        try:
            equal = equation.holds(radices)
        except Beyond as error:
            equal, equation.reason = False, str(error)
        if equal and not equation.facts.contradict():
            return equation.proved, ""
        reasons.append(equation.reason)
    return 0, reasons[0]


def _output_radices(pattern: Pattern) -> Iterator[tuple[Attr, ...]]:
    """Dims in which the output of a side may be counted: of the products that it is made of element by element."""
    if isinstance(pattern, Var):
        return
    row = CORE[pattern.op]
    sizes = row.signature.result.sizes
    if len(sizes) > 1 and row.free.isdisjoint(sizes):
        yield tuple(pattern.attrs[row.place[name]] for name in sizes)
    elif row.elementwise:
        for arg in pattern.args:
            yield from _output_radices(arg)


class _Equation:
    """The two sides of one rule.

    Attributes:
        proved: statements that z3 proved.
        reason: what could not be proved.
    """

    def __init__(self, rule: Rule, timeout: float) -> None:
        self.rule = rule
        self.facts = Facts(rule, timeout)
        self.proved = 0
        self.reason = ""
        self._bound: dict[tuple[str, str], Any] = {}
        self._sizes: dict[Pat, dict[str, Any]] = {}
        """What the names in the signature of each operator stand for."""

    def holds(self, radices: Sequence[Attr] | None) -> bool:
        """Whether both sides are equal at every output index, counted in these radices."""
        rule, size = self.rule, self.facts.integer("self")
        self.facts.shapes.append(size == self._size(rule.left))
        self.facts.assume_guard()
        if not self._fits(rule.right, size):
            return False
        i = self._output(radices)
        self.element(rule.right, i)  # brings digits of i into scope that views of the left side may be promised in
        left = self.element(rule.left, i, inside=True)
        return self._equal(left, self.element(rule.right, i))

    def _output(self, radices: Sequence[Attr] | None) -> Any:
        """A symbol for any output index."""
        size = self.facts.integer("self")
        if radices is None:
            return self.facts.variable(size, "i")
        sizes = [self.facts.number(r) for r in radices]
        if not self.facts.same_size(_times(sizes), size):
            raise Beyond("the output is not counted in these radices")
        return self.facts.join([self.facts.variable(size, "i") for size in sizes], sizes)

    def _proves(self, statement: Any, of_shapes: bool = False) -> bool:
        known = self.facts.follows_from_shapes(statement) if of_shapes else self.facts.follows(statement)
        if known:
            self.proved += 1
        else:
            self.reason = self.facts.doubt(statement)
        return known

    # --- sizes

    def _size(self, pattern: Pattern) -> Any:
        """The size of the left side; that it is well-formed becomes known."""
        facts = self.facts
        if isinstance(pattern, Var):
            return facts.size_of(pattern.name)
        row, known = self._row(pattern), self._of_attributes(pattern)
        for arg, shape in zip(pattern.args, row.signature.operands, strict=True):
            size, factors = self._size(arg), [known[name] for name in shape.sizes if name in known]
            missing = next((name for name in shape.sizes if name not in known), None)
            if missing is None:
                facts.shapes.append(size == _times(factors))
            else:
                known[missing] = facts.quotient(size, _times(factors)) if factors else size
        self._sizes[pattern] = known
        return _times([known[name] for name in row.signature.result.sizes])

    def _fits(self, pattern: Pattern, wanted: Any) -> bool:
        """Whether a pattern of the right side is well-formed and has this size (None: any)."""
        if isinstance(pattern, Var):
            return wanted is None or self._proves(self.facts.size_of(pattern.name) == wanted, of_shapes=True)
        row, known = self._row(pattern), self._of_attributes(pattern)
        result = row.signature.result.sizes
        factors = [known[name] for name in result if name in known]
        missing = next((name for name in result if name not in known), None)
        if missing is None:
            if wanted is not None and not self._proves(_times(factors) == wanted, of_shapes=True):
                return False
        else:
            whole = self._measured(pattern) if wanted is None else wanted
            known[missing] = self.facts.divided(whole, _times(factors)) if factors else whole
        self._sizes[pattern] = known
        shapes = [[known.get(name) for name in shape.sizes] for shape in row.signature.operands]
        return all(
            self._fits(arg, None if None in shape else _times(shape))
            for arg, shape in zip(pattern.args, shapes, strict=True)
        )

    def _measured(self, pattern: Pattern) -> Any:
        """The size of a pattern of the right side, if it is well-formed."""
        if isinstance(pattern, Var):
            return self.facts.size_of(pattern.name)
        row, known = self._row(pattern), self._of_attributes(pattern)
        for name in row.free & set(row.signature.result.sizes):
            i, others = row.source_of(name)
            whole, factors = self._measured(pattern.args[i]), [known[other] for other in others]
            known[name] = self.facts.divided(whole, _times(factors)) if factors else whole
        return _times([known[name] for name in row.signature.result.sizes])

    def _row(self, pattern: Pat) -> CoreOp:
        row = CORE[pattern.op]
        if row.arity is None:
            raise Beyond(f"{pattern.op} is not covered")
        return row

    def _of_attributes(self, pattern: Pat) -> dict[str, Any]:
        """The sizes that attributes say."""
        given = zip(self._row(pattern).attrs, self._attributes(pattern), strict=True)
        numbers = {"int": lambda n: n, "layout": lambda layout: layout.size}
        return {attr.name: numbers[attr.kind](value) for attr, value in given if attr.kind in numbers}

    def _attributes(self, pattern: Pat) -> list[Any]:
        """Attributes over symbols; functions, values and types as they stand in the rule."""
        found: list[Any] = []
        for attr, value in zip(self._row(pattern).attrs, pattern.attrs, strict=True):
            if attr.kind == "layout":
                assert isinstance(value, Var)
                found.append(self.facts.map(value.name))
            else:
                found.append(self.facts.number(value) if attr.kind == "int" else value)
        return found

    # --- elements

    def element(self, pattern: Pattern, index: Any, inside: bool = False) -> Sum:
        """The element of a pattern at a flat index; that reads stay `inside` their operand is known on the left."""
        if isinstance(pattern, Var):
            return atom(z3.Function(pattern.name, z3.IntSort(), VALUE)(index))
        row, known = self._row(pattern), self._sizes[pattern]
        radices = [known[name] for name in row.signature.result.sizes]
        at = self.facts.digits(index, *radices) if len(radices) > 1 else (index,)
        operands = [
            _Operand(self, arg, [known.get(name) for name in shape.sizes], inside)
            for arg, shape in zip(pattern.args, row.signature.operands, strict=True)
        ]
        return row.meaning(_Element(self, index, _is_float(pattern)), at, self._attributes(pattern), operands)

    def shared_variable(self, index: Any, size: Any) -> Any:
        """The variable of a sum for the element at an index: one for both sides, so that its digits are found equal."""
        key = (index.sexpr(), z3.simplify(size).sexpr())
        if key not in self._bound:
            self._bound[key] = self.facts.variable(size)
        return self._bound[key]

    # --- equality

    def _equal(self, left: Sum, right: Sum) -> bool:
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
            return self._proves(a.arg(0) == b.arg(0))  # two reads of one array
        return self._proves(a == b)

    def _same_function(self, a: Function, b: Function) -> bool:
        if a.name != b.name or len(a.args) != len(b.args):
            return False
        if a.bound is None or b.bound is None:
            return all(self._equal(x, y) for x, y in zip(a.args, b.args, strict=True))
        for there in self._walked(a, b):
            if self._equal(a.args[0], replaced(b.args[0], [(b.bound[0], there)])):
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
        return self._equal(inner.args[0], replaced(flat.args[0], [(flat.bound[0], self.facts.join((u, v), (m, n)))]))

    def _same_choice(self, a: Choice, b: Choice) -> bool:
        """Whether two choices have one condition, one fill, and equal sums where nothing is filled."""
        if not self._proves(a.condition == b.condition):
            return False
        if not self._proves(z3.Implies(a.condition, a.fill == b.fill)):
            return False
        with self.facts.where(z3.Not(a.condition)):
            return self._equal(a.inner, b.inner)


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand that is read at symbolic digits."""

    equation: _Equation
    pattern: Pattern
    sizes: Sequence[Any]
    inside: bool

    def __getitem__(self, at: Sequence[Any]) -> Sum:
        return self.equation.element(self.pattern, self.equation.facts.join(at, self.sizes), self.inside)


class _Element:
    """The algebra of single elements: sums of products over symbols. This one is the element at `index`, known to be a
    float where `floats` says so."""

    def __init__(self, equation: _Equation, index: Any, floats: bool) -> None:
        self._equation, self._facts, self._index, self._floats = equation, equation.facts, index, floats

    def number(self, value: Any, dtype: Any) -> Sum:
        count = self._facts.counts.get(value)
        if count is None:
            return atom(constant(value))
        if z3.is_int_value(count):
            return (Product(count.as_long(), (), ()),)
        return summed(ONE, self._facts.variable(count, "r"), count)

    def apply(self, fn: Any, *args: Sum) -> Sum:
        match fn, args:
            case Lit("mul"), (x, y):
                return times(x, y)
            case Lit("add"), (x, y):
                return x + y
            case Lit("sub"), (x, y):
                return x + negated(y)
            case Lit("neg"), (x,):
                return negated(x)
            case Lit("not"), (x,):
                return ONE + negated(x)
            case Lit("div"), (x, y) if self._floats:
                return times(x, atom(Function(INVERSE, (y,))))
        return atom(applied(("apply", fn), args))

    def choose(self, condition: Sum, this: Sum, other: Sum) -> Sum:
        return times(condition, this) + times(ONE + negated(condition), other)

    def fold(self, fn: Any, count: Any, body: Callable[[Any], Sum]) -> Sum:
        if count.eq(z3.IntVal(1)):
            return body(z3.IntVal(0))
        if fn in ("sum", Lit("sum")):
            c = self._equation.shared_variable(self._index, count)
            return summed(body(c), c, count)
        c = self._facts.variable(count)
        return self._folded(fn, c, count, body(c))

    def _folded(self, fn: Any, c: Any, count: Any, inner: Sum) -> Sum:
        """A fold that is no sum. A number is its own maximum, and a maximum of negated values a minimum. What is added
        to all elements is added to their maximum, what is added several times gives as many maxima, and the maximum of
        maxima of two is the maximum of two maxima.
        """
        if fn not in _EXTREMES:
            return atom(Function(("fold", fn), (inner,), (c, count)))
        value = value_of(inner)
        if value is not None and not value.num_args():
            return inner
        if all(term.coefficient < 0 for term in inner):
            return negated(self._folded(_EXTREMES[fn], c, count, negated(inner)))
        pair = operands(lone(inner), ("apply", fn))
        if pair:
            return self.apply(fn, *(self._folded(fn, c, count, atom(part)) for part in pair))
        if len(inner) > 1 and all(self._equation.same_product(inner[0], term) for term in inner[1:]):
            return self._folded(fn, c, count, inner[:1]) * len(inner)
        fixed = [self._equation.fixed(term, c, count) if len(inner) > 1 else None for term in inner]
        kept = tuple(term for term, same in zip(inner, fixed, strict=True) if same is None)
        beside = tuple(same for same in fixed if same is not None)
        return (*(atom(Function(("fold", fn), (kept,), (c, count))) if kept else ()), *beside)

    def dot(self, count: Any, body: Callable[[Any], tuple[Sum, Sum]]) -> Sum:
        if count.eq(z3.IntVal(1)):
            return times(*body(z3.IntVal(0)))
        k = self._equation.shared_variable(self._index, count)
        return summed(times(*body(k)), k, count)

    def read(self, array: _Operand, layout: Any, at: Any) -> Sum:
        place = self._facts.read(layout, at, array.sizes[0] if array.inside else None)
        inner = array[(place,)]
        if self._facts.follows(place >= 0):
            return inner
        if layout.fill.sexpr() in self._facts.zeros:
            return times(atom(z3.If(place < 0, FILLED, READ)), inner)
        value = value_of(inner)
        return atom(Choice(place < 0, layout.fill, inner) if value is None else z3.If(place < 0, layout.fill, value))

    def pick(self, count: Any, index: Sum, body: Callable[[Any], Sum]) -> Sum:
        raise Beyond("elements picked by a value are not covered")

    def join(self, arrays: Sequence[_Operand], at: Any) -> Sum:
        raise Beyond("concatenations are not covered")

    def input(self, name: Any, size: Any, dtype: Any) -> Sum:
        raise Beyond("inputs are not covered")

    def constant(self, digest: Any, size: Any, dtype: Any) -> Sum:
        raise Beyond("constants are not covered")

    def call(self, key: Any, index: Any, args: Sequence[_Operand], size: Any, dtype: Any) -> Sum:
        raise Beyond("what is carried is not covered")


def _chooses(of: Atom, condition: Any) -> bool:
    """Whether a value is decided by a condition."""
    return not isinstance(of, Function | Choice) and z3.is_app_of(of, z3.Z3_OP_ITE) and of.arg(0).eq(condition)


def _is_float(pattern: Pattern) -> bool:
    """Whether an operator makes floats whatever its types are: it takes what a function of floats alone gives."""
    if isinstance(pattern, Var):
        return False
    row = CORE[pattern.op]
    if row.function is not None:
        attr = pattern.attrs[row.place[row.function]]
        name = str(attr.value) if isinstance(attr, Lit) else ""
        function = ELEMENTWISE.get(name) or REDUCTIONS.get(name)
        if function is None or function.result is not None:
            return False
        if function.kinds == ("float",):
            return True
    types = zip(pattern.args, row.signature.operands, strict=row.arity is not None)
    return row.signature.result.dtype in ("t", "f(t)") and any(s.dtype == "t" and _is_float(arg) for arg, s in types)


def _idempotent(fold: Any) -> bool:
    """Whether it does not matter to a fold how often it meets an element."""
    return fold[1] in _EXTREMES


_EXTREMES = {form(fn): form(other) for fn, other in (("max", "min"), ("min", "max")) for form in (str, Lit)}
"""Each extreme, and the one that it is of negated values."""


def _times(factors: Sequence[Any]) -> Any:
    """The product of some sizes."""
    return reduce(mul, factors)


def _without(bound: Sequence[tuple[Any, Any]], gone: Sequence[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple(p for p in bound if not any(p[0].eq(q[0]) for q in gone))
