"""Groups: independent small products are one launch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

import eqsat
from eqsat.base.numerics import random_array
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import InputError
from eqsat.extract.cover import source_cover
from eqsat.extract.plan.plan import Plan, build_plan
from eqsat.gpu.build.gates import gate
from eqsat.gpu.families.base import Kernel
from eqsat.gpu.launch.grouping import groups
from eqsat.gpu.launch.lower import Launch
from eqsat.gpu.launch.lower import lower as lower_plan
from eqsat.gpu.run.run import run_simt
from eqsat.gpu.table.sharing import MOST_TILES, Member, launches
from eqsat.gpu.table.targets import TARGETS
from eqsat.program.core import Node, lower
from eqsat.program.ir import Program
from support import gpu_support as s


def towers(widths: Sequence[tuple[int, ...]], rows: int = 20, dtype: str = "float32") -> Program:
    """Towers of products with these widths, each over columns of x of its own."""
    shapes = [shape for chain in widths for shape in pairwise(chain)]

    def program(x: eqsat.Tracer, *weights: eqsat.Tracer) -> list[eqsat.Tracer]:
        results, at, rest = [], 0, list(weights)
        for chain in widths:
            h = x[:, at : at + chain[0]]
            at += chain[0]
            for _ in chain[1:]:
                h = eqsat.relu(h @ rest.pop(0))
            results.append(h)
        return results

    return eqsat.trace(
        program, eqsat.spec((rows, sum(c[0] for c in widths)), dtype), *(eqsat.spec(n, dtype) for n in shapes)
    )


UNEQUAL = ((16, 24, 8), (9, 5, 8), (40, 33, 7), (11, 24, 8))


def plan_of(program: Program) -> Plan:
    core = lower(program)
    return build_plan(Snapshot.from_core(core.roots), source_cover(core, "mi300x"), core)


def launched(program: Program, device: str = "mi300x") -> list[Kernel]:
    return [step.kernel for step in lower_plan(plan_of(program), device).steps if isinstance(step, Launch)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("device", ["mi300x", "rx7900xtx", "h100"])
def test_towers_of_unequal_widths_take_one_launch(device: str, dtype: str) -> None:
    program = towers(UNEQUAL, dtype=dtype)
    assert [k.family for k in launched(program, device)] == ["group"]
    rng = np.random.default_rng(0)
    inputs = {t.attr("name"): random_array(t.shape, t.dtype, rng) for t in program.inputs}
    flat = {name: array.reshape(-1) for name, array in inputs.items()}
    expected = program.run(inputs, precision="float64")
    for got, (name, term) in zip(
        run_simt(plan_of(program), flat, device, order=5), program.outputs.items(), strict=True
    ):
        s.assert_close(got.reshape(term.shape), expected[name], dtype, name)


def test_one_member_is_no_group() -> None:
    (together,), (alone,) = launched(towers(UNEQUAL)), launched(towers(UNEQUAL[:1], rows=8))
    assert (together.variant, alone.family) == ("4_of_4", "stream")


def test_large_and_dependent_products_are_launches_of_their_own() -> None:
    assert [k.family for k in launched(towers(((512, 512), (500, 400)), rows=1024))] == ["contraction"] * 2
    assert [k.family for k in launched(towers(((8, 8, 8, 8),)))] == ["contraction", "stream"]
    plan = plan_of(towers([(8, 64)] * 60, rows=64))
    assert [len(group) for group in groups(plan)] == [MOST_TILES // 4] * 2 + [60 - MOST_TILES // 2]


KERNELS = {"p": "x", "q": "y", "r": "p", "y": "x", "z": "q", "w": "pq"}
"""Kernels by the array that each writes, with the arrays that it reads. Only p, q and r are small products."""


@pytest.mark.parametrize(
    ("given", "order"),
    [("pyqw", "y pq w"), ("ypqw", "y pq w"), ("yqpw", "y qp w"), ("pyqzr", "y pq z r"), ("pry", "p r y")],
)
def test_small_products_share_launches_wherever_they_stand(given: str, order: str) -> None:
    """All else stays in order."""
    members = [Member(4 if name in "pqr" else 0, KERNELS[name], name) for name in given]
    assert " ".join("".join(given[i] for i in group) for group in launches(members)) == order


def test_members_follow_what_they_need() -> None:
    """A product that reads a group's result, and one that another kernel stands between, come after it."""
    plan = plan_of(towers(UNEQUAL))
    made: set[Node] = set()
    for group in groups(plan):
        kernels = [plan.kernels[i] for i in group]
        assert all(n.op in ("In", "Const") or n in made for kernel in kernels for n in kernel.inputs)
        made |= {n for kernel in kernels for n in kernel.outputs}


@pytest.mark.parametrize("arch", TARGETS)
def test_groups_pass_the_gates(arch: str) -> None:
    dtype = "float16" if arch in ("gfx950", "gfx1201", "sm_90") else "float32"
    device = {"gfx90a": "mi250x", "gfx942": "mi300x", "gfx950": "mi355x", "gfx1100": "rx7900xtx", "gfx1201": "rx9070xt"}
    kernels = launched(towers(UNEQUAL, dtype=dtype), device.get(arch, "h100"))
    try:
        judged = gate("\n".join(k.source for k in kernels), kernels, TARGETS[arch])
    except InputError as missing:
        pytest.skip(str(missing))
    assert [verdict.faults for verdict in judged] == [()] * len(kernels)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "sm_90"])
def test_a_kernel_with_outputs_of_several_products_is_a_group(arch: str, dtype: str) -> None:
    x, shapes = s.array("x", 20 * 33, dtype), (64, 48, 80, 48)
    products = [s.times((1, 20, 33, n), x, s.array(f"w{i}", 33 * n, dtype)) for i, n in enumerate(shapes)]
    case = s.case("siblings", s.un("relu", products[0]), *products, arch=arch)
    (kernel,) = case.chain.kernels
    assert kernel.variant == "4_of_3"
    s.check([case], arch, order=3)
    dependent = s.times((1, 20, 64, 9), products[0], s.array("v", 64 * 9, dtype))
    apart = s.case("dependent", products[1], dependent, arch=arch)
    assert [k.family for k in apart.chain.kernels] == ["contraction", "stream"]
