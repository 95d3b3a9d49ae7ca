"""Rules in NumPy's words: both sides, guards, and what keeps a guard from holding, with the numbers met."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from eqsat.language import tables
from eqsat.language.rule import AnyRule, Arith, Ask, Attr, Compare, Fact, Guard, Lit, Pat, Pattern, Rule, Var, patterns
from eqsat.language.signs import CALLED, INFIX, PREFIX, shown
from eqsat.program.core_table import CORE

_NOT = {"<": "is not less than", "<=": "is more than", "==": "is not", "!=": "is", ">": "is not more than",
        ">=": "is less than"}  # fmt: skip


def sides(row: AnyRule) -> tuple[str, str]:
    """Both sides of a rule, in NumPy's words where it has them."""
    if isinstance(row, Rule):
        return side(row.left), side(row.right)
    left, _, right = row.text.partition(" => ")
    return left, right


def side(pattern: Pattern) -> str:
    """A side of a rule in the notation of equations: `a @ (b @ c)`; `a[L]` is the array a read through the view L."""
    if isinstance(pattern, Var):
        return pattern.name
    attrs, args = [attribute(a) for a in pattern.attrs], pattern.args
    match pattern.op:
        case "MM":
            return f"{_atom(args[0])} @ {_atom(args[1])}"
        case "Bin" if attrs[0] in INFIX:
            return f"{_atom(args[0])} {INFIX[attrs[0]]} {_atom(args[1])}"
        case "Un" if attrs[0] in PREFIX:
            return f"{PREFIX[attrs[0]]}{_atom(args[0])}"
        case "Un" | "Bin":
            return f"{CALLED.get(attrs[0], attrs[0])}({', '.join(map(side, args))})"
        case "Red":
            name = attrs[0] if isinstance(pattern.attrs[0], Lit) else f"{attrs[0]}.reduce"
            return f"{name}({side(args[0])})"
        case "V":
            return f"{_atom(args[0])}[{attrs[0]}]"
        case "Full":
            return attrs[0]
        case _:
            return f"{pattern.op.lower()}({', '.join(map(side, args))})"


def _atom(pattern: Pattern) -> str:
    """A side as an operand: infix operators in parentheses."""
    text = side(pattern)
    infix = isinstance(pattern, Pat) and (
        pattern.op == "MM" or (pattern.op in ("Bin", "Un") and _name(pattern) in INFIX | PREFIX)
    )
    return f"({text})" if infix else text


def _name(pattern: Pat) -> str:
    return attribute(pattern.attrs[0])


def written(part: Guard) -> str:
    """A part of a guard as it is written: `W = along(L, "b m k -> b k n")`."""
    match part:
        case Fact(name, cls):
            return f"{name}({cls.name})"
        case Compare(op, left, right):
            return f"{shown(left)} {op} {shown(right)}"
        case Ask(_, _, gives):
            return f"{', '.join(v.name for v in gives)} = {asked(part)}" if gives else asked(part)


def asked(ask: Ask) -> str:
    """A question to a table: `compose(L1, L2)`; of named axes, sizes are said where they go by other names."""
    kind, sizes = ask.table.partition(" ")[0], ask.sizes
    own = [shown(arg) for arg in ask.args[: len(ask.args) - len(sizes)]]
    axes = [f'"{ask.axes}"'] if ask.axes else []
    others = [f"{letter}={shown(size)}" for letter, size in sizes.items() if size != Var(letter.upper())]
    return f"{kind}({', '.join([*own, *axes, *others])})"


def attribute(attr: Attr) -> str:
    """Arithmetic over sizes: `K*N + a.size`."""
    if isinstance(attr, Lit):
        return str(attr.value)
    return shown(attr, lambda what, name: f"{'the result' if name == 'self' else name}.{what}")


def mentions(row: AnyRule, operator: str) -> bool:
    """Whether a rule speaks of an operator, by its name in NumPy or in the notation of equations."""
    names = {operator, *(_NOTATION.get(operator, ()))}
    words = set(re.findall(r"\w+|[^\w\s]", row.text))
    if isinstance(row, Rule):
        words |= {word for pattern in (row.left, row.right) for word in _operators(pattern)}
    return bool(names & words)


def _operators(pattern: Pattern) -> Iterator[str]:
    """The functions and operators of a side, by their names in the core."""
    for part in patterns(pattern):
        if isinstance(part, Pat):
            yield part.op
            yield from (attr.value for attr in part.attrs if isinstance(attr, Lit) and isinstance(attr.value, str))


_NOTATION = {
    "matmul": ("MM", "@"),
    "mm": ("MM", "@"),
    "concatenate": ("cat",),
    "concat": ("cat",),
    "stack": ("cat",),
    "maximum": ("max",),
    "minimum": ("min",),
    "reduce": ("Red",),
    **dict.fromkeys(("view", "transpose", "slice", "broadcast", "broadcast_to", "pad", "reshape", "flip"), ("V", "[")),
}
"""What rules call what NumPy calls otherwise."""


def shapes(rule: Rule) -> dict[str, str]:
    """The shapes of the arrays on the left that a product or a reduction gives one: `a` to `[B, M, K]`."""
    found: dict[str, str] = {}
    for pattern in patterns(rule.left):
        if isinstance(pattern, Var) or pattern.op not in ("MM", "Red"):
            continue
        attrs = [attribute(a) for a in pattern.attrs]
        dims = [f"[..., {attrs[1]}]"]
        if pattern.op == "MM":
            batch, m, k, n = attrs
            dims = [f"[{batch}, {m}, {k}]", f"[{batch}, {k}, {n}]"]
        for arg, shape in zip(pattern.args, dims, strict=True):
            if isinstance(arg, Var):
                found.setdefault(arg.name, shape)
    return found


def kind(pattern: Pat) -> str:
    """What a pattern asks for at its top: `an add`, `a matrix product`."""
    row = CORE[pattern.op]
    function = None if row.function is None else pattern.attrs[row.place[row.function]]
    name = function.value if isinstance(function, Lit) else None
    if name is None:
        return row.phrase
    article = "an" if str(name)[0] in "aeiou" else "a"
    return f"{article} {name}" if row.elementwise else f"{article} {name} over an axis"


def guard(part: Guard) -> str:
    """A part of a guard in words."""
    match part:
        case Fact("const", cls):
            return f"{_array(cls)} is constant"
        case Fact(_, cls):
            return f"{_array(cls)} depends on an input"
        case Compare(op, left, right):
            return f"{attribute(left)} {op} {attribute(right)}"
        case Ask(table, _, gives):
            said, call = meaning(table), asked(part)
            return f"{', '.join(v.name for v in gives)} = {call}: {said}" if gives else f"{call}: {said}"


def pays(rule: Rule) -> list[str]:
    """When a rule pays, a line for each part."""
    return [*map(guard, rule.worth), *["the e-graph holds both sides already"] * rule.meets]


def needs(rule: Rule) -> list[str]:
    """What must be proved before a rule fires, in words, without the numbers and views that its sides spell out."""
    return [guard(part) for part in rule.when if part not in rule.worth and not _spelled(part)]


def _spelled(part: Guard) -> bool:
    """Whether a guard says what can be read in the equation: its numbers, its views in axes, and what it computes."""
    names = [v.name for v in (*part.gives, *part.args[:1]) if isinstance(v, Var)] if isinstance(part, Ask) else []
    return any(name != "self" and not name.isidentifier() for name in names)


def _array(cls: Var) -> str:
    return "the left side" if cls.name == "self" else cls.name


def meaning(table: str) -> str:
    """What a table proves: the first paragraph of its documentation."""
    paragraph = tables.find(table).about.strip().split("\n\n")[0]
    text = " ".join(paragraph.split()).removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def refusal(part: Guard, bindings: Mapping[str, Any], said: Callable[[str], str], number: Callable[[Attr], Any]) -> str:
    """Why a part of a guard does not hold, with the numbers.

    Args:
        said: a variable that stands for an array, in words.
        number: what an attribute comes to.
    """
    match part:
        case Fact("const", cls):
            return f"needs {_array(cls)} constant: {said(cls.name)} depends on an input"
        case Fact(_, cls):
            return f"needs {_array(cls)} to depend on an input: {said(cls.name)} is constant, and folded as it is"
        case Compare(op, left, right):
            names = _sizes(left) | _sizes(right)
            known = ", ".join(f"{n}={bindings[n]}" for n in names if isinstance(bindings.get(n), int) and n != "self")
            a, b = number(left), number(right)
            both = a == b and op in ("<", ">")
            compared = f"both are {_count(a)}" if both else f"{_count(a)} {_NOT[op]} {_count(b)}"
            work = f", that is {_flop(2 * a)} against {_flop(2 * b)}" if _is_work(left) and _is_work(right) else ""
            where = f" (with {known})" if known else ""
            return f"needs {guard(part)}: {compared}{work}{where}"
        case Ask("is_value", (value, wanted), _):
            return f"needs the number {shown(wanted)}: it is {number(value)}"
        case Ask(table, args, _):
            sizes = ", ".join(f"{attribute(a)}={v}" for a in args if isinstance(v := number(a), int | float))
            return f"not proved ({table}{f' with {sizes}' if sizes else ''}): {meaning(table)}"


def _sizes(attr: Attr) -> dict[str, None]:
    """The dims that an attribute speaks of, in order."""
    match attr:
        case Var(name):
            return {name: None}
        case Arith("size" | "dtype", _):
            return {}
        case Arith(_, left, right):
            return _sizes(left) | (_sizes(right) if right is not None else {})
    return {}


def _is_work(attr: Attr) -> bool:
    """Whether every addend is a product of three sizes or more: multiplications of matrix products."""
    match attr:
        case Arith("+", left, right) if right is not None:
            return _is_work(left) and _is_work(right)
        case Arith("*", left, right) if right is not None:
            return _degree(attr) >= 3
    return False


def _degree(attr: Attr) -> int:
    match attr:
        case Arith("*", left, right) if right is not None:
            return _degree(left) + _degree(right)
        case Var(_):
            return 1
    return 0


def _count(value: Any) -> str:
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else str(value)


def _flop(flops: int) -> str:
    return f"{flops / 1e6:.4g} MFLOP" if flops >= 1e5 else f"{flops} FLOP"
