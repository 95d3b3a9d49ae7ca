"""Both sides of a rule, element by element over symbols, and the proof that they are equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import z3

from eqsat.evidence.index_facts import Beyond, Facts
from eqsat.evidence.index_terms import (
    VALUE,
    Atom,
    Choice,
    Function,
    Product,
    Sum,
    applied,
    atom,
    head,
    lone,
    negated,
    replaced,
    substituted,
    summed,
    times,
    value_of,
)
from eqsat.language.rule import Attr, Lit, Pat, Pattern, Rule, Var


def prove_equation(rule: Rule, timeout: float) -> tuple[int, str]:
    """How many statements prove a rule's sides equal for all shapes; 0 and the first that failed where they do not."""
    reasons = []
    for radices in (*_output_radices(rule.right), *_output_radices(rule.left), None):
        equation = _Equation(rule, timeout)
        try:
            equal = equation.holds(radices)
        except Beyond as error:
            equal, equation.reason = False, str(error)
        if equal:
            return equation.proved, ""
        reasons.append(equation.reason)
    return 0, reasons[0]


def _output_radices(pattern: Pattern) -> Iterator[tuple[Attr, Attr, Attr]]:
    """Dims in which the output of a side may be counted: of the products that it is made of element by element."""
    if isinstance(pattern, Pat) and pattern.op == "MM":
        batch, m, _, n = pattern.attrs
        yield batch, m, n
    elif isinstance(pattern, Pat) and pattern.op in ("Un", "Bin", "Where"):
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

    def holds(self, radices: Sequence[Attr] | None) -> bool:
        """Whether both sides are equal at every output index, counted in these radices."""
        rule, size = self.rule, self.facts.integer("self")
        self.facts.shapes.append(size == self._size(rule.left))
        self.facts.assume_guard()
        if not self._fits(rule.right, size):
            return False
        i = self._output(radices)
        self._element(rule.right, i)  # brings digits of i into scope that views of the left side may be promised in
        left = self._element(rule.left, i, inside=True)
        return self._equal(left, self._element(rule.right, i))

    def _output(self, radices: Sequence[Attr] | None) -> Any:
        """A symbol for any output index."""
        size = self.facts.integer("self")
        if radices is None:
            return self.facts.variable(size, "i")
        sizes = [self.facts.number(r) for r in radices]
        if not self.facts.same_size(sizes[0] * sizes[1] * sizes[2], size):
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
        match pattern.op:
            case "V":
                self._size(pattern.args[0])
                return self._layout(pattern).size
            case "Full":
                return facts.number(pattern.attrs[1])
            case "MM":
                b, m, k, n = (facts.number(a) for a in pattern.attrs)
                for arg, wanted in zip(pattern.args, (b * m * k, b * k * n), strict=True):
                    facts.shapes.append(self._size(arg) == wanted)
                return b * m * n
            case "Red":
                return facts.quotient(self._size(pattern.args[0]), facts.number(pattern.attrs[1]))
            case "Un" | "Bin" | "Where":
                first, *others = (self._size(a) for a in pattern.args)
                facts.shapes += [first == other for other in others]
                return first
        raise Beyond(f"{pattern.op} is not covered")

    def _fits(self, pattern: Pattern, wanted: Any) -> bool:
        """Whether a pattern of the right side is well-formed and has this size (None: any)."""
        facts = self.facts

        def sized(size: Any) -> bool:
            return wanted is None or self._proves(size == wanted, of_shapes=True)

        if isinstance(pattern, Var):
            return sized(facts.size_of(pattern.name))
        match pattern.op:
            case "V":
                return sized(self._layout(pattern).size) and self._fits(pattern.args[0], None)
            case "Full":
                return sized(facts.number(pattern.attrs[1]))
            case "MM":
                b, m, k, n = (facts.number(a) for a in pattern.attrs)
                operands = zip(pattern.args, (b * m * k, b * k * n), strict=True)
                return sized(b * m * n) and all(self._fits(arg, size) for arg, size in operands)
            case "Red":
                if wanted is None:
                    raise Beyond("the size of a reduction under a view")
                return self._fits(pattern.args[0], wanted * facts.number(pattern.attrs[1]))
        return all(self._fits(a, wanted) for a in pattern.args)

    def _layout(self, pattern: Pat) -> Any:
        (name,) = pattern.attrs
        assert isinstance(name, Var)
        return self.facts.map(name.name)

    # --- elements

    def _element(self, pattern: Pattern, index: Any, inside: bool = False) -> Sum:
        """The element of a pattern at a flat index; that reads stay `inside` their operand is known on the left."""
        facts = self.facts
        if isinstance(pattern, Var):
            return atom(z3.Function(pattern.name, z3.IntSort(), VALUE)(index))
        match pattern.op:
            case "V":
                return self._viewed(pattern, index, inside)
            case "Full":
                return atom(z3.Const(f"value {pattern.attrs[0]}", VALUE))
            case "MM":
                b, m, k, n = (facts.number(a) for a in pattern.attrs)
                x, y, w = facts.digits(index, b, m, n)
                z = self._shared_variable(index, k)
                left = self._element(pattern.args[0], facts.join((x, y, z), (b, m, k)), inside)
                right = self._element(pattern.args[1], facts.join((x, z, w), (b, k, n)), inside)
                return summed(times(left, right), z, k)
            case "Red":
                return self._reduced(pattern, index, inside)
        args = [self._element(a, index, inside) for a in pattern.args]
        match pattern.op, pattern.attrs:
            case "Bin", (Lit("mul"),):
                return times(args[0], args[1])
            case "Bin", (Lit("add"),):
                return args[0] + args[1]
            case "Bin", (Lit("sub"),):
                return args[0] + negated(args[1])
            case "Un", (Lit("neg"),):
                return negated(args[0])
        return atom(applied((pattern.op, *pattern.attrs), args))

    def _reduced(self, pattern: Pat, index: Any, inside: bool) -> Sum:
        function, count = pattern.attrs[0], self.facts.number(pattern.attrs[1])
        if count.eq(z3.IntVal(1)):
            return self._element(pattern.args[0], index, inside)
        added = function == Lit("sum")
        c = self._shared_variable(index, count) if added else self.facts.variable(count)
        inner = self._element(pattern.args[0], self.facts.join((index, c), (None, count)), inside)
        return summed(inner, c, count) if added else atom(Function(("fold", function), (inner,), (c, count)))

    def _shared_variable(self, index: Any, size: Any) -> Any:
        """The variable of a sum for the element at an index: one for both sides, so that its digits are found equal."""
        key = (index.sexpr(), z3.simplify(size).sexpr())
        if key not in self._bound:
            self._bound[key] = self.facts.variable(size)
        return self._bound[key]

    def _viewed(self, view: Pat, index: Any, inside: bool) -> Sum:
        layout = self._layout(view)
        place = self.facts.read(layout, index, self._size(view.args[0]) if inside else None)
        inner = self._element(view.args[0], place, inside)
        if self.facts.follows(place >= 0):
            return inner
        value = value_of(inner)
        return atom(Choice(place < 0, layout.fill, inner) if value is None else z3.If(place < 0, layout.fill, value))

    # --- equality

    def _equal(self, left: Sum, right: Sum) -> bool:
        """Whether the terms of two sums pair off."""
        rest = list(right)
        for term in left:
            found = next((other for other in rest if self._same_product(term, other)), None)
            if found is None:
                break
            rest.remove(found)
        else:
            if not rest:
                return True
        self.reason = self.reason or "the terms of both sides do not pair off"
        return False

    def _same_product(self, a: Product, b: Product) -> bool:
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
        args = b.args
        if a.bound is not None and b.bound is not None:
            if not self.facts.same_size(a.bound[1], b.bound[1]):
                return self._folded_twice(a, b) or self._folded_twice(b, a)
            args = tuple(replaced(arg, [(b.bound[0], a.bound[0])]) for arg in args)
        return all(self._equal(x, y) for x, y in zip(a.args, args, strict=True))

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


def _without(bound: Sequence[tuple[Any, Any]], gone: Sequence[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple(p for p in bound if not any(p[0].eq(q[0]) for q in gone))
