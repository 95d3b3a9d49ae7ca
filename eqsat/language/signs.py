"""How functions and sizes are written in equations and guards: signs, names, and integer arithmetic."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cache

from eqsat.errors import InputError
from eqsat.language.rule import LARGEST, Arith, Attr, Lit, Var

INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "pow": "**",
    "mod": "%",
    "and": "&",
    "or": "|",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
}
"""Functions that are written between their operands."""

PREFIX = {"neg": "-", "not": "~"}
"""Functions that are written before their operand."""


def _operator_of(sign: str) -> type[ast.AST]:
    """The class of a sign in Python's syntax trees."""
    match ast.parse(f"a {sign} b", mode="eval").body:
        case ast.BinOp(_, op) | ast.Compare(_, [op]):
            return type(op)
    raise ValueError(f"no operator: {sign}")


FUNCTION = {_operator_of(sign): name for name, sign in INFIX.items()}

BEFORE: dict[type[ast.AST], str] = {ast.USub: "neg", ast.Invert: "not"}

CALLED = {"max": "maximum", "min": "minimum"}
"""Functions of two operands that go by NumPy's names, to be told from reductions."""

UNCALLED = {name: fn for fn, name in CALLED.items()}


def product(factors: Sequence[Attr]) -> Attr:
    """Sizes multiplied."""
    found, *others = factors
    for factor in others:
        found = Arith("*", found, factor)
    return found


def parsed(text: str, where: str) -> ast.expr:
    """An expression.

    Raises:
        InputError: it does not parse.
    """
    try:
        return _parsed(text.strip())
    except SyntaxError as error:
        raise InputError(f"{where}: cannot read {text.strip()!r}: {error.msg}") from None


@cache
def _parsed(text: str) -> ast.expr:
    """Parsed once for all forms and directions of an equation: most of the time that reading the rules takes."""
    return ast.parse(text, mode="eval").body


_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}


def attribute(tree: ast.expr, where: str) -> Attr:
    """Integer arithmetic over sizes, a function's name, or `size(a)` and `dtype(a)` of an array.

    Raises:
        InputError: it is something else.
    """
    match tree:
        case ast.Name(name):
            return Var(name)
        case ast.Constant(int(value)) if value > LARGEST:
            raise InputError(f"{where}: expected a whole number up to 2**53, got {ast.unparse(tree)}")
        case ast.Constant(int() | str() as value):
            return Lit(value)
        case ast.UnaryOp(ast.USub(), ast.Constant(int() as value)) if value <= LARGEST:
            return Lit(-value)
        case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
            return Arith(_ARITHMETIC[type(op)], attribute(left, where), attribute(right, where))
        case ast.Call(ast.Name("size" | "dtype" as what), [ast.Name(name)]):
            return Arith(what, Var(name))
    raise InputError(f"{where}: expected integer arithmetic, got {ast.unparse(tree)!r}")


def shown(attr: Attr, known: Callable[[str, str], str] = "{}({})".format) -> str:
    """An attribute as it is written: `K*N + size(a)`; `known` says how the size and the type of an array are."""
    match attr:
        case Var(name):
            return name
        case Lit(value):
            return repr(value)
        case Arith("size" | "dtype" as what, Var(name)):
            return known(what, name)
        case Arith("*", left, right) if right is not None:
            return f"{_factor(left, known)}*{_factor(right, known)}"
        case Arith(op, left, right) if right is not None:
            return f"{shown(left, known)} {op} {shown(right, known)}"
    raise ValueError(f"no attribute: {attr!r}")


def _factor(attr: Attr, known: Callable[[str, str], str]) -> str:
    text = shown(attr, known)
    return f"({text})" if isinstance(attr, Arith) and attr.op in "+-" else text
