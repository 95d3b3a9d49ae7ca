"""Large constants computed in runs are those computed at once, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.base.numerics import np_dtype
from eqsat.layout.arithmetic import of_transpose, strided
from eqsat.program import constants as folding
from eqsat.program.evaluation import evaluate
from eqsat.program.node import Node, make

M, N = 48, 36
SIZE = M * N
RNG = np.random.default_rng(3)
CONSTANTS = {
    name: RNG.standard_normal(size).astype(np.float16)
    for name, size in (("a", SIZE), ("b", SIZE), ("rows", M), ("columns", N))
}


def const(name: str) -> Node:
    return make("Const", (name, CONSTANTS[name].size, "float16"))


def view(a: Node, *dims: tuple[int, int]) -> Node:
    return make("V", (strided(0, dims),), (a,))


def mul(a: Node, b: Node) -> Node:
    return make("Bin", ("mul",), (a, b))


ROWS = view(const("rows"), (M, 1), (N, 0))
COLUMNS = view(const("columns"), (M, 0), (N, 1))
TURNED = make("V", (of_transpose((N, M), (1, 0)),), (const("b"),))
TOTAL = make("Red", ("sum", N), (mul(const("a"), const("a")),))
COMPUTED: dict[str, Node] = {
    "rows scaled": mul(const("a"), ROWS),
    "rows and columns scaled": mul(mul(const("a"), ROWS), COLUMNS),
    "of a transpose": mul(const("a"), TURNED),
    "by a number": mul(const("a"), make("Full", (0.1, SIZE, "float16"))),
    "by what is computed": mul(const("a"), view(make("Un", ("sqrt",), (TOTAL,)), (M, 1), (N, 0))),
    "of a concatenation": mul(
        make("Cat", (), (view(const("b"), (SIZE // 2, 1)), view(const("a"), (SIZE // 2, 1)))), ROWS
    ),
    "joined": make("Cat", (), (mul(const("a"), ROWS), mul(const("b"), COLUMNS), const("a"))),
    "turned after": make("V", (of_transpose((M, N), (1, 0)),), (mul(const("a"), ROWS),)),
}


@pytest.mark.parametrize("precision", ["native", "float64"])
@pytest.mark.parametrize("name", COMPUTED)
def test_runs_compute_the_same_bits(name: str, precision: folding.Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "RUN", 5 * N)
    monkeypatch.setattr(folding, "LARGE", SIZE // 2)
    root = COMPUTED[name]
    found = folding.in_runs(root, CONSTANTS, precision)
    assert found is not None
    (at_once,) = evaluate([root], {}, CONSTANTS, precision=precision)
    assert found.dtype == np_dtype("float16")
    assert found.tobytes() == at_once.astype(np.float16).tobytes()


AT_ONCE = [const("a"), TOTAL, view(const("a"), (SIZE, 1)), mul(TURNED, COMPUTED["turned after"])]


@pytest.mark.parametrize("root", AT_ONCE)
def test_what_gains_nothing_is_computed_at_once(root: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "RUN", 5 * N)
    monkeypatch.setattr(folding, "LARGE", M - 1)
    assert folding.in_runs(root, CONSTANTS, "float64") is None
