"""Segments: where programs are cut, where they are not, and that the joined parts equal the whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest

import eqsat
from eqsat.parts.pieces import HUGE, towers
from eqsat.parts.segments import JOINED, segments
from eqsat.program import ops
from eqsat.program.core import Node, evaluate, lower, topological
from eqsat.program.ir import Program
from eqsat.program.node import substitute
from support.programs import weight

spec = eqsat.spec


def residual(count: int, widening: int = 0) -> Program:
    """Blocks of x + f(norm(x)): x is read on both sides of the products of every block."""
    widths = [32 + i * widening for i in range(count)]
    params = [(weight(16, n) * (i + 1), weight(n, 16)) for i, n in enumerate(widths)]
    ones, zeros = np.ones(16, np.float32), np.zeros(16, np.float32)

    def function(x):
        for a, b in params:
            x = x + eqsat.gelu(eqsat.layernorm(x, ones, zeros) @ a) @ b
        return x

    return eqsat.trace(function, spec((8, 16)))


def masked_attention(count: int, masked: Callable = lambda mask: mask) -> Program:
    """Layers that all read one mask, which is computed from an input."""
    params = [tuple(weight(16, 16) * (3 * i + j) for j in (1, 2, 3)) for i in range(count)]
    ones, zeros = np.ones(16, np.float32), np.zeros(16, np.float32)

    def function(x, mask):
        shift = (1.0 - masked(mask)) * -1e4
        for q, k, v in params:
            scores = eqsat.softmax((x @ q) @ (x @ k).T + shift, -1)
            x = eqsat.layernorm(x + scores @ (x @ v), ones, zeros)
        return x

    return eqsat.trace(function, spec((8, 16)), spec((8, 8)))


def dear_mask(count: int) -> Program:
    """The same with a mask that takes more than a few operators."""
    return masked_attention(count, lambda mask: eqsat.log(eqsat.exp(mask) + eqsat.tanh(mask)))


def separable(count: int) -> Program:
    """Depthwise convolutions, each with the product that mixes the channels."""
    params = [(weight(4, 1, 3, 3) * (i + 1), weight(4, 4, 1, 1)) for i in range(count)]

    def function(x):
        for taps, mix in params:
            own = eqsat.relu(eqsat.conv(x, taps, pads_lo=(1, 1), pads_hi=(1, 1), groups=4))
            x = eqsat.relu(eqsat.conv(own, mix))
        return x

    return eqsat.trace(function, spec((1, 4, 6, 6)))


def embedded(count: int) -> Program:
    """Blocks of x + f(norm(x)) from looked-up rows."""
    params = [tuple(weight(16, 16) * (3 * i + j) for j in (1, 2, 3)) for i in range(count)]
    ones, zeros, table = np.ones(16, np.float32), np.zeros(16, np.float32), weight(100, 16)

    def function(ids):
        x = eqsat.take(table, ids, 0)
        for q, k, v in params:
            y = eqsat.layernorm(x, ones, zeros)
            x = x + eqsat.softmax((y @ q) @ (y @ k).T, -1) @ (y @ v)
        return x

    return eqsat.trace(function, spec((8,), "int64"))


def late_rows(count: int) -> Program:
    """Layers, then one that adds looked-up rows: they are read where they are added."""
    params = [(weight(16, 32) * (i + 1), weight(32, 16)) for i in range(count)]
    ones, zeros, table = np.ones(16, np.float32), np.zeros(16, np.float32), weight(100, 16)

    def function(x, places):
        for a, b in params[:-1]:
            x = eqsat.layernorm(eqsat.gelu(x @ a) @ b, ones, zeros)
        return eqsat.gelu((x + eqsat.take(table, places, 0)) @ params[-1][0])

    return eqsat.trace(function, spec((8, 16)), spec((8,), "int64"))


def recurrent(count: int) -> Program:
    """One cell a step, each step with an input of its own."""
    params = [(weight(16, 16) * (i + 2), weight(16, 16) * -(i + 2)) for i in range(count)]

    def function(h, *xs):
        for (a, b), x in zip(params, xs, strict=True):
            h = eqsat.tanh(x @ a + h @ b)
        return h

    return eqsat.trace(function, *[spec((1, 16))] * (count + 1))


def linear(count: int) -> Program:
    """Products of products: folding crosses every layer, so nothing may be cut."""
    weights = [weight(16, 16) * (i + 1) for i in range(count)]

    def function(x):
        outs = []
        for w in weights:
            outs.append(eqsat.relu(x @ w))
            x = x @ w
        return (x, *outs)

    return eqsat.trace(function, spec((8, 16)))


def silu_layers(count: int) -> Program:
    """h * sigmoid(h): h is read twice, but by one kernel; the cut belongs behind the product with the sigmoid."""
    weights = [weight(16, 16) * (i + 1) for i in range(count)]

    def function(x):
        for w in weights:
            h = x @ w
            x = h * eqsat.sigmoid(h)
        return x

    return eqsat.trace(function, spec((8, 16)))


# program of n layers, segments of 6 layers, distinct forms among them
TABLE = [
    (residual, 8, 4),  # an input is read anywhere at no cost, so the first block is cut where later ones are not
    (masked_attention, 7, 3),  # each layer computes the mask; a norm belongs to the products that read it
    (dear_mask, 8, 4),  # the mask is a segment of its own
    (separable, 7, 3),  # a window belongs to the product that reads it
    (embedded, 6, 2),  # the rows are looked up where they are read
    (late_rows, 10, 4),
    (recurrent, 6, 1),
    (linear, 1, 1),
    (silu_layers, 6, 1),
]


@pytest.mark.parametrize(("make", "count", "forms"), TABLE, ids=lambda v: getattr(v, "__name__", str(v)))
def test_where_programs_are_cut(make, count: int, forms: int):
    parts = segments(lower(make(6)).roots)
    assert len({part.form for part in parts}) <= forms
    assert len(parts) == count


def bottlenecks(count: int) -> Program:
    """Blocks of x + f(x): linear algebra could cross every block, through the sum."""
    params = [(weight(16, 32) * (i + 1), weight(32, 16)) for i in range(count)]

    def function(x):
        for a, b in params:
            x = x + eqsat.relu(x @ a) @ b
        return x

    return eqsat.trace(function, spec((8, 16)))


@pytest.mark.parametrize(
    ("make", "least", "most"),
    [(bottlenecks, 100, 100), (linear, 1, 1)],  # products of products may be large: they become one
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_only_where_a_segment_is_too_large_linear_algebra_is_cut(make, least: int, most: int):
    assert len(segments(lower(make(6)).roots)) == 1
    assert least <= len(segments(lower(make(100)).roots)) <= most


def side_by_side(count: int, crossing: bool = False) -> Program:
    """Two towers of blocks of their own sizes, which meet in one product; with `crossing`, the second reads a value
    from the middle of the first."""
    first = [(weight(16, 32) * (i + 1), weight(32, 16)) for i in range(count)]
    second = [(weight(24, 16) * (i + 1), weight(16, 24)) for i in range(count)]

    def blocks(x, params):
        for a, b in params:
            x = x + eqsat.gelu(eqsat.softmax(x, -1) @ a) @ b
        return x

    def function(x, y):
        middle = blocks(x, first[: count // 2])
        x = blocks(middle, first[count // 2 :])
        y = blocks(y, second[: count // 2])
        if crossing:
            y = y + eqsat.concatenate([middle, middle[:, :8]], -1)
        y = blocks(y, second[count // 2 :])
        return eqsat.transpose(x) @ y

    return eqsat.trace(function, spec((8, 16)), spec((8, 24)))


def test_neighbours_that_do_not_repeat_stay_together_while_they_are_small():
    found = segments(lower(residual(24, widening=1)).roots)
    sizes = [len(topological(part.form)) for part in found]
    assert max(sizes) <= JOINED
    assert all(a + b > JOINED for a, b in pairwise(sizes))
    assert len(segments(lower(residual(24, widening=1)).roots, fuses=False)) > 24, "of single operators none crosses"


def test_towers_of_a_huge_program_are_cut_as_programs_of_their_own():
    core = lower(side_by_side(36))
    assert len([n for n in topological(core.roots) if n.op not in ("In", "Const")]) > HUGE
    parts = segments(core.roots)
    assert len(parts) >= 72
    assert len({part.form for part in parts}) <= 9
    below = [sum(n.op == "MM" for n in topological([top])) for top in towers(core.roots, ())]
    assert below == [72, 72]


def test_a_tower_ends_where_another_reads_a_value_of_it():
    core = lower(side_by_side(36, crossing=True))
    below = [sum(n.op == "MM" for n in topological([top])) for top in towers(core.roots, ())]
    assert below == [36, 36]


@pytest.mark.parametrize("count", [1, 36])
def test_what_a_huge_program_returns_as_it_came_is_a_root_of_a_part(count: int):
    made = side_by_side(count)
    given = made.inputs[1]
    core = lower(Program(made.inputs, {**made.outputs, "given": given}))
    assert {root.op for root in core.roots} >= {"In"}
    assert {root for part in segments(core.roots) for root in part.roots} >= set(core.roots)


def test_a_chain_is_no_tower():
    x = eqsat.spec((8, 16))
    long = eqsat.trace(lambda v: reduce(lambda y, i: eqsat.tanh(y) * (1.0 + i / 1e4), range(1000), v), x)
    assert towers(lower(long).roots, ()) == []


def test_a_program_that_is_not_huge_has_no_towers():
    """Small products of both towers may share launches."""
    assert towers(lower(side_by_side(6)).roots, ()) == []


@pytest.mark.parametrize(
    "make", [*(row[0] for row in TABLE), lambda count: side_by_side(36)], ids=lambda f: f.__name__.strip("<>")
)
def test_the_parts_make_the_whole(make):
    core = lower(make(3))
    values: dict = {}
    rng = np.random.default_rng(0)
    env = {n.attrs[0]: rng.standard_normal(n.size).astype(np.float32) for n in core.inputs}
    values.update({n: env[n.attrs[0]] for n in core.inputs})
    for part in segments(core.roots):
        inputs = {p.attrs[0]: values[n] for p, n in part.leaves.items() if p.op == "In"}
        constants = {p.attrs[0]: core.constants[n.attrs[0]] for p, n in part.leaves.items() if p.op == "Const"}
        values.update(zip(part.roots, evaluate(part.form, inputs, constants), strict=True))
    for root, want in zip(core.roots, evaluate(core.roots, env, core.constants), strict=True):
        np.testing.assert_allclose(values[root], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [row[0] for row in TABLE], ids=lambda f: f.__name__)
def test_putting_the_leaves_back_gives_the_program(make):
    core = lower(make(3))
    parts = segments(core.roots)
    for part in parts:
        assert tuple(substitute(part.form, part.leaves)) == part.roots


def test_where_kernels_are_single_operators_a_mask_is_computed_once():
    assert len(segments(lower(masked_attention(6)).roots, fuses=False)) == 8


def test_a_single_layer_is_not_cut():
    assert len(segments(lower(residual(1)).roots)) == 1


def test_forms_name_nothing():
    first, second = (segments(lower(recurrent(4)).roots)[i].form for i in (1, 2))
    assert first == second
    assert all(n.attrs[0].startswith("%") for n in topological(first) if n.op in ("In", "Const"))


def doubled_mask(count: int) -> Program:
    """Layers of several pieces that all read one mask."""
    params = [(weight(16, 16) * (i + 1), weight(16, 16) * -(i + 1)) for i in range(count)]

    def function(x, mask):
        chosen = mask * 2.0
        for a, b in params:
            for _ in range(3):
                x = np.tanh(x @ a) * chosen + np.exp(x @ b) * np.tanh(x)
            x = eqsat.softmax(x @ a, -1)
        return x

    return eqsat.trace(function, spec((8, 16)), spec((8, 16)))


def numbers(count: int) -> Program:
    """Two towers of operators, and a number that is returned and that the first tower reads."""
    number = ops.full(2.0, (8,), "float32")
    inputs = (ops.input("x", (8,)), ops.input("y", (8,)))
    first, second = (reduce(lambda z, _: ops.tanh(ops.exp(z)), range(count), x) for x in inputs)
    outputs = {"number": number, "first": ops.exp(ops.add(first, number)), "second": second}
    return Program(inputs, outputs)


@pytest.mark.parametrize("make", [*(row[0] for row in TABLE), doubled_mask, numbers], ids=lambda f: f.__name__)
def test_small_pieces_read_what_earlier_ones_write(make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.parts.segments.LARGE", 8)
    monkeypatch.setattr("eqsat.parts.segments.JOINED", 5)
    monkeypatch.setattr("eqsat.parts.pieces.HUGE", 8)
    monkeypatch.setattr("eqsat.parts.pieces.PIECE", 3)
    monkeypatch.setattr("eqsat.parts.pieces.TOWER", 2)
    core = lower(make(3))
    parts = segments(core.roots)
    written: list[Node] = []
    for part in parts:
        assert {leaf for leaf in part.leaves.values() if leaf.op not in ("In", "Const")} <= set(written)
        written += part.roots
    assert len(written) == len(set(written))
    assert set(core.roots) <= set(written)
