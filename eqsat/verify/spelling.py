"""How constants are computed, element by element: two are equal, whatever is stored, where each element is the same
polynomial of the same stored elements and numbers, and of the same functions of such.

This is seen at random places of two prime fields. A stored element is a random residue, and so is any function of
elements that is no polynomial: a hash of its name and of its operands, which are in no order where it commutes. Whole
numbers and simple fractions are what they are. Different polynomials agree with a chance of 2**-24 at most in each
field: their degrees and coefficients are bounded, beyond which a sum or product is a function as any other
(J. T. Schwartz, "Fast probabilistic algorithms for verification of polynomial identities", 1980). Fields and places are
drawn anew for each check, so that no certificate can know of them. Only integers and truth values, which say where
elements are read, are computed.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from eqsat.base.graphs import last_reads, operands_first
from eqsat.base.numerics import Array, cast, elementwise, is_float, np_dtype, take
from eqsat.base.numerics import reduce as reduce_array
from eqsat.errors import CheckFailed
from eqsat.language.table_values import fraction_of
from eqsat.program.core_table import CAST, result_dtype
from eqsat.program.evaluation import Arrays, Operand
from eqsat.program.node import Node, make

_BITS = 31
"""Of a residue: products of two fit in 64."""

_NUMBER_BITS = 64
"""Of a number that is no random residue."""

_DEGREE, _COEFFICIENTS = 64, 1 << 12
"""Most of a polynomial: its degree, and the bits of the sum of its coefficients."""

_MOST_ADDED = 1 << 21
"""Products of halves of residues that float64 adds up exactly."""

_WHOLE, _NUMERATOR, _DENOMINATOR = 2.0**53, 4, 1 << 20
"""Most of a whole number, and of a simple fraction."""

_COMMUTE = frozenset({"min", "max"})
_REDUCED = frozenset({"prod", "min", "max"})


class _Value(NamedTuple):
    """An array: of residues where its type is a float, else of values. Polynomials have this degree and so many bits
    of coefficients at most."""

    dtype: str
    array: Array
    degree: int = 1
    bits: int = 1

    @property
    def spelled(self) -> bool:
        return is_float(self.dtype)


class Spelling(NamedTuple):
    """Residues in both fields, as one number for each element, and the bounds of their polynomials."""

    array: Array
    degree: int
    bits: int


def simple(value: float, dtype: str) -> Fraction | None:
    """What a number is that is whole, or a fraction such as 1/768 or 0.3; None for others, which may be rounded."""
    found = fraction_of(value, dtype)
    if found is None or abs(value) > _WHOLE:
        return None
    few = abs(found.numerator) <= _NUMERATOR and found.denominator <= _DENOMINATOR
    return found if few or found.denominator == 1 else None


def number_of(node: Node) -> Node:
    """The number that an array of one number repeats."""
    return make("Full", (node.attrs[0], 1, node.dtype))


class Spellings:
    """The spellings of constants.

    Attributes:
        given: spellings of stored constants, and of numbers (`number_of`), that were given to them.
        filled: numbers that views fill in, as they are.
    """

    def __init__(self, values: Mapping[str, Array]) -> None:
        self.given: dict[Node, Spelling] = {}
        self.filled: set[Node] = set()
        self._fields = [_Field(values, self.filled) for _ in range(2)]

    def spelled(self, root: Node) -> Spelling:
        """The spelling of each element; of integers and truth values, what they are.

        Raises:
            CheckFailed: it reads an input, or a float decides an integer or a truth value on the way.
        """
        one, other = (
            field.spelled(root, partial(self._given, np.uint64(i * _BITS))) for i, field in enumerate(self._fields)
        )
        array = one.array | other.array << np.uint64(_BITS) if one.spelled else one.array
        return Spelling(array, one.degree, one.bits)

    def _given(self, shift: np.uint64, node: Node) -> _Value | None:
        """What was given to a node, in one field."""
        if node.op not in ("Const", "Full") or not is_float(node.dtype):
            return None
        own = self.given.get(node if node.op == "Const" else number_of(node))
        if own is None:
            return None
        residues = own.array >> shift & np.uint64((1 << _BITS) - 1)
        return _Value(node.dtype, np.broadcast_to(residues, node.size), own.degree, own.bits)


class _Field(Arrays[_Value]):
    """Residues modulo a random prime."""

    def __init__(self, values: Mapping[str, Array], filled: set[Node]) -> None:
        self._prime = np.uint64(_random_prime())
        self._values, self._filled = values, filled
        self._keys: dict[Any, np.uint64] = {}

    def spelled(self, root: Node, given: Callable[[Node], _Value | None]) -> _Value:
        known: dict[Node, _Value] = {}
        with np.errstate(all="ignore"):
            for node, done in last_reads(operands_first([root]), [root]):
                known[node] = given(node) or self.of(node.op, node.attrs, [known[a] for a in node.args])
                for arg in done:
                    del known[arg]
        return known[root]

    def _key(self, *name: Any) -> np.uint64:
        if name not in self._keys:
            self._keys[name] = np.uint64(secrets.randbits(64))
        return self._keys[name]

    def _hashed(self, array: Array, *name: Any) -> Array:
        return _mixed(array.astype(np.uint64, copy=False) ^ self._key(*name)) % self._prime

    def _function(self, dtype: str, name: str, operands: Sequence[Array], commutes: bool = False) -> _Value:
        sides = [_mixed(x ^ self._key(name, 0 if commutes else i)) for i, x in enumerate(operands)]
        return _Value(dtype, self._hashed(reduce(np.add, sides), name))

    def _polynomial(self, dtype: str, array: Array, degree: int, bits: int) -> _Value:
        if degree > _DEGREE or bits > _COEFFICIENTS:
            return self._function(dtype, "large", [array])
        return _Value(dtype, array, degree, bits)

    # --- the algebra

    def parts(self, value: _Value) -> tuple[Array, ...]:
        return (value.array,)

    def like(self, value: _Value, parts: Sequence[Array]) -> _Value:
        return value._replace(array=parts[0])

    def moved(self, move: Callable[..., Array], *values: _Value) -> _Value:
        degree, bits = max(v.degree for v in values), max(v.bits for v in values)
        return _Value(values[0].dtype, move(*(v.array for v in values)), degree, bits)

    def dtype_of(self, value: _Value) -> str:
        return value.dtype

    def number(self, value: Any, dtype: str) -> _Value:
        array = np.asarray(value, np_dtype(dtype))
        if not is_float(dtype):
            return _Value(dtype, array)
        known, prime = simple(array.item(), dtype), int(self._prime)
        if known is None:
            bits = np.asarray(array.item(), np.float64).view(np.uint64)
            return _Value(dtype, self._hashed(bits, "number", dtype))
        residue = known.numerator * pow(known.denominator, -1, prime) % prime
        return _Value(dtype, np.asarray(residue, np.uint64), 1, _NUMBER_BITS)

    def fill(self, value: Any, dtype: str) -> _Value:
        if is_float(dtype):
            self._filled.add(make("Full", (value, 1, dtype)))
        return self.number(value, dtype)

    def constant(self, digest: str, size: int, dtype: str) -> _Value:
        if not is_float(dtype):
            return _Value(dtype, self._values[digest].reshape(-1))
        return _Value(dtype, self._hashed(_mixed(np.arange(size, dtype=np.uint64)), "stored", digest, dtype))

    def elementwise(self, fn: str, *args: _Value) -> _Value:
        if not any(a.spelled for a in args):
            if not fn.startswith(CAST):
                found = elementwise(fn, *(a.array for a in args))
                return _Value(str(found.dtype), found)
            dtype, array = fn.removeprefix(CAST), args[0].array
            if not is_float(dtype):
                return _Value(dtype, cast(array, dtype))
            wide = array if array.dtype == np.uint64 else array.astype(np.int64)  # int64 does not hold all of uint64
            return _Value(dtype, (wide % wide.dtype.type(self._prime)).astype(np.uint64), 1, _NUMBER_BITS)
        dtype = result_dtype(fn) or args[0].dtype
        if not is_float(dtype):
            raise CheckFailed("a float decides an integer or a truth value on the way")
        match fn, args:
            case "neg", (a,):
                return a._replace(array=(self._prime - a.array) % self._prime)
            case "add", (a, b):
                return self._sum(a, b)
            case "sub", (a, b):
                return self._sum(a, self.elementwise("neg", b))
            case "mul", (a, b):
                return self._product(a, b)
            case "div", (a, b):
                return self._product(a, self._function(dtype, "reciprocal", [b.array]))
        return self._function(dtype, fn, [a.array for a in args], fn in _COMMUTE)

    def _sum(self, a: _Value, b: _Value) -> _Value:
        degree, bits = max(a.degree, b.degree), max(a.bits, b.bits) + 1
        return self._polynomial(a.dtype, (a.array + b.array) % self._prime, degree, bits)

    def _product(self, a: _Value, b: _Value) -> _Value:
        return self._polynomial(a.dtype, a.array * b.array % self._prime, a.degree + b.degree, a.bits + b.bits)

    def where(self, condition: _Value, this: _Value, other: _Value) -> _Value:
        return self.moved(lambda x, y: np.where(condition.array, x, y), this, other)

    def reduce(self, fn: str, values: _Value) -> _Value:
        if not values.spelled:
            found = reduce_array(fn, values.array, (values.array.ndim - 1,), False)
            return _Value(str(found.dtype), found)
        if fn == "sum":
            bits = values.bits + values.array.shape[-1].bit_length()
            total = values.array.sum(-1, dtype=np.uint64) % self._prime
            return self._polynomial(values.dtype, total, values.degree, bits)
        if fn not in _REDUCED:
            raise CheckFailed("a float decides an integer or a truth value on the way")
        each = _mixed(values.array ^ self._key(fn, "element")).sum(-1, dtype=np.uint64)
        return self._function(values.dtype, fn, [each])

    def matmul(self, left: _Value, right: _Value) -> _Value:
        if not left.spelled:
            return left._replace(array=np.matmul(left.array, right.array))
        inner = left.array.shape[-1]
        if inner > _MOST_ADDED:
            raise CheckFailed(f"a product adds up more than {_MOST_ADDED} elements")
        half = np.uint64(16)
        (a, b), (c, d) = (
            ((x.array >> half).astype(np.float64), (x.array & np.uint64(0xFFFF)).astype(np.float64))
            for x in (left, right)
        )
        high, low = (self._residues(x) for x in (a @ c, b @ d))
        middle = self._residues(a @ d) + self._residues(b @ c)
        total = ((high << half) % self._prime + middle) % self._prime
        total = ((total << half) % self._prime + low) % self._prime
        bits = left.bits + right.bits + inner.bit_length()
        return self._polynomial(left.dtype, total, left.degree + right.degree, bits)

    def _residues(self, whole: Array) -> Array:
        return whole.astype(np.uint64) % self._prime

    def take(self, values: _Value, index: _Value, axis: int) -> _Value:
        return values._replace(array=take(values.array, index.array, axis))

    def input(self, name: str, size: int, dtype: str) -> _Value:
        raise CheckFailed("it reads an input")

    def call(self, key: str, index: int, args: Sequence[Operand[_Value]], size: int, dtype: str) -> _Value:
        raise CheckFailed("it reads an input")


def _mixed(x: Array) -> Array:
    """A bijection of numbers of 64 bits that leaves no pattern (`splitmix64`, G. Steele, D. Lea, C. Flood, 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _random_prime() -> int:
    """A prime of `_BITS` bits."""
    while True:
        drawn = secrets.randbits(_BITS - 2) << 1 | 1 << (_BITS - 1) | 1
        if all(drawn % d for d in range(3, math.isqrt(drawn) + 1, 2)):
            return drawn
