"""Large constants computed in runs are those computed at once, bit by bit."""

from __future__ import annotations

import time

import numpy as np
import pytest

from eqsat.base.numerics import np_dtype
from eqsat.layout.arithmetic import of_transpose, strided
from eqsat.program import constants as folding
from eqsat.program import term
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


def test_large_computed_constants_are_known_by_how_they_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """To hash what was computed takes as long as to compute it."""
    read: list[int] = []
    hashed = term._hashed
    monkeypatch.setattr(term, "_hashed", lambda array: read.append(array.size) or hashed(array))
    size = 1 << 16
    given = {name: RNG.standard_normal(size).astype(np.float32) for name in "ab"}
    a, b = (make("Const", (name, size, "float32")) for name in "ab")
    scaled = (make("Bin", ("mul",), (x, make("Full", (n, size, "float32")))) for x, n in ((a, 2.0), (b, 2.0), (a, 3.0)))
    joined = make("Cat", (), (a, b))
    roots = [*scaled, joined]
    found = folding.fold(roots, given)
    assert not read
    assert len({x.attrs[0] for x in found.roots}) == len(roots)
    assert folding.fold(roots, given).roots == found.roots
    again = folding.fold(roots, given, roots)
    assert again.roots[0] is not found.roots[0], "in its own type, not in float64"
    assert again.roots[-1] is found.roots[-1], "what is only moved has the same bits"
    for root, value in zip(roots, found.roots, strict=True):
        (want,) = evaluate([root], {}, given)
        np.testing.assert_array_equal(found.constants[value.attrs[0]], want)


def test_a_chain_of_constants_is_named_in_no_time() -> None:
    """Each link is a constant of its own, since something that varies reads it."""
    size, links = 1 << 14, 400
    given = {"a": RNG.standard_normal(size).astype(np.float32)}
    link, roots = make("Const", ("a", size, "float32")), []
    for i in range(links):
        link = make("Bin", ("add",), (link, make("Full", (float(i), size, "float32"))))
        roots.append(make("Bin", ("mul",), (make("In", ("x", size, "float32")), link)))
    begun = time.process_time()
    found = folding.fold(roots, given)
    assert time.process_time() - begun < 2.0
    assert len(found.constants) == links
