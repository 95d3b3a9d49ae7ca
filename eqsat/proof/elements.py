"""Programs element by element: every output element as a scalar expression in normal form.

Views, concatenations, windows and masks are index maps here, products are sums of products, so two programs whose
elements have equal normal forms are equal for these shapes over the reals, whatever way they were written. Nothing is
sampled: the elements of inputs are symbols.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from eqsat.base.numerics import FLOATS, INTS, STORED, is_integer, np_dtype
from eqsat.program.core import Node, topological
from eqsat.proof.assumptions import Bounds
from eqsat.proof.scalar_cases import Cases
from eqsat.proof.scalar_functions import Functions
from eqsat.proof.scalars import Beyond

_MOST_ELEMENTS = 60_000
_MOST_WORK = 40_000_000
_TICKS = 4096
_RING = frozenset({"add", "sub", "mul", "pow", "neg", "sum", "prod"})
_MOST_CHOICES = 64
"""Elements among which an unknown index is written out as a choice."""

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

    `bounds` are those of inputs, by name.
    """
    deadline = time.monotonic() + seconds
    for cases in (False, True):
        found = _compare(left, right, Elements(constants, deadline, cases, bounds))
        if found.equal or time.monotonic() > deadline:
            break
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


class Elements:
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
            values[node] = getattr(self, f"_{node.op.lower()}")(node, *(values[a] for a in node.args))
        if _wraps(values):
            self.scalars.laws.add("integers that do not overflow")
        return values

    def _in(self, node: Node) -> Array:
        name, size, dtype = node.attrs
        atom = self.scalars.atom
        positive = name in self.bounds and self.bounds[name].low >= 0
        kinds = {"boolean": dtype == "bool", "whole": is_integer(dtype), "nonnegative": positive}
        return np.array([atom("in", name, i, **kinds) for i in range(size)], dtype=np.int64)

    def _const(self, node: Node) -> Array:
        if node.attrs[0] not in self._constants:
            raise Beyond("an unknown constant")
        single = node.dtype != "float64"
        values = self._constants[node.attrs[0]].astype(_kind(node.dtype))
        return self._each(lambda v: self.scalars.number(v, single), [values])

    def _full(self, node: Node) -> Array:
        value, size, dtype = node.attrs
        python = float(value) if _fractional(dtype) else int(value)
        return np.full(size, self.scalars.number(python, dtype != "float64"), dtype=np.int64)

    def _each(self, fn: Any, operands: Sequence[Array]) -> Array:
        """`fn` of each distinct tuple of operands."""
        if not operands[0].size:
            return np.empty(0, dtype=np.int64)
        known: dict[tuple[Any, ...], int] = {}
        result = np.empty(operands[0].size, dtype=np.int64)
        for i, key in enumerate(zip(*(a.tolist() for a in operands), strict=True)):
            found = known.get(key)
            if found is None:
                found = known[key] = fn(*key)
            result[i] = found
        return result

    def _un(self, node: Node, a: Array) -> Array:
        fn = node.attrs[0]
        if fn.startswith("cast:"):
            return self._cast(node, a)
        return self._each(lambda x: self.scalars.unary(fn, x), [a])

    def _cast(self, node: Node, a: Array) -> Array:
        source, target = node.args[0].dtype, node.dtype
        scalars = self.scalars
        if target in STORED and source != target:
            raise Beyond("a cast to integers that wrap around")
        if target in FLOATS or source == target or source == "bool":
            return a  # numbers keep their value over the reals
        if target == "bool":
            return self._each(lambda x: scalars.unary("not", scalars.binary("equal", x, scalars.zero)), [a])
        return self._each(lambda x: scalars.unary("trunc", x), [a])

    def _bin(self, node: Node, a: Array, b: Array) -> Array:
        fn, integral = node.attrs[0], node.args[0].dtype not in FLOATS
        if fn == "equal" and node.args[0].dtype == "bool":
            return self._each(self.scalars.same, [a, b])
        if fn in ("max", "min") and integral:
            a, b = self._bounded(fn, node.dtype, a), self._bounded(fn, node.dtype, b)
        return self._each(lambda x, y: self.scalars.binary(fn, x, y, integral), [a, b])

    def _bounded(self, fn: str, dtype: str, a: Array) -> Array:
        """Integers with that at the end of their range as the infinity that it is for a maximum or minimum."""
        info = np.iinfo(np_dtype(dtype))
        end, infinity = (info.min, -math.inf) if fn == "max" else (info.max, math.inf)
        return np.where(a == self.scalars.number(int(end)), self.scalars.number(infinity), a)

    def _where(self, node: Node, c: Array, a: Array, b: Array) -> Array:
        return self._each(self.scalars.choice, [c, a, b])

    def _mm(self, node: Node, a: Array, b: Array) -> Array:
        batch, m, k, n = node.attrs
        rows = a.reshape(batch, m, k).tolist()
        columns = b.reshape(batch, k, n).transpose(0, 2, 1).tolist()
        dot = self.scalars.dot
        found = [dot(row, column) for i in range(batch) for row in rows[i] for column in columns[i]]
        return np.array(found, dtype=np.int64)

    def _red(self, node: Node, a: Array) -> Array:
        kind, length = node.attrs
        scalars = self.scalars
        reduce = {
            "sum": scalars.total,
            "max": scalars.largest,
            "min": scalars.smallest,
            "prod": self._product,
            "argmax": scalars.position_of_largest,
            "argmin": lambda row: scalars.position_of_largest([scalars.scaled(e, -1) for e in row]),
        }[kind]
        if kind in ("max", "min") and node.dtype in INTS:
            a = self._bounded(kind, node.dtype, a)
        return np.array([reduce(row) for row in a.reshape(node.size, length).tolist()], dtype=np.int64)

    def _product(self, row: Sequence[int]) -> int:
        result = self.scalars.one
        for e in row:
            result = self.scalars.product(result, e)
        return result

    def _v(self, node: Node, a: Array) -> Array:
        layout = node.attrs[0]
        index = layout.index()
        read = a[np.maximum(index, 0)] if a.size else np.zeros(index.shape, np.int64)
        if not layout.masked:
            return read
        fill = float(layout.fill) if _fractional(node.dtype) else int(layout.fill or 0)
        return np.where(index >= 0, read, self.scalars.number(fill, node.dtype != "float64"))

    def _cat(self, node: Node, *operands: Array) -> Array:
        return np.concatenate(operands)

    def _gather(self, node: Node, a: Array, index: Array) -> Array:
        outer, n, inner = node.attrs
        rows = a.reshape(outer, n, inner)
        at = [self.scalars.constant(i) for i in index.tolist()]
        if any(i is None for i in at):
            columns = [self._picked(rows, i) for i in index.tolist()]
        else:
            columns = [rows[:, int(i) % n] for i in at if i is not None]
        return np.stack(columns, axis=1).reshape(-1) if columns else np.empty(0, np.int64)

    def _picked(self, rows: Array, index: int) -> Array:
        """rows[:, index] for an index that is no constant."""
        outer, count, inner = rows.shape
        scalars = self.scalars
        if count > _MOST_CHOICES:
            picked = [
                scalars.atom("pick", index, tuple(rows[o, :, i].tolist())) for o in range(outer) for i in range(inner)
            ]
        else:
            chosen = [self._chosen(index, count, k) for k in range(count)]
            picked = [scalars.dot(chosen, rows[o, :, i].tolist()) for o in range(outer) for i in range(inner)]
        return np.array(picked, dtype=np.int64).reshape(outer, inner)

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

    def _opaque(self, node: Node, *operands: Array) -> Array:
        key, index, size, _ = node.attrs
        if prod((sum(a.size for a in operands), size)) > _MOST_WORK:
            raise Beyond("an opaque operator over many elements")
        given = tuple(tuple(a.tolist()) for a in operands)
        call = self.scalars.atom("opaque", key, index, given)
        return np.array([self.scalars.atom("element", call, i) for i in range(size)], dtype=np.int64)


def _wraps(nodes: Iterable[Node]) -> bool:
    """Whether there is arithmetic on integers, and something else that depends on their size.

    Sums and products are the same whether integers wrap around or not; comparisons, quotients and maxima are not.
    """
    integral = [n for n in nodes if n.args and n.args[-1].dtype in INTS and n.op in ("Un", "Bin", "Red", "MM")]
    arithmetic = [n.op == "MM" or n.attrs[0] in _RING for n in integral]
    return any(arithmetic) and not all(arithmetic)


def _kind(dtype: str) -> type:
    """A type whose values Python reads as floats, integers or booleans."""
    return np.float64 if _fractional(dtype) else np.bool_ if dtype == "bool" else np.int64


def _fractional(dtype: str) -> bool:
    """Whether elements are read as fractions: floats, and what is stored in less than NumPy's own types."""
    return dtype != "bool" and not is_integer(dtype)
