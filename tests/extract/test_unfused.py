"""Kernels where a runtime executes operator by operator: one operator, its views, and what runtimes join to it."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.device.table import DEVICES
from eqsat.extract.kernels.candidates import enumerate_candidates
from eqsat.extract.kernels.composites import composites
from eqsat.extract.kernels.cost import Prices
from eqsat.extract.kernels.cuts import Limits
from eqsat.extract.plan.operators import Executed
from eqsat.frontends.terms.windows import transposed_conv
from eqsat.layout import arithmetic as lay
from eqsat.program import ops
from eqsat.program.core import Node
from eqsat.program.ir import Program
from eqsat.program.term import Term, topological
from support.core_programs import bin_, by_row, c_, full, mm, red, un, view, x_

X, Y, W = x_("x", 64 * 32), x_("y", 64 * 32), c_("w", 32 * 16)
XW = mm(X, W, 64, 32, 16)
TALL = lay.of_transpose((64, 32), (1, 0))


def test_operators_that_do_not_fuse_get_a_kernel_each() -> None:
    found = enumerate_candidates(Snapshot.from_core([un("exp", bin_("add", X, Y))]), DEVICES["cpu"])
    assert [[x.family for x in xs] for xs in found.of_class] == [[], [], ["pointwise"], ["pointwise"]]


EX = un("exp", X)
SWAPPED = lay.of_transpose((32, 64), (1, 0))
READS_VIEW: list[tuple[str, Node, Node, bool]] = [
    ("a broadcast row", bin_("add", X, by_row(un("exp", x_("r", 64)), 32)), bin_("add", X, Y), False),
    ("a slice", un("tanh", view(EX, lay.strided(64, ((64, 1),)))), un("tanh", x_("r", 64)), False),
    ("a transposed operand of a pointwise operator", un("tanh", view(EX, TALL)), un("tanh", X), True),
    ("a transposed matrix of a product", mm(view(EX, SWAPPED), W, 64, 32, 16), XW, False),
    ("another view of a product's operand", mm(view(EX, lay.strided(2047, ((2048, -1),))), W, 64, 32, 16), XW, True),
    ("a sum over another axis", red("sum", view(EX, TALL), 64), red("sum", X, 64), False),
]


@pytest.mark.parametrize(("root", "plain", "copied"), [r[1:] for r in READS_VIEW], ids=[r[0] for r in READS_VIEW])
def test_where_operators_run_one_by_one_some_views_are_copies(root: Node, plain: Node, copied: bool) -> None:
    def cheapest(node: Node) -> int:
        snapshot = Snapshot.from_core([node])
        found = enumerate_candidates(snapshot, DEVICES["cpu"])
        assert all(x.family != "alias" for xs in found.of_class for x in xs)
        (top,) = snapshot.of_class(snapshot.roots[0])
        return min(x.price for x in found.of_class[top.cls] if not set(x.children) & set(top.args))

    launch = round(DEVICES["cpu"].launch_us.value * 1e6)
    assert (cheapest(root) - cheapest(plain) >= launch) == copied


IMAGE, TAPS = x_("image", 16 * 100), c_("taps", 32 * 16 * 9)
WINDOWS = lay.windows((1, 16, 10, 10), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 0.0, 1)
CONVOLVED = view(
    mm(view(IMAGE, WINDOWS), view(TAPS, lay.conv_weights((32, 16, 3, 3), 1)), 100, 144, 32),
    lay.conv_result(1, 1, 100, 32),
)
BIASED = bin_("add", CONVOLVED, view(c_("bias", 32), lay.strided(0, ((32, 1), (100, 0)))))
STRIDED = view(
    mm(
        view(IMAGE, lay.windows((1, 16, 10, 10), (3, 3), (2, 2), (1, 1), (0, 0), (0, 0), 0.0, 1)),
        view(TAPS, lay.conv_weights((32, 16, 3, 3), 1)), 16, 144, 32,
    ),
    lay.conv_result(1, 1, 16, 32),
)  # fmt: skip
INTERLEAVED = view(
    mm(view(IMAGE, lay.of_transpose((4, 16, 25), (1, 0, 2))), c_("mixed", 100 * 8), 16, 100, 8),
    lay.of_transpose((16, 8), (1, 0)),
)
JOINED: list[tuple[str, Node, bool]] = [
    ("a bias", BIASED, True),
    ("a bias and a clamp", un("relu", BIASED), True),
    ("a bias, a sum and a clamp", un("relu", bin_("add", BIASED, x_("r", 3200))), True),
    ("a sum, and then a bias", bin_("add", bin_("add", CONVOLVED, x_("r", 3200)), c_("late", 3200)), False),
    ("a sum after a clamp", bin_("add", un("relu", BIASED), x_("r", 3200)), False),
    ("another function", un("tanh", BIASED), False),
    ("nothing, with a stride and without padding", STRIDED, True),
    ("windows that lie between each other", INTERLEAVED, False),
    ("another order", view(CONVOLVED, lay.of_transpose((320, 10), (1, 0))), False),
    ("a sum over its elements", red("sum", CONVOLVED, 100), False),
]


@pytest.mark.parametrize(("root", "joined"), [row[1:] for row in JOINED], ids=[row[0] for row in JOINED])
def test_a_convolution_is_one_operator_with_what_runtimes_join_to_it(root: Node, joined: bool) -> None:
    snapshot = Snapshot.from_core([root])
    found = enumerate_candidates(snapshot, DEVICES["cpu"])
    assert any(not x.children for x in found.of_class[snapshot.roots[0]]) == joined


def test_a_convolution_costs_its_product_and_no_windows() -> None:
    def cheapest(node: Node) -> int:
        snapshot = Snapshot.from_core([node])
        found = enumerate_candidates(snapshot, DEVICES["cpu"])
        return min(x.price for x in found.of_class[snapshot.roots[0]] if not x.children)

    product = mm(x_("rows", 100 * 144), c_("columns", 144 * 32), 100, 144, 32)
    assert cheapest(CONVOLVED) == pytest.approx(cheapest(product), rel=0.01)
    assert cheapest(CONVOLVED.args[0]) > cheapest(product)  # no operator has the channels last


def test_an_operator_of_the_program_is_one_kernel_with_one_launch() -> None:
    half, one = (view(full(value, 1), lay.strided(0, ((4096, 0),))) for value in (0.5, 1.0))
    x = x_("x", 4096)
    gelu = bin_("mul", bin_("mul", x, half), bin_("add", un("erf", x), one))
    snapshot = Snapshot.from_core([gelu])
    found = enumerate_candidates(snapshot, DEVICES["cpu"])
    operators = [(snapshot.roots[0], (next(n.cls for n in snapshot.nodes if n.op == "In"),))]
    (whole,) = composites(snapshot, found.facts, Prices(DEVICES["cpu"]), operators, Limits())
    assert not whole.children
    assert all(x.children for x in found.of_class[snapshot.roots[0]])
    apart = sum(min(x.price for x in xs) for xs in found.of_class if xs)
    assert whole.price < apart - 2 * round(DEVICES["cpu"].launch_us.value * 1e6)


def test_a_transposed_convolution_costs_its_product_and_no_places() -> None:
    x = ops.input("x", (1, 16, 28, 28), "float32")
    w = ops.constant(np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32))

    def predicted(term: Term, whole: bool) -> float:
        return Executed(Program((x,), {"y": term}), whole).predicted_us(DEVICES["cpu"])

    spread = transposed_conv(x, w, 1, (2, 2), (1, 1), [(1, 0, 56), (1, 0, 56)])
    assert predicted(spread, True) < 0.5 * predicted(spread, False)
    product = next(t for t in topological([spread]) if t.op == "conv")
    assert predicted(spread, True) > 0.999 * predicted(product, True)
    assert predicted(product, True) == predicted(product, False), "the price of a plain convolution is the same"
