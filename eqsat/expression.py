"""One-line programs: `relu(X @ A + b)` with a type for each name, for the command line.

    program = parse("(X @ A) @ C", {"X": "f32[348,768]", "A": "const:f32[768,64]", "C": "const:f32[64,768]"})

Names are inputs, or constants of random values (`const:`). Functions are those of `eqsat`, methods those of traced
values (`x.T`, `x.sum(1)`, `x[:, 2:5]`). Nothing else is run: no imports, no assignments, no attributes of Python.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from eqsat.errors import InputError
from eqsat.ir import Program
from eqsat.numerics import SHORT, np_dtype, random_array

_ALLOWED = (
    ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Attribute, ast.Call, ast.keyword, ast.Tuple, ast.List,
    ast.Subscript, ast.Slice, ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
_METHODS = frozenset(
    {"T", "sum", "mean", "max", "min", "prod", "reshape", "transpose", "astype", "swapaxes", "squeeze"}
)
_TYPE = re.compile(r"(?P<const>const:)?(?P<dtype>[a-z]+[0-9]*)\[(?P<shape>[0-9, ]*)\]")
_LONG = {short: long for long, short in SHORT.items()}


def parse(text: str, lets: Mapping[str, str]) -> Program:
    """The program that an expression computes.

    Raises:
        InputError: it does not parse, uses a name that is neither given nor a function, or a type that is none.
    """
    tree = _tree(text)
    inputs = {name: _type(name, spec) for name, spec in lets.items()}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    known: dict[str, Any] = {"__builtins__": {}}
    for name in sorted(used - set(inputs)):
        known[name] = _function(name, text, lets)
    import eqsat

    specs: dict[str, Any] = {}
    for name, (const, shape, dtype) in inputs.items():
        if const:
            known[name] = _values(name, shape, dtype)
        else:
            specs[name] = eqsat.spec(shape, dtype)
    source = ast.Expression(ast.Lambda(_parameters(list(specs)), tree.body))
    function = eval(compile(ast.fix_missing_locations(source), "<expression>", "eval"), known)
    try:
        return eqsat.trace(function, **specs)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{text!r}: {error}") from None


def _tree(text: str) -> ast.Expression:
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise InputError(f"{text!r}: {error.msg}; write one expression, as in relu(X @ A)") from None
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise InputError(f"{text!r}: {ast.unparse(node)!r} is not allowed; write one expression, as in relu(X @ A)")
        if isinstance(node, ast.Attribute) and node.attr not in _METHODS:
            raise InputError(f"{text!r}: no attribute {node.attr!r} (there are {', '.join(sorted(_METHODS))})")
    return tree


def _parameters(names: list[str]) -> ast.arguments:
    arguments = [ast.arg(arg=name) for name in names]
    return ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[])


def _function(name: str, text: str, lets: Mapping[str, str]) -> Any:
    import eqsat

    if not name.startswith("_") and name in eqsat._FUNCTIONS:
        return getattr(eqsat, name)
    given = f"--let gives {', '.join(lets)}" if lets else "give it with --let"
    raise InputError(f"{text!r}: {name!r} is no function and has no type ({given}), as in --let {name}=f32[4,4]")


def _type(name: str, text: str) -> tuple[bool, tuple[int, ...], str]:
    found = _TYPE.fullmatch(text.strip())
    dtype = found and _LONG.get(found["dtype"], found["dtype"])
    if not found or dtype not in SHORT:
        raise InputError(f"--let {name}={text}: expected a type, as in {name}=f32[348,768] or {name}=const:f32[768,64]")
    shape = tuple(int(part) for part in found["shape"].split(",") if part.strip())
    return bool(found["const"]), shape, str(dtype)


def _values(name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng([ord(c) for c in name])
    return random_array(shape, dtype, rng).astype(np_dtype(dtype))
