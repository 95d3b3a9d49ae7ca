"""How constants are computed, element by element: two of them are equal, whatever the stored ones are, where each
element is the same function of the same stored elements.

Every stored element gets a random number of 64 bits, and so does every function of elements: a hash of its name and its
operands, which are in no order where it commutes. A factor of one and an addend of zero are left
out. Equal numbers mean the same spelling; others collide with a chance of
about 2**-64, which no certificate can know of, since the numbers are drawn anew for each check. Only integers and truth
values, which say where elements are read, are computed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from eqsat.base.graphs import last_reads, operands_first
from eqsat.base.numerics import Array, cast, elementwise, is_float, np_dtype, take
from eqsat.base.numerics import reduce as reduce_array
from eqsat.errors import CheckFailed
from eqsat.program.core_table import CAST, result_dtype
from eqsat.program.evaluation import Arrays, Operand
from eqsat.program.node import Node, make

_COMMUTE = frozenset({"add", "mul", "min", "max"})
_UNITS = {"add": 0.0, "mul": 1.0}
"""What leaves the other operand as it is."""

_REDUCED = frozenset({"sum", "prod", "min", "max"})


class _Value(NamedTuple):
    """An array: of spellings where its type is a float, else of values."""

    dtype: str
    array: Array

    @property
    def spelled(self) -> bool:
        return is_float(self.dtype)


def number_of(node: Node) -> Node:
    """The number that an array of one number repeats."""
    return make("Full", (node.attrs[0], 1, node.dtype))


class Spellings(Arrays[_Value]):
    """The spellings of constants.

    Attributes:
        given: spellings of stored constants, and of numbers (`number_of`), that were given to them.
        filled: numbers that views fill in, as they are.
    """

    def __init__(self, values: Mapping[str, Array]) -> None:
        self.given: dict[Node, Array] = {}
        self.filled: set[Node] = set()
        self._values = values
        self._keys: dict[Any, np.uint64] = {}

    def spelled(self, root: Node) -> Array:
        """The spelling of each element.

        Raises:
            CheckFailed: it reads an input, or a float decides an integer or a truth value on the way.
        """
        known: dict[Node, _Value] = {}
        with np.errstate(all="ignore"):
            for node, done in last_reads(operands_first([root]), [root]):
                known[node] = self._stored(node) or self.of(node.op, node.attrs, [known[a] for a in node.args])
                for arg in done:
                    del known[arg]
        return known[root].array

    def _stored(self, node: Node) -> _Value | None:
        if node.op == "Const" and node in self.given:
            return _Value(node.dtype, self.given[node])
        if node.op == "Full" and is_float(node.dtype) and (own := self.given.get(number_of(node))) is not None:
            return _Value(node.dtype, np.broadcast_to(own, node.size))
        return None

    def _key(self, *name: Any) -> np.uint64:
        if name not in self._keys:
            self._keys[name] = np.uint64(secrets.randbits(64))
        return self._keys[name]

    def _function(self, dtype: str, name: Any, operands: Sequence[Array], commutes: bool) -> _Value:
        sides = [_mixed(x ^ self._key(name, 0 if commutes else i)) for i, x in enumerate(operands)]
        return _Value(dtype, _mixed(reduce(np.add, sides) ^ self._key(name)))

    # --- the algebra

    def parts(self, value: _Value) -> tuple[Array, ...]:
        return (value.array,)

    def like(self, value: _Value, parts: Sequence[Array]) -> _Value:
        return _Value(value.dtype, parts[0])

    def dtype_of(self, value: _Value) -> str:
        return value.dtype

    def number(self, value: Any, dtype: str) -> _Value:
        array = np.asarray(value, np_dtype(dtype))
        return self._numbers(array, dtype) if is_float(dtype) else _Value(dtype, array)

    def fill(self, value: Any, dtype: str) -> _Value:
        if is_float(dtype):
            self.filled.add(make("Full", (value, 1, dtype)))
        return self.number(value, dtype)

    def _numbers(self, array: Array, dtype: str) -> _Value:
        bits = (array.astype(np.float64) + 0.0).view(np.uint64)  # zeros have one sign
        return _Value(dtype, _mixed(bits ^ self._key("number", dtype)))

    def constant(self, digest: str, size: int, dtype: str) -> _Value:
        if not is_float(dtype):
            return _Value(dtype, self._values[digest].reshape(-1))
        return _Value(dtype, _mixed(np.arange(size, dtype=np.uint64) ^ self._key("stored", digest, dtype)))

    def elementwise(self, fn: str, *args: _Value) -> _Value:
        if not any(a.spelled for a in args):
            if not fn.startswith(CAST):
                found = elementwise(fn, *(a.array for a in args))
                return _Value(str(found.dtype), found)
            dtype, array = fn.removeprefix(CAST), args[0].array
            return self._numbers(array, dtype) if is_float(dtype) else _Value(dtype, cast(array, dtype))
        dtype = result_dtype(fn) or args[0].dtype
        if not is_float(dtype):
            raise CheckFailed("a float decides an integer or a truth value on the way")
        found = self._function(dtype, fn, [a.array for a in args], fn in _COMMUTE)
        if fn not in _UNITS:
            return found
        (one, other), unit = args, self.number(_UNITS[fn], dtype).array
        kept = np.where(one.array == unit, other.array, np.where(other.array == unit, one.array, found.array))
        return _Value(dtype, kept)

    def where(self, condition: _Value, this: _Value, other: _Value) -> _Value:
        return _Value(this.dtype, np.where(condition.array, this.array, other.array))

    def reduce(self, fn: str, values: _Value) -> _Value:
        if not values.spelled:
            found = reduce_array(fn, values.array, (values.array.ndim - 1,), False)
            return _Value(str(found.dtype), found)
        if fn not in _REDUCED:
            raise CheckFailed("a float decides an integer or a truth value on the way")
        each = _mixed(values.array ^ self._key(fn, "element")).sum(-1, dtype=np.uint64)
        return _Value(values.dtype, _mixed(each ^ self._key(fn, "reduced")))

    def matmul(self, left: _Value, right: _Value) -> _Value:
        total = np.zeros((*left.array.shape[:-1], right.array.shape[-1]), np.uint64)
        for k in range(left.array.shape[-1]):
            total += self._function(
                left.dtype, "mul", [left.array[..., k, None], right.array[..., k, None, :]], True
            ).array
        return _Value(left.dtype, _mixed(total ^ self._key("product")))

    def take(self, values: _Value, index: _Value, axis: int) -> _Value:
        return _Value(values.dtype, take(values.array, index.array, axis))

    def input(self, name: str, size: int, dtype: str) -> _Value:
        raise CheckFailed("it reads an input")

    def call(self, key: str, index: int, args: Sequence[Operand[_Value]], size: int, dtype: str) -> _Value:
        raise CheckFailed("it reads an input")


def _mixed(x: Array) -> Array:
    """A bijection of numbers of 64 bits that leaves no pattern (`splitmix64`, G. Steele, D. Lea, C. Flood, 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
