"""What CONTRIBUTING.md says to add, added as it says: one row each, and everything else picks it up.

A core operator is added in tests/program/test_core_table.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from jinja2 import ChoiceLoader, DictLoader

import eqsat
from eqsat.egraph.saturate import Limits, Saturation
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import ShapeError
from eqsat.evidence.judge import judge
from eqsat.extract.device.table import DEVICES, Figure
from eqsat.gpu.catalogue import FAMILIES, samples
from eqsat.gpu.code.cache import HERE
from eqsat.gpu.code.scalar import STORAGE
from eqsat.gpu.families.base import Choice, Family, Job, Kernel, Sizes, environment, finished, part_of
from eqsat.gpu.launch.generate import AROUND, Chain
from eqsat.gpu.table.targets import TARGETS, Target
from eqsat.language.equation import equation
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node, lower
from eqsat.program.core import make as make_node
from eqsat.program.core_table import CORE
from eqsat.program.ir import Program
from eqsat.program.lowering import view
from eqsat.program.ops import input as input_
from eqsat.program.ops import matmul
from eqsat.program.term import OPS, Op, Shape, Term, make
from eqsat.rules import ALL
from eqsat.testing import assert_equivalent, random_inputs
from support.core_programs import CUMSUM
from support.gpu_support import case, check


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


# gpu/families/prefix.jinja: a thread for each row
TEMPLATE = """
  const {{ index_type }} row = ({{ index_type }})block * {{ threads }} + t;
  if (row < {{ rows }}) {
    {{ type }} total = 0;
    for (int c = 0; c < {{ columns }}; c++) {
      total += in0[row * {{ columns }} + c];
      out0[row * {{ columns }} + c] = total;
    }
  }
"""


def prefix_sums(job: Job, target: Target, exact: bool) -> Chain:
    """Cumulative sums of rows, x[rows, columns]."""
    (out,), threads = job.outputs, job.choice.per_row or 64
    (columns,) = out.attrs
    rows = out.size // columns
    part = part_of(
        job, "Cumulative sums", "prefix.jinja", threads=threads, rows=rows, columns=columns, type=STORAGE[out.dtype]
    )
    entry, source = finished("prefix", threads, part)
    arguments = (*job.inputs, out)
    blocks = -(-rows // threads)
    return Chain((Kernel(entry, "prefix", f"threads{threads}", source, blocks, threads, arguments, part=part),))


def sums_of_rows(sizes: Sizes, dtype: str) -> dict[str, tuple[Node, ...]]:
    _, rows, columns, _ = sizes
    return {"cumulative sums": (make_node("CumSum", (columns,), (make_node("In", ("x", rows * columns, dtype)),)),)}


PREFIX = Family("prefix", "cumulative sums", lambda target, dtype: [Choice(per_row=n) for n in (64, 256)], sums_of_rows)


def test_a_kernel_family_is_a_declaration_and_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    templates = environment(HERE / "families")
    monkeypatch.setattr(
        templates, "loader", ChoiceLoader([DictLoader({"prefix.jinja": TEMPLATE}), templates.loader or DictLoader({})])
    )
    monkeypatch.setitem(CORE, "CumSum", CUMSUM)
    monkeypatch.setitem(AROUND, "CumSum", prefix_sums)
    monkeypatch.setitem(FAMILIES, PREFIX.name, PREFIX)
    target = TARGETS["gfx942"]
    listed = [kernel for _, kernel in samples(target, "float32") if kernel.family == "prefix"]
    assert [kernel.name for kernel in listed] == ["prefix threads64", "prefix threads256"]
    assert PREFIX.parameters(target, "float32") == {"per row": ["64", "256"]}
    for choice in PREFIX.choices(target, "float32"):
        for name, outputs in PREFIX.examples((1, 300, 7, 1), "float32").items():
            check([case(name, *outputs, choice=choice)], "gfx942")
