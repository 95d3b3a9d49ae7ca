"""Random programs on which rules of the host fire: members made alike, then joined, then read again.

Rules of the host are about many values at once: members of a concatenation, sums and chains of products, siblings of
one operand, constants that come together in several ways. A sample draws the source of its members, up to three
operators that all of them go through (each with its own constants, of equal or unequal widths), how they are joined,
and how the join is read. No sample is made for one rule. A rule that fires on none of them has no evidence.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.tracing import functions
from eqsat.tracing.trace import spec, trace
from eqsat.tracing.tracer import Tracer

MOST = 5
"""The largest dim of what members are made of."""

_STEPS = 3

Values = list[Any]


def sample(draw: random.Random) -> Program:
    """A random program; its integer inputs are indices of rows in [-2, 2)."""
    return _Sample(draw).program()


class _Sample:
    """The choices of one program, drawn as its function is traced."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.rows, self.inner = draw.randint(1, MOST), draw.randint(1, MOST)
        self.count = draw.randint(2, 4)

    def program(self) -> Program:
        inputs, members = self.draw.choice(self.origins())

        def run(*given: Any) -> Any:
            values = members(*given)
            for _ in range(self.draw.randint(0, _STEPS)):
                values = self.draw.choice(self.steps())(values)
            return self.read(self.joined(values))

        return trace(run, *inputs)

    def weight(self, *shape: int) -> Any:
        """A constant drawn for one place, of small integers: one that holds a single number becomes that number in
        the core, and is then to mean the same in every element type."""
        rng = np.random.default_rng(self.draw.getrandbits(32))
        return Tracer(ops.constant((rng.integers(2, 9, shape) * rng.choice((-1, 1), shape)).astype(np.float32)))

    # --- where members come from

    def origins(self) -> list[tuple[list[Any], Callable[..., Values]]]:
        """(inputs, members of them) pairs."""
        rows, inner, count = self.rows, self.inner, self.count
        shape = (rows, inner)
        heights = [self.draw.randint(1, MOST) for _ in range(count)]
        chain = [rows, *(self.draw.randint(1, 2 * MOST) for _ in range(count)), inner]
        return [
            ([spec(shape)], lambda x: [x] * count),
            ([spec((rows, inner * count))], lambda x: functions.split(x, count, 1)),
            ([spec((rows + count, inner))], lambda x: [x[i : i + rows] for i in range(count)]),
            ([spec(shape)] * count, lambda *xs: list(xs)),
            ([spec((h, inner)) for h in heights], lambda *xs: list(xs)),
            ([spec(shape)], self.constants_around),
            ([spec((rows,), "int64")] * count, self.looked_up),
            ([spec(pair) for pair in pairwise(chain)], lambda *xs: [_product(xs)]),
            ([spec((1, rows, inner, inner))], self.convolved),
            ([spec(shape)] * 2, self.shifted_columns),
        ]

    def shifted_columns(self, x: Any, y: Any) -> Values:
        """A product whose right factor is shifted column by column, as it is or as a transposed matrix."""
        if self.draw.random() < 0.5:
            return [functions.swapaxes(y, 0, 1) @ (x - functions.max(x, 0, keepdims=True))]
        return [y @ functions.swapaxes(x - functions.max(x, 1, keepdims=True), 0, 1)]

    def convolved(self, image: Any) -> Values:
        """Windows of several sizes around each place of an image, and the image scaled, as [channels, places]."""
        channels = image.shape[1]
        terms = [(image * self.weight(channels, 1, 1)).term]
        for k in (3, 1):
            pads = (k // 2, k // 2)
            weights = self.weight(channels, channels, k, k).term
            terms.append(ops.conv(image.term, weights, pads_lo=pads, pads_hi=pads))
        return [Tracer(ops.reshape(term, (channels, term.size // channels))) for term in terms]

    def constants_around(self, x: Any) -> Values:
        """One value with constants that come together in two ways, or that are views of one another."""
        a, b, c = (self.weight(*x.shape) for _ in range(3))
        whole = functions.concat([a, b])
        ways = [
            [x * ((a + b) + c), x * (a + (b + c))],
            [x + ((a * b) * c), x + (a * (b * c))],
            [x * a, x * whole[: self.rows]],
            [x + functions.concat([a[:1], a[1:]]) if self.rows > 1 else x + a, x + whole[: self.rows]],
        ]
        return self.draw.choice(ways)

    def looked_up(self, *indices: Any) -> Values:
        """Rows of tables of several heights."""
        tables = [self.weight(self.draw.randint(2, MOST), self.inner) for _ in indices]
        return [functions.take(table, index, 0) for table, index in zip(tables, indices, strict=True)]

    # --- what members go through

    def steps(self) -> list[Callable[[Values], Values]]:
        """Operators that all members can go through."""
        return [self.activated, self.multiplied, self.multiplied, self.biased, self.scaled, self.transposed]

    def activated(self, values: Values) -> Values:
        """Through a function that does not magnify rounding."""
        fn = self.draw.choice((functions.relu, functions.tanh, functions.negative))
        return [fn(v) for v in values]

    def multiplied(self, values: Values) -> Values:
        """Each by a matrix of its own, of equal or unequal widths, or all by one."""
        widths = self.draw.choice(([self.inner] * len(values), [self.draw.randint(1, MOST) for _ in values]))
        if self.draw.random() < 0.3 and len({v.shape[1] for v in values}) == 1:
            shared = self.weight(values[0].shape[1], self.inner)
            return [v @ shared for v in values]
        return [v @ self.weight(v.shape[1], n) for v, n in zip(values, widths, strict=True)]

    def biased(self, values: Values) -> Values:
        return [v + self.weight(v.shape[1]) for v in values]

    def scaled(self, values: Values) -> Values:
        return [v * self.weight(v.shape[1]) for v in values]

    def transposed(self, values: Values) -> Values:
        return [v.T for v in values]

    # --- how they are joined, and read

    def joined(self, values: Values) -> Values:
        """Members as one value, or as results of their own."""
        shapes = [v.shape for v in values]
        kinds: list[list[Callable[[], Values]]] = [[lambda: values]]
        alike = [axis for axis in (0, 1) if len({shape[1 - axis] for shape in shapes}) == 1]
        if alike:
            axis = self.draw.choice(alike)
            kinds.append(
                [
                    lambda: [functions.concat(values, axis)],
                    lambda: [functions.concat([functions.concat(values[:2], axis), *values[2:]], axis)],
                    lambda: [functions.concat([values[0]] * self.count, axis)],
                ]
            )
        if len(set(shapes)) == 1:
            kinds += [[lambda: [sum(values[1:], values[0])]]] * 2
            kinds.append(
                [lambda: [_blocks(values)], lambda: [_product_of_joined(values)], lambda: [_rows_of_joined(values)]]
            )
        if all(a[1] == b[0] for a, b in pairwise(shapes)):
            kinds.append([lambda: [_product(values)]])
        return self.draw.choice(self.draw.choice(kinds))()

    def read(self, values: Values) -> Any:
        """The results: whole, a slice, or sums of rows."""
        way = self.draw.randrange(4)
        first, last = sorted((self.draw.randrange(MOST), self.draw.randrange(MOST)))
        if way == 0:
            values = [v[first : last + 1] if v.shape[0] > first else v for v in values]
        elif way == 1:
            values = [v.sum(1) * self.weight(v.shape[0]) for v in values]
        return tuple(values) if len(values) > 1 else values[0]


def _blocks(values: Values) -> Any:
    """The first and the last member below each other, and beside them the other way round."""
    one, other = values[0], values[-1]
    return functions.concat([functions.concat([one, other]), functions.concat([other, one])], 1)


def _product_of_joined(values: Values) -> Any:
    """Members side by side, multiplied by their transposes below each other."""
    return functions.concat(values, 1) @ functions.concat([v.T for v in values])


def _rows_of_joined(values: Values) -> Any:
    """Sums of the rows of members side by side, as a column."""
    return functions.concat(values, 1).sum(1, keepdims=True)


def _product(factors: Sequence[Any]) -> Any:
    """The product of matrices, from left to right."""
    whole, *others = factors
    for factor in others:
        whole = whole @ factor
    return whole
