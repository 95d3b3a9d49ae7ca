"""What CONTRIBUTING.md says to add, added as it says: one row each, and everything else picks it up.

A core operator is added in tests/program/test_core_table.py. A kernel family is a folder with a template, which no test
can add in passing: tests/gpu/test_gpu_families.py loops over those that there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import eqsat
from eqsat.egraph.saturate import Limits, Saturation
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import ShapeError
from eqsat.evidence.judge import judge
from eqsat.extract.device.table import DEVICES, Figure
from eqsat.language.equation import equation
from eqsat.layout import arithmetic as lay
from eqsat.program.core import lower
from eqsat.program.ir import Program
from eqsat.program.lowering import view
from eqsat.program.ops import input as input_
from eqsat.program.ops import matmul
from eqsat.program.term import OPS, Op, Shape, Term, make
from eqsat.rules import ALL
from eqsat.testing import assert_equivalent, random_inputs


def antidiagonal(x: Term) -> tuple[Shape, str]:
    """The shape rule of the operator below: a square matrix, with both axes exchanged."""
    if len(x.shape) != 2 or x.shape[0] != x.shape[1]:
        raise ShapeError(f"antitranspose takes a square matrix, got {x.shape}")
    return x.shape, x.dtype


# x[n, n] mirrored along its other diagonal
OPERATOR = Op(
    "antitranspose",
    1,
    (),
    antidiagonal,
    lambda x, dtype: x[::-1, ::-1].T,
    lambda term: 0,
    lambda term, args: view(args[0], lay.strided(term.size - 1, ((n := term.shape[0], -1), (n, -n)))),
    view=True,
)


@pytest.fixture(name="antitranspose")
def added() -> Iterator[None]:
    """The operator, for one test."""
    OPS["antitranspose"] = OPERATOR
    yield
    del OPS["antitranspose"]


@pytest.mark.usefixtures("antitranspose")
def test_an_operator_is_one_row() -> None:
    x, y = input_("x", (5, 5)), input_("y", (5, 5))
    program = Program((x, y), {"z": matmul(make("antitranspose", x), make("antitranspose", y))})
    assert "antitranspose(%0)" in str(program)
    values = random_inputs(program)
    wanted = values["x"][::-1, ::-1].T @ values["y"][::-1, ::-1].T
    np.testing.assert_allclose(program.run(values)["z"], wanted, rtol=1e-5)
    best = eqsat.optimize(program)
    assert best.report["result"]["kernels"] == 1  # the views are read in place
    np.testing.assert_allclose(best.compile()(values)["z"], wanted, rtol=1e-5)
    with pytest.raises(ShapeError, match="square matrix"):
        make("antitranspose", input_("w", (2, 3)))


def test_an_equation_and_two_strategies_are_a_row_each() -> None:
    stated = equation(
        "difference-of-squares", "a * a - b * b == (a + b) * (a - b)", numerics="reassociating", source="algebra"
    )
    rows = [
        *stated.orient("right", "factor-squares", worth="dynamic(a)", why="one product less"),
        *stated.orient("left", "expand-squares", worth="const(b); dynamic(a)", why="b * b is folded"),
    ]
    assert [(row.name, row.equation) for row in rows] == [
        ("factor-squares", "difference-of-squares"),
        ("expand-squares", "difference-of-squares"),
    ]
    assert {judge(row).verdict for row in rows} == {"sound"}
    program = eqsat.trace(lambda x, y: x * x - y * y, eqsat.spec((50, 96)), eqsat.spec((50, 96)))
    saturated = Saturation(Snapshot.from_core(lower(program).roots), rows, Limits(seconds=30)).run()
    assert "factor-squares" in {node.rule for node in saturated.nodes}
    assert_equivalent(program, eqsat.optimize(program, rules=[*ALL, *rows]).program, rtol=1e-5)


def test_a_device_is_a_row_that_prices_start_from(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = replace(DEVICES["mi300x"], name="half", title="half an MI300X", bandwidth=Figure(2650, "assumed: a half"))
    monkeypatch.setitem(DEVICES, slow.name, slow)
    program = eqsat.trace(lambda x: eqsat.relu(x) + 1, eqsat.spec((4096, 4096)))
    there, here = (eqsat.optimize(program, device=name).report for name in ("mi300x", "half"))
    assert here["device"] == "half"
    assert here["result"]["predicted_us"] > 1.8 * there["result"]["predicted_us"]
