"""Rules in NumPy's words: both sides, guards, and what keeps a guard from holding, with the numbers met."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from eqsat.language.rule import AnyRule, Arith, Ask, Attr, Compare, Fact, Guard, Lit, Pat, Pattern, Rule, Var
from eqsat.language.tables import TABLES

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "less": "<", "less_equal": "<=", "greater": ">",
          "greater_equal": ">=", "equal": "=="}  # fmt: skip
_CALLED = {"max": "maximum", "min": "minimum", "and": "logical_and", "or": "logical_or"}
_NOT = {"<": "is not less than", "<=": "is more than", "==": "is not", "!=": "is", ">": "is not more than",
        ">=": "is less than"}  # fmt: skip
_KINDS = {
    "MM": "a matrix product",
    "Red": "a reduction",
    "V": "a view (slice, transpose, broadcast, pad)",
    "Un": "a function of one array",
    "Bin": "an elementwise operator",
    "Where": "a where",
    "Full": "one value everywhere",
    "Cat": "a concatenation",
    "Gather": "a take",
}


def sides(row: AnyRule) -> tuple[str, str]:
    """Both sides of a rule, in NumPy's words where it has them."""
    if isinstance(row, Rule):
        return side(row.left), side(row.right)
    left, _, right = row.text.partition(" => ")
    return left, right


def side(pattern: Pattern) -> str:
    """A side of a rule: `a @ (b @ c)`; `a[L]` is the array a read through the view L."""
    if isinstance(pattern, Var):
        return pattern.name
    attrs, args = [attribute(a) for a in pattern.attrs], pattern.args
    match pattern.op:
        case "MM":
            return f"{_atom(args[0])} @ {_atom(args[1])}"
        case "Bin" if attrs[0] in _INFIX:
            return f"{_atom(args[0])} {_INFIX[attrs[0]]} {_atom(args[1])}"
        case "Un" | "Bin":
            return f"{_CALLED.get(attrs[0], attrs[0])}({', '.join(map(side, args))})"
        case "Red":
            return f"{attrs[0]}({side(args[0])}, axis=-1)"
        case "V":
            return f"{_atom(args[0])}[{attrs[0]}]"
        case "Full":
            return attrs[0]
        case _:
            return f"{pattern.op.lower()}({', '.join(map(side, args))})"


def _atom(pattern: Pattern) -> str:
    """A side as an operand: infix operators in parentheses."""
    text = side(pattern)
    infix = isinstance(pattern, Pat) and (pattern.op == "MM" or (pattern.op == "Bin" and _INFIX.get(_name(pattern))))
    return f"({text})" if infix else text


def _name(pattern: Pat) -> str:
    return attribute(pattern.attrs[0])


def attribute(attr: Attr) -> str:
    """Arithmetic over sizes: `K*N + a.size`."""
    match attr:
        case Var(name):
            return name
        case Lit(value):
            return str(value)
        case Arith("size" | "dtype" as what, Var(name)):
            return f"{'the result' if name == 'self' else name}.{what}"
        case Arith(op, left, right) if right is not None:
            return (
                f"{attribute(left)}{op}{attribute(right)}"
                if op == "*"
                else f"{attribute(left)} {op} {attribute(right)}"
            )
    raise ValueError(f"no attribute: {attr!r}")


def mentions(row: AnyRule, operator: str) -> bool:
    """Whether a rule speaks of an operator, by its name in NumPy or in the rule language."""
    names = {operator, *(_LANGUAGE.get(operator, ()))}
    words = set(re.findall(r"\w+", row.text))
    return bool(names & words)


_LANGUAGE = {
    "matmul": ("mm",),
    "concatenate": ("cat",),
    "concat": ("cat",),
    "stack": ("cat",),
    "maximum": ("max",),
    "minimum": ("min",),
    "max": ("max_over",),
    "min": ("min_over",),
    "prod": ("prod_over",),
    "reduce": ("red", "sum", "max_over", "min_over", "prod_over"),
    **dict.fromkeys(("transpose", "slice", "broadcast", "broadcast_to", "pad", "reshape", "flip"), ("view",)),
}
"""What the rule language calls what NumPy calls otherwise."""


def shapes(rule: Rule) -> dict[str, str]:
    """The shapes of the arrays on the left that a product or a reduction gives one: `a` to `[B, M, K]`."""
    found: dict[str, str] = {}

    def walk(pattern: Pattern) -> None:
        if isinstance(pattern, Var):
            return
        attrs = [attribute(a) for a in pattern.attrs]
        for i, arg in enumerate(pattern.args):
            if isinstance(arg, Var) and pattern.op == "MM":
                batch, m, k, n = attrs
                found.setdefault(arg.name, f"[{', '.join(((batch, m, k), (batch, k, n))[i])}]")
            elif isinstance(arg, Var) and pattern.op == "Red":
                found.setdefault(arg.name, f"[..., {attrs[1]}]")
            walk(arg)

    walk(rule.left)
    return found


def kind(pattern: Pat) -> str:
    """What a pattern asks for at its top: `an add`, `a matrix product`."""
    name = pattern.attrs[0].value if pattern.op in ("Un", "Bin", "Red") and isinstance(pattern.attrs[0], Lit) else None
    if name is None:
        return _KINDS[pattern.op]
    article = "an" if str(name)[0] in "aeiou" else "a"
    return f"{article} {name}" if pattern.op != "Red" else f"{article} {name} over an axis"


def guard(part: Guard) -> str:
    """A part of a guard in words."""
    match part:
        case Fact("const", cls):
            return f"{_array(cls)} is constant"
        case Fact(_, cls):
            return f"{_array(cls)} depends on an input"
        case Compare(op, left, right):
            return f"{attribute(left)} {op} {attribute(right)}"
        case Ask(table, args, gives):
            said = meaning(table)
            call = f"{table}({', '.join(map(attribute, args))})"
            return f"{', '.join(v.name for v in gives)} = {call}: {said}" if gives else f"{call}: {said}"


def _array(cls: Var) -> str:
    return "the left side" if cls.name == "self" else cls.name


def meaning(table: str) -> str:
    """What a table proves: the first paragraph of its documentation."""
    paragraph = (TABLES[table].fn.__doc__ or "").strip().split("\n\n")[0]
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
            shown = f"{_count(a)} {_NOT[op]} {_count(b)}" if a != b or op not in ("<", ">") else f"both are {_count(a)}"
            work = f", that is {_flop(2 * a)} against {_flop(2 * b)}" if _is_work(left) and _is_work(right) else ""
            where = f" (with {known})" if known else ""
            return f"needs {guard(part)}: {shown}{work}{where}"
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
