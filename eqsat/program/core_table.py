"""`CORE`: a row for each operator of the core, from which every module that handles core operators in general works.

A row says what an operator takes and gives in one line. `t[B M K], t[B K N] -> t[B M N]` are two operands of one
element type, flat arrays of B*M*K and B*K*N elements; the names are attributes of the operator, or sizes that follow
from those of the operands (`t[R C] -> f(t)[R]`: R is the size of the operand divided by C). Element types are

    t          any type; the same wherever it stands
    f(t)       what the function or reduction f gives of a t
    bool       booleans
    index      int32 or int64
    *          any type, not the same for all operands
    a name     the attribute of that name

and `...` behind an operand means any number of them, each with sizes of its own; in the result such a size is their
sum. An attribute that is a layout stands for the number of elements that it reads.

The meaning of an operator is the element of its result at given digits, one digit for each size of the result. It is
stated once, over an `Algebra`: arrays of numbers (`eqsat.program.evaluation`), the same in a fixed order or modulo a
prime (`eqsat.evidence.reference`), arrays of symbolic expressions (`eqsat.proof.normal_form.elements`), and single
elements at symbolic indices for z3 (`eqsat.evidence.index_proofs`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, Literal, NamedTuple, Protocol

from eqsat.base.numerics import DTYPES, ELEMENTWISE, INTS, REDUCTIONS, STORED_INTS, kind_of
from eqsat.errors import ShapeError
from eqsat.layout.arithmetic import Layout

CAST = "cast:"
"""Prefix of the unary functions that convert to another element type."""

_CONVERTED = frozenset({*DTYPES, *STORED_INTS})
"""Element types from and to which programs convert."""

Kind = Literal["int", "layout", "function", "reduction", "value", "dtype", "name"]
"""Kinds of attributes. `function`: elementwise, of as many operands as the operator has; `name`: any text."""


class Algebra(Protocol):
    """What the meanings of core operators are made of.

    A digit counts elements along one dim; `digit + 1` is how many come before the next. An operand is read at a tuple
    of digits, one for each of its sizes. Everything else is a value of the algebra.
    """

    def number(self, value: Any, dtype: str) -> Any:
        """A number as a value."""
        ...

    def apply(self, fn: Any, *args: Any) -> Any:
        """An elementwise function."""
        ...

    def choose(self, condition: Any, this: Any, other: Any) -> Any:
        """`this` where a condition holds, else `other`."""
        ...

    def fold(self, fn: Any, count: Any, body: Callable[[Any], Any]) -> Any:
        """The reduction `fn` of body(0), ..., body(count - 1)."""
        ...

    def dot(self, count: Any, body: Callable[[Any], tuple[Any, Any]]) -> Any:
        """The sum of x * y over (x, y) = body(0), ..., body(count - 1).

        The last two digits of the result are the row and the column of a product: x has the same value in all columns,
        y in all rows.
        """
        ...

    def read(self, array: Any, layout: Any, at: Any) -> Any:
        """The element at one digit of an operand that is read through a layout."""
        ...

    def pick(self, count: Any, index: Any, body: Callable[[Any], Any]) -> Any:
        """body(index) for a value in [-count, count), negative ones counted from the end.

        The index varies along one digit of the result, and what it picks from does not.
        """
        ...

    def join(self, arrays: Sequence[Any], at: Any) -> Any:
        """The element at one digit of operands laid one after another."""
        ...

    def input(self, name: Any, size: Any, dtype: Any) -> Any:
        """An input."""
        ...

    def constant(self, digest: Any, size: Any, dtype: Any) -> Any:
        """A constant, by the digest of its values."""
        ...

    def call(self, key: Any, index: Any, args: Sequence[Any], size: Any, dtype: Any) -> Any:
        """A result of an operator that is carried, not understood."""
        ...


Meaning = Callable[[Algebra, Sequence[Any], Sequence[Any], Sequence[Any]], Any]
"""(algebra, digits of an element of the result, attributes, operands) to the element."""


class Attribute(NamedTuple):
    """An attribute of an operator."""

    name: str
    kind: Kind


class Shaped(NamedTuple):
    """An operand or result: its element type and its sizes, as named in the signature."""

    dtype: str
    sizes: tuple[str, ...]


class Signature(NamedTuple):
    """What an operator takes and gives. `variadic`: any number of the one operand."""

    operands: tuple[Shaped, ...]
    result: Shaped
    variadic: bool


def _signature(text: str) -> Signature:
    left, right = text.split("->")
    operands, (result,) = (
        tuple(Shaped(dtype, tuple(sizes.split())) for dtype, sizes in re.findall(r"([\w()*]+)\[([^\]]*)\]", side))
        for side in (left, right)
    )
    return Signature(operands, result, "..." in left)


Shape = tuple[int, ...]
_Count = Callable[[Sequence[Any], Sequence[int]], int]
"""(attributes, sizes of operands) to a number."""


@dataclass(frozen=True)
class CoreOp:
    """An operator of the core.

    Attributes:
        name: as in `Node.op`.
        spelled: attributes with their kinds, in order: `f:reduction C:int`.
        typed: what it takes and gives, as described above.
        meaning: the element of the result at given digits.
        phrase, plural: in words, as in `a matrix product`.
        work: arithmetic operations, as a product: `2 B M K N`.
        kinds: of the element types t that it computes with.
        check: raises ShapeError where attributes and sizes of operands don't fit that all agree with `typed`.
        folds: it is computed ahead of time where all operands are constant.
        shown: one e-node in a few words, from its attributes; else it is shown by its name.
    """

    name: str
    spelled: str
    typed: str
    meaning: Meaning
    phrase: str
    plural: str
    work: str = "0"
    kinds: str = "float int bool"
    check: Callable[[Sequence[Any], Sequence[int]], None] | None = None
    folds: bool = True
    shown: Callable[..., str] | None = None

    def label(self, *attrs: Any) -> str:
        """One e-node in a few words."""
        return self.shown(*attrs) if self.shown else self.name.lower()

    @cached_property
    def attrs(self) -> tuple[Attribute, ...]:
        return tuple(Attribute(*part.split(":")) for part in self.spelled.split())  # type: ignore[arg-type]

    @cached_property
    def signature(self) -> Signature:
        return _signature(self.typed)

    @cached_property
    def arity(self) -> int | None:
        """How many operands it takes; None: any number."""
        return None if self.signature.variadic else len(self.signature.operands)

    @cached_property
    def place(self) -> dict[str, int]:
        """Where each attribute stands."""
        return {attr.name: i for i, attr in enumerate(self.attrs)}

    def kind(self, name: str) -> Kind:
        """The kind of an attribute."""
        return self.attrs[self.place[name]].kind

    @cached_property
    def free(self) -> frozenset[str]:
        """Sizes that are no attributes: they follow from those of operands."""
        return frozenset(s for shape in self.signature.operands for s in shape.sizes) - self.place.keys()

    @cached_property
    def elementwise(self) -> bool:
        """Whether it computes each element from those of its operands at the same place."""
        _, result, variadic = self.signature
        shapes = {shape.sizes for shape in (*self.signature.operands, result)}
        return shapes == {result.sizes} and len(result.sizes) == 1 and result.sizes[0] in self.free and not variadic

    def sizes(self, attrs: Sequence[Any], sizes: Sequence[int]) -> dict[str, int]:
        """What the names of the signature stand for, for operands with these sizes.

        Raises:
            ShapeError: the operator takes no operands with these sizes.
        """
        known = {name: attrs[j].size if layout else attrs[j] for name, j, layout in self._numbers}
        if self.signature.variadic:
            return {self.signature.operands[0].sizes[0]: sum(sizes), **known}
        fits = len(sizes) == len(self._products)
        for (factors, missing), size in zip(self._products, sizes, strict=False):
            whole = 1
            for name in factors:
                whole *= known[name]
            if missing is None:
                fits &= whole == size
            elif whole <= 0 or size % whole:
                fits = False
            else:
                known[missing] = size // whole
        if not fits:
            raise ShapeError(f"{self.name} takes {self.typed}, got {', '.join(f'[{n}]' for n in sizes)}")
        return known

    @cached_property
    def _numbers(self) -> list[tuple[str, int, bool]]:
        """Attributes that are sizes: name, place, whether it is a layout."""
        return [(a.name, j, a.kind == "layout") for j, a in enumerate(self.attrs) if a.kind in ("int", "layout")]

    @cached_property
    def _products(self) -> list[tuple[tuple[str, ...], str | None]]:
        """For each operand the sizes that are known when it is looked at, and the one that follows from it."""
        known, found = set(self.place), []
        for shape in self.signature.operands:
            missing = next((name for name in shape.sizes if name not in known), None)
            found.append((tuple(name for name in shape.sizes if name in known), missing))
            known |= set(shape.sizes)
        return found

    def takes(self, attrs: Sequence[Any], sizes: Sequence[int], dtypes: Sequence[str]) -> bool:
        """Whether it takes operands with these sizes and types."""
        for j, table, casts in self._functions:
            if attrs[j] not in table and not (casts and attrs[j].startswith(CAST)):
                return False
        alike, fixed = self._types
        if len(alike) > 1 and len({dtypes[i] for i in alike}) > 1:
            return False
        if alike and self.signature.variadic and len(set(dtypes)) > 1:
            return False
        for i, allowed in fixed:
            if dtypes[i] not in allowed:
                return False
        if self.elementwise:
            return len(sizes) == self.arity and len(set(sizes)) == 1
        try:
            self.sizes(attrs, sizes)
        except ShapeError:
            return False
        if self.check is not None:
            self.check(attrs, sizes)
        return True

    def computes(self, attrs: Sequence[Any], dtypes: Sequence[str]) -> bool:
        """Whether programs have it of operands of these types, that it takes: a function has kinds of elements, as the
        laws of it do, and whole numbers have no reciprocal."""
        if self.function is None:
            return self.work == "0" or self.name == "Where" or kind_of(dtypes[self.typed_by]) in self.kinds.split()
        fn: str = attrs[self.place[self.function]]
        if fn.startswith(CAST):
            return {dtypes[0], fn.removeprefix(CAST)} <= _CONVERTED
        return kind_of(dtypes[0]) in (ELEMENTWISE.get(fn) or REDUCTIONS[fn]).kinds

    @cached_property
    def _functions(self) -> list[tuple[int, Mapping[str, Any], bool]]:
        """Attributes that name a function: place, the functions there are, whether conversions are among them."""
        tables = {"function": ELEMENTWISE, "reduction": REDUCTIONS}
        return [(j, tables[a.kind], a.kind == "function") for j, a in enumerate(self.attrs) if a.kind in tables]

    @cached_property
    def _types(self) -> tuple[list[int], list[tuple[int, tuple[str, ...]]]]:
        """The operands of type t, and those of a fixed type with the types that they may have."""
        types, fixed = [shape.dtype for shape in self.signature.operands], {"bool": ("bool",), "index": INTS}
        alike = [i for i, dtype in enumerate(types) if dtype == "t"]
        return alike, [(i, fixed[dtype]) for i, dtype in enumerate(types) if dtype in fixed]

    @cached_property
    def size(self) -> _Count:
        """The size of the result."""
        return self._product(self.signature.result.sizes)

    @cached_property
    def flops(self) -> _Count:
        """Arithmetic operations: 2 per multiply-add, 1 per element of other arithmetic, 0 for moved elements."""
        factor, *names = self.work.split() if self.work[0].isdigit() else ("1", *self.work.split())
        count, times = self._product(tuple(names)), int(factor)
        return lambda attrs, sizes: times * count(attrs, sizes)

    def same_size(self, names: Sequence[str]) -> int | None:
        """The operand whose size is the product of some sizes, where there is one."""
        shapes = [] if self.signature.variadic else self.signature.operands
        return next((i for i, shape in enumerate(shapes) if Counter(shape.sizes) == Counter(names)), None)

    def _product(self, names: Sequence[str]) -> _Count:
        """The product of some sizes, from attributes and the sizes of operands."""
        same = self.same_size(names)
        if same is not None:
            return lambda attrs, sizes: sizes[same]
        factors = [self._number(name) for name in names]
        return factors[0] if len(factors) == 1 else lambda attrs, sizes: prod([f(attrs, sizes) for f in factors])

    def _number(self, name: str) -> _Count:
        if name in self.place:
            j = self.place[name]
            return (
                (lambda attrs, sizes: attrs[j].size) if self.kind(name) == "layout" else lambda attrs, sizes: attrs[j]
            )
        if self.signature.variadic:
            return lambda attrs, sizes: sum(sizes)
        i, known = self.source_of(name)
        divisors = [self.place[other] for other in known]
        return lambda attrs, sizes: sizes[i] // prod([attrs[j] for j in divisors])

    def source_of(self, name: str) -> tuple[int, tuple[str, ...]]:
        """The operand whose size gives a free size, and the attributes that it is divided by."""
        for i, shape in enumerate(self.signature.operands):
            if name in shape.sizes:
                return i, tuple(other for other in shape.sizes if other != name)
        raise KeyError(name)

    @cached_property
    def dtype(self) -> Callable[[Sequence[Any], Sequence[str]], str]:
        """The element type of the result, from attributes and the types of operands."""
        wanted = self.signature.result.dtype
        if wanted in self.place:
            j = self.place[wanted]
            return lambda attrs, dtypes: attrs[j]
        first = self.typed_by
        if (function := self.function) is None:
            return lambda attrs, dtypes: dtypes[first]
        j = self.place[function]
        return lambda attrs, dtypes: result_dtype(attrs[j]) or dtypes[first]

    @property
    def typed_by(self) -> int:
        """The operand whose element type is the `t` of the signature."""
        return next(i for i, shape in enumerate(self.signature.operands) if shape.dtype == "t")

    @cached_property
    def function(self) -> str | None:
        """The attribute that decides the element type of the result, where one does."""
        found = re.fullmatch(r"(\w+)\(t\)", self.signature.result.dtype)
        return found and found[1]


def without_batch(shape: Shape) -> Shape:
    """Three dims or more without a leading batch of one."""
    return shape[1:] if len(shape) > 2 and shape[0] == 1 else shape


def result_dtype(fn: str) -> str | None:
    """The dtype that a function or reduction gives whatever it takes; None where it keeps that of its operand."""
    if fn.startswith(CAST):
        return fn.removeprefix(CAST)
    row = ELEMENTWISE.get(fn) or REDUCTIONS.get(fn)
    return row.result if row else None


# Meanings. `at` are the digits of an element of the result.


def _apply(alg: Algebra, at: Sequence[Any], attrs: Sequence[Any], args: Sequence[Any]) -> Any:
    return alg.apply(attrs[0], *[a[at] for a in args])


def _product(alg: Algebra, at: Sequence[Any], attrs: Sequence[Any], args: Sequence[Any]) -> Any:
    (b, m, n), (x, y) = at, args
    return alg.dot(attrs[2], lambda k: (x[b, m, k], y[b, k, n]))


def _reduction(alg: Algebra, at: Sequence[Any], attrs: Sequence[Any], args: Sequence[Any]) -> Any:
    return alg.fold(attrs[0], attrs[1], lambda c: args[0][at[0], c])


def _gather(alg: Algebra, at: Sequence[Any], attrs: Sequence[Any], args: Sequence[Any]) -> Any:
    (o, j, i), (x, index) = at, args
    return alg.pick(attrs[1], index[(j,)], lambda n: x[o, n, i])


def _carried(alg: Algebra, at: Sequence[Any], attrs: Sequence[Any], args: Sequence[Any]) -> Any:
    key, index, size, dtype = attrs
    return alg.call(key, index, args, size, dtype)


@lru_cache(maxsize=1 << 14)
def _reads_inside(layout: Layout, n_in: int) -> None:
    if not layout.masked and layout.size:
        least, most = layout.reach
        if least < 0 or most >= n_in:
            raise ShapeError(f"V({layout.key()}) reads {least} to {most} of an array of {n_in}")


def _of_product(batch: int, m: int, k: int, n: int) -> str:
    return f"matmul {f'{batch}x' if batch > 1 else ''}{m}x{k}x{n}"


# fmt: off
_ROWS = (
    CoreOp("In", "name:name size:int dtype:dtype", "-> dtype[size]",
           lambda alg, at, attrs, args: alg.input(*attrs),
           "an input", "inputs", folds=False, shown=lambda name, *_: name[:12]),
    CoreOp("Const", "digest:name size:int dtype:dtype", "-> dtype[size]",
           lambda alg, at, attrs, args: alg.constant(*attrs),
           "a constant", "constants", shown=lambda digest, *_: digest[:12]),
    CoreOp("Full", "value:value size:int dtype:dtype", "-> dtype[size]",
           lambda alg, at, attrs, args: alg.number(attrs[0], attrs[2]),
           "one value everywhere", "numbers", shown=lambda value, *_: f"{value:g}"),
    CoreOp("Un", "f:function", "t[S] -> f(t)[S]", _apply,
           "a function of one array", "functions of one array", work="S", shown=str),
    CoreOp("Bin", "f:function", "t[S], t[S] -> f(t)[S]", _apply,
           "an elementwise operator", "elementwise operators of two arrays", work="S", shown=str),
    CoreOp("Where", "", "bool[S], t[S], t[S] -> t[S]",
           lambda alg, at, attrs, args: alg.choose(*(a[at] for a in args)),
           "a where", "wheres", work="S"),
    CoreOp("MM", "B:int M:int K:int N:int", "t[B M K], t[B K N] -> t[B M N]", _product,
           "a matrix product", "matrix products", work="2 B M K N", kinds="float int", shown=_of_product),
    CoreOp("Red", "f:reduction C:int", "t[R C] -> f(t)[R]", _reduction,
           "a reduction", "reductions", work="R C", shown=lambda f, c: f"{f} over {c}"),
    CoreOp("V", "L:layout", "t[X] -> t[L]",
           lambda alg, at, attrs, args: alg.read(args[0], attrs[0], at[0]),
           "a view (slice, transpose, broadcast, pad)", "views",
           check=lambda attrs, sizes: _reads_inside(attrs[0], sizes[0])),
    CoreOp("Gather", "O:int N:int I:int", "t[O N I], index[J] -> t[O J I]", _gather,
           "a take", "takes", shown=lambda *_: "take"),
    CoreOp("Cat", "", "t[S]... -> t[S]",
           lambda alg, at, attrs, args: alg.join(args, at[0]),
           "a concatenation", "concatenations", shown=lambda: "concat"),
    CoreOp("Opaque", "key:name index:int size:int dtype:dtype", "*[S]... -> dtype[size]", _carried,
           "an operator that is carried unread", "operators that are carried unread", folds=False),
)
# fmt: on

CORE: dict[str, CoreOp] = {row.name: row for row in _ROWS}
"""The operators of the core, in the order in which e-graphs list them."""


def core_op(name: str) -> CoreOp:
    """The row of an operator.

    Raises:
        ShapeError: the core has no such operator.
    """
    try:
        return CORE[name]
    except KeyError:
        raise ShapeError(f"the core has no operator {name!r}") from None
