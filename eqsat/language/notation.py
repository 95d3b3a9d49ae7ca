"""Equations written as mathematics in Python's expression syntax, and their sizes inferred.

    (a @ b) @ c == a @ (b @ c)
    sum(a + b) == sum(a) + sum(b)
    (a @ b)["b m n -> b n m"] == b["b k n -> b n k"] @ a["b m k -> b k m"]

A name is an array; names that the equation declares as `numbers`, and whole numbers, are arrays of one value.
Arithmetic, comparisons, `&`, `|` and `~` are elementwise, over equal shapes; `@` multiplies [batch, m, k] by
[batch, k, n]; `sum`, `max`, `min` and `prod` of one operand reduce its last axis. Other functions go by their names
(`exp(a)`), and so do operators of the core whose attributes are sizes (`where(c, a, b)`): their rows say what dims
their operands have.
`f`, `g` and `h` stand for any function, `f.reduce(a)` for any reduction.

`a[L]` is the array `a` read through the layout `L`, whatever that is; `a[L?]` says that the view may also be missing;
`a["b m k -> b k m"]` is one certain view, in the notation of einops (sizes: the letters in upper case).

Sizes follow from the operands. They get the names B (batch), M, K, N, P, Q ... as the operands of products are read
from left to right; what reductions add up is called C, then D. `x.reshape(1, B*M, K)` states the shape of an operand
where the elements are counted otherwise; arrays are flat in the core, so that it does nothing. `x.reshape(..., C)`
states the last axis alone.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from eqsat.errors import InputError
from eqsat.language.axes import ONE, Axes
from eqsat.language.rule import LARGEST, Arith, Attr, Lit, Var
from eqsat.language.signs import BEFORE, FUNCTION, UNCALLED, attribute, parsed, product
from eqsat.language.unify import Cell, Node, Shape, roots
from eqsat.program.core_table import CORE, CoreOp, result_dtype
from eqsat.program.ops import BINARY, COMPARE, REDUCTIONS, UNARY

_FUNCTIONS = "fgh"
_DIMS = ("M", "K", "N", "P", "Q", "S", "T", "U")
_COUNTS = ("C", "D", "E")
_BATCHES = ("B", "A")
_OPTIONAL = re.compile(r"\[\s*(\w+)\s*\?\s*\]")


class Statement:
    """One reading of an equation: with its optional views, or without them.

    Args:
        where: what errors begin with.
        numbers: the names that stand for numbers.
        views: layout to the dims in which a table of the guard gives it.

    Raises:
        InputError: the text does not parse, names an unknown function, or its shapes do not fit.
    """

    def __init__(
        self,
        left: str,
        right: str,
        where: str,
        numbers: Sequence[str],
        views: Mapping[str, Sequence[Attr]],
        viewed: bool,
    ) -> None:
        self.where = where
        self.absent: dict[str, Node] = {}
        self._numbers, self._given, self._viewed = frozenset(numbers), views, viewed
        self._arrays: dict[str, Node] = {}
        self._views: dict[str, Shape] = {}
        self._letters: dict[str, Cell] = {}
        self._bases: dict[str, Cell] = {}
        self._made: list[Shape] = []
        self._reductions: list[tuple[Shape, Shape, Cell]] = []
        self.left = self._read(self._parsed(left))
        self._first_reductions = len(self._reductions)
        self._name(self.left)
        self.right = self._read(self._parsed(right))
        self.left.shape.size.unify(self.right.shape.size, where)
        self.left.dtype.unify(self.right.dtype, where)
        self._count_alike()
        self._name(self.right)

    # --- reading

    def _parsed(self, text: str) -> ast.expr:
        return parsed(_OPTIONAL.sub(r"[\1 | None]", text), self.where)

    def _error(self, what: str, tree: ast.AST) -> InputError:
        return InputError(f"{self.where}: {what}, got {ast.unparse(tree)!r}")

    def _read(self, tree: ast.expr) -> Node:
        match tree:
            case ast.Name(name):
                return self._number(name) if name in self._numbers else self._array(name)
            case ast.Constant(bool()):
                raise self._error("expected an operator or a variable", tree)
            case ast.Constant(int(value)) | ast.UnaryOp(ast.USub(), ast.Constant(int(value))):
                if value > LARGEST:
                    raise self._error("expected a whole number up to 2**53", tree)
                return self._number(ast.unparse(tree))
            case ast.UnaryOp(op, operand) if type(op) in BEFORE:
                return self._function(Lit(BEFORE[type(op)]), [operand])
            case ast.BinOp(left, ast.MatMult(), right):
                return self._operator(CORE["MM"], [left, right])
            case ast.BinOp(left, op, right) if type(op) in FUNCTION:
                return self._function(Lit(FUNCTION[type(op)]), [left, right])
            case ast.Compare(left, [op], [right]) if type(op) in FUNCTION:
                return self._function(Lit(FUNCTION[type(op)]), [left, right])
            case ast.Subscript(value, place):
                return self._view(value, place)
            case ast.Call(ast.Name(name), args):
                return self._call(name, args, tree)
            case ast.Call(ast.Attribute(value, "reshape"), args):
                return self._reshape(value, args)
            case ast.Call(ast.Attribute(ast.Name(name), "reduce"), [operand]) if name in _FUNCTIONS:
                return self._reduction(Var(name), operand)
        raise self._error("expected an operator or a variable", tree)

    def _array(self, name: str) -> Node:
        if name not in self._arrays:
            self._arrays[name] = Node("var", (), Shape(), Cell(), (Var(name),))
        return self._arrays[name]

    def _number(self, name: str) -> Node:
        return Node("number", (), Shape(), Cell(), (Var(name),))

    def _operator(self, row: CoreOp, operands: Sequence[ast.expr], *function: Attr) -> Node:
        """An operator of the core whose attributes are sizes of its operands, or else the function given."""
        args = [self._read(a) for a in operands]
        dtype, sizes = Cell(), defaultdict[str, Cell](Cell)
        for arg, taken in zip(args, row.signature.operands, strict=True):
            if taken.dtype == "t":
                dtype.unify(arg.dtype, self.where)
            if row.elementwise:
                args[0].shape.unify(arg.shape, self.where)
            else:
                arg.shape.have([sizes[name] for name in taken.sizes], self.where)
        shape = args[0].shape
        if not row.elementwise:
            shape = Shape(dims=tuple(sizes[name] for name in row.signature.result.sizes))
            self._made.append(shape)
        keeps = all(isinstance(f, Lit) and result_dtype(str(f.value)) is None for f in function)
        attrs = function or tuple(sizes[attr.name] for attr in row.attrs)
        return Node(row.name, tuple(args), shape, dtype if keeps else Cell(), attrs)

    def _function(self, function: Attr, operands: Sequence[ast.expr]) -> Node:
        """An elementwise function of one or two arrays."""
        return self._operator(CORE["Un" if len(operands) == 1 else "Bin"], operands, function)

    def _call(self, name: str, args: Sequence[ast.expr], tree: ast.expr) -> Node:
        if name in REDUCTIONS and len(args) == 1:
            return self._reduction(Lit(name), args[0])
        if name in _FUNCTIONS and len(args) in (1, 2):
            return self._function(Var(name), args)
        name = UNCALLED.get(name, name)
        row = _written_by_name(name)
        arity = 1 if name in UNARY else 2 if name in BINARY or name in COMPARE else row and row.arity
        if arity is None:
            raise InputError(f"{self.where}: no operator or function is called {name!r}")
        if len(args) != arity:
            raise self._error(f"{name} takes {arity} argument{'s' if arity > 1 else ''}", tree)
        return self._operator(row, args) if row else self._function(Lit(name), args)

    def _reduction(self, function: Attr, operand: ast.expr) -> Node:
        arg = self._read(operand)
        shape, rest = arg.shape.root, Shape()
        counted = Cell()
        if shape.stated and shape.dims is not None:
            counted = shape.dims[-1]
            rest = Shape() if shape.tail else Shape(dims=shape.dims[:-1], stated=True)
        self._reductions.append((arg.shape, rest, counted))
        return Node("Red", (arg,), rest, arg.dtype if isinstance(function, Lit) else Cell(), (function, counted))

    def _reshape(self, operand: ast.expr, dims: Sequence[ast.expr]) -> Node:
        arg = self._read(operand)
        tail = bool(dims) and isinstance(dims[0], ast.Constant) and dims[0].value is ...
        cells = tuple(self._dim(d) for d in (dims[1:] if tail else dims))
        if tail and len(cells) != 1:
            raise InputError(f"{self.where}: reshape(..., C) states the last axis alone")
        return Node("same", (arg,), Shape(arg.shape.root.size, cells, stated=True, tail=tail), arg.dtype)

    def _dim(self, tree: ast.expr) -> Cell:
        return self._cell(attribute(tree, self.where))

    def _cell(self, attr: Attr) -> Cell:
        return self._letter(attr.name) if isinstance(attr, Var) else Cell(attr)

    def _letter(self, name: str) -> Cell:
        return self._letters.setdefault(name, Cell(Var(name)))

    def _axis_sizes(self, group: Sequence[str]) -> Cell:
        """The size of some axes together."""
        return self._cell(product([Lit(1) if a == ONE else Var(a.upper()) for a in group]))

    def _view(self, value: ast.expr, place: ast.expr) -> Node:
        arg = self._read(value)
        match place:
            case ast.BinOp(ast.Name(name), ast.BitOr(), ast.Constant(None)):
                if not self._viewed:
                    self.absent[name] = arg
                    return arg
            case ast.Name(name):
                pass
            case ast.Constant(str() as text):
                axes = Axes.read(text, self.where)
                arg.shape.have([self._axis_sizes(g) for g in axes.source], self.where)
                shape = Shape(dims=tuple(self._axis_sizes(g) for g in axes.target), stated=True)
                return Node("V", (arg,), shape, arg.dtype, (Var(f'"{axes}"'),), axes)
            case _:
                raise self._error('a view is a[L], a[L?] or a["m k -> k m"]', place)
        if name not in self._views:
            dims = self._given.get(name)
            stated = dims is not None
            self._views[name] = Shape(dims=tuple(map(self._cell, dims)) if stated else None, stated=stated)
        self._bases.setdefault(name, arg.shape.root.size).unify(arg.shape.root.size, self.where)
        return Node("V", (arg,), self._views[name], arg.dtype, (Var(name),))

    def size_without(self, view: str) -> Attr:
        """How many elements there are where an optional view is missing."""
        node = self.absent[view]
        dims = node.shape.root.dims
        if dims is not None and not node.shape.root.tail:
            return product([self.dim(d) for d in dims])
        (name,) = node.attrs
        if node.op != "var" or not isinstance(name, Var):
            raise InputError(f"{self.where}: nothing says how large {view} is where it is missing")
        return Arith("size", name)

    # --- names of sizes

    def _count_alike(self) -> None:
        """Arrays of equal dims have equal sizes, and reductions from equal sizes to equal sizes have equal lengths. On
        the right, further lengths follow from the left: the length of a sum of sums is the product of both lengths."""
        for i, shape in enumerate(self._made):
            for other in self._made[:i]:
                if roots(shape) == roots(other):
                    shape.root.size.unify(other.root.size, self.where)
        for i, (operand, result, counted) in enumerate(self._reductions):
            for other, reduced, known in self._reductions[:i]:
                if operand.root.size.root is other.root.size.root and result.root.size.root is reduced.root.size.root:
                    counted.become(known)

    def _name(self, node: Node) -> None:
        """Name the sizes of operands from left to right, then those of the result."""
        for arg in node.args:
            self._name(arg)
        if node.op == "Red":
            counted = node.attrs[1]
            assert isinstance(counted, Cell)
            if self._path(*self._reductions_of(counted)) is None:
                self._named(counted, _COUNTS)
            return
        for each in (*node.args, node):
            self._name_dims(each.shape.root.dims or ())

    def _name_dims(self, dims: Sequence[Cell]) -> None:
        if len(dims) == 3:
            self._named(dims[0], _BATCHES)
        for dim in dims[-2:]:
            self._named(dim, _DIMS)

    def _named(self, cell: Cell, names: Sequence[str]) -> None:
        root = cell.root
        if root.attr is None:
            name = next(n for n in names if n not in self._letters)
            self._letters[name] = root
            root.attr = Var(name)

    def _reductions_of(self, counted: Cell) -> tuple[Cell, Cell, int]:
        for i, (operand, result, cell) in enumerate(self._reductions):
            if cell.root is counted.root:
                return operand.root.size.root, result.root.size.root, i
        raise ValueError("a reduction that was not read")

    def _path(self, start: Cell, end: Cell, before: int) -> Attr | None:
        """What reductions on the left add up between two numbers of elements, for a reduction on the right."""
        if before < self._first_reductions:
            return None
        for operand, result, counted in self._reductions[: self._first_reductions]:
            if operand.root.size.root is not start or counted.root.attr is None:
                continue
            if result.root.size.root is end:
                return counted.root.attr
            rest = self._path(result.root.size.root, end, before)
            if rest is not None:
                return Arith("*", counted.root.attr, rest)
        return None

    def dim(self, cell: Attr | Cell) -> Attr:
        """A size as an attribute."""
        if not isinstance(cell, Cell):
            return cell
        attr = cell.root.attr
        if attr is None:
            attr = self._path(*self._reductions_of(cell))
        if attr is None:
            raise InputError(f"{self.where}: one side has a size that nothing says; state it with reshape")
        return attr


def _written_by_name(name: str) -> CoreOp | None:
    """The operator of the core that a call names: one whose attributes are sizes, which follow from its operands."""
    row = next((row for row in CORE.values() if row.name.lower() == name), None)
    return row if row and row.arity and all(attr.kind == "int" for attr in row.attrs) else None
