"""Products in columns as streams of rows: what is made on the way may be the right operand."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.gpu.families.expressions import array, bin_, times, transposed, un
from eqsat.program.core import Node, evaluate, topological
from eqsat.streams.shifts import in_fewest_passes
from eqsat.streams.stream import NotAStream
from eqsat.streams.turned import by_rows
from support import columns

B, M, K, N = sizes = (2, 3, 7, 4)


def inputs_of(output: Node) -> list[Node]:
    return [n for n in topological([output]) if n.op == "In"]


def weights() -> Node:
    """Down the columns, [batch, k, m]."""
    (_, found) = columns.attention(sizes).args
    return found


def values_first() -> Node:
    """The weights by rows, and the values before them."""
    scores = times((B, M, N, K), array("q", B * M * N), array("keys", B * N * K))
    by_columns = transposed(un("tanh", scores), (B, M, K), (0, 2, 1))
    return times((B, N, K, M), array("values", B * N * K), by_columns)


PASSES = {
    "attention": (columns.attention(sizes), 1, 3),
    "masked attention": (columns.attention(sizes, masked=True), 1, 3),
    "attention of normed queries and keys": (columns.attention(sizes, normed=True), 1, None),
    "two layers": (columns.chain(sizes), 1, 1),
    "rows of weights after values": (values_first(), 1, 1),
    "columns of weights before values": (
        times((B, M, K, N), transposed(weights(), (B, K, M), (0, 2, 1)), array("values", B * K * N)),
        1,
        3,
    ),
    "two layers and a product beside them": (
        bin_("add", times((B, N, K, M), array("w", B * N * K), array("y", B * K * M)), columns.chain(sizes)),
        1,
        1,
    ),
}


@pytest.mark.parametrize("name", PASSES)
def test_columns_are_walked_like_rows(name: str) -> None:
    output, corrected, exact = PASSES[name]
    inputs = inputs_of(output)
    env = {n.attrs[0]: np.random.default_rng(i).normal(size=n.size) for i, n in enumerate(inputs)}
    for passes, how in ((corrected, True), (exact, False)):
        if passes is None:
            with pytest.raises(NotAStream):
                in_fewest_passes([output], inputs, how)
            continue
        moved, found = in_fewest_passes([output], inputs, how)
        assert sum(x.passes for x in found) == passes
        assert {(x.rows, x.width) for x in found} == {(M, N)}
        np.testing.assert_allclose(evaluate(moved, env, {})[0], evaluate([output], env, {})[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["attention", "attention of normed queries and keys", "two layers"])
@pytest.mark.parametrize("others", [[], ["root"]])
def test_what_the_products_need_of_columns_is_written_beside_them(name: str, others: list[str]) -> None:
    output = PASSES[name][0]
    made = next(n for n in topological([output]) if n.op == "MM" and n.attrs == (B, N, K, M)).args[1]
    outputs = [output, made, *(un("relu", output) for _ in others)]
    inputs = inputs_of(output)
    env = {n.attrs[0]: np.random.default_rng(i).normal(size=n.size) for i, n in enumerate(inputs)}
    moved, (found,) = in_fewest_passes(outputs, inputs, True)
    assert (found.rows, found.beside) == (M, (moved[1],))
    for new, old in zip(evaluate(moved, env, {}), evaluate(outputs, env, {}), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["chain", "attention"])
def test_one_column_is_walked_like_one_row(name: str) -> None:
    """A column lies in memory like a row, so that no view says which of both a product is."""
    output = {"chain": columns.chain, "attention": columns.attention}[name]((B, 1, K, N))
    inputs = inputs_of(output)
    env = {n.attrs[0]: np.random.default_rng(i).normal(size=n.size) for i, n in enumerate(inputs)}
    moved, (found,) = in_fewest_passes([output], inputs, True)
    assert (found.rows, found.width, found.passes) == (1, N, 1)
    np.testing.assert_allclose(evaluate(moved, env, {})[0], evaluate([output], env, {})[0], rtol=1e-5, atol=1e-6)


def test_masks_of_columns_hide_tiles() -> None:
    """A band of rows and elements of the axis, whichever way round they are written."""
    output = columns.attention(sizes, masked=True)
    _, (walk,) = in_fewest_passes([output], inputs_of(output), True)
    assert walk.bands


def test_what_is_made_on_both_sides_is_not_turned() -> None:
    inner = un("tanh", times((B, N, K, K), array("a", B * N * K), array("b", B * K * K)))
    output = times((B, N, K, M), inner, weights())
    assert by_rows([output], inputs_of(output)) == (output,)


def test_rows_stay_as_they_are() -> None:
    scores = times((B, M, N, K), array("q", B * M * N), transposed(array("keys", B * K * N), (B, K, N), (0, 2, 1)))
    output = transposed(times((B, M, K, N), un("tanh", scores), array("values", B * K * N)), (B, M, N), (0, 2, 1))
    assert by_rows([output], inputs_of(output)) == (output,)
