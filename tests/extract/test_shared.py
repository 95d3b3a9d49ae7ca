"""Small products in one launch: priced as lowering launches them, so that they win where they do less work."""

from __future__ import annotations

import time
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.cover import cover
from eqsat.extract.kernels.candidates import Candidate, Candidates
from eqsat.extract.kernels.cuts import Cut, Facts, Kind, Limits
from eqsat.extract.plan.plan import build_plan
from eqsat.extract.shared import CALL, Sharing
from eqsat.extract.swaps import swapped
from eqsat.gpu.launch.grouping import groups, launch_counts
from eqsat.program.core import Node, make
from support.core_programs import mm, un, x_
from support.plans import program_of


def chain_flops(dims: list[int]) -> int:
    """FLOPs of the best order of a chain of products, by dynamic programming."""
    n = len(dims) - 1
    least = {(i, i): 0 for i in range(n)}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            least[i, j] = min(
                least[i, k] + least[k + 1, j] + 2 * dims[i] * dims[k + 1] * dims[j + 1] for k in range(i, j)
            )
    return least[0, n - 1]


CHAINS = [[128, 32, 256, 32, 512, 16], [64, 16, 256, 16, 256, 32], [32, 16, 512, 16, 512, 16, 256]]


def chain(dims: list[int]) -> eqsat.Program:
    """The product of matrices with these dims, all of them inputs."""
    shapes = {f"m{i}": shape for i, shape in enumerate(pairwise(dims))}
    return eqsat.trace(
        lambda **m: reduce(lambda a, b: a @ b, m.values()), **{n: eqsat.spec(s) for n, s in shapes.items()}
    )


@pytest.mark.parametrize("dims", CHAINS, ids=str)
def test_chains_of_small_products_do_little_more_than_the_least_work(dims: list[int]) -> None:
    report = eqsat.optimize(chain(dims), device="mi300x").report
    assert report["result"]["flops"] <= 1.5 * chain_flops(dims)
    assert report["result"]["predicted_us"] < report["source"]["predicted_us"]


@pytest.mark.parametrize("dims", CHAINS, ids=str)
def test_of_many_candidates_those_near_good_covers_share_launches(
    dims: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_few = eqsat.optimize(chain(dims), device="mi300x").report["result"]
    monkeypatch.setattr("eqsat.extract.cover.MOST_SHARING", 0)
    assert eqsat.optimize(chain(dims), device="mi300x").report["result"]["predicted_us"] == of_few["predicted_us"]


def small(name: str, n: int) -> Node:
    """A small product with its own operands."""
    return mm(x_(f"{name}a", 32 * 48), x_(f"{name}b", 48 * n), 32, 48, n)


JOINED = make("Cat", (), [un("relu", small("p", 16)), un("relu", small("q", 32))])
PROGRAMS = {
    "results": [small("p", 16), small("q", 32), small("r", 48)],
    "operands of a kernel": [mm(small("p", 40), mm(x_("c", 40 * 64), x_("d", 64 * 24), 40, 64, 24), 32, 40, 24)],
    "one after another kernel": [
        un("exp", JOINED),
        mm(un("tanh", make("Red", ("max", 4), (x_("z", 32 * 48 * 4),))), x_("w", 48 * 20), 32, 48, 20),
        small("s", 16),
    ],
}


@pytest.mark.parametrize("roots", PROGRAMS.values(), ids=PROGRAMS)
def test_the_price_is_of_the_launches_that_lowering_makes(roots: list[Node]) -> None:
    snapshot = Snapshot.from_core(roots)
    found = cover(snapshot, "mi300x", 5.0)
    plan = build_plan(snapshot, found, program_of(roots))
    together = [i for i, kernel in enumerate(plan.kernels) if kernel.beside]
    assert together
    assert round(sum(k.predicted_us for k in plan.kernels) * 1e6) == found.cost
    counts, _ = launch_counts(plan)
    assert all(counts[i] == 0 for i in together)
    launches = {i: at for at, group in enumerate(groups(plan)) for i in group}
    assert all(launches[i] == launches[i - 1] for i in together)
    made: set[Node] = set()
    for group in groups(plan):
        kernels = [plan.kernels[i] for i in group]
        assert all(n.op in ("In", "Const") or n in made for kernel in kernels for n in kernel.inputs)
        made |= {n for kernel in kernels for n in kernel.outputs}


def test_what_shared_launches_save_at_most_is_counted_by_launches_and_by_classes() -> None:
    def shared(*members: int) -> list[Candidate]:
        cuts = [Cut(c, -1, (), Kind.GEMM, None, 0, 0, ()) for c in members]
        return [Candidate(x.cls, "contraction", (), (), 3, x, (CALL, (members, ()))) for x in cuts]

    snapshot = Snapshot.from_core([small("p", 16)])
    sharing = Sharing(snapshot, Candidates([], Facts(snapshot, Limits())), 7)
    assert sharing.most_saved([]) == 0
    assert sharing.most_saved(shared(0, 1, 2)) == 2 * 7
    assert sharing.most_saved([*shared(0, 1), *shared(0, 1)]) == 7, "the same call twice"
    assert sharing.most_saved([*shared(0, 1), *shared(2, 3)]) == 2 * 7
    assert sharing.most_saved([*shared(0, 1), *shared(0, 2), *shared(1, 2)]) == 2 * 7, "each class is computed once"


@pytest.mark.parametrize("roots", PROGRAMS.values(), ids=PROGRAMS)
def test_the_bound_before_launches_were_shared_gives_the_bound_after(
    roots: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = Snapshot.from_core(roots)
    monkeypatch.setattr("eqsat.extract.cover.MOST_SHARING", 0)
    known = cover(snapshot, "mi300x", 20.0)
    monkeypatch.setattr(Sharing, "most_saved", lambda *args: 1 << 60)
    anew = cover(snapshot, "mi300x", 20.0)
    assert known.optimal
    assert anew.optimal
    assert known.cost == anew.cost


@pytest.mark.parametrize("device", ["mi300x", "h100"])
def test_products_that_wait_for_the_fewest_others_share_launches(device: str) -> None:
    """y.T read from memory makes x @ y.T cheaper by itself, but the launch that writes it costs more than it saves."""
    x, y, z, w = (eqsat.spec(shape) for shape in ((32, 32), (16, 32), (16, 32), (32, 32)))

    def late(x: Any, y: Any, z: Any, w: Any) -> Any:
        return np.maximum(x @ y.T, 0) @ z @ w

    def early(x: Any, y: Any, z: Any, w: Any) -> Any:
        return np.maximum(x @ y.T, 0) @ (z @ w)

    prices = []
    for function in (late, early):
        result = eqsat.optimize(eqsat.trace(function, x, y, z, w), device, time_limit=30, measure=False)
        assert result.report["optimal"]
        prices.append(result.report["result"]["predicted_us"])
    assert prices[0] <= prices[1]


def rank_one_beside(k: int) -> list[Node]:
    """(c @ (x @ a)) for two constants, each a stream by itself: as two products each, they fill two launches."""
    x = x_("x", 16 * k)
    return [mm(x_(f"c{i}", 24 * 16), mm(x, x_(f"a{i}", k * 8), 16, k, 8), 24, 16, 8) for i in range(2)]


@pytest.mark.parametrize("roots", [*PROGRAMS.values(), rank_one_beside(64)])
def test_a_changed_kernel_gains_where_launches_are_then_shared(roots: list[Node]) -> None:
    """Changes of a cover by greedy choices lead to one that costs no more; the best cover is not changed."""
    snapshot = Snapshot.from_core(roots)
    found = cover(snapshot, "mi300x", 5.0)
    assert found.problem is not None
    begun = found.problem.cheap_kernels()
    ends = time.monotonic() + 10.0
    prices = [
        sum({x.call or x.cls: x.price for x in kernels}.values())
        for kernels in (begun, swapped(found.problem, begun, ends), swapped(found.problem, found.chosen, ends))
    ]
    assert prices[0] >= prices[1] >= prices[2] == found.cost
