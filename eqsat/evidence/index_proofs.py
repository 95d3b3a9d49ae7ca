"""Both sides of a rule, element by element over symbols, and the proof that they are equal at every output index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any

import z3

from eqsat.base.numerics import ELEMENTWISE, REDUCTIONS
from eqsat.evidence.index_equality import EXTREMES, Equality
from eqsat.evidence.index_facts import Beyond, Facts
from eqsat.evidence.index_terms import (
    FILLED,
    INVERSE,
    ONE,
    READ,
    VALUE,
    Choice,
    Function,
    Product,
    Sum,
    applied,
    atom,
    constant,
    lone,
    negated,
    operands,
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
            equal, equation.equality.reason = False, str(error)
        if equal and not equation.facts.contradict():
            return equation.equality.proved, ""
        reasons.append(equation.equality.reason)
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
    """The two sides of one rule."""

    def __init__(self, rule: Rule, timeout: float) -> None:
        self.rule = rule
        self.facts = Facts(rule, timeout)
        self.equality = Equality(self.facts)
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
        return self.equality.equal(left, self.element(rule.right, i))

    def _output(self, radices: Sequence[Attr] | None) -> Any:
        """A symbol for any output index."""
        size = self.facts.integer("self")
        if radices is None:
            return self.facts.variable(size, "i")
        sizes = [self.facts.number(r) for r in radices]
        if not self.facts.same_size(_times(sizes), size):
            raise Beyond("the output is not counted in these radices")
        return self.facts.join([self.facts.variable(size, "i") for size in sizes], sizes)

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
            return wanted is None or self.equality.proves(self.facts.size_of(pattern.name) == wanted, of_shapes=True)
        row, known = self._row(pattern), self._of_attributes(pattern)
        result = row.signature.result.sizes
        factors = [known[name] for name in result if name in known]
        missing = next((name for name in result if name not in known), None)
        if missing is None:
            if wanted is not None and not self.equality.proves(_times(factors) == wanted, of_shapes=True):
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
            return (Product(count.as_long(), (), ()),) if count.as_long() else ()
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
        if fn not in EXTREMES:
            return atom(Function(("fold", fn), (inner,), (c, count)))
        value = value_of(inner)
        if value is not None and not value.num_args():
            return inner
        if all(term.coefficient < 0 for term in inner):
            return negated(self._folded(EXTREMES[fn], c, count, negated(inner)))
        pair = operands(lone(inner), ("apply", fn))
        if pair:
            return self.apply(fn, *(self._folded(fn, c, count, atom(part)) for part in pair))
        if len(inner) > 1 and all(self._equation.equality.same_product(inner[0], term) for term in inner[1:]):
            return self._folded(fn, c, count, inner[:1]) * len(inner)
        fixed = [self._equation.equality.fixed(term, c, count) if len(inner) > 1 else None for term in inner]
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


def _times(factors: Sequence[Any]) -> Any:
    """The product of some sizes."""
    return reduce(mul, factors)
