"""Rules as data: patterns over the core, guards, and the rows that equations compile to.

A rule is a left and a right side with what must be proved beside it. Rows are written as equations
(`eqsat.language.equation`); this is what saturation, evidence, proofs and explanations read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eqsat.language.axes import Axes

Numerics = Literal["exact", "reassociating", "range-changing"]
"""How a rule treats floating point.

`exact`: bitwise the same. `reassociating`: equal over the reals, rounding differs. `range-changing`: may turn a finite
result infinite or hide a NaN or an infinity.
"""

Policy = Literal["exact", "reassociate", "fast"]
ALLOWED: dict[Policy, tuple[Numerics, ...]] = {
    "exact": ("exact",),
    "reassociate": ("exact", "reassociating"),
    "fast": ("exact", "reassociating", "range-changing"),
}
"""The numerics classes that each policy of `eqsat.optimize` lets fire."""


@dataclass(frozen=True, slots=True)
class Var:
    """A variable: a class, an integer, a layout, a function name, a value or a dtype, by where it stands."""

    name: str


LARGEST = 2**53
"""The largest magnitude of whole numbers in rules: float64 holds all up to here."""


@dataclass(frozen=True, slots=True)
class Lit:
    """A literal attribute: an integer or a function name."""

    value: int | str


@dataclass(frozen=True, slots=True)
class Arith:
    """Integer arithmetic (`op` is `+`, `-` or `*`), or what is known of the class on the left (`size` or `dtype`)."""

    op: str
    left: Attr
    right: Attr | None = None


Attr = Var | Lit | Arith


@dataclass(frozen=True, slots=True)
class Pat:
    """A pattern over a core operator: attributes in the order of `eqsat.program.core`, then operands."""

    op: str
    attrs: tuple[Attr, ...]
    args: tuple[Pattern, ...]


Pattern = Var | Pat


@dataclass(frozen=True, slots=True)
class Compare:
    """`left op right` over integers; `op` is one of `<`, `<=`, `==`, `!=`, `>`, `>=`."""

    op: str
    left: Attr
    right: Attr


@dataclass(frozen=True, slots=True)
class Fact:
    """`const(x)` or `dynamic(x)`: what an analysis has established of a class."""

    name: str
    cls: Var


@dataclass(frozen=True, slots=True)
class Ask:
    """A table lookup: `gives` are bound to its results (none: the table is a predicate).

    `table` is a name that `eqsat.language.tables.find` knows.
    """

    table: str
    args: tuple[Attr, ...]
    gives: tuple[Var, ...]

    @property
    def axes(self) -> Axes | None:
        """The axes that it asks about, where its table is one over axes: `along b m k -> b k n`."""
        _, _, text = self.table.partition(" ")
        return Axes.read(text, self.table) if text else None

    @property
    def sizes(self) -> dict[str, Attr]:
        """The size of each of its axes: the last of its arguments."""
        letters = self.axes.letters if self.axes else ()
        return dict(zip(letters, self.args[len(self.args) - len(letters) :], strict=True))


Guard = Compare | Fact | Ask


Direction = Literal["right", "left"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: what is equal to what, when, how exactly, where it comes from and why it helps."""

    name: str
    left: Pat
    right: Pattern
    when: tuple[Guard, ...]
    numerics: Numerics
    source: str
    why: str
    text: str
    guard_text: str
    equation: str
    """The name of the equation that it orients; its own where it is the only one."""
    stated: str
    """That equation as it was written."""
    direction: Direction
    """Which side of the equation is replaced by the other: `right` means the left one by the right one."""
    subsumes: bool = False
    """The left side is never needed again: rules stop matching it, and no program is made of it."""
    worth: tuple[Guard, ...] = ()
    """The guards of `when` that only keep the rule from firing in vain: the sides are equal without them."""
    meets: bool = False
    """The rule makes nothing: it fires where the right side is in the e-graph, too."""

    @property
    def guard_parts(self) -> tuple[str, ...]:
        """Each guard of `when` as it was written."""
        return tuple(self.guard_text.split("; ")) if self.guard_text else ()

    @property
    def literals(self) -> dict[str, int]:
        """The whole numbers that the left side spells, by the names that its pattern has for them."""
        return dict(filter(None, map(spelled, self.when)))


@dataclass(frozen=True, slots=True)
class HostRule:
    """A rule over all members of an n-ary `Cat`, over groups or over constant values: run by the host on snapshots.

    `apply(graph, emit)` calls `emit(class, term)` for every equality that it finds; a term is a class id or
    `(op, attrs, operands)`. `text` states the equality in the notation of `Rule`. `phase` says when it runs: always,
    only until the first groups are formed, or to form groups once the rest has come to rest.
    """

    name: str
    text: str
    apply: Callable[..., None]
    numerics: Numerics
    source: str
    why: str
    guard_text: str = ""
    phase: Literal["algebra", "before-groups", "groups"] = "algebra"


AnyRule = Rule | HostRule


def spelled(guard: Guard) -> tuple[str, int] | None:
    """The name and value of the number of the left side that a guard stands for, where nobody wrote that guard."""
    match guard:
        case Ask("is_value", (Var(name), Lit(int(value))), ()) if name == str(value):
            return name, value
    return None


def patterns(pattern: Pattern) -> Iterator[Pattern]:
    """A pattern and all that it is made of: first itself, then its operands from left to right."""
    yield pattern
    if isinstance(pattern, Pat):
        for arg in pattern.args:
            yield from patterns(arg)


def variables(pattern: Pattern | Attr | Guard) -> Iterator[str]:
    """Names of the variables that a pattern, an attribute or a guard reads, in order, with repetitions."""
    match pattern:
        case Var(name):
            yield name
        case Pat(_, attrs, args):
            for part in (*args, *attrs):
                yield from variables(part)
        case Arith(_, left, right):
            yield from variables(left)
            if right is not None:
                yield from variables(right)
        case Compare(_, left, right):
            yield from variables(left)
            yield from variables(right)
        case Fact(_, cls):
            yield cls.name
        case Ask(_, args, _):
            for part in args:
                yield from variables(part)
        case Lit():
            return


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
"""What the comparisons of guards mean, of integers and of symbols for them."""

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def number(attr: Attr, variable: Callable[[str], Any], known: Mapping[str, Callable[[str], Any]]) -> Any:
    """What an attribute comes to.

    Args:
        variable: what a variable stands for.
        known: `size` and `dtype` of an array variable.
    """
    match attr:
        case Var(name):
            return variable(name)
        case Lit(value):
            return value
        case Arith("size" | "dtype" as what, Var(name)):
            return known[what](name)
        case Arith(op, left, right) if right is not None:
            return _ARITHMETIC[op](number(left, variable, known), number(right, variable, known))
    raise ValueError(f"not a number: {attr}")
