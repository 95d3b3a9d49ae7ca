"""The next best covers after the best one, in order of price, all with different kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from eqsat.extract.cover import CoverResult
from eqsat.extract.cover_problem import CoverProblem
from eqsat.extract.solver.kbest import Marks, next_best
from eqsat.layout.arithmetic import is_bijective


def next_covers(
    best: CoverResult, count: int, deadline: float, should_stop: Callable[[], bool] | None = None
) -> list[CoverResult]:
    """Up to `count` covers after `best`, in order of price.

    Kernels of the same family and price, in picoseconds, count as the same: they move the same bytes and do the same
    work, and differ only like mirror images, by commuted operands or by a layout that one kernel transposes and the
    next transposes back. A cover that launches all kernels of an earlier one and more is left out. `optimal` means that
    only the covers listed before cost less; after `deadline` (`time.monotonic`) nothing more is proven.

    Raises:
        ValueError: `best` is not a result of `cover`.
    """
    covers, solution = best.problem, best.solution
    if covers is None or solution is None:
        raise ValueError("next_covers takes a result of cover")
    return [
        CoverResult(
            chosen=covers.launch_order(x.choice),
            cost=x.cost,
            lower_bound=x.cost if x.proven else best.lower_bound,
            optimal=x.proven,
            problem=covers,
            solution=solution,
        )
        for x in next_best(covers.problem, solution, _marks(covers), count, deadline, should_stop)
    ]


def kernel_counts(cover: CoverResult) -> Counter[tuple[str, int]]:
    """How often a cover launches kernels of each family and price."""
    return Counter((x.family, x.price) for x in cover.kernels)


def _marks(covers: CoverProblem) -> Marks:
    """Kernels by family and price; classes with the same values in another order count as one place."""
    problem, snapshot = covers.problem, covers.snapshot
    families = [x.family for x in (*covers.candidates, *covers.calls)]
    kernels = [(f, price) if price else None for f, price in zip(families, problem.node_cost, strict=True)]
    first = list(range(snapshot.n_classes))

    def place(c: int) -> int:
        while first[c] != c:
            c = first[c]
        return c

    for node in snapshot.nodes:
        if node.op == "V" and is_bijective(node.attrs[0], snapshot.size[node.args[0]]):
            a, b = place(node.cls), place(node.args[0])
            first[max(a, b)] = min(a, b)
    calls = range(snapshot.n_classes, snapshot.n_classes + len(covers.calls))
    return Marks(kernels, [*map(place, covers.classes), *calls])
