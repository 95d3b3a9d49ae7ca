"""Rules as data: a small pattern language over the core, and the rows that are written in it.

A rule is one line, `left => right`, with what must be proved beside it:

    rule("matmul-assoc-right",
         "mm(mm(a, b, B, M, K, N), c, B, M, N, P) => mm(a, mm(b, c, B, K, N, P), B, M, K, P)",
         when="K*N*P + M*K*P < M*K*N + M*N*P", ...)

Terms are core operators over flat arrays: `mm(a, b, B, M, K, N)`, `red(f, a, C)` with the short forms `sum(a, C)` and
`max_over(a, C)`, `view(a, L)`, `un(f, a)`, `bin(f, a, b)`, `where(c, a, b)`, `full(v, n, t)`, and every unary and
binary function by its own name (`relu(a)`, `add(a, b)`). Everything else is a variable.

`when` is a conjunction separated by `;`. Each part is a comparison of integer arithmetic (`size(x)` counts elements),
`const(x)` or `dynamic(x)`, a table that must hold (`swaps(L, B, M, N)`, `floating(dtype(x))`), or one that gives values
(`L = compose(L1, L2)`). Tables are the Python functions of `eqsat.language.tables`: layout arithmetic, asked for by
demand (egglog cannot compute it). A table that declines leaves no row, so that the rule does not fire: unknown means
no.

`worth` is written alike and asked first, but nothing rests on it: it says when firing can pay. The two sides are equal
without it as well, and `eqsat.evidence.soundness` shows both that and that no part of `when` can be left out.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from eqsat.errors import InputError
from eqsat.language.tables import TABLES
from eqsat.program.ops import BINARY, COMPARE, UNARY

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
    """A table lookup: `gives` are bound to its results (none: the table is a predicate)."""

    table: str
    args: tuple[Attr, ...]
    gives: tuple[Var, ...]


Guard = Compare | Fact | Ask


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
    subsumes: bool = False
    """The left side is never needed again: rules stop matching it, and no program is made of it."""
    worth: tuple[Guard, ...] = ()
    """The guards of `when` that only keep the rule from firing in vain: the sides are equal without them."""

    @property
    def guard_parts(self) -> tuple[str, ...]:
        """Each guard of `when` as it was written."""
        return tuple(_parts(self.guard_text))


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

_REDUCTIONS = {
    "sum": "sum",
    "max_over": "max",
    "min_over": "min",
    "prod_over": "prod",
}
_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.Gt: ">", ast.GtE: ">="}
_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}


def rule(
    name: str,
    text: str,
    *,
    when: str = "",
    worth: str = "",
    numerics: Numerics = "exact",
    source: str = "",
    why: str = "",
    subsumes: bool = False,
) -> Rule:
    """Parse one row of the rule language.

    Raises:
        InputError: the text does not parse, or names an operator, function or variable that is not known.
    """
    where = f"rule {name!r}"
    if numerics not in get_args(Numerics):
        raise InputError(f"{where}: numerics class {numerics!r} is none of {', '.join(get_args(Numerics))}")
    sides = text.split("=>")
    if len(sides) != 2:
        raise InputError(f"{where}: expected `left => right`, got {text!r}")
    left, right = (_pattern(_expression(side, where), where) for side in sides)
    if not isinstance(left, Pat):
        raise InputError(f"{where}: the left side must be an operator, got {sides[0].strip()!r}")
    profit = tuple(_guard(part, where) for part in _parts(worth))
    needed = tuple(_guard(part, where) for part in _parts(when))
    row = Rule(
        name,
        left,
        right,
        profit + needed,
        numerics,
        source,
        why,
        text=" ".join(text.split()),
        guard_text="; ".join([*_parts(worth), *_parts(when)]),
        subsumes=subsumes,
        worth=profit,
    )
    _check_bound(row)
    return row


def _parts(guard: str) -> list[str]:
    """The parts of a guard, each on one line."""
    return [" ".join(part.split()) for part in guard.split(";") if part.strip()]


def _expression(text: str, where: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise InputError(f"{where}: cannot read {text.strip()!r}: {error.msg}") from None


def _pattern(tree: ast.expr, where: str) -> Pattern:
    if isinstance(tree, ast.Name):
        return Var(tree.id)
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)):
        raise InputError(f"{where}: expected an operator or a variable, got {ast.unparse(tree)!r}")
    name, given = tree.func.id, tree.args

    def term(i: int) -> Pattern:
        return _pattern(given[i], where)

    def attr(i: int) -> Attr:
        return _attr(given[i], where)

    def arity(n: int) -> None:
        if len(given) != n:
            raise InputError(f"{where}: {name} takes {n} arguments, got {ast.unparse(tree)!r}")

    if name == "mm":
        arity(6)
        return Pat("MM", (attr(2), attr(3), attr(4), attr(5)), (term(0), term(1)))
    if name == "red":
        arity(3)
        return Pat("Red", (attr(0), attr(2)), (term(1),))
    if name in _REDUCTIONS:
        arity(2)
        return Pat("Red", (Lit(_REDUCTIONS[name]), attr(1)), (term(0),))
    if name == "view":
        arity(2)
        return Pat("V", (attr(1),), (term(0),))
    if name == "un":
        arity(2)
        return Pat("Un", (attr(0),), (term(1),))
    if name == "bin":
        arity(3)
        return Pat("Bin", (attr(0),), (term(1), term(2)))
    if name == "where":
        arity(3)
        return Pat("Where", (), (term(0), term(1), term(2)))
    if name == "full":
        arity(3)
        return Pat("Full", (attr(0), attr(1), attr(2)), ())
    functions = _functions()
    if name in functions["Un"]:
        arity(1)
        return Pat("Un", (Lit(name),), (term(0),))
    if name in functions["Bin"]:
        arity(2)
        return Pat("Bin", (Lit(name),), (term(0), term(1)))
    raise InputError(f"{where}: no operator or function is called {name!r}")


def _functions() -> dict[str, frozenset[str]]:
    return {"Un": frozenset(UNARY), "Bin": frozenset(BINARY) | frozenset(COMPARE)}


def _attr(tree: ast.expr, where: str) -> Attr:
    if isinstance(tree, ast.Name):
        return Var(tree.id)
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int | str):
        return Lit(tree.value)
    match tree:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return Lit(-number)
    if isinstance(tree, ast.BinOp) and type(tree.op) in _ARITHMETIC:
        return Arith(_ARITHMETIC[type(tree.op)], _attr(tree.left, where), _attr(tree.right, where))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in ("size", "dtype"):
        return Arith(tree.func.id, _attr(tree.args[0], where))
    raise InputError(f"{where}: expected integer arithmetic, got {ast.unparse(tree)!r}")


def _guard(text: str, where: str) -> Guard:
    try:
        statement = ast.parse(text).body[0]
    except (SyntaxError, IndexError):
        raise InputError(f"{where}: cannot read the guard {text!r}") from None
    if isinstance(statement, ast.Assign):
        target, call = statement.targets[0], statement.value
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        gives = tuple(Var(n.id) for n in names if isinstance(n, ast.Name))
        return _ask(call, gives, where)
    tree = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and type(tree.ops[0]) in _COMPARISONS:
        return Compare(_COMPARISONS[type(tree.ops[0])], _attr(tree.left, where), _attr(tree.comparators[0], where))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        if tree.func.id in ("const", "dynamic") and len(tree.args) == 1 and isinstance(tree.args[0], ast.Name):
            return Fact(tree.func.id, Var(tree.args[0].id))
        return _ask(tree, (), where)
    raise InputError(f"{where}: a guard is a comparison, const(x), dynamic(x) or a table, got {text!r}")


def _ask(call: ast.expr, gives: tuple[Var, ...], where: str) -> Ask:
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        raise InputError(f"{where}: expected a table, got {ast.unparse(call)!r}")
    table = TABLES.get(call.func.id)
    if table is None:
        raise InputError(f"{where}: no table is called {call.func.id!r} (there are {', '.join(sorted(TABLES))})")
    if len(call.args) != len(table.takes) or len(gives) != len(table.gives):
        raise InputError(
            f"{where}: {table.name} takes {len(table.takes)} values and gives {len(table.gives)}, "
            f"got {ast.unparse(call)!r} for {len(gives)} names"
        )
    return Ask(table.name, tuple(_attr(a, where) for a in call.args), gives)


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


def _check_bound(row: Rule) -> None:
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
