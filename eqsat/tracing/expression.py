"""Programs from one-line expressions such as `relu(X @ A + b)`, with a type for each name, for the command line.

    program = parse("(X @ A) @ C", {"X": "f32[348,768]", "A": "const:f32[768,64]", "C": "const:f32[64,768]"})

Names are inputs, or constants with random values (`const:`). An expression may use the functions of `eqsat` and the
methods of traced values (`x.T`, `x.sum(1)`, `x[:, 2:5]`), and nothing else: no imports, assignments or other
attributes.
"""

from __future__ import annotations

import ast
import difflib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from keyword import iskeyword
from math import prod
from typing import Any

import numpy as np

from eqsat.base.arguments import instance
from eqsat.base.arguments import text as writable
from eqsat.base.numerics import LONG, np_dtype, random_array
from eqsat.errors import InputError
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.sizes import FOLDED, LARGEST
from eqsat.tracing.functions import FUNCTIONS
from eqsat.tracing.trace import spec, trace

_ALLOWED = (
    ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Attribute, ast.Call, ast.keyword, ast.Tuple, ast.List,
    ast.Subscript, ast.Slice, ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
_LITERALS = (ast.Constant, ast.List, ast.Tuple)
_MOST_BITS = 1024
_METHODS = frozenset(
    {"T", "mT", "sum", "mean", "max", "min", "prod", "reshape", "transpose", "astype", "swapaxes", "squeeze"}
)
_TYPE = re.compile(r"(?P<const>const:)?(?P<dtype>[a-z]+[0-9]*)\[(?P<shape>[0-9, ]*)\]")
_DIGITS = 18
"""Most digits of a size."""


def parse(text: str, lets: Mapping[str, str]) -> Program:
    """The program that an expression computes; the names of its constants are kept.

    Raises:
        InputError: the text does not parse, uses an unknown name or type, or passes arrays that a function does not
            take; a note shows where.
    """
    instance("an expression", text, str, "a text such as 'x @ w + b'")
    instance("lets", lets, Mapping, "a mapping from name to type, such as {'x': 'f32[4,4]'}")
    text = " ".join(text.split())
    tree = _tree(text)
    given = _declared(lets)
    known: dict[str, Any] = {"__builtins__": {}}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in given:
            known[node.id] = _function(node, text, lets)
    _check_drawn(given)
    values = {name: _values(name, shape, dtype) for name, (const, shape, dtype) in given.items() if const}
    specs = {name: spec(shape, dtype) for name, (const, shape, dtype) in given.items() if not const}
    source = ast.Expression(ast.Lambda(_parameters(list(specs)), tree.body))
    try:
        code = compile(ast.fix_missing_locations(source), "<expression>", "eval")
    except (RecursionError, MemoryError):
        raise _too_deep(text) from None
    function = eval(code, known | values)
    try:
        program = trace(function, **specs)
    except (InputError, TypeError, ValueError, AttributeError) as error:
        raise _marked(str(error), text, _failing(error)) from None
    return Program(program.inputs, program.outputs, {ops.constant(array): name for name, array in values.items()})


def _declared(lets: Mapping[str, str]) -> dict[str, tuple[bool, tuple[int, ...], str]]:
    """The types by name, in the form that Python's parser gives to names: to it, `ﬁ` is `fi`.

    Raises:
        InputError: a type is none, or has too many elements; a name is one of Python's words, or is given twice.
    """
    found: dict[str, tuple[bool, tuple[int, ...], str]] = {}
    for given, text in lets.items():
        name = unicodedata.normalize("NFKC", given)
        if iskeyword(name):
            raise InputError(f"--let {given}={text}: {name} is a word of Python; choose another name")
        if name in found:
            raise InputError(f"--let {given}={text}: Python reads this name as {name}, which is given already")
        found[name] = _type(given, text)
        if (size := prod(found[name][1])) > LARGEST:
            raise InputError(f"--let {given}={text}: has {size} elements; at most {LARGEST} are handled")
    return found


def _check_drawn(given: Mapping[str, tuple[bool, tuple[int, ...], str]]) -> None:
    """Raises InputError where the constants have too many elements together: they are drawn before anything is done."""
    drawn = {name: prod(shape) for name, (const, shape, _) in given.items() if const}
    if sum(drawn.values()) > FOLDED:
        raise InputError(
            f"--let: the constants {', '.join(drawn)} have {sum(drawn.values())} elements; at most {FOLDED} are drawn"
        )


def _tree(text: str) -> ast.Expression:
    writable("an expression", text, empty=True)
    try:
        tree = ast.parse(text, mode="eval")
    except (RecursionError, MemoryError):  # Python's parser raises MemoryError when its stack is full
        raise _too_deep(text) from None
    except SyntaxError as error:
        at = error.offset - 1 if error.offset else len(text)  # 0 where the text ends too early
        raise _marked(f"{error.msg}; write one expression, as in relu(X @ A)", text, (at, at + 1)) from None
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            wanted = "write one expression, as in relu(X @ A)"
            raise _marked(f"{ast.unparse(node)!r} is not allowed; {wanted}", text, _span(node))
        if isinstance(node, ast.Attribute) and node.attr not in _METHODS:
            end = node.end_col_offset or 0
            message = f"no attribute {node.attr!r}{_nearest(node.attr, _METHODS)}"
            raise _marked(message, text, (end - len(node.attr), end))
    try:
        return _Folding(text).visit(tree)
    except RecursionError:
        raise _too_deep(text) from None


class _Folding(ast.NodeTransformer):
    """Computes what is of numbers alone, so that what is left to Python calls functions and operators of arrays.

    Raises:
        InputError: numbers of more than `_MOST_BITS` bits, no result, or an operator or index of a list: 9**9**9**9 and
            [0] * 10**12 would take for ever, or all memory.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return self._number(node, node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return self._number(node, node.operand)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        return self._number(node, node.left, *node.comparators)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, _LITERALS):
            raise self._refused(node, "only arrays have elements here")
        return node

    def _number(self, node: ast.expr, *operands: ast.expr) -> ast.expr:
        """The number that an operator gives for numbers; the node itself if an operand is an array."""
        if not all(isinstance(operand, _LITERALS) for operand in operands):
            return node
        values = [operand.value if isinstance(operand, ast.Constant) else None for operand in operands]
        if not all(isinstance(value, int | float) for value in values):
            raise self._refused(node, "operators take arrays and numbers")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            base, exponent = values
            if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > _MOST_BITS:
                raise self._refused(node, f"a number has at most {_MOST_BITS} bits")
        try:
            value = eval(compile(ast.fix_missing_locations(ast.Expression(node)), "<numbers>", "eval"), {})
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self._refused(node, str(error)) from None
        return ast.copy_location(ast.Constant(value), node)

    def _refused(self, node: ast.expr, why: str) -> InputError:
        return _marked(f"{why}; write one expression, as in relu(X @ A)", self._text, _span(node))


def _too_deep(text: str) -> InputError:
    return InputError(
        f"{text[:20]}… nests more operators than Python's parser takes; write it as a function, for eqsat.trace"
    )


def _parameters(names: list[str]) -> ast.arguments:
    arguments = [ast.arg(arg=name) for name in names]
    return ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[])


def _function(node: ast.Name, text: str, lets: Mapping[str, str]) -> Any:
    name = node.id
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    given = f"--let gives {', '.join(lets)}" if lets else "give it with --let"
    near = _nearest(name, [*lets, *FUNCTIONS])
    message = f"{name!r} is no function and has no type ({given}), as in --let {name}=f32[4,4]{near}"
    raise _marked(message, text, _span(node))


def _nearest(name: str, valid: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, sorted(valid), n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _span(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "col_offset", 0), getattr(node, "end_col_offset", 1)


def _failing(error: BaseException) -> tuple[int, int] | None:
    """The columns of the expression that were being computed when an error was raised."""
    step, found = error.__traceback__, None
    while step is not None:
        if step.tb_frame.f_code.co_filename == "<expression>":
            positions = list(step.tb_frame.f_code.co_positions())[step.tb_lasti // 2]
            if positions[2] is not None and positions[3] is not None:
                found = positions[2], positions[3]
        step = step.tb_next
    return found


def _marked(message: str, text: str, span: tuple[int, int] | None) -> InputError:
    """An error with a note that shows the expression and underlines the given columns."""
    error = InputError(message)
    if span is not None:
        start, stop = (len(text.encode().ljust(at)[:at].decode()) for at in span)
        error.add_note(f"  {text}\n  {' ' * start}{'^' * max(1, stop - start)}")
    return error


def _type(name: str, text: str) -> tuple[bool, tuple[int, ...], str]:
    instance(f"the type of {name}", text, str, "a text such as f32[348,768]")
    found = _TYPE.fullmatch(text.strip())
    dtype = found and LONG.get(found["dtype"], found["dtype"])
    sizes = [part.strip() for part in found["shape"].split(",") if part.strip()] if found else []
    if not found or dtype not in LONG.values() or max(map(len, sizes), default=0) > _DIGITS:
        types = ", ".join(sorted(LONG))
        raise InputError(
            f"--let {name}={text}: expected a type, as in {name}=f32[348,768] or {name}=const:f32[768,64] "
            f"(element types: {types})"
        )
    return bool(found["const"]), tuple(map(int, sizes)), str(dtype)


def _values(name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng([ord(c) for c in name])
    return random_array(shape, dtype, rng).astype(np_dtype(dtype))
