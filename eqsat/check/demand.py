"""Evaluate some elements of a program's outputs, and only the values that these need.

A demand says for each axis of a term which elements are wanted: all, some, or weighted sums of them. Demands are
propagated from the outputs down to the inputs (a row of a product needs one row of its left operand), and then every
operator is evaluated on its demanded elements only. Sums pass through operators that are linear along their axis, so
that a product is probed without computing it (R. Freivalds, Probabilistic machines can use less running time, IFIP
1977); any other operator is evaluated in full and summed afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.base.graphs import last_reads
from eqsat.base.mapped import release
from eqsat.base.numerics import (
    Array,
    Precision,
    at_precision,
    converted,
    dtype_name,
    is_float,
    np_dtype,
)
from eqsat.check.demand_rows import row_of
from eqsat.check.large import LARGE, held, once, repeating, typed
from eqsat.check.wanted import (
    WIDE,
    Demand,
    Repeated,
    Sums,
    count_of,
    empty,
    everything,
    is_nothing,
    joined,
    nothing,
    selected,
    some,
)
from eqsat.program.ir import opaque_result
from eqsat.program.term import Term, row, topological, unviewed

_PER_ELEMENT = 16
"""Cost of reading, moving or computing one element outside of products, in operations of a product."""

_SPARE, _SPARE_ELEMENTS = 8, 1 << 24
"""Joined or rearranged constants are read whole if one in so many of their elements is wanted, and they have at most so
many: to pick single elements takes longer than to copy them all."""

_STEPS = 1_000_003
"""Number of random directions that are drawn; larger constants repeat them."""


Inputs = Mapping[str, Array] | Mapping[str, Array | Repeated]
"""Values of inputs by name."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Constants and scalars to perturb: every float moves one last place up or down, at random; zeros stay.

    With `computed`, all values computed in float64 also move by a few last places, to show the effect of rounding.
    """

    terms: frozenset[Term]
    seed: int
    computed: bool = False

    def of(self, values: Array, rng: np.random.Generator) -> Array:
        """Floats moved by one last place: the bits of magnitudes are ascending integers. Repeats move as one."""
        shape, dtype = values.shape, values.dtype
        values = values[tuple(slice(1) if stride == 0 else slice(None) for stride in values.strides)]
        bits = np.ascontiguousarray(values).reshape(values.shape).view(f"i{dtype.itemsize}")  # a scalar stays one
        largest = np.asarray(np.finfo(dtype).max if dtype.kind == "f" else ml_dtypes.finfo(dtype).max, dtype)
        steps = rng.integers(0, 2, min(values.size, _STEPS), np.int8) * 2 - 1
        magnitude = bits & np.iinfo(bits.dtype).max
        movable = (magnitude != 0) & (magnitude < largest.view(bits.dtype))
        moved = bits + np.resize(steps, bits.shape) * movable
        return np.broadcast_to(moved.astype(bits.dtype, copy=False).view(dtype), shape)


class Demanded:
    """The demands of all terms that the wanted outputs need.

    Args:
        wanted: outputs, and the demand for each.
        exact: when values are computed in float64, also compute terms of constants alone in float64. Otherwise these
            are computed in the program's own element types, as a runtime does ahead of time.
        native: terms of constants that are computed in their own types even with `exact`.

    Attributes:
        demand: the demand for each needed term.
        constant, only_moved: whether a term is a constant, or computed, or only moved, from constants alone.
        flops: the approximate cost of the evaluation, in arithmetic operations of products.
        moving: the part of it that reads, moves and computes elements outside of products.
        repeats: the axes along which the wanted elements of each term repeat, and are held once; empty where no value
            is `LARGE`.
    """

    def __init__(self, wanted: Mapping[Term, Demand], exact: bool = False, native: Collection[Term] = ()) -> None:
        self.wanted, self.exact, self.native = wanted, exact, native
        self.order = topological(wanted)
        self.constant: dict[Term, bool] = {}
        self.only_moved: dict[Term, bool] = {}
        for term in self.order:
            varies = term.op in ("input", "opaque")
            self.constant[term] = not varies and all(self.constant[a] for a in term.args)
            moves = row(term.op).view or term.op == "concat"
            self.only_moved[term] = term.op == "constant" or (moves and all(self.only_moved[a] for a in term.args))
        self.demand: dict[Term, Demand] = {}
        self.needs: dict[Term, list[Demand]] = {}
        self.flops = self.moving = 0
        self.repeats: dict[Term, frozenset[int]] = {}
        for term, demand in wanted.items():
            self._add(
                term,
                tuple(some(w, n) if isinstance(w, np.ndarray) else w for w, n in zip(demand, term.shape, strict=True)),
            )
        summed = any(isinstance(w, Sums) for demand in wanted.values() for w in demand)
        for term in reversed(self.order):
            demand = self.demand[term] = self._whole(term, self._passing(term, self.demand[term]))
            unread = is_nothing(term, demand)
            self.needs[term] = [nothing(a) for a in term.args] if unread else row_of(term).needs(term, demand)
            for arg, need in zip(term.args, self.needs[term], strict=True):
                self._add(arg, need)
                if summed:
                    self.flops += 2 * arg.size * sum(len(w.weights) for w in need if isinstance(w, Sums))
            self.flops += _work(term, demand)
            self.moving += _moving(term, count_of(term, demand))
        if any(term.size > LARGE for term in self.order):
            self._count_large()

    def _count_large(self) -> None:
        """Count large values as they are computed: once where they repeat, and views where these are read one by one.
        What smaller views take is next to nothing. What is wanted is compared, element by element."""
        self.repeats = repeating(self.order, self.demand) | dict.fromkeys(self.wanted, frozenset())
        for term in self.order:
            if (whole := count_of(term, self.demand[term])) > LARGE:
                computed = whole * _PER_ELEMENT if term in self.wanted else _moving(term, self._held(term))
                self.moving += computed - _moving(term, whole)
                self.flops += computed - _moving(term, whole)
            if term.op == "reduce" or self._copied(term):
                (x,) = term.args
                read = self._held(x) if row(x.op).view and count_of(x, self.needs[term][0]) > LARGE else 0
                more = _PER_ELEMENT * max(0, read - self._held(unviewed(x)))
                self.moving += more
                self.flops += more

    def _held(self, term: Term) -> int:
        """How many elements of a term are held."""
        return held(term, self.demand[term], self.repeats.get(term, frozenset()))

    def _copied(self, term: Term) -> bool:
        """Whether a view takes memory of its own: axes that are not behind one another in memory are joined."""
        if term.op != "reshape" or term.args[0].op == "reshape" or not row(term.args[0].op).view:
            return False
        repeats = self.repeats.get(term, frozenset())
        return len(repeats) < term.ndim

    def peak_bytes(self) -> int:
        """The largest number of bytes held at once by values in float64, without views and weights."""
        live = most = 0
        size = {t: 8 * self._held(t) if self._takes_memory(t) else 0 for t in self.order}
        for term, done in last_reads(self.order, self.wanted):
            live += size[term]
            most = max(most, live)
            live -= sum(size[arg] for arg in done)
        return most

    def _takes_memory(self, term: Term) -> bool:
        if row(term.op).view:
            return self._copied(term) or (term in self.wanted and term.size > LARGE)
        return term.op not in ("constant", "full")

    def _add(self, term: Term, demand: Demand) -> None:
        known = self.demand.get(term)
        if known is None or is_nothing(term, known):
            self.demand[term] = demand
        elif not is_nothing(term, demand) and any(w is not None for w in known):
            self.demand[term] = tuple(joined(a, b, n) for a, b, n in zip(known, demand, term.shape, strict=True))

    def _passing(self, term: Term, demand: Demand) -> Demand:
        """The demand, with sums that the operator cannot be evaluated on replaced by all elements."""
        if term.op == "opaque":
            return everything(term)
        if not any(isinstance(w, Sums) for w in demand):
            return demand
        linear = is_float(term.dtype) and (not self.constant[term] or (self.exact and term not in self.native))
        passes = row_of(term).linear(term) if linear else ()
        return tuple(None if isinstance(w, Sums) and i not in passes else w for i, w in enumerate(demand))

    def as_stored(self, term: Term, demand: Demand) -> bool:
        """Whether a demand for a term is one for elements of constants as they are."""
        return self.only_moved[term] and not any(isinstance(w, Sums) for w in demand)

    def _whole(self, term: Term, demand: Demand) -> Demand:
        """The demand, or one for all elements of constants that are only moved, if not many more."""
        if not self.as_stored(term, demand) or term.op == "constant":
            return demand
        worth = term.size <= min(_SPARE * count_of(term, demand), _SPARE_ELEMENTS)
        return everything(term) if worth else demand

    def run(self, inputs: Inputs, precision: Precision = "float64", moved: Moved | None = None) -> list[Array]:
        """The wanted elements of each output, evaluated by NumPy.

        At either precision, terms of constants alone are evaluated in the program's own element types, and only terms
        that depend on inputs in float64; not so with `exact`, or with constants `moved` to see the effect of rounding.
        """
        run = _Run(self, inputs, precision, moved)
        return run.values()


def _work(term: Term, demand: Demand) -> int:
    op_row = row(term.op)
    count = count_of(term, demand)
    products = op_row.flops(term) * count // term.size if op_row.contraction and count else 0
    return _moving(term, count) + products


def _moving(term: Term, count: int) -> int:
    return 0 if row(term.op).view else count * _PER_ELEMENT


def nudged(values: Array, rng: np.random.Generator) -> Array:
    """Floats moved by a few last places of float64. Repeats of a large value move as one."""
    if not is_float(dtype_name(values.dtype)):
        return values
    held = once(values)[0] if values.size > LARGE else values
    wide = converted(held, WIDE)
    moved = wide * (1 + 4 * np.finfo(np.float64).eps * rng.choice([-1.0, 1.0], wide.shape))
    return moved if moved.shape == values.shape else np.broadcast_to(moved, values.shape)


def _let_go(term: Term) -> None:
    """Release the pages of weights after a view of them has been read."""
    term = unviewed(term)
    if term.op == "constant":
        release(term.attr("value").array)


class _Run:
    """One evaluation; each value is freed after its last reader."""

    def __init__(self, demanded: Demanded, inputs: Inputs, precision: Precision, moved: Moved | None) -> None:
        self.d, self.inputs, self.moved = demanded, inputs, moved
        self.rng = np.random.default_rng(moved.seed if moved else 0)
        self.precision: Precision = precision
        self.calls: dict[Any, Sequence[Array]] = {}

    def values(self) -> list[Array]:
        """The wanted elements of each output."""
        d = self.d
        values: dict[Term, Array] = {}
        with np.errstate(all="ignore"):
            for term, done in last_reads(d.order, d.wanted):
                if is_nothing(term, d.demand[term]):
                    values[term] = self._typed(empty(term, d.demand[term], np_dtype(term.dtype)), term.dtype)
                else:
                    args = [self._read(values[a], a, need) for a, need in zip(term.args, d.needs[term], strict=True)]
                    values[term] = self._rounded(term, self._value(term, args))
                for arg in done:
                    value = values.pop(arg)
                    if d.only_moved[arg]:
                        release(value)  # a part of weights, maybe
                    _let_go(arg)
            return [self._read(self._typed(values[t], t.dtype), t, wanted) for t, wanted in d.wanted.items()]

    def _read(self, value: Array, term: Term, need: Demand) -> Array:
        """What is needed of the value of a term."""
        if is_nothing(term, need):  # the demand of others need not hold it
            return empty(term, need, value.dtype)
        return selected(value, self.d.demand[term], need)

    def _rounded(self, term: Term, value: Array) -> Array:
        """A computed value, with perturbed rounding if requested."""
        if self.moved is None or not self.moved.computed or term.op == "constant" or row(term.op).view:
            return value
        return nudged(value, self.rng)

    def _typed(self, array: Array, dtype: str) -> Array:
        return typed(array, np_dtype(at_precision(dtype, self.precision)))

    def _value(self, term: Term, args: list[Array]) -> Array:
        demand = self.d.demand[term]
        if term.op == "input":
            value = self.inputs[term.attr("name")]
            if isinstance(value, Repeated):
                return self._typed(value.selected(demand), term.dtype)
            return self._typed(selected(np.asarray(value).reshape(term.shape), everything(term), demand), term.dtype)
        if self.moved is not None and term in self.moved.terms and is_float(term.dtype):
            own = row_of(term).run(term, args, [], demand, np_dtype(term.dtype))
            return self.moved.of(own, self.rng)  # widened by its readers, block by block, like other constants
        known = self.d.constant[term] and (not self.d.exact or term in self.d.native)
        # What is only moved is widened by its readers, which want less of it. Widening is exact.
        stays = self.moved is None and (known or self.d.as_stored(term, demand))
        precision: Precision = "native" if stays else self.precision
        dtype = np_dtype(at_precision(term.dtype, precision))
        if term.op == "opaque":
            return self._opaque(term, args).astype(dtype, copy=False)
        own = [np_dtype(at_precision(a.dtype, precision)) for a in term.args]
        return row_of(term).run(term, args, own, demand, dtype)

    def _opaque(self, term: Term, args: list[Array]) -> Array:
        key = (term.attr("name"), term.attr("spec"), term.args)
        if key not in self.calls:
            declared = [x.astype(np_dtype(a.dtype), copy=False) for x, a in zip(args, term.args, strict=True)]
            self.calls[key] = term.attr("run")(*declared)
        return opaque_result(term, self.calls[key])
