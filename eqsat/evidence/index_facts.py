"""Symbols for the integers and layouts of a rule, what is known of them, and questions about that to z3.

What is known: the sizes of a well-formed left side, the comparisons of the guard, the promises of its tables for every
choice of the variables in play, and that digits are unique.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import z3

from eqsat.evidence.index_terms import VALUE, applied, atom, constant, value_of
from eqsat.language.rule import COMPARISONS, Ask, Attr, Compare, Rule, Var, number
from eqsat.language.tables import find

_MOST_INSTANCES = 64
"""Ways in which one promise is instantiated."""


class Beyond(Exception):
    """The rule needs what proofs do not cover."""


class SymbolicMap:
    """A layout that is known by promises alone."""

    def __init__(self, name: str) -> None:
        self.size = z3.Int(f"size({name})")
        self.fill = z3.Const(f"fill({name})", VALUE)
        self._read = z3.Function(name, z3.IntSort(), z3.IntSort())

    def __getitem__(self, index: Any) -> Any:
        return self._read(index)


class InOrder(SymbolicMap):
    """The layout that reads every element in order."""

    def __getitem__(self, index: Any) -> Any:
        return index


class Facts:
    """What is known of one rule.

    Attributes:
        shapes: facts about sizes, for all shapes.
        ranges: facts about variables and elements: they hold where there are elements at all.
    """

    def __init__(self, rule: Rule, timeout: float) -> None:
        self.rule = rule
        self.shapes: list[Any] = []
        self.ranges: list[Any] = []
        self._timeout = int(timeout * 1000)
        self._ints: dict[str, Any] = {}
        self._maps: dict[str, SymbolicMap] = {}
        self._scope: list[tuple[Any, Any]] = []  # (variable, size) and (index of a read, size of the map)
        self._joined: dict[str, tuple[Any, Any, Any, Any]] = {}  # index -> index, hi, lo, radix
        self._digits: dict[tuple[str, ...], tuple[Any, ...]] = {}
        self._quotients: list[tuple[Any, Any, Any]] = []  # rows, size, count: the size is rows * count
        self.bijections: dict[Ask, tuple[tuple[Any, ...], tuple[Any, ...], list[Any]]] = {}
        """Sizes, other sizes, and a function for each of the others, of each bijection that is promised."""
        self.zeros: set[str] = set()
        """Fills that are zero."""
        self.kept: list[_Kept] = []
        """What injections leave out, at the variables at which a promise was stated."""
        self.counts: dict[Any, Any] = {}
        """Values of the core that are a number, by the attribute that stands for them."""
        self.shares: dict[Any, Any] = {}
        """Values of the core that are one divided by a number, as they are written."""
        self._all: list[Any] | None = None
        self._stating = False
        self._fresh = 0
        self._answer: tuple[Any, Any] = (None, None)

    # --- symbols

    def integer(self, name: str) -> Any:
        """The integer that a variable stands for; dims and sizes are not negative."""
        if name not in self._ints:
            self._ints[name] = z3.Int(name)
            self.shapes.append(self._ints[name] >= 0)
        return self._ints[name]

    def size_of(self, array: str) -> Any:
        """The number of elements of an array variable."""
        return self.integer("self" if array == "self" else f"size({array})")

    def map(self, name: str) -> SymbolicMap:
        """The layout that a variable stands for."""
        if name not in self._maps:
            read = [ask.axes for ask in self._asks() if ask.gives == (Var(name),) and ask.table.startswith("axes ")]
            in_order = any(axes is not None and axes.source == axes.target for axes in read)
            self._maps[name] = InOrder(name) if in_order else SymbolicMap(name)
            self.shapes.append(self._maps[name].size >= 0)
        return self._maps[name]

    def number(self, attr: Attr) -> Any:
        """An integer attribute over symbols."""
        found = number(attr, self.integer, {"size": self.size_of})
        return z3.IntVal(found) if isinstance(found, int) else found

    def quotient(self, size: Any, count: Any) -> Any:
        """rows, where a size is rows * count."""
        self._fresh += 1
        rows = self.integer(f"rows{self._fresh}")
        self.shapes += [size == rows * count, count > 0]
        self._quotients.append((rows, size, count))
        return rows

    def divided(self, size: Any, count: Any) -> Any:
        """rows, where a size is known to be rows * count.

        Raises:
            Beyond: it is not.
        """
        for rows, whole, known in self._quotients:
            if self.same_size(known, count) and self.same_size(whole, size):
                return rows
        raise Beyond(f"{count} is not known to divide {size}")

    def variable(self, size: Any, name: str = "k") -> Any:
        """A new variable in [0, size); of one place, that place."""
        if _is(size, 1):
            return z3.IntVal(0)
        self._fresh += 1
        made = z3.Int(f"{name}{self._fresh}")
        self.ranges += [made >= 0, made < size]
        self._scope.append((made, size))
        self._all = None
        return made

    def another(self, variable: Any, size: Any) -> tuple[Any, Callable[[], None]]:
        """A new variable beside one in [0, size), read wherever that is, and how to forget it again."""
        ranges, scope = list(self.ranges), list(self._scope)

        def forget() -> None:
            self.ranges, self._scope, self._all = ranges, scope, None

        made = self.variable(size)
        self._scope += [(z3.substitute(i, (variable, made)), n) for i, n in scope if _mentions(i, [variable])]
        return made, forget

    def read(self, layout: SymbolicMap, index: Any, below: Any = None) -> Any:
        """What a layout reads at an index; where `below` is given, the read is known to be a fill or below it."""
        place = layout[index]
        self._scope.append((index, layout.size))
        if below is not None:
            self.ranges.append(z3.And(place >= -1, place < below))
        self._all = None
        return place

    def respelled(
        self, ask: Ask, variables: Sequence[Any], sizes: Sequence[Any], others: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The values under a table's bijection from variables below some sizes to variables below others."""
        if ask not in self.bijections:
            ints = [z3.IntSort()] * (len(sizes) + 1)
            maps = [z3.Function(f"{ask.table} {len(self.bijections)} {j}", *ints) for j in range(len(others))]
            self.bijections[ask] = (tuple(sizes), tuple(others), maps)
        values = tuple(f(*variables) for f in self.bijections[ask][2])
        before = z3.And([z3.And(v >= 0, v < n) for v, n in zip(variables, sizes, strict=True)])
        after = z3.And([z3.And(v >= 0, v < n) for v, n in zip(values, others, strict=True)])
        self.ranges.append(z3.Implies(before, after))
        return values

    def injected(self, ask: Ask, variable: Any, size: Any, whole: Any, dropped: Callable[[Any], Any]) -> Any:
        """The place of a variable under a table's injection."""
        place = z3.Function(f"{ask.table} place", z3.IntSort(), z3.IntSort())
        at: Any = place(variable)
        self.ranges.append(z3.Implies(z3.And(variable >= 0, variable < size), z3.And(at >= 0, at < whole)))
        any_place = z3.Int("place")
        self.kept.append(_Kept(dropped(any_place), any_place, place, (size,), whole))
        return at

    # --- digits

    def join(self, digits: Sequence[Any], radices: Sequence[Any]) -> Any:
        """The flat index of digits."""
        index = digits[0]
        for digit, radix in zip(digits[1:], radices[1:], strict=True):
            if _is(index, 0):
                index = digit
                continue
            hi, index = index, index * radix + digit
            if index.sexpr() not in self._joined:
                self._joined[index.sexpr()] = (index, hi, digit, radix)
                self._all = None
        return index

    def digits(self, index: Any, *radices: Any) -> tuple[Any, ...]:
        """The digits of a flat index that is below the product of the radices; nothing is known of them elsewhere."""
        if len(radices) > 1 and _is(radices[0], 1):
            return (z3.IntVal(0), *self.digits(index, *radices[1:]))
        key = (index.sexpr(), *(z3.simplify(r).sexpr() for r in radices))
        if key not in self._digits:
            self._digits[key] = self._spelled(index, radices) or self._new_digits(index, radices)
        return self._digits[key]

    def _new_digits(self, index: Any, radices: Sequence[Any]) -> tuple[Any, ...]:
        self._fresh += 1
        made = tuple(z3.Int(f"d{self._fresh}_{j}") for j in range(len(radices)))
        whole = z3.IntVal(1)
        for radix in radices:
            whole = whole * radix
        meant = [self.join(made, radices) == index]
        for digit, radix in zip(made, radices, strict=True):
            meant += [digit >= 0, digit < radix]
            if not self._stating:  # a promise need not be kept at digits that it speaks of itself
                self._scope.append((digit, radix))
        self.ranges.append(z3.Implies(z3.And(index >= 0, index < whole), z3.And(meant)))
        self._all = None
        return made

    def _spelled(self, index: Any, radices: Sequence[Any]) -> tuple[Any, ...] | None:
        """The digits of an index that is, or is promised to be, joined of digits in these radices."""
        equal = () if self._stating else self._promised_equal(index)
        for same in (index, *equal):
            digits = self._taken_apart(same, radices)
            if digits is not None and (same is index or self.follows(index == same)):
                return digits
        return None

    def _taken_apart(self, index: Any, radices: Sequence[Any]) -> tuple[Any, ...] | None:
        found: list[Any] = []
        rest = index
        for radix in reversed(radices[1:]):
            _, hi, lo, known = self._joined.get(rest.sexpr(), (None, None, None, None))
            if hi is None or not self.same_size(known, radix):
                break
            found.append(lo)
            rest = hi
        leading = [z3.IntVal(0)] * (len(radices) - 1 - len(found))
        digits = (*leading, rest, *reversed(found))
        within = z3.And([z3.And(d >= 0, d < radix) for d, radix in zip(digits, radices, strict=True)])
        return digits if self.follows(within) else None

    def _unique_digits(self) -> list[Any]:
        """For every two indices in one radix: equal indices have equal digits."""
        facts = []
        joins = list(self._joined.values())
        for i, (index, hi, lo, radix) in enumerate(joins):
            for other, hi2, lo2, radix2 in joins[:i]:
                if z3.simplify(radix - radix2).eq(z3.IntVal(0)):
                    within = z3.And(lo >= 0, lo < radix, lo2 >= 0, lo2 < radix)
                    facts.append(z3.Implies(z3.And(index == other, within), z3.And(hi == hi2, lo == lo2)))
        return facts

    # --- guards and promises

    def assume_guard(self) -> None:
        """Take the comparisons of `when` as known, and of promises what holds of sizes alone."""
        for guard in self.rule.when:
            if isinstance(guard, Compare) and guard not in self.rule.worth:
                self.shapes.append(COMPARISONS[guard.op](self.number(guard.left), self.number(guard.right)))
        for ask in self._asks():
            open_ended = _Instantiation(self, ask)
            stated = self._stated(ask, open_ended)
            self.shapes += [f for f in stated if not _mentions(f, open_ended.variables)]

    def _asks(self) -> list[Ask]:
        return [guard for guard in self.rule.when if isinstance(guard, Ask) and guard not in self.rule.worth]

    def _stated(self, ask: Ask, logic: _Instantiation) -> list[Any]:
        """What a table promises."""
        table = find(ask.table)
        values = []
        for attr, sort in zip((*ask.args, *ask.gives), (*table.takes, *table.gives), strict=True):
            if sort == "layout":
                assert isinstance(attr, Var)
                values.append(self.map(attr.name))
            else:
                values.append(self.number(attr) if sort == "int" else attr)
        return table.promised(logic, values)

    def _promised(self) -> list[Any]:
        """Every promise for every choice of the variables in scope, and of the indices at which maps are read."""
        facts = []
        for ask in self._asks():
            sizes = self._sizes(ask)
            for chosen in islice(product(*map(self._of_size, sizes)), _MOST_INSTANCES):
                within = z3.And([z3.And(v >= 0, v < size) for v, size in zip(chosen, sizes, strict=True)])
                facts += [z3.Implies(within, f) for f in self._stated(ask, _Instantiation(self, ask, chosen))]
        return facts

    def _sizes(self, ask: Ask) -> tuple[Any, ...]:
        """What the variables of a promise are below."""
        logic = _Instantiation(self, ask)
        self._stated(ask, logic)
        return logic.sizes

    def _promised_equal(self, index: Any) -> list[Any]:
        """What promises say that an index equals."""
        stated = [fact.arg(1) for fact in self.everything() if z3.is_implies(fact)]
        return [s.arg(1) for s in stated if z3.is_eq(s) and s.arg(0).eq(index)]

    def _of_size(self, size: Any) -> list[Any]:
        """Variables in scope, and indices of reads, that range below a size."""
        found = {value.sexpr(): value for value, below in self._scope if self.same_size(below, size)}
        return list(found.values())

    # --- questions

    def everything(self) -> list[Any]:
        """Every fact."""
        if self._stating:
            return [*self.shapes, *self.ranges]
        if self._all is None:
            self._stating = True
            promised = self._promised()
            self._stating = False
            self._all = [*self.shapes, *self.ranges, *promised, *self._unique_digits()]
        return self._all

    @contextmanager
    def where(self, condition: Any) -> Iterator[None]:
        """A place where a condition holds as well."""
        self.ranges.append(condition)
        self._all = None
        yield
        self.ranges = [fact for fact in self.ranges if fact is not condition]
        self._all = None

    def same_size(self, a: Any, b: Any) -> bool:
        """Whether two sizes are equal for all shapes."""
        return z3.simplify(a - b).eq(z3.IntVal(0)) or self._entails(self.shapes, a == b)

    def follows(self, statement: Any) -> bool:
        """Whether a statement follows from everything that is known."""
        return self._entails(self.everything(), statement)

    def follows_from_shapes(self, statement: Any) -> bool:
        """Whether a statement about sizes holds for all shapes, empty ones included."""
        return self._entails(self.shapes, statement)

    def contradict(self) -> bool:
        """Whether no shapes and elements fit everything that is known: then it proves nothing."""
        return self.follows(z3.BoolVal(False))

    def _entails(self, facts: Sequence[Any], statement: Any) -> bool:
        if z3.is_true(z3.simplify(statement, som=True)):
            return True
        solver = z3.Solver()
        solver.set("timeout", self._timeout)
        solver.add(*facts)
        solver.add(z3.Not(statement))
        answer = solver.check()
        self._answer = (answer, solver.model() if answer == z3.sat else None)
        return answer == z3.unsat

    def doubt(self, statement: Any) -> str:
        """Why the last question had no for an answer, with the shapes of z3's counterexample."""
        answer, model = self._answer
        text = " ".join(str(statement).split())
        if model is None:
            return f"z3 gave up on {text}" if answer == z3.unknown else text
        dims = {n: model.eval(v, model_completion=True) for n, v in sorted(self._ints.items())}
        return f"{text} fails at {', '.join(f'{name}={value}' for name, value in dims.items())}"


@dataclass(frozen=True, slots=True)
class _Kept:
    """A condition that holds at every `place` below `whole` but those of an injection of variables below `sizes`."""

    condition: Any
    place: Any
    injection: Callable[..., Any]
    sizes: tuple[Any, ...]
    whole: Any


class _Instantiation:
    """The logic of promises over symbols: of variables that are given, or of any where none are."""

    def __init__(self, facts: Facts, ask: Ask, chosen: Sequence[Any] | None = None) -> None:
        self._facts, self._ask, self._chosen = facts, ask, chosen
        self.sizes: tuple[Any, ...] = ()
        self.variables: list[Any] = []

    def below(self, *sizes: Any) -> tuple[Any, ...]:
        self.sizes = sizes
        self.variables = [z3.Int(f"any{j}") for j in range(len(sizes))] if self._chosen is None else [*self._chosen]
        return tuple(self.variables)

    def join(self, digits: Sequence[Any], radices: Sequence[Any]) -> Any:
        return digits[0] if self._chosen is None else self._facts.join(digits, radices)

    def digits(self, index: Any, *radices: Any) -> tuple[Any, ...]:
        return (self.variables[0],) * len(radices) if self._chosen is None else self._facts.digits(index, *radices)

    def choose(self, condition: Any, this: Any, other: Any) -> Any:
        return z3.If(condition, this, other)

    def implies(self, condition: Any, conclusion: Any) -> Any:
        return z3.Implies(condition, conclusion)

    def same(self, fill: Any, other: Any) -> Any:
        return fill == other

    def matched(
        self, variables: Sequence[Any], sizes: Sequence[Any], others: Sequence[Any], key: Any, other_key: Any
    ) -> tuple[Any, ...]:
        return self._facts.respelled(self._ask, variables, sizes, others)

    def kept(self, variable: Any, size: Any, whole: Any, dropped: Callable[[Any], Any]) -> Any:
        return self._facts.injected(self._ask, variable, size, whole, dropped)

    def only(self, place: Any, whole: Any, dropped: Callable[[Any], Any]) -> Any:
        any_place = z3.Int("place")
        self._facts.kept.append(_Kept(dropped(any_place), any_place, lambda: place, (), whole))
        return z3.BoolVal(True)

    def zero(self, fill: Any) -> Any:
        self._facts.zeros.add(fill.sexpr())
        return z3.BoolVal(True)

    def count(self, value: Any, number: Any) -> Any:
        self._facts.counts[value] = number
        return z3.BoolVal(True)

    def share(self, value: Any, number: Any) -> Any:
        self._facts.shares[constant(value).sexpr()] = number
        return z3.BoolVal(True)

    def divided(self, size: Any, count: Any) -> Any:
        return self._facts.divided(size, count)

    def apply(self, fn: Any, fill: Any) -> Any:
        return value_of(atom(applied(("apply", fn), [atom(fill)])))


def _is(number: Any, known: int) -> bool:
    """Whether a symbol is a certain number."""
    return z3.is_expr(number) and z3.is_int_value(number) and number.as_long() == known


def _mentions(formula: Any, variables: Sequence[Any]) -> bool:
    return any(formula.eq(v) for v in variables) or any(_mentions(c, variables) for c in formula.children())
