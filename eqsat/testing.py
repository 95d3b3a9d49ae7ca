"""For tests of code that takes programs: random programs, and a check that two programs compute the same values.

    from hypothesis import given
    from eqsat.testing import assert_equivalent, programs

    @given(programs())
    def test_my_pass_keeps_the_meaning(p):
        assert_equivalent(p, my_pass(p))

    @given(programs(only={"matmul", "transpose", "add"}, dtypes=("float32",), max_ops=4))
    def test_my_rule(p): ...

Generated programs cover every operator, shrink to few operators over small dims, and can be compared safely: functions
with poles get operands away from them, and functions with jumps (floor, less, argmax, ...) get floats that are not
rounded. So two equal programs agree however they associate their sums.

Needs Hypothesis, which `pip install eqsat[dev]` brings.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import prod
from numbers import Real
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from hypothesis import strategies as st

from eqsat.base.arguments import instance, shown, whole
from eqsat.base.numerics import ELEMENTWISE, FLOATS, INTS, REDUCTIONS, Array, Precision, kind_of, random_array
from eqsat.errors import EqsatError, InputError
from eqsat.program import composites, ops
from eqsat.program.ir import Program
from eqsat.program.term import Shape, Term

T = TypeVar("T")

DEFAULT_DTYPES = ("float32", "float64", "int64", "bool")


@runtime_checkable
class Runnable(Protocol):
    """Anything that can be compared: a Program, a CoreProgram, or another class with such a `run`."""

    def run(self, inputs: Mapping[str, Array], precision: Precision = ...) -> Mapping[str, Array]: ...


# Comparison


def random_inputs(program: Program, seed: int = 0) -> dict[str, Array]:
    """Random inputs for the program: normal floats, integers in [-4, 4], fair booleans.

    >>> p = Program((x := ops.input("x", (2,), "int32"),), {"y": x})
    >>> random_inputs(p)["x"].dtype
    dtype('int32')
    """
    instance("random_inputs", program, Program, "a Program")
    rng = np.random.default_rng(whole("seed", seed, 0))
    return {term.attr("name"): random_array(term.shape, term.dtype, rng) for term in program.inputs}


def assert_equivalent(
    p: Program,
    q: Runnable,
    *,
    points: int = 2,
    precision: Precision = "float64",
    rtol: float = 1e-7,
    seed: int = 0,
) -> None:
    """Raises AssertionError unless `q` computes what `p` does, on random inputs.

    >>> x = ops.input("x", (3,))
    >>> double = Program((x,), {"y": ops.add(x, x)})
    >>> assert_equivalent(double, Program((x,), {"y": composites.scaled(x, 2)}))
    >>> assert_equivalent(double, Program((x,), {"y": composites.scaled(x, 3)}))
    Traceback (most recent call last):
        ...
    AssertionError: output 'y' differs by up to 0.64 (seed 0): ...

    Args:
        p: the reference.
        q: the program to judge; its inputs and outputs must have the same names, shapes and order.
        points: number of random inputs to try.
        precision: "float64" compares meanings; "native" compares roundings too, and needs a larger `rtol`.
        rtol: allowed error, as a fraction of the largest finite magnitude of each output (at least 1).

    Raises:
        InputError: an argument of the wrong kind.
    """
    instance("assert_equivalent", p, Program, "a Program first")
    instance("assert_equivalent", q, Runnable, "a Program, or what runs as one, second")
    if isinstance(q, type):
        raise InputError(f"assert_equivalent takes a program second, got the class {shown(q)}")
    if isinstance(rtol, bool) or not isinstance(rtol, Real) or not 0 <= rtol <= sys.float_info.max:
        raise InputError(f"rtol {shown(rtol)}: expected a number, at least 0")
    whole("points", points, 1)
    whole("seed", seed, 0)
    if isinstance(q, Program):
        assert [t.spec for t in p.inputs] == [t.spec for t in q.inputs], "the inputs differ in shape or dtype"
        assert p.input_names == q.input_names, f"the inputs are called {p.input_names} and {q.input_names}"
    for point in range(seed, seed + points):
        inputs = random_inputs(p, point)
        expected, got = p.run(inputs, precision), q.run(inputs, precision)
        assert list(expected) == list(got), f"the outputs are called {list(expected)} and {list(got)}"
        for name, wanted in expected.items():
            _assert_close(name, wanted, got[name], rtol, point)


def _assert_close(name: str, wanted: Array, got: Array, rtol: float, seed: int) -> None:
    assert got.shape == wanted.shape, f"output {name!r} has shape {got.shape}, not {wanted.shape}"
    assert got.dtype == wanted.dtype, f"output {name!r} has dtype {got.dtype}, not {wanted.dtype}"
    exact = wanted.dtype.kind in "biu"
    wide, mine = (a if exact else a.astype(np.float64) for a in (wanted, got))
    finite = np.abs(wide[np.isfinite(wide)].astype(np.float64))
    allowed = 0.0 if exact else rtol * max(1.0, float(finite.max(initial=0.0)))
    same = np.isclose(mine, wide, rtol=0.0, atol=allowed, equal_nan=True) if not exact else mine == wide
    if not same.all():
        with np.errstate(all="ignore"):
            error = np.nanmax(np.abs(mine.astype(np.float64) - wide.astype(np.float64))[~same], initial=0.0)
        where = tuple(int(i) for i in np.argwhere(~same)[0])
        raise AssertionError(
            f"output {name!r} differs by up to {error:.2g} (seed {seed}): "
            f"at {where} it is {got[where]}, not {wanted[where]}"
        )


# Random programs


def shapes(min_rank: int = 0, max_rank: int = 4, max_dim: int = 4, min_dim: int = 1) -> st.SearchStrategy[Shape]:
    """Shapes of small tensors."""
    return st.lists(st.integers(min_dim, max_dim), min_size=min_rank, max_size=max_rank).map(tuple)


def programs(
    *,
    only: Collection[str] | None = None,
    dtypes: Sequence[str] = DEFAULT_DTYPES,
    max_ops: int = 8,
    max_rank: int = 4,
    max_dim: int = 4,
    empty: bool = False,
) -> st.SearchStrategy[Program]:
    """Random well-typed programs.

    Args:
        only: names of operators to draw from (None: all). Others may appear around them, to make operands fit.
        dtypes: element types of inputs and constants.
        max_ops: largest number of operators to draw.
        max_rank, max_dim: limits of the inputs' shapes.
        empty: also draw dims of size 0.

    Raises:
        EqsatError: `only` is empty or has an unknown operator.
    """
    names = sorted(STEPS if only is None else STEPS.keys() & only)
    if not names:
        raise EqsatError(f"only takes names among {', '.join(sorted(STEPS))}, got {only}")
    weighted = weights(names)
    tensor_shapes = shapes(0, max_rank, max_dim, 0 if empty else 1)

    @st.composite
    def build(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Program:
        builder = Builder(draw, tuple(dtypes), tensor_shapes)
        for name in draw(st.lists(st.sampled_from(weighted), min_size=1, max_size=max_ops)):
            builder.step(name)
        return builder.program()

    return build()


def weights(names: Iterable[str]) -> list[str]:
    """The names, repeated by weight: elementwise operators are many and simple, so others are drawn more often."""
    return [name for name in names for _ in range(1 if name in ELEMENTWISE else 4)]


class Builder:
    """Builds a random program: the terms so far, and random choices among them."""

    MAX_SIZE = 2048
    """Most elements of a term that is used as an operand."""

    def __init__(
        self,
        draw: Callable[[st.SearchStrategy[Any]], Any],
        dtypes: tuple[str, ...],
        tensor_shapes: st.SearchStrategy[Shape],
    ) -> None:
        self.draw = draw
        self.dtypes = dtypes
        self.shapes = tensor_shapes
        self.inputs: list[Term] = []
        self.terms: list[Term] = []
        self._exact: dict[Term, bool] = {}

    def step(self, name: str) -> None:
        """Apply the operator to some of the terms; do nothing if the available element types do not allow it."""
        try:
            made = STEPS[name](self)
        except _Unavailable:
            return
        if made.size <= self.MAX_SIZE:
            self.terms.append(made)

    def program(self) -> Program:
        """The program whose outputs are the last term and all other terms that nothing reads."""
        terms = self.terms or [self.leaf(self.shape(), self.dtypes[0])]
        read = {arg for term in ops_below(terms) for arg in term.args}
        loose = [t for t in dict.fromkeys(terms) if t not in read] or terms[-1:]
        used = {t for t in ops_below(loose) if t.op == "input"}
        return Program(tuple(t for t in self.inputs if t in used), {f"y{i}": t for i, t in enumerate(loose)})

    def choose(self, options: Iterable[T]) -> T:
        return self.draw(st.sampled_from(list(options)))

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def integers(self, count: int, low: int, high: int) -> tuple[int, ...]:
        return tuple(self.integer(low, high) for _ in range(count))

    def shape(self, among: st.SearchStrategy[Shape] | None = None) -> Shape:
        return self.draw(self.shapes if among is None else among)

    def permutation(self, count: int) -> Sequence[int]:
        return self.draw(st.permutations(range(count)))

    def subset(self, count: int, most: int) -> list[int]:
        """From one to `most` integers below `count`, sorted."""
        return sorted(self.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=most)))

    def leaf(self, shape: Shape, dtype: str) -> Term:
        """A new input or constant."""
        kind = self.choose(["input", "constant", "full"])
        if kind == "input":
            self.inputs.append(ops.input(f"x{len(self.inputs)}", shape, dtype))
            return self.inputs[-1]
        if kind == "full":
            return ops.full(self.choose([0, 1] if dtype == "bool" else [0, 1, -2]), shape, dtype)
        return ops.constant(random_array(shape, dtype, np.random.default_rng(self.integer(0, 99))))

    def pick(self, kinds: str = "float int bool", rank: int = 0, exact: bool = False, most: int = 9) -> Term:
        """A term (or a new leaf) of these kinds, with `rank` to `most` dims; with `exact`, one without rounding."""
        allowed = [d for d in self.dtypes if kind_of(d) in kinds.split()]
        fits = [
            t
            for t in self.terms
            if kind_of(t.dtype) in kinds.split() and rank <= t.ndim <= most and not (exact and self.rounded(t))
        ]
        if fits and (not allowed or self.integer(0, 3)):
            return self.choose(reversed(fits))
        if not allowed:
            raise _Unavailable
        shape = self.shape()[:most]
        return self.leaf((1,) * (rank - len(shape)) + shape, self.choose(allowed))

    def like(self, x: Term, exact: bool = False) -> Term:
        """A term with the shape and type of `x`: an existing term, one broadcast to it, or a new leaf."""
        fits = [
            t
            for t in self.terms
            if t.dtype == x.dtype and _broadcasts(t.shape, x.shape) and not (exact and self.rounded(t))
        ]
        if fits and self.integer(0, 2):
            return ops.broadcast(self.choose(reversed(fits)), x.shape)
        shape = x.shape[self.integer(0, x.ndim) :]
        return ops.broadcast(self.leaf(tuple(self.choose([n, 1]) for n in shape), x.dtype), x.shape)

    def axis(self, x: Term) -> int:
        return self.integer(0, x.ndim - 1)

    def rounded(self, term: Term) -> bool:
        """Whether the term's values may depend on how sums are associated."""
        for t in ops_below([term]):
            if t not in self._exact:
                self._exact[t] = all(self._exact[a] for a in t.args) and (t.dtype not in FLOATS or _keeps_values(t))
        return not self._exact[term]


class _Unavailable(Exception):
    """An operator has no operand of the requested dtypes."""


def ops_below(terms: Sequence[Term]) -> list[Term]:
    from eqsat.program.term import topological

    return topological(terms)


def _broadcasts(shape: Shape, target: Shape) -> bool:
    tail = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(n in (1, m) for n, m in zip(shape, tail, strict=True))


def _keeps_values(term: Term) -> bool:
    """Whether each float result is a value of an operand, its exact negation, or a jump function of it."""
    if term.op in ELEMENTWISE:
        return "exact" in ELEMENTWISE[term.op].traits
    if term.op in ("reduce", "pool"):
        return term.attr("kind") in ("max", "min")
    return term.op not in ("matmul", "conv", "cast", "opaque")


# How each operator gets suitable operands

_JUMPS = frozenset({"floor", "ceil", "round", "sign", "mod", "equal", "less", "less_equal", "greater", "greater_equal"})
"""Discontinuous: the smallest rounding may change the result completely."""


def _away_from_zero(x: Term) -> Term:
    return composites.shifted(ops.abs_(x), 1.0)


_TAME: dict[str, Callable[[Term], Term]] = {
    "exp": lambda x: composites.clip(x, -4, 4),
    "log": _away_from_zero,
    "log1p": ops.abs_,
    "sqrt": _away_from_zero,
    "rsqrt": _away_from_zero,
    "reciprocal": _away_from_zero,
}
"""How an operand is changed to stay away from poles and overflow."""


def _unary_step(name: str) -> Callable[[Builder], Term]:
    def step(b: Builder) -> Term:
        x = b.pick(" ".join(ELEMENTWISE[name].kinds), exact=name in _JUMPS)
        return ops.elementwise(name, _TAME[name](x) if name in _TAME else x)

    return step


def _binary_step(name: str) -> Callable[[Builder], Term]:
    def step(b: Builder) -> Term:
        exact = name in _JUMPS
        x = b.pick(" ".join(ELEMENTWISE[name].kinds), exact=exact)
        y = b.like(x, exact)
        if name in ("div", "mod"):
            y = ops.add(ops.abs_(y), ops.full_like(1, y))
        if name == "pow":
            x, y = ops.add(ops.abs_(x), ops.full_like(1, x)), composites.clip(y, 0, 2)
        return ops.elementwise(name, x, y)

    return step


def _where(b: Builder) -> Term:
    x = b.pick()
    condition = ops.full(b.choose([False, True]), x.shape, "bool")
    if "bool" in b.dtypes:
        condition = b.like(condition)
    return ops.where(condition, x, b.like(x))


def _cast(b: Builder) -> Term:
    target = b.choose(b.dtypes)
    return ops.cast(b.pick(exact=target not in FLOATS), target)


def _matmul(b: Builder) -> Term:
    x = b.pick("float int", rank=2)
    n = b.integer(1, 4)
    shape = (*x.shape[:-2], x.shape[-1], n)
    shared = b.choose([True, False])
    y = ops.broadcast(b.leaf(shape[-2:], x.dtype), shape) if shared else b.like(ops.full(0, shape, x.dtype))
    return ops.matmul(x, y) if b.choose([True, False]) else ops.matmul(ops.swap_last(y), ops.swap_last(x))


def _transpose(b: Builder) -> Term:
    x = b.pick(rank=1)
    return ops.transpose(x, b.permutation(x.ndim))


def _reshape(b: Builder) -> Term:
    x = b.pick()
    dims = [n for n in x.shape for n in (b.choose([(n,), (2, n // 2)]) if n and n % 2 == 0 else (n,))]
    if len(dims) > 1 and b.choose([True, False]):
        i = b.integer(0, len(dims) - 2)
        dims[i : i + 2] = [dims[i] * dims[i + 1]]
    return ops.reshape(x, [*dims, *(1,) * b.integer(0, 1)])


def _broadcast(b: Builder) -> Term:
    x = b.pick(most=4)
    shape = tuple(b.integer(1, 3) if n == 1 else n for n in x.shape)
    return ops.broadcast(x, b.integers(b.integer(0, 1), 1, 3) + shape)


def _slice(b: Builder) -> Term:
    x = b.pick(rank=1)
    starts, stops, steps = zip(*(_range_within(b, n) for n in x.shape), strict=True)
    return ops.slice_(x, starts, stops, None, steps)


def _range_within(b: Builder, n: int) -> tuple[int | None, int | None, int]:
    step = b.choose([1, 1, 2, -1, -2])
    if n < 2:
        return None, None, 1 if step > 0 else -1
    low = b.integer(0, n - 1)
    high = b.integer(low + 1, n)
    return (low, high, step) if step > 0 else (high - 1, low - 1 if low else None, step)


def _concat(b: Builder) -> Term:
    x = b.pick(rank=1)
    axis = b.axis(x)
    others = [
        b.like(ops.full(0, (*x.shape[:axis], b.integer(1, 3), *x.shape[axis + 1 :]), x.dtype))
        for _ in range(b.integer(0, 2))
    ]
    return ops.concat([x, *others, x] if b.choose([False, True]) else [*others, x], axis)


def _pad(b: Builder) -> Term:
    x = b.pick(rank=1)
    value = b.choose([0, 1]) if x.dtype == "bool" else b.choose([0, 1, -3])
    return ops.pad(x, b.integers(x.ndim, 0, 2), b.integers(x.ndim, 0, 2), value)


def _reduce(b: Builder) -> Term:
    kind = b.choose(REDUCTIONS)
    row = REDUCTIONS[kind]
    x = b.pick(" ".join(row.kinds), rank=1, exact=row.result is not None)
    axes = b.subset(x.ndim, 1 if row.result else x.ndim)
    if kind not in ("sum", "prod") and not prod(x.shape[a] for a in axes):
        kind = "sum" if kind_of(x.dtype) != "bool" else "max"
        axes = axes if kind == "sum" else []
    return ops.reduce(kind, x, axes, b.choose([False, True]))


def _gather(b: Builder) -> Term:
    x = b.pick(rank=1)
    axis = b.axis(x)
    n = x.shape[axis]
    if not n:
        raise _Unavailable
    dynamic = [t for t in b.terms if t.dtype in INTS and t.size and t.ndim <= 2]
    if dynamic and b.choose([True, False]):
        index = b.choose(dynamic)
        return ops.gather(x, ops.mod(index, ops.full_like(n, index)), axis)
    values = b.integers(b.integer(1, 4), -n, n - 1)
    return ops.gather(x, ops.constant(np.asarray(values, np.int64)), axis)


def _window(b: Builder, spatial: Shape, kernel: Shape) -> dict[str, Shape]:
    """Strides, dilations, and enough padding for the window to fit."""
    r = len(spatial)
    dilations, lo = b.integers(r, 1, 2), b.integers(r, 0, 1)
    short = [d * (k - 1) + 1 - n - p for d, k, n, p in zip(dilations, kernel, spatial, lo, strict=True)]
    hi = tuple(max(s, 0) + b.integer(0, 1) for s in short)
    return {"strides": b.integers(r, 1, 2), "pads_lo": lo, "pads_hi": hi, "dilations": dilations}


def _image(b: Builder) -> Term:
    """A term x[n, c, *s] of 1 to 3 spatial dims."""
    x = b.pick("float int", most=5)
    return ops.unsqueeze(x, range(3 - x.ndim)) if x.ndim < 3 else x


def _conv(b: Builder) -> Term:
    x = _image(b)
    groups = b.choose([g for g in range(1, max(x.shape[1], 1) + 1) if x.shape[1] % g == 0])
    kernel = b.integers(x.ndim - 2, 1, 3)
    w = b.leaf((groups * b.integer(1, 2), x.shape[1] // groups, *kernel), x.dtype)
    return ops.conv(x, w, **_window(b, x.shape[2:], kernel), groups=groups)


def _pool(b: Builder) -> Term:
    x = _image(b)
    kernel = b.integers(x.ndim - 2, 1, 3)
    return ops.pool(b.choose(["max", "sum"]), x, kernel, **_window(b, x.shape[2:], kernel))


def _iota(b: Builder) -> Term:
    shape = b.shape(shapes(1, 3))
    return ops.iota(shape, b.integer(0, len(shape) - 1), b.choose([d for d in b.dtypes if d != "bool"] or ["int64"]))


def _opaque(b: Builder) -> Term:
    x = b.pick(rank=1)
    parts = ops.opaque("Reverse", [x], [(x.shape, x.dtype)] * 2, "both ways", _both_ways)
    return parts[b.integer(0, 1)]


def _both_ways(x: Array) -> tuple[Array, Array]:
    return x, x[::-1]


def _leaf_step(b: Builder) -> Term:
    return b.leaf(b.shape(), b.choose(b.dtypes))


STEPS: dict[str, Callable[[Builder], Term]] = {
    **{name: _unary_step(name) for name in ops.UNARY},
    **{name: _binary_step(name) for name in [*ops.BINARY, *ops.COMPARE]},
    "input": _leaf_step,
    "constant": _leaf_step,
    "full": _leaf_step,
    "iota": _iota,
    "where": _where,
    "cast": _cast,
    "matmul": _matmul,
    "transpose": _transpose,
    "reshape": _reshape,
    "broadcast": _broadcast,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "reduce": _reduce,
    "gather": _gather,
    "conv": _conv,
    "pool": _pool,
    "opaque": _opaque,
}
"""For each operator, a function that applies it to terms of a Builder."""
