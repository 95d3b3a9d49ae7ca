"""Chains of views: layouts written as NumPy expressions that read the same elements."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from eqsat.layout.arithmetic import (
    Axis,
    Layout,
    compose,
    masked,
    of_broadcast,
    of_pad,
    of_slice,
    of_transpose,
    row_major,
    strided,
    windows,
)
from eqsat.lift.view_chain import apply, chain, cost, through
from eqsat.program import ops
from eqsat.program.ir import Program
from support.layouts import FAMILIES, draw, factors

HEADS = of_transpose((6, 4, 8), (1, 0, 2))
SECOND_OF_THREE = of_slice((6, 12), (0, 4), (6, 8), (1, 1))


def composed(first: Layout, then: Layout) -> Layout:
    layout = compose(first, then)
    assert layout is not None
    return layout


# layout, shape of the operand, shape of the result, the operators that read it
CHAINS = {
    "nothing": (strided(0, [(24, 1)]), (4, 6), (4, 6), []),
    "reshape": (strided(0, [(24, 1)]), (4, 6), (2, 2, 6), ["reshape"]),
    "transpose": (of_transpose((4, 6), (1, 0)), (4, 6), (6, 4), ["transpose"]),
    "heads": (HEADS, (6, 32), (4, 6, 8), ["reshape", "transpose"]),
    "heads-with-a-batch-of-one": (HEADS, (1, 6, 4, 8), (1, 4, 6, 8), ["transpose"]),
    "heads-joined": (of_transpose((4, 6, 8), (1, 0, 2)), (4, 6, 8), (6, 32), ["transpose", "reshape"]),
    "keys-of-a-joined-product": (
        composed(SECOND_OF_THREE, of_transpose((6, 2, 2), (1, 2, 0))),
        (6, 12),
        (2, 2, 6),
        ["reshape", "slice", "transpose"],
    ),
    "heads-of-layers-beside-something-else": (
        strided(2, [(3, 6), (2, 2), (4, 20), (2, 1)]),
        (4, 20),
        (6, 4, 2),
        ["slice", "reshape", "slice", "transpose", "reshape"],
    ),
    "column-block": (SECOND_OF_THREE, (6, 12), (6, 4), ["slice"]),
    "member-of-a-group": (of_slice((3, 40), (1, 0), (2, 40), (1, 1)), (3, 5, 8), (5, 8), ["slice", "reshape"]),
    "transpose-without-the-units": (of_transpose((4, 6), (1, 0)), (4, 6, 1), (6, 4), ["reshape", "transpose"]),
    "flip": (of_slice((4, 6), (0, 5), (4, -1), (1, -1)), (4, 6), (4, 6), ["slice"]),
    "every-other": (of_slice((4, 6), (0, 1), (4, 6), (1, 2)), (4, 6), (4, 3), ["slice"]),
    "flat-slice": (of_slice((24,), (5,), (17,), (1,)), (4, 6), (12,), ["reshape", "slice"]),
    "bias": (of_broadcast((6,), (4, 6)), (6,), (4, 6), ["broadcast"]),
    "bias-of-a-batch": (of_broadcast((6,), (2, 4, 6)), (6,), (2, 4, 6), ["broadcast"]),
    "new-batch": (strided(0, [(24, 1)]), (4, 6), (1, 4, 6), ["broadcast"]),
    "statistics": (of_broadcast((4, 1), (4, 6)), (4, 1), (4, 6), ["broadcast"]),
    "bare-statistics": (of_broadcast((4, 1), (4, 6)), (4,), (4, 6), ["reshape", "broadcast"]),
    "channel-bias": (of_broadcast((3, 1, 1), (2, 3, 4, 5)), (3, 1, 1), (2, 3, 4, 5), ["broadcast"]),
    "scalar": (of_broadcast((1,), (4, 6)), (), (4, 6), ["broadcast"]),
    "pad": (of_pad((4, 6), (1, 0), (0, 2), 0.0), (4, 6), (5, 8), ["pad"]),
    "pad-an-outer-dim": (of_pad((4, 6), (1, 0), (1, 0), 0.0), (4, 6), (6, 6), ["pad"]),
    "filled": (masked(0, [(6, 0)], [Axis(0, 0, 0, (0,))], 1.0), (6,), (2, 3), ["fill"]),
    "upper-triangle": (masked(0, [(4, 4), (4, 1)], [Axis(4, 0, 0, (-1, 1))], 0.0), (4, 4), (4, 4), ["mask"]),
    "diagonal-of-a-vector": (
        masked(0, [(4, 0), (4, 1)], [Axis(1, 0, 0, (-1, 1))], 0.0),
        (4,),
        (4, 4),
        ["reshape", "broadcast", "mask"],
    ),
    "blocks-across-rows": (strided(10, [(2, 6), (4, 1)]), (24,), (2, 4), ["blocks"]),
    "flat-blocks-across-rows": (strided(10, [(2, 6), (4, 1)]), (4, 6), (8,), ["blocks"]),
    "unfolded-windows": (windows((1, 1, 5), (3,), (1,), (1,), (0,), (0,), 0.0), (1, 1, 5), (3, 3), ["take"]),
}


@pytest.mark.parametrize("row", CHAINS)
def test_chain(row: str) -> None:
    layout, source, target, expected = CHAINS[row]
    assert [step.op for step in chain(layout, source, target)] == expected


def run(layout: Layout, source: tuple[int, ...], target: tuple[int, ...], steps: tuple) -> None:
    x = ops.input("x", source)
    y = apply(x, steps)
    assert y.shape == target
    values = np.arange(1, 1 + x.size, dtype=np.float32).reshape(source)
    index = layout.index()
    expected = np.where(index < 0, layout.fill or 0, values.reshape(-1)[np.maximum(index, 0)])
    got = Program((x,), {"y": y}).run({"x": values})["y"]
    np.testing.assert_array_equal(got, expected.reshape(target), err_msg=f"{layout}: {steps}")


@pytest.mark.parametrize("row", CHAINS)
def test_chain_reads_what_the_layout_reads(row: str) -> None:
    layout, source, target, _ = CHAINS[row]
    run(layout, source, target, chain(layout, source, target))


def with_units(rng: random.Random, shape: list[int]) -> tuple[int, ...]:
    """The shape with some dims of size 1 thrown in."""
    for _ in range(rng.choice([0, 0, 1, 2])):
        shape = list(shape)
        shape.insert(rng.randint(0, len(shape)), 1)
    return tuple(shape)


@pytest.mark.parametrize("family", FAMILIES)
def test_any_layout_between_any_shapes(family: str) -> None:
    rng = random.Random(family)
    gathered = total = 0
    for shape, index, layout in draw(family, 500):
        source = with_units(rng, rng.choice([list(shape), factors(rng, math.prod(shape))]))
        target = with_units(rng, factors(rng, index.size))
        steps = chain(layout, source, target)
        run(layout, source, target, steps)
        total += 1
        gathered += any(step.op == "take" for step in steps)
    assert total > 250
    assert gathered < 0.25 * total, "too many layouts have no chain of views"


def test_blocks_that_lie_apart_are_read_one_by_one() -> None:
    rng, read = random.Random(11), 0
    for _ in range(1000):
        inner = [(rng.randint(1, 4), rng.randint(0, 6)) for _ in range(rng.randint(1, 2))]
        layout = strided(rng.randint(0, 9), [(rng.randint(2, 4), rng.randint(1, 40)), *inner])
        size = int(layout.index().max()) + 1 + rng.randint(0, 9)
        target = rng.choice([(layout.size,), tuple(n for n, _ in layout.dims)])
        steps = chain(layout, (size,), target)
        if any(step.op == "blocks" for step in steps):
            run(layout, (size,), target, steps)
            read += 1
    assert read > 100


def test_views_that_do_not_compose_are_read_one_after_the_other() -> None:
    first, then = of_slice((3, 4), (0, 0), (3, 3), (1, 1)), strided(0, [(4, 2)])
    assert compose(first, then) is None
    steps = through(first, then, (3, 4), (2, 2))
    flat = Layout(0, tuple(zip((12,), row_major((12,)), strict=True)))
    index = first.index()[then.index()]
    x = ops.input("x", (3, 4))
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    got = Program((x,), {"y": apply(x, steps)}).run({"x": values})["y"]
    np.testing.assert_array_equal(got.reshape(-1), flat.index()[index])
    assert cost(steps) < 12, "no gather needed"


def test_an_index_is_made_once_while_a_program_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, source, target, _ = CHAINS["unfolded-windows"]
    steps = chain(layout, source, target)
    first = apply(ops.input("x", source), steps)
    monkeypatch.delattr(Layout, "index")
    assert apply(ops.input("y", source), steps).args[1] is first.args[1]


def test_layouts_that_differ_in_their_fill_share_their_index() -> None:
    """Also where it is so large that its digest is its name."""
    shape = (1, 4, 40, 40, 3, 3)
    nines = [windows((1, 4, 40, 40), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), fill) for fill in (0.0, -math.inf)]
    x = ops.input("x", (1, 4, 40, 40))
    read = [apply(x, chain(layout, x.shape, shape)) for layout in nines]
    both = Program((x,), {str(i): term for i, term in enumerate(read)})
    assert sum(term.op == "gather" for term in both.terms()) == 1
    values = np.arange(6400, dtype=np.float32).reshape(x.shape)
    for layout, term in zip(nines, read, strict=True):
        (found,) = Program((x,), {"y": term}).run({"x": values}).values()
        places = layout.index().reshape(shape)
        np.testing.assert_array_equal(found[places >= 0], values.reshape(-1)[places[places >= 0]])
        assert set(found[places < 0]) == {layout.fill}
