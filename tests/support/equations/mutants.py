"""False equations: published ones with one small change on the right side, as people make by mistake.

A change may leave an equation true (`x + y` for `y + x`), or not give a program at all. `false` says whether a changed
equation is false: its sides differ when run on many inputs, other than those that `eqsat.prove` uses.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

import numpy as np
import onnx

from eqsat.errors import EqsatError, InputError
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.program.ir import Program

from .notation import Equation

_OTHER_OPERATOR: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.Add(),
    ast.Div: ast.Mult(),
}
_OTHER_COMPARISON: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
}
_OTHER_FUNCTION = {
    "Max": "Min",
    "Min": "Max",
    "And": "Or",
    "Or": "And",
    "Xor": "Or",
    "Exp": "Tanh",
    "Tanh": "Exp",
    "Floor": "Ceil",
    "Ceil": "Floor",
    "Sin": "Cos",
    "ReduceSum": "ReduceMax",
    "ReduceMax": "ReduceSum",
    "ReduceMin": "ReduceMax",
    "ReduceMean": "ReduceSum",
    "ReduceProd": "ReduceSum",
    "ArgMax": "ArgMin",
    "maxpool": "avgpool",
    "avgpool": "maxpool",
}
_MAY_BE_DROPPED = frozenset({"Relu", "Abs", "Neg", "Not", "Exp", "Floor", "Ceil", "Sign", "Sqrt", "Reciprocal", "t"})
_ORDERED = frozenset({"cat", "Where", "Pow", "Mod", "Gather", "conv"})
_RUNS = 24


def mutants(equation: Equation) -> Iterator[Equation]:
    """The equation with each change in turn."""
    tree = ast.parse(equation.right, mode="eval")
    seen = {ast.unparse(tree)}
    names = [(name, spec) for name, _, spec in (part.partition("=") for part in equation.inputs.split())]
    for i, node in enumerate(ast.walk(tree)):
        for what, changed in _changes(node, names):
            other = _Replacing(i, changed).visit_all(tree)
            text = ast.unparse(other)
            if text not in seen:
                seen.add(text)
                name = f"{equation.name}, {what}"
                yield Equation(equation.family, name, equation.inputs, equation.left, text)


def _changes(node: ast.AST, names: list[tuple[str, str]]) -> Iterator[tuple[str, ast.AST]]:
    """What may stand in place of a node, each with a word for it."""
    match node:
        case ast.BinOp(left=a, op=op, right=b):
            yield "operands swapped", ast.BinOp(b, op, a)
            yield "a term dropped", a
            if type(op) in _OTHER_OPERATOR:
                yield "another operator", ast.BinOp(a, _OTHER_OPERATOR[type(op)], b)
        case ast.Compare(left=a, ops=[op], comparators=[b]):
            yield "another comparison", ast.Compare(a, [_OTHER_COMPARISON[type(op)]], [b])
            yield "operands swapped", ast.Compare(b, [op], [a])
        case ast.UnaryOp(operand=a):
            yield "a sign dropped", a
        case ast.Constant(value=bool()):
            return
        case ast.Constant(value=int(v) | float(v)):
            yield "another number", ast.Constant(v + 1)
        case ast.Name(id=name) if any(name == own for own, _ in names):
            spec = dict(names)[name]
            for other, shape in names:
                if other != name and shape == spec:
                    yield f"{other} for {name}", ast.Name(other, ast.Load())
        case ast.Call(func=ast.Name(id=fn), args=args, keywords=keywords):
            yield from _changes_of_call(fn, args, keywords)


def _changes_of_call(fn: str, args: list[ast.expr], keywords: list[ast.keyword]) -> Iterator[tuple[str, ast.AST]]:
    if fn in _OTHER_FUNCTION:
        yield "another function", ast.Call(ast.Name(_OTHER_FUNCTION[fn], ast.Load()), args, keywords)
    if fn in _MAY_BE_DROPPED:
        yield "a function dropped", args[0]
    if fn in _ORDERED and len(args) > 1:
        swapped = [*args[:-2], args[-1], args[-2]]
        yield "operands swapped", ast.Call(ast.Name(fn, ast.Load()), swapped, keywords)
    if fn == "Slice" and len(args) > 3:
        yield (
            "the next slice",
            ast.Call(ast.Name(fn, ast.Load()), [args[0], *map(_one_more, args[1:3]), *args[3:]], keywords),
        )
    if fn == "Pad":
        yield (
            "padded at the other end",
            ast.Call(ast.Name(fn, ast.Load()), [args[0], _reversed(args[1]), *args[2:]], keywords),
        )


def _one_more(node: ast.expr) -> ast.expr:
    return ast.parse(repr([v + 1 for v in ast.literal_eval(node)]), mode="eval").body


def _reversed(node: ast.expr) -> ast.expr:
    values = ast.literal_eval(node)
    half = len(values) // 2
    return ast.parse(repr([*values[half:], *values[:half]]), mode="eval").body


class _Replacing(ast.NodeTransformer):
    """A copy of a tree with another node in place of the i-th that `ast.walk` meets."""

    def __init__(self, i: int, changed: ast.AST) -> None:
        self._i, self._changed = i, changed
        self._target: ast.AST | None = None

    def visit_all(self, tree: ast.Expression) -> ast.AST:
        changed = copy.deepcopy(self._changed)
        clone = copy.deepcopy(tree)
        self._target, self._changed = list(ast.walk(clone))[self._i], changed
        return ast.fix_missing_locations(self.visit(clone))

    def visit(self, node: ast.AST) -> ast.AST:
        return self._changed if node is self._target else super().visit(node)


def false(equation: Equation) -> tuple[Program, Program] | None:
    """Both sides, where they are programs of one type that differ; None otherwise."""
    try:
        p, q = (from_onnx(model) for model in equation.models())
    except (EqsatError, ValueError, LookupError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    (a,), (b,) = p.outputs.values(), q.outputs.values()
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return None
    rng = np.random.default_rng(2718)
    return (p, q) if any(_differ(p, q, rng) for _ in range(_RUNS)) else None


def _differ(p: Program, q: Program, rng: np.random.Generator) -> bool:
    """Whether the programs differ clearly on a random input on which both have finite values."""
    scale = rng.choice([0.5, 2.0, 6.0])
    inputs = {}
    for term in p.inputs:
        if term.dtype == "bool":
            value = rng.random(term.shape) < 0.5
        elif term.dtype.startswith("int"):
            value = rng.integers(1, 8, term.shape) * rng.choice([-1, 1], term.shape)
        else:
            value = scale * (rng.standard_normal(term.shape) if rng.random() < 0.5 else rng.random(term.shape) + 0.1)
        inputs[term.attr("name")] = np.asarray(value).astype(term.dtype)
    try:
        with np.errstate(all="ignore"):
            (a,), (b,) = (list(side.run(inputs, "float64").values()) for side in (p, q))
    except InputError:
        return False  # an index out of range
    if a.dtype == np.bool_:
        return bool((a != b).any())
    a, b = a.astype(np.float64), b.astype(np.float64)
    both = np.isfinite(a) & np.isfinite(b)
    return bool((np.abs(a - b) > 1e-4 * np.maximum(1.0, np.abs(a)))[both].any())
