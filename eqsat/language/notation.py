"""Equations written as mathematics in Python's expression syntax, and their sizes inferred.

    (a @ b) @ c == a @ (b @ c)
    sum(a + b) == sum(a) + sum(b)
    (a @ b)["b m n -> b n m"] == b["b k n -> b n k"] @ a["b m k -> b k m"]

A name is an array; names that the equation declares as `numbers`, and whole numbers, are arrays of one value.
Arithmetic, comparisons, `&` and `|` are elementwise, over equal shapes; `@` multiplies [batch, m, k] by [batch, k, n];
`sum`, `max`, `min` and `prod` of one operand reduce its last axis. Other functions go by their names (`exp(a)`), and so
do operators of the core whose attributes are sizes (`where(c, a, b)`): their rows say what dims their operands have.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from eqsat.errors import InputError
from eqsat.language.axes import ONE, Axes
from eqsat.language.rule import Arith, Ask, Attr, Compare, Guard, Lit, Pat, Pattern, Var
from eqsat.program.core_table import CORE, CoreOp, result_dtype
from eqsat.program.ops import BINARY, COMPARE, REDUCTIONS, UNARY

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


def _operator_of(sign: str) -> type[ast.AST]:
    """The class of a sign in Python's syntax trees."""
    match ast.parse(f"a {sign} b", mode="eval").body:
        case ast.BinOp(_, op) | ast.Compare(_, [op]):
            return type(op)
    raise ValueError(f"no operator: {sign}")


_FUNCTION = {_operator_of(sign): name for name, sign in INFIX.items()}

CALLED = {"max": "maximum", "min": "minimum"}
"""Functions of two operands that go by NumPy's names, to be told from reductions."""

_UNCALLED = {name: fn for fn, name in CALLED.items()}

_COMPUTED = {"add", "sub", "mul", "div"}
"""Functions of numbers that are computed where an equation writes them on the side that is made."""

_FUNCTIONS = "fgh"
_DIMS = ("M", "K", "N", "P", "Q", "S", "T", "U")
_COUNTS = ("C", "D", "E")
_BATCHES = ("B", "A")
_OPTIONAL = re.compile(r"\[\s*(\w+)\s*\?\s*\]")


class _Cell:
    """What two places of an equation may have in common: a size, an element type, a number of elements."""

    def __init__(self, attr: Attr | None = None) -> None:
        self.attr = attr
        self._same: _Cell | None = None

    @property
    def root(self) -> _Cell:
        cell = self
        while cell._same is not None:
            cell = cell._same
        return cell

    def unify(self, other: _Cell, where: str) -> None:
        """Make both one.

        Raises:
            InputError: different things are known of them.
        """
        one, two = self.root, other.root
        if one is two:
            return
        if one.attr is not None and two.attr is not None and one.attr != two.attr:
            raise InputError(f"{where}: the shapes do not fit: {shown(one.attr)} against {shown(two.attr)}")
        one.attr = one.attr if one.attr is not None else two.attr
        two._same = one

    def become(self, other: _Cell) -> None:
        """Be the other one, under its name."""
        if self.root is not other.root:
            self.root._same = other.root


@dataclass(slots=True, eq=False)
class _Shape:
    """The shape of some arrays that are known to have one; None while nothing is known of it.

    Attributes:
        size: the number of elements, perhaps shared with other shapes.
        stated: the equation says the dims itself, so that a reduction takes the last of them.
        tail: only the last dim is stated.
    """

    size: _Cell = field(default_factory=_Cell)
    dims: tuple[_Cell, ...] | None = None
    stated: bool = False
    tail: bool = False
    same: _Shape | None = None

    @property
    def root(self) -> _Shape:
        shape = self
        while shape.same is not None:
            shape = shape.same
        return shape

    def unify(self, other: _Shape, where: str) -> None:
        one, two = self.root, other.root
        if one is two:
            return
        one.size.unify(two.size, where)
        if two.dims is not None and not two.tail:
            one.have(two.dims, where)
        one.stated |= two.stated and not two.tail
        two.same = one

    def have(self, dims: Sequence[_Cell], where: str) -> None:
        """These are the dims; a matrix is a batch of one."""
        one = self.root
        if one.dims is None or one.tail:
            one.dims, one.tail = tuple(dims), False
            return
        mine, theirs = one.dims, tuple(dims)
        while len(mine) < len(theirs):
            mine = (_Cell(Lit(1)), *mine)
        while len(theirs) < len(mine):
            theirs = (_Cell(Lit(1)), *theirs)
        for a, b in zip(mine, theirs, strict=True):
            a.unify(b, where)


def _roots(shape: _Shape) -> list[_Cell]:
    return [dim.root for dim in shape.root.dims or ()]


@dataclass(slots=True, eq=False)
class _Node:
    """A part of an equation. `op` is a core operator, `var`, `number`, or `same` (a reshape of its operand)."""

    op: str
    args: tuple[_Node, ...]
    shape: _Shape
    dtype: _Cell
    attrs: tuple[Attr | _Cell, ...] = ()
    axes: Axes | None = None


@dataclass(frozen=True, slots=True)
class Oriented:
    """An equation read in one direction.

    Attributes:
        before: guards of what the pattern alone cannot say: its literal numbers and its certain views.
        after: tables that give numbers and views of the other side.
        dtypes: what `dtype(v)` of a number `v` is.
    """

    left: Pattern
    right: Pattern
    before: tuple[Guard, ...]
    after: tuple[Guard, ...]
    dtypes: Mapping[str, Attr]


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
        self.absent: dict[str, _Node] = {}
        self._numbers, self._given, self._viewed = frozenset(numbers), views, viewed
        self._arrays: dict[str, _Node] = {}
        self._views: dict[str, _Shape] = {}
        self._letters: dict[str, _Cell] = {}
        self._bases: dict[str, _Cell] = {}
        self._made: list[_Shape] = []
        self._reductions: list[tuple[_Shape, _Shape, _Cell]] = []
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

    def _read(self, tree: ast.expr) -> _Node:
        match tree:
            case ast.Name(name):
                return self._number(name) if name in self._numbers else self._array(name)
            case ast.Constant(bool()):
                raise self._error("expected an operator or a variable", tree)
            case ast.Constant(int()) | ast.UnaryOp(ast.USub(), ast.Constant(int())):
                return self._number(ast.unparse(tree))
            case ast.UnaryOp(ast.USub(), operand):
                return self._function(Lit("neg"), [operand])
            case ast.BinOp(left, ast.MatMult(), right):
                return self._operator(CORE["MM"], [left, right])
            case ast.BinOp(left, op, right) if type(op) in _FUNCTION:
                return self._function(Lit(_FUNCTION[type(op)]), [left, right])
            case ast.Compare(left, [op], [right]) if type(op) in _FUNCTION:
                return self._function(Lit(_FUNCTION[type(op)]), [left, right])
            case ast.Subscript(value, place):
                return self._view(value, place)
            case ast.Call(ast.Name(name), args):
                return self._call(name, args, tree)
            case ast.Call(ast.Attribute(value, "reshape"), args):
                return self._reshape(value, args)
            case ast.Call(ast.Attribute(ast.Name(name), "reduce"), [operand]) if name in _FUNCTIONS:
                return self._reduction(Var(name), operand)
        raise self._error("expected an operator or a variable", tree)

    def _array(self, name: str) -> _Node:
        if name not in self._arrays:
            self._arrays[name] = _Node("var", (), _Shape(), _Cell(), (Var(name),))
        return self._arrays[name]

    def _number(self, name: str) -> _Node:
        return _Node("number", (), _Shape(), _Cell(), (Var(name),))

    def _operator(self, row: CoreOp, operands: Sequence[ast.expr], *function: Attr) -> _Node:
        """An operator of the core whose attributes are sizes of its operands, or else the function given."""
        args = [self._read(a) for a in operands]
        dtype, sizes = _Cell(), defaultdict[str, _Cell](_Cell)
        for arg, taken in zip(args, row.signature.operands, strict=True):
            if taken.dtype == "t":
                dtype.unify(arg.dtype, self.where)
            if row.elementwise:
                args[0].shape.unify(arg.shape, self.where)
            else:
                arg.shape.have([sizes[name] for name in taken.sizes], self.where)
        shape = args[0].shape
        if not row.elementwise:
            shape = _Shape(dims=tuple(sizes[name] for name in row.signature.result.sizes))
            self._made.append(shape)
        keeps = all(isinstance(f, Lit) and result_dtype(str(f.value)) is None for f in function)
        attrs = function or tuple(sizes[attr.name] for attr in row.attrs)
        return _Node(row.name, tuple(args), shape, dtype if keeps else _Cell(), attrs)

    def _function(self, function: Attr, operands: Sequence[ast.expr]) -> _Node:
        """An elementwise function of one or two arrays."""
        return self._operator(CORE["Un" if len(operands) == 1 else "Bin"], operands, function)

    def _call(self, name: str, args: Sequence[ast.expr], tree: ast.expr) -> _Node:
        if name in REDUCTIONS and len(args) == 1:
            return self._reduction(Lit(name), args[0])
        if name in _FUNCTIONS and len(args) in (1, 2):
            return self._function(Var(name), args)
        name = _UNCALLED.get(name, name)
        row = _written_by_name(name)
        arity = 1 if name in UNARY else 2 if name in BINARY or name in COMPARE else row and row.arity
        if arity is None:
            raise InputError(f"{self.where}: no operator or function is called {name!r}")
        if len(args) != arity:
            raise self._error(f"{name} takes {arity} argument{'s' if arity > 1 else ''}", tree)
        return self._operator(row, args) if row else self._function(Lit(name), args)

    def _reduction(self, function: Attr, operand: ast.expr) -> _Node:
        arg = self._read(operand)
        shape, rest = arg.shape.root, _Shape()
        counted = _Cell()
        if shape.stated and shape.dims is not None:
            counted = shape.dims[-1]
            rest = _Shape() if shape.tail else _Shape(dims=shape.dims[:-1], stated=True)
        self._reductions.append((arg.shape, rest, counted))
        return _Node("Red", (arg,), rest, arg.dtype if isinstance(function, Lit) else _Cell(), (function, counted))

    def _reshape(self, operand: ast.expr, dims: Sequence[ast.expr]) -> _Node:
        arg = self._read(operand)
        tail = bool(dims) and isinstance(dims[0], ast.Constant) and dims[0].value is ...
        cells = tuple(self._dim(d) for d in (dims[1:] if tail else dims))
        if tail and len(cells) != 1:
            raise InputError(f"{self.where}: reshape(..., C) states the last axis alone")
        return _Node("same", (arg,), _Shape(arg.shape.root.size, cells, stated=True, tail=tail), arg.dtype)

    def _dim(self, tree: ast.expr) -> _Cell:
        return self._cell(attribute(tree, self.where))

    def _cell(self, attr: Attr) -> _Cell:
        return self._letter(attr.name) if isinstance(attr, Var) else _Cell(attr)

    def _letter(self, name: str) -> _Cell:
        return self._letters.setdefault(name, _Cell(Var(name)))

    def _axis_sizes(self, group: Sequence[str]) -> _Cell:
        """The size of some axes together."""
        return self._cell(product([Lit(1) if a == ONE else Var(a.upper()) for a in group]))

    def _view(self, value: ast.expr, place: ast.expr) -> _Node:
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
                shape = _Shape(dims=tuple(self._axis_sizes(g) for g in axes.target), stated=True)
                return _Node("V", (arg,), shape, arg.dtype, (Var(f'"{axes}"'),), axes)
            case _:
                raise self._error('a view is a[L], a[L?] or a["m k -> k m"]', place)
        if name not in self._views:
            dims = self._given.get(name)
            stated = dims is not None
            self._views[name] = _Shape(dims=tuple(map(self._cell, dims)) if stated else None, stated=stated)
        self._bases.setdefault(name, arg.shape.root.size).unify(arg.shape.root.size, self.where)
        return _Node("V", (arg,), self._views[name], arg.dtype, (Var(name),))

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
                if _roots(shape) == _roots(other):
                    shape.root.size.unify(other.root.size, self.where)
        for i, (operand, result, counted) in enumerate(self._reductions):
            for other, reduced, known in self._reductions[:i]:
                if operand.root.size.root is other.root.size.root and result.root.size.root is reduced.root.size.root:
                    counted.become(known)

    def _name(self, node: _Node) -> None:
        """Name the sizes of operands from left to right, then those of the result."""
        for arg in node.args:
            self._name(arg)
        if node.op == "Red":
            counted = node.attrs[1]
            assert isinstance(counted, _Cell)
            if self._path(*self._reductions_of(counted)) is None:
                self._named(counted, _COUNTS)
            return
        for each in (*node.args, node):
            self._name_dims(each.shape.root.dims or ())

    def _name_dims(self, dims: Sequence[_Cell]) -> None:
        if len(dims) == 3:
            self._named(dims[0], _BATCHES)
        for dim in dims[-2:]:
            self._named(dim, _DIMS)

    def _named(self, cell: _Cell, names: Sequence[str]) -> None:
        root = cell.root
        if root.attr is None:
            name = next(n for n in names if n not in self._letters)
            self._letters[name] = root
            root.attr = Var(name)

    def _reductions_of(self, counted: _Cell) -> tuple[_Cell, _Cell, int]:
        for i, (operand, result, cell) in enumerate(self._reductions):
            if cell.root is counted.root:
                return operand.root.size.root, result.root.size.root, i
        raise ValueError("a reduction that was not read")

    def _path(self, start: _Cell, end: _Cell, before: int) -> Attr | None:
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

    # --- patterns

    def oriented(self, backwards: bool) -> Oriented:
        """Both sides as patterns, read from left to right, or from right to left.

        Raises:
            InputError: a side cannot be matched, or a size or a number on the other is not known from it.
        """
        left, right = (self.right, self.left) if backwards else (self.left, self.right)
        return _Patterns(self, left).compiled(left, right)

    def dim(self, cell: Attr | _Cell) -> Attr:
        """A size as an attribute."""
        if not isinstance(cell, _Cell):
            return cell
        attr = cell.root.attr
        if attr is None:
            attr = self._path(*self._reductions_of(cell))
        if attr is None:
            raise InputError(f"{self.where}: one side has a size that nothing says; state it with reshape")
        return attr


class _Patterns:
    """The patterns of one direction."""

    def __init__(self, statement: Statement, left: _Node) -> None:
        self._statement = statement
        self._top = left.shape.size.root
        self._before: list[Guard] = []
        self._after: list[Guard] = []
        self._known_views: set[Var] = set()
        self._numbers: dict[str, tuple[Attr, Attr]] = {}
        self._sizes: dict[_Cell, Attr] = {}
        self._types: dict[_Cell, Attr] = {}
        self._array_sizes: dict[_Cell, Attr] = {}
        self._array_types: dict[_Cell, Attr] = {}

    def compiled(self, left: _Node, right: _Node) -> Oriented:
        matched = self._matched(left)
        self._compare_sizes(left)
        made = self._made(right)
        dtypes = {name: dtype for name, (_, dtype) in self._numbers.items()}
        return Oriented(matched, made, tuple(self._before), tuple(self._after), dtypes)

    # --- the side that is matched

    def _matched(self, node: _Node) -> Pattern:
        size, dtype = node.shape.root.size.root, node.dtype.root
        match node.op:
            case "same":
                return self._matched(node.args[0])
            case "var":
                (name,) = node.attrs
                assert isinstance(name, Var)
                self._array_sizes.setdefault(size, Arith("size", name))
                self._array_types.setdefault(dtype, Arith("dtype", name))
                return name
            case "number":
                (name,) = node.attrs
                assert isinstance(name, Var)
                n = self._sizes.setdefault(size, Var(f"{name.name}.size"))
                t = self._types.setdefault(dtype, Var(f"{name.name}.dtype"))
                literal = _literal(name)
                if literal is not None and name.name not in self._numbers:
                    self._before.append(Ask("is_value", (name, Lit(literal)), ()))
                self._numbers[name.name] = n, t
                return Pat("Full", (name, n, t), ())
            case "V" if node.axes is not None:
                (name,) = node.attrs
                assert isinstance(name, Var)
                self._known_views.add(name)
                self._before.append(Ask(f"reads {node.axes}", (name, *_sizes(node.axes)), ()))
        attrs = tuple(self._statement.dim(a) for a in node.attrs)
        for attr in attrs:
            if isinstance(attr, Arith):
                raise InputError(
                    f"{self._statement.where}: {shown(attr)} cannot be matched; turn the equation round, or name it"
                )
        return Pat(node.op, attrs, tuple(map(self._matched, node.args)))

    def _compare_sizes(self, left: _Node) -> None:
        """What is only seen through views must be as large as what it is equated with: the views do not say it."""
        bare = {id(node) for node in _seen(left, viewed=False)}
        first: dict[_Cell, _Node] = {}
        for node in sorted(_seen(left, viewed=None), key=lambda node: id(node) not in bare):
            other = first.setdefault(node.shape.root.size.root, node)
            if other is not node and id(node) not in bare:
                sizes = (Arith("size", name) for name in (*other.attrs, *node.attrs) if isinstance(name, Var))
                self._before.append(Compare("==", *sizes))

    # --- the side that is made

    def _made(self, node: _Node) -> Pattern:
        if node.op == "same":
            return self._made(node.args[0])
        if node.op == "var":
            (name,) = node.attrs
            assert isinstance(name, Var)
            return name
        value = self._value(node)
        if value is not None:
            return Pat("Full", (value, self._size(node, value), self._dtype(node, value)), ())
        if node.op == "V" and node.axes is not None:
            (name,) = node.attrs
            assert isinstance(name, Var)
            if name not in self._known_views:
                self._give(Ask(f"axes {node.axes}", _sizes(node.axes), (name,)))
        return Pat(node.op, tuple(self._statement.dim(a) for a in node.attrs), tuple(map(self._made, node.args)))

    def _value(self, node: _Node) -> Var | None:
        """The name of a number, and of what is computed of numbers."""
        if node.op == "number":
            (name,) = node.attrs
            assert isinstance(name, Var)
            literal = _literal(name)
            if literal is not None and name.name not in self._numbers:
                self._give(Ask("count_as", (Lit(literal), self._dtype(node, name)), (name,)))
            return name
        if node.op != "Bin" or not isinstance(node.attrs[0], Lit) or node.attrs[0].value not in _COMPUTED:
            return None
        values = [self._value(a) for a in node.args]
        if any(v is None for v in values):
            return None
        one, other = (v for v in values if v is not None)
        name = Var(f"({one.name} {INFIX[node.attrs[0].value]} {other.name})")
        self._give(Ask("value_of_two", (node.attrs[0], one, other, self._dtype(node, name)), (name,)))
        return name

    def _give(self, ask: Ask) -> None:
        if ask not in self._after:
            self._after.append(ask)

    def _size(self, node: _Node, name: Var) -> Attr:
        shape = node.shape.root
        size = shape.size.root
        known = self._sizes.get(size) or self._array_sizes.get(size)
        if known is not None:
            return known
        if size is self._top:
            return Arith("size", Var("self"))
        if shape.dims is None or shape.tail:
            raise InputError(f"{self._statement.where}: nothing says how large {name.name} is; state it with reshape")
        return product([self._statement.dim(d) for d in shape.dims])

    def _dtype(self, node: _Node, name: Var) -> Attr:
        dtype = node.dtype.root
        known = self._types.get(dtype) or self._array_types.get(dtype) or next(iter(self._types.values()), None)
        if known is None:
            raise InputError(f"{self._statement.where}: nothing says what type {name.name} has")
        return known


def _seen(node: _Node, viewed: bool | None, within: bool = False) -> list[_Node]:
    """The arrays below a node; only those that are read directly through a view (True) or not (False)."""
    if node.op == "var":
        return [node] if viewed is None or viewed == within else []
    found = [a for arg in node.args for a in _seen(arg, viewed, node.op == "V")]
    return list(dict.fromkeys(found))


def _written_by_name(name: str) -> CoreOp | None:
    """The operator of the core that a call names: one whose attributes are sizes, which follow from its operands."""
    row = next((row for row in CORE.values() if row.name.lower() == name), None)
    return row if row and row.arity and all(attr.kind == "int" for attr in row.attrs) else None


def product(factors: Sequence[Attr]) -> Attr:
    """Sizes multiplied."""
    found, *others = factors
    for factor in others:
        found = Arith("*", found, factor)
    return found


def _literal(name: Var) -> int | None:
    """The integer that a number's name spells, if it does."""
    return int(name.name) if re.fullmatch(r"-?\d+", name.name) else None


def _sizes(axes: Axes) -> tuple[Attr, ...]:
    return tuple(Var(letter.upper()) for letter in axes.letters)


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
        case ast.Constant(int() | str() as value):
            return Lit(value)
        case ast.UnaryOp(ast.USub(), ast.Constant(int() as value)):
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
