"""Equations, and strategies that orient them: what is equal is stated once, and when it pays is said beside it.

    ASSOCIATIVE = equation("matmul-associative", "(a @ b) @ c == a @ (b @ c)", numerics="reassociating", source=TASO)

    *ASSOCIATIVE.orient(
        "right", "matmul-associate-right", worth="K*N*P + M*K*P < M*K*N + M*N*P; dynamic(a)", mirror=True,
        why="the other order takes fewer multiplications",
    )

The notation of both sides is that of `eqsat.language.notation`. `when` is what must be proved, a conjunction separated
by `;`. Each part is a comparison of integer arithmetic (`size(x)` counts elements, `self` is the left side), a table
that must hold (`finite(v)`, `plain(L)`), or one that gives values (`L = compose(L1, L2)`). Tables are the functions of
`eqsat.language.tables`: layout arithmetic, asked for by demand, since egglog cannot compute it. A table that declines
leaves no row, so that the rule does not fire: unknown means no. `along(L, "b m k -> b k n")` counts what the layout L
reads in the axes b, m, k, asks whether it is the same along m, and gives the layout that reads it in b, k, n.

`worth` belongs to a strategy and is asked first. It is written like `when`, and may also say `const(x)` and
`dynamic(x)`. The two sides are equal without it: `eqsat.evidence.soundness` tests that, and that no part of `when` can
be left out.

One row may give several rules. `mirror` adds the mirror image, the same of the transposed products (`b @ a` for
`a @ b`): `-left` for `-right`, or a name of its own. Where a view is optional (`a[L?]`), `name` is the rule without it
and `viewed` the one with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TypedDict, Unpack, get_args

from eqsat.base import arguments
from eqsat.errors import InputError
from eqsat.language import tables
from eqsat.language.axes import Axes
from eqsat.language.notation import Statement
from eqsat.language.patterns import oriented
from eqsat.language.rule import (
    COMPARISONS,
    Arith,
    Ask,
    Attr,
    Compare,
    Direction,
    Fact,
    Guard,
    Lit,
    Numerics,
    Pat,
    Pattern,
    Rule,
    Var,
    patterns,
    variables,
)
from eqsat.language.signs import attribute, product
from eqsat.language.text import side, written

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
"""Names of users' rules: they are told to egglog, printed, and listed on the command line."""

_SYMBOLS = {ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.Gt: ">", ast.GtE: ">="}
assert set(_SYMBOLS.values()) == set(COMPARISONS)


@dataclass(frozen=True, slots=True)
class Equation:
    """Two sides that are equal where `when` holds; a family lists what `orient` makes of it."""

    name: str
    text: str
    when: str
    numbers: tuple[str, ...]
    numerics: Numerics
    source: str

    def orient(
        self,
        direction: Direction,
        name: str = "",
        *,
        worth: str = "",
        why: str = "",
        source: str = "",
        mirror: bool | str = False,
        viewed: str = "",
        subsumes: bool = False,
        meets: bool = False,
    ) -> tuple[Rule, ...]:
        """The rules that replace one side by the other (`right`: the left one by the right one) where that can pay.

        Args:
            worth: when it can pay.
            source: where the strategy comes from, if not from where the equation does.
            mirror: also the mirror image; its name, if not derived.
            viewed: the name of the form with the optional view (its mirror image's gets `-behind-view`).
                Leave `name` out where that is the only form.
            subsumes: the side that is replaced is never needed again.
            meets: only where the e-graph has both sides: they become one, and nothing is made.

        Raises:
            InputError: the equation cannot be read or matched in this direction, or a name in a guard is not bound.
        """
        if viewed and "?" not in self.text:
            raise InputError(f"equation {self.name!r}: no view is optional, so that there is no form called {viewed!r}")
        rows: list[Rule] = []
        for form, called in ((False, name), (True, viewed)):
            if called:
                row = self._oriented(direction == "left", called, form, worth)
                row = replace(row, why=why, source=source or self.source, subsumes=subsumes, meets=meets)
                rows.append(row)
                if mirror:
                    image = _mirror_name(name) if mirror is True else mirror
                    rows.append(_mirrored(row, f"{image}-behind-view" if form else image))
        return tuple(_checked(row) for row in rows)

    def _oriented(self, backwards: bool, name: str, viewed: bool, worth: str) -> Rule:
        where = f"rule {name!r}"
        left, right = _sides(self.text, where)
        needed = [_guard(part, where) for part in _parts(self.when)]
        profit = [_guard(part, where) for part in _parts(worth)]
        asks = (g for g in needed if isinstance(g, Ask) and g.gives)
        views = {ask.gives[0].name: _given_dims(ask, ask.axes) for ask in asks if ask.axes}
        statement = Statement(left, right, where, self.numbers, views, viewed)
        read = oriented(statement, backwards)
        needed = _without(needed, statement)
        profit = _without(profit, statement)
        worth_guards, when = (
            [_renamed_guard(g, {}, read.dtypes) for g in part]
            for part in (profit, [*read.before, *needed, *read.after])
        )
        if not isinstance(read.left, Pat):
            raise InputError(f"{where}: the left side must be an operator, got {side(read.left)!r}")
        if self.numerics not in get_args(Numerics):
            raise InputError(f"{where}: numerics class {self.numerics!r} is none of {', '.join(get_args(Numerics))}")
        return Rule(
            name,
            read.left,
            read.right,
            (*worth_guards, *when),
            self.numerics,
            self.source,
            "",
            text=f"{side(read.left)} => {side(read.right)}",
            guard_text="; ".join(map(written, (*worth_guards, *when))),
            equation=self.name,
            stated=self.text,
            direction="left" if backwards else "right",
            worth=tuple(worth_guards),
        )


def equation(
    name: str, text: str, *, when: str = "", numbers: str = "", numerics: Numerics = "exact", source: str = ""
) -> Equation:
    """An equation: `left == right`.

    Args:
        when: what must be proved for the sides to be equal.
        numbers: the names that stand for one number everywhere, separated by spaces.
        numerics: how both sides differ in floating point.
        source: the paper, issue or system that it comes from.
    """
    return Equation(name, " ".join(text.split()), when, tuple(numbers.split()), numerics, source)


class Strategy(TypedDict, total=False):
    """How the equation of a row is used; see `Equation.orient`."""

    worth: str
    why: str
    mirror: bool | str
    viewed: str
    subsumes: bool
    meets: bool


class Row(Strategy, total=False):
    """What a row may say beside its equation; see `equation` and `Equation.orient`."""

    when: str
    numbers: str
    numerics: Numerics
    source: str


def rules(
    name: str,
    text: str,
    *,
    when: str = "",
    numbers: str = "",
    numerics: Numerics = "exact",
    source: str = "",
    **strategy: Unpack[Strategy],
) -> tuple[Rule, ...]:
    """An equation and the one strategy that uses it, from left to right: `left == right` or `left => right`.

    Raises:
        InputError: as `Equation.orient`.
    """
    stated = equation(name, text, when=when, numbers=numbers, numerics=numerics, source=source)
    return stated.orient("right", name, **strategy)


Line = tuple[str, str, Numerics, str, str]
"""A row on one line: name, equation, numerics class, source, and why it helps."""


def lines(*rows: Line, when: str = "", worth: str = "", numbers: str = "", subsumes: bool = False) -> tuple[Rule, ...]:
    """The rules of rows, used from left to right; the arguments after them are those of each."""
    found: list[Rule] = []
    for name, text, numerics, source, why in rows:
        strategy: Strategy = {"worth": worth, "why": why, "subsumes": subsumes}
        found += rules(name, text, when=when, numbers=numbers, numerics=numerics, source=source, **strategy)
    return tuple(found)


def rule(name: str, text: str, **row: Unpack[Row]) -> Rule:
    """The one rule of a row: `left == right` or `left => right`, used from left to right.

    >>> rule("neg-of-difference", "-(a - b) == b - a", numerics="reassociating").text
    '-(a - b) => b - a'

    Args:
        row: `when`, `worth`, `numbers`, `numerics`, `source`, `why`, `subsumes`, `meets`: as those of `equation` and
            `Equation.orient`.

    Raises:
        InputError: the name is none; the text does not parse, its shapes do not fit, it names an operator, function or
            variable that is not known, or the row gives two rules.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"rule {arguments.shown(name)}: a name is up to 100 letters, digits, `-`, `_` and `.`, a letter first"
        )
    arguments.text(f"rule {name!r}", text)
    for what in ("when", "worth", "numbers", "numerics", "source", "why"):
        arguments.text(f"rule {name!r}: {what}", row.get(what, ""), empty=True)
    if "?" in text:
        raise InputError(f"rule {name!r}: a view that may be missing gives two rules; state each by itself")
    if row.get("mirror"):
        raise InputError(f"rule {name!r}: a mirror image is a second rule; state each by itself")
    return rules(name, text, **row)[0]


# --- reading


def _sides(text: str, where: str) -> tuple[str, str]:
    """The two sides of `left == right` or `left => right`: split where no bracket is open."""
    depth, places = 0, []
    for i, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and text[i : i + 2] in ("==", "=>"):
            places.append(i)
    if len(places) != 1:
        raise InputError(f"{where}: expected `left == right` or `left => right`, got {text!r}")
    return text[: places[0]], text[places[0] + 2 :]


def _parts(guard: str) -> list[str]:
    """The parts of a guard, each on one line."""
    return [" ".join(part.split()) for part in guard.split(";") if part.strip()]


@cache
def _statement(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def _guard(text: str, where: str) -> Guard:
    try:
        statement = _statement(text)
    except (SyntaxError, IndexError):
        raise InputError(f"{where}: cannot read the guard {text!r}") from None
    match statement:
        case ast.Assign([target], call):
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            return _ask(call, tuple(Var(n.id) for n in names if isinstance(n, ast.Name)), where)
        case ast.Expr(ast.Compare(left, [op], [right])) if type(op) in _SYMBOLS:
            return Compare(_SYMBOLS[type(op)], attribute(left, where), attribute(right, where))
        case ast.Expr(ast.Call(ast.Name("const" | "dynamic" as fact), [ast.Name(name)])):
            return Fact(fact, Var(name))
        case ast.Expr(ast.Call(ast.Name()) as call):
            return _ask(call, (), where)
    raise InputError(f"{where}: a guard is a comparison, const(x), dynamic(x) or a table, got {text!r}")


def _ask(call: ast.expr, gives: tuple[Var, ...], where: str) -> Ask:
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        raise InputError(f"{where}: expected a table, got {ast.unparse(call)!r}")
    name, given = call.func.id, list(call.args)
    args: list[Attr] = []
    if name in tables.IN_AXES:
        texts = [a.value for a in given if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if len(texts) != 1:
            raise InputError(f"{where}: {name} takes its axes as one text, got {ast.unparse(call)!r}")
        axes = Axes.read(texts[0], where)
        sizes = {k.arg: attribute(k.value, where) for k in call.keywords}
        args = [attribute(a, where) for a in given if not isinstance(a, ast.Constant)]
        args += [sizes.get(letter, Var(letter.upper())) for letter in axes.letters]
        name = f"{name} {axes}"
    elif name in tables.TABLES:
        args = [attribute(a, where) for a in given]
    else:
        known = ", ".join(sorted([*tables.TABLES, *tables.IN_AXES]))
        raise InputError(f"{where}: no table is called {name!r} (there are {known})")
    table = tables.find(name)
    if len(args) != len(table.takes) or len(gives) != len(table.gives):
        raise InputError(
            f"{where}: {call.func.id} takes {len(table.takes)} values and gives {len(table.gives)}, "
            f"got {ast.unparse(call)!r} for {len(gives)} names"
        )
    return Ask(name, tuple(args), gives)


def _given_dims(ask: Ask, axes: Axes) -> list[Attr]:
    """The dims of the view that a table over axes gives."""
    sizes = ask.sizes
    return [product([sizes.get(a, Lit(1)) for a in group]) for group in axes.target]


def _without(guards: Iterable[Guard], statement: Statement) -> list[Guard]:
    """Guards of an equation whose optional views are missing.

    What asks about a missing view alone holds; the composition of a view with a missing one is that view; tables that
    compute something from a missing view get the layout that reads everything in order.
    """
    found: list[Guard] = []
    same: dict[str, str] = {}
    for guard in guards:
        gone = [name for name in variables(guard) if name in statement.absent]
        gives = [v.name for v in guard.gives if v.name not in statement.absent] if isinstance(guard, Ask) else []
        if gone and isinstance(guard, Ask) and guard.table == "compose":
            (kept,) = [a.name for a in guard.args if isinstance(a, Var) and a.name not in gone]
            same[gives[0]] = kept
        elif gone and gives:
            identity = [Ask("axes n -> n", (statement.size_without(view),), (Var(view),)) for view in gone]
            found += [*identity, _renamed_guard(guard, same, {})]
        elif not gone:
            found.append(_renamed_guard(guard, same, {}))
    return found


def _checked(row: Rule) -> Rule:
    """Every variable of guards and of the right side must be bound by the left side or by a table before it."""
    bound = set(variables(row.left)) | {"self"}
    for guard in row.when:
        for name in variables(guard):
            if name not in bound:
                raise InputError(f"rule {row.name!r}: {name!r} in the guard is not bound on the left")
        if isinstance(guard, Ask):
            bound |= {v.name for v in guard.gives}
    for name in variables(row.right):
        if name not in bound:
            raise InputError(f"rule {row.name!r}: {name!r} on the right is not bound on the left or by a table")
    return row


# --- mirror images


def _mirror_name(name: str) -> str:
    for suffix, other in (("right", "left"), ("left", "right")):
        if name.endswith(f"-{suffix}"):
            return name.removesuffix(suffix) + other
        if f"-{suffix}-" in name:
            return name.replace(f"-{suffix}-", f"-{other}-")
    raise InputError(f"rule {name!r}: neither left nor right is in its name; give its mirror image a name")


def _mirrored(row: Rule, name: str) -> Rule:
    """The same of the transposed products. Names are exchanged so that both read alike from left to right."""
    left, right = _swapped(row.left), _swapped(row.right)
    assert isinstance(left, Pat)
    names = dict(zip(_dims(left), _dims(row.left), strict=True))
    arrays = arrays_of(left)
    names |= dict(zip(arrays, sorted(arrays), strict=True))
    when = [_mirrored_guard(guard, row.name) for guard in row.when]
    left, right = _renamed(left, names), _renamed(right, names)
    when = tuple(_renamed_guard(guard, names, {}) for guard in when)
    assert isinstance(left, Pat)
    return replace(
        row,
        name=name,
        left=left,
        right=right,
        when=when,
        worth=when[: len(row.worth)],
        text=f"{side(left)} => {side(right)}",
        guard_text="; ".join(map(written, when)),
    )


def _swapped(pattern: Pattern) -> Pattern:
    if isinstance(pattern, Var):
        return pattern
    args = tuple(map(_swapped, pattern.args))
    if pattern.op != "MM":
        return Pat(pattern.op, tuple(_turned(a) if isinstance(a, Var) else a for a in pattern.attrs), args)
    batch, m, k, n = pattern.attrs
    return Pat("MM", (batch, n, k, m), args[::-1])


def _turned(var: Var) -> Var:
    """A view in axes goes by them: those of the transposed matrix."""
    return Var(f'"{Axes.read(var.name[1:-1], var.name).transposed()}"') if var.name.startswith('"') else var


def _mirrored_guard(guard: Guard, where: str) -> Guard:
    if not isinstance(guard, Ask):
        return guard
    if guard.axes is not None:
        sizes, turned = guard.sizes, guard.axes.transposed()
        rest = [_turned(a) for a in guard.args[: len(guard.args) - len(sizes)] if isinstance(a, Var)]
        args = (*rest, *(sizes[a] for a in turned.letters))
        return Ask(f"{guard.table.split()[0]} {turned}", args, tuple(map(_turned, guard.gives)))
    other = tables.find(guard.table).mirror
    if other is None and any(sort == "int" for sort in tables.find(guard.table).takes):
        raise InputError(f"rule {where!r}: {guard.table} knows no mirror image")
    return guard if other is None else replace(guard, table=other)


def _dims(pattern: Pattern) -> tuple[str, ...]:
    """The sizes of products in the order in which their operands are read."""

    def walk(at: Pattern) -> Iterator[Attr]:
        if isinstance(at, Pat):
            for i, arg in enumerate(at.args):
                yield from walk(arg)
                if at.op == "MM":
                    batch, m, k, n = at.attrs
                    yield from (batch, m, k) if i == 0 else (batch, k, n)

    return tuple(dict.fromkeys(a.name for a in walk(pattern) if isinstance(a, Var)))


def arrays_of(pattern: Pattern) -> tuple[str, ...]:
    """The array variables in the order in which they are read."""
    return tuple(dict.fromkeys(part.name for part in patterns(pattern) if isinstance(part, Var)))


def _renamed(pattern: Pattern, names: Mapping[str, str]) -> Pattern:
    if isinstance(pattern, Var):
        return _renamed_var(pattern, names)
    attrs = tuple(_renamed_attr(a, names, {}) for a in pattern.attrs)
    return Pat(pattern.op, attrs, tuple(_renamed(a, names) for a in pattern.args))


def _renamed_var(var: Var, names: Mapping[str, str]) -> Var:
    if var.name.startswith('"'):  # a view in axes goes by them
        return Var(f'"{_renamed_axes(Axes.read(var.name[1:-1], var.name), names)}"')
    return Var(names.get(var.name, var.name))


def _renamed_axes(axes: Axes, names: Mapping[str, str]) -> Axes:
    return axes.renamed({old.lower(): new.lower() for old, new in names.items() if old.isupper()})


def _renamed_attr(attr: Attr, names: Mapping[str, str], dtypes: Mapping[str, Attr]) -> Attr:
    match attr:
        case Var():
            return _renamed_var(attr, names)
        case Arith("dtype", Var(name)) if name in dtypes:
            return dtypes[name]
        case Arith(op, left, right):
            there = None if right is None else _renamed_attr(right, names, dtypes)
            return Arith(op, _renamed_attr(left, names, dtypes), there)
    return attr


def _renamed_guard(guard: Guard, names: Mapping[str, str], dtypes: Mapping[str, Attr]) -> Guard:
    match guard:
        case Compare(op, left, right):
            return Compare(op, _renamed_attr(left, names, dtypes), _renamed_attr(right, names, dtypes))
        case Fact(fact, cls):
            return Fact(fact, _renamed_var(cls, names))
        case Ask(table, args, gives):
            new = table if guard.axes is None else f"{table.split()[0]} {_renamed_axes(guard.axes, names)}"
            given = tuple(_renamed_attr(a, names, dtypes) for a in args)
            return Ask(new, given, tuple(_renamed_var(v, names) for v in gives))
