"""Programs element by element: every output element as a scalar expression in normal form.

Views, concatenations, windows and masks become index maps, and matrix products become sums of products. Two programs
whose elements have equal normal forms are therefore equal over the reals for these shapes, however they are written.
Nothing is sampled: the elements of inputs are symbols.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eqsat.base.numerics import FLOATS, INTS, STORED, is_integer, itemsize, np_dtype
from eqsat.program.core import CAST, Node, result_dtype, topological
from eqsat.program.evaluation import Arrays, Operand
from eqsat.proof.normal_form.assumptions import Bounds
from eqsat.proof.normal_form.cases import Cases
from eqsat.proof.normal_form.functions import Functions
from eqsat.proof.normal_form.scalars import Beyond

_MOST_ELEMENTS = 60_000
_MOST_WORK = 40_000_000
_TICKS = 4096
_RING = frozenset({"add", "sub", "mul", "pow", "neg", "sum", "prod"})
_NO_OVERFLOW = "integers that do not overflow"
_MOST_CHOICES = 64
"""Elements among which an unknown index is written out as a choice."""

_UNBOUNDED_SHARE = 0.25
"""Of the time, for cases without bounds before those with bounds."""

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Agreement:
    """What comparing element by element showed.

    Attributes:
        equal: every pair of roots has equal elements.
        elements: how many output elements were compared.
        laws: what was used beyond commuting, associating and distributing.
        sample: the normal form of the first element.
        reason: why nothing was shown, where `equal` is False: a difference, or what the normal form cannot hold.
    """

    equal: bool
    elements: int
    laws: tuple[str, ...] = ()
    sample: str = ""
    reason: str = ""


def compare(
    left: Sequence[Node],
    right: Sequence[Node],
    constants: Mapping[str, Array],
    seconds: float,
    bounds: Mapping[str, Bounds] | None = None,
) -> Agreement:
    """Whether two lists of core nodes have equal elements, by normal forms; gives up after `seconds`.

    `bounds` are those of inputs, by name. What is equal without them is equal within them, and often has fewer cases:
    an index within bounds is a comparison with each number there.
    """
    begun = time.monotonic()

    def compared(cases: bool, share: float, known: Mapping[str, Bounds] | None) -> Agreement:
        return _compare(left, right, Elements(constants, begun + share * seconds, cases, known))

    found = compared(False, 1.0, bounds)
    for share, known in ((_UNBOUNDED_SHARE, None), (1.0, bounds)) if bounds else ((1.0, None),):
        if found.equal or time.monotonic() > begun + seconds:
            break
        found = compared(True, share, known)
    return found


def _compare(left: Sequence[Node], right: Sequence[Node], elements: Elements) -> Agreement:
    count = 0
    equal = Cases(elements.scalars).equal if elements.scalars.cases else elements.scalars.equal
    try:
        values = elements.values([*left, *right])
        for a, b in zip(left, right, strict=True):
            for x, y in dict.fromkeys(zip(values[a].tolist(), values[b].tolist(), strict=True)):
                if not equal(x, y):
                    return Agreement(False, count, reason="the normal forms of an element differ")
            count += a.size
    except Beyond as error:
        return Agreement(False, 0, reason=str(error))
    first = next((int(values[a][0]) for a in left if a.size), elements.scalars.zero)
    return Agreement(True, count, tuple(sorted(elements.scalars.laws)), elements.scalars.text(first))


class Typed(NamedTuple):
    """Expression numbers, and the element type of what they stand for."""

    ids: Array
    dtype: str


class Elements(Arrays[Typed]):
    """The value of each node: an array of expression numbers."""

    def __init__(
        self,
        constants: Mapping[str, Array],
        deadline: float,
        cases: bool = False,
        bounds: Mapping[str, Bounds] | None = None,
    ) -> None:
        self.bounds = bounds or {}
        self.scalars = Functions(self._tick, cases)
        self.scalars.bounds = self.bounds
        self._constants = constants
        self._deadline = deadline
        self._work = self._since = 0
        self._integral: set[bool] = set()

    def _tick(self, work: int) -> None:
        self._work += work
        self._since += work + 1
        if self._since > _TICKS:
            self._since = 0
            if time.monotonic() > self._deadline or self._work > _MOST_WORK:
                raise Beyond("the normal form takes too long")

    def values(self, roots: Sequence[Node]) -> dict[Node, Array]:
        """Every node below the roots, evaluated."""
        values: dict[Node, Array] = {}
        for node in topological(roots):
            if node.size > _MOST_ELEMENTS:
                raise Beyond("too many elements to go through one by one")
            values[node] = self.of(node.op, node.attrs, [Typed(values[a], a.dtype) for a in node.args]).ids
        if len(self._integral) > 1:
            self.scalars.laws.add(_NO_OVERFLOW)
        return values

    def parts(self, value: Typed) -> tuple[Array, ...]:
        return (value.ids,)

    def like(self, value: Typed, parts: Sequence[Array]) -> Typed:
        return Typed(parts[0], value.dtype)

    def dtype_of(self, value: Typed) -> str:
        return value.dtype

    def input(self, name: str, size: int, dtype: str) -> Typed:
        atom = self.scalars.atom
        positive = name in self.bounds and self.bounds[name].low >= 0
        kinds = {"boolean": dtype == "bool", "whole": is_integer(dtype), "nonnegative": positive}
        return Typed(np.array([atom("in", name, i, **kinds) for i in range(size)], dtype=np.int64), dtype)

    def constant(self, digest: str, size: int, dtype: str) -> Typed:
        if digest not in self._constants:
            raise Beyond("an unknown constant")
        single, values = dtype != "float64", self._constants[digest].astype(_kind(dtype))
        return Typed(self._each(lambda v: self.scalars.number(v, single), [values]), dtype)

    def number(self, value: Any, dtype: str) -> Typed:
        python = float(value) if _fractional(dtype) else int(value or 0)
        return Typed(np.asarray(self.scalars.number(python, dtype != "float64"), dtype=np.int64), dtype)

    def _notice(self, fn: str, dtype: str) -> None:
        """Note what is done to integers.

        Sums and products are the same whether integers wrap around or not; comparisons, quotients and maxima are not.
        Where there are both, that nothing overflows is assumed.
        """
        if dtype in INTS:
            self._integral.add(fn in _RING)

    def _each(self, fn: Any, operands: Sequence[Array]) -> Array:
        """`fn` of each distinct tuple of operands."""
        spread = np.broadcast_arrays(*operands)
        keys = list(zip(*(a.reshape(-1).tolist() for a in spread), strict=True))
        known = {key: fn(*key) for key in dict.fromkeys(keys)}
        return np.array([known[key] for key in keys], dtype=np.int64).reshape(spread[0].shape)

    def elementwise(self, fn: str, *args: Typed) -> Typed:
        dtype = result_dtype(fn) or args[0].dtype
        operands = [a.ids for a in args]
        self._notice(fn, args[0].dtype)
        if fn.startswith(CAST):
            return Typed(self._cast(args[0], dtype), dtype)
        if len(args) == 1:
            return Typed(self._each(lambda x: self.scalars.unary(fn, x), operands), dtype)
        integral = args[0].dtype not in FLOATS
        if fn == "equal" and args[0].dtype == "bool":
            return Typed(self._each(self.scalars.same, operands), dtype)
        if fn in ("max", "min") and integral:
            operands = [self._bounded(fn, dtype, a) for a in operands]
        return Typed(self._each(lambda x, y: self.scalars.binary(fn, x, y, integral), operands), dtype)

    def _cast(self, a: Typed, target: str) -> Array:
        scalars = self.scalars
        if target in STORED and a.dtype != target:
            raise Beyond("a cast to integers that wrap around")
        if target in FLOATS or a.dtype in (target, "bool"):
            return a.ids  # numbers keep their value over the reals
        if target == "bool":
            return self._each(lambda x: scalars.unary("not", scalars.binary("equal", x, scalars.zero)), [a.ids])
        if a.dtype in INTS and itemsize(target) < itemsize(a.dtype):
            scalars.laws.add(_NO_OVERFLOW)
        return self._each(lambda x: scalars.unary("trunc", x), [a.ids])

    def _bounded(self, fn: str, dtype: str, a: Array) -> Array:
        """Integers with that at the end of their range as the infinity that it is for a maximum or minimum."""
        info = np.iinfo(np_dtype(dtype))
        end, infinity = (info.min, -math.inf) if fn == "max" else (info.max, math.inf)
        return np.where(a == self.scalars.number(int(end)), self.scalars.number(infinity), a)

    def where(self, condition: Typed, this: Typed, other: Typed) -> Typed:
        return Typed(self._each(self.scalars.choice, [condition.ids, this.ids, other.ids]), this.dtype)

    def matmul(self, left: Typed, right: Typed) -> Typed:
        self._notice("sum", left.dtype)
        rows, columns = left.ids.tolist(), right.ids.transpose(0, 2, 1).tolist()
        dot, shape = self.scalars.dot, (*left.ids.shape[:2], right.ids.shape[2])
        found = [dot(row, column) for i in range(shape[0]) for row in rows[i] for column in columns[i]]
        return Typed(np.array(found, dtype=np.int64).reshape(shape), left.dtype)

    def reduce(self, fn: str, values: Typed) -> Typed:
        scalars, shape = self.scalars, values.ids.shape
        reduce = {
            "sum": scalars.total,
            "max": scalars.largest,
            "min": scalars.smallest,
            "prod": self._product,
            "argmax": scalars.position_of_largest,
            "argmin": lambda row: scalars.position_of_largest([scalars.scaled(e, -1) for e in row]),
        }[fn]
        ids, dtype = values
        self._notice(fn, dtype)
        if fn in ("max", "min") and dtype in INTS:
            ids = self._bounded(fn, dtype, ids)
        found = [reduce(row) for row in ids.reshape(prod(shape[:-1]), shape[-1]).tolist()]
        return Typed(np.array(found, dtype=np.int64).reshape(shape[:-1]), result_dtype(fn) or dtype)

    def _product(self, row: Sequence[int]) -> int:
        result = self.scalars.one
        for e in row:
            result = self.scalars.product(result, e)
        return result

    def take(self, values: Typed, index: Typed, axis: int) -> Typed:
        rows = np.moveaxis(values.ids, axis, 0)
        at = {i: self.scalars.constant(i) for i in index.ids.tolist()}
        if None in at.values():
            found = [self._picked(rows, i) for i in index.ids.tolist()]
        else:
            found = [rows[int(at[i] or 0) % len(rows)] for i in index.ids.tolist()]
        taken = np.array(found, dtype=np.int64).reshape(len(found), *rows.shape[1:])
        return Typed(np.moveaxis(taken, 0, axis), values.dtype)

    def _picked(self, rows: Array, index: int) -> Array:
        """rows[index] for an index that is no constant."""
        scalars, columns = self.scalars, rows.reshape(len(rows), -1).T.tolist()
        if len(rows) > _MOST_CHOICES:
            picked = [scalars.atom("pick", index, tuple(column)) for column in columns]
        else:
            chosen = [self._chosen(index, len(rows), k) for k in range(len(rows))]
            picked = [scalars.dot(chosen, column) for column in columns]
        return np.array(picked, dtype=np.int64).reshape(rows.shape[1:])

    def _chosen(self, index: int, count: int, k: int) -> int:
        """Whether an index is the k-th: one or two comparisons where it is known to be in range, else a symbol."""
        scalars = self.scalars
        at = scalars.condition(index)
        if at is not None:
            return scalars.split(index, at, lambda e: self._chosen(e, count, k))
        low, high, _ = scalars.range_of(index)
        if low < -count or high >= count:
            return scalars.chosen(index, count, k)
        same = [scalars.null(index, scalars.number(at)) for at in (k, k - count) if low <= at <= high]
        return scalars.total(same)

    def call(self, key: str, index: int, args: Sequence[Operand[Typed]], size: int, dtype: str) -> Typed:
        operands = [a.value.ids for a in args]
        if sum(a.size for a in operands) * size > _MOST_WORK:
            raise Beyond("an opaque operator over many elements")
        call = self.scalars.atom("opaque", key, index, tuple(tuple(a.tolist()) for a in operands))
        return Typed(np.array([self.scalars.atom("element", call, i) for i in range(size)], dtype=np.int64), dtype)


def _kind(dtype: str) -> type:
    """A type whose values Python reads as floats, integers or booleans."""
    return np.float64 if _fractional(dtype) else np.bool_ if dtype == "bool" else np.int64


def _fractional(dtype: str) -> bool:
    """Whether elements are read as fractions: floats, and what is stored in less than NumPy's own types."""
    return dtype != "bool" and not is_integer(dtype)
