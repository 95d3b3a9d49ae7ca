"""Index arithmetic: simplified expressions have the values of the plain ones."""

from __future__ import annotations

import doctest
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.gpu.code import index as module
from eqsat.gpu.code.c_writer import Region
from eqsat.gpu.code.index import Index, Var, digits, through
from eqsat.layout import arithmetic as lay
from support.indices import environments, value

extents = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=3)
strides = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24])
steps = st.lists(st.tuples(st.sampled_from("dms"), st.sampled_from([2, 3, 4, 6, 8, 12])), max_size=5)


@given(extents, st.lists(strides, min_size=3, max_size=3), st.integers(0, 7), steps)
def test_simplified_indices_keep_their_values(
    sizes: list[int], factors: list[int], start: int, operations: list[tuple[str, int]]
) -> None:
    variables = [Var(f"v{i}", n) for i, n in enumerate(sizes)]
    index = Index.of(start)
    for var, factor in zip(variables, factors, strict=False):
        index += Index.of(var) * factor
    envs = environments(variables)
    plain = [value(index, env) for env in envs]
    for operation, by in operations:
        if operation == "d":
            index, plain = index // by, [x // by for x in plain]
        elif operation == "m":
            index, plain = index % by, [x % by for x in plain]
        else:
            parts = digits(index, (1 << 20, by, 3))
            index = parts[0] * (3 * by) + parts[1] * 3 + parts[2]
        assert [value(index, env) for env in envs] == plain
        assert index.range[0] <= min(plain) <= max(plain) <= index.range[1]


@given(st.permutations([0, 1, 2]), st.lists(st.integers(1, 5), min_size=3, max_size=3))
def test_layouts_of_flat_indices_follow_their_definition(perm: list[int], shape: list[int]) -> None:
    for layout in (
        lay.of_transpose(shape, perm),
        lay.of_pad(shape, (1, 0, 2), (0, 1, 1), 0.0),
        lay.of_slice(shape, (0, 0, 0), shape, (1, 2, 1)),
    ):
        flat = Var("i", layout.size)
        address, masks = through(layout, Index.of(flat))
        for i, expected in enumerate(layout.index()):
            env = {flat: i}
            inside = all(0 <= value(m.index, env) < m.bound for m in masks)
            assert (value(address, env) if inside else -1) == expected


def test_digits_of_a_tile_cost_nothing() -> None:
    m, n, u = Var("m", 64), Var("nq", 16), Var("u", 4)
    flat = Index.of(m) * 64 + Index.of(n) * 4 + Index.of(u)
    assert [str(d) for d in digits(flat, (64, 4, 16))] == ["m", "nq/4", "u + 4*nq%4"]
    assert digits(flat, (64, 64))[1] == Index.of(n) * 4 + Index.of(u)
    assert digits(flat, (64, 16, 4)) == [Index.of(m), Index.of(n), Index.of(u)]
    assert flat.coefficient(u) == 1
    assert flat.without(u).multiple_of(4)


@pytest.mark.parametrize("sizes", [(6, 4), (2, 3, 5), (7,)])
def test_digits_put_together_are_the_index_again(sizes: tuple[int, ...]) -> None:
    i = Index.of(Var("i", prod(sizes)))
    together = Index()
    for digit, stride in zip(digits(i, sizes), lay.row_major(sizes), strict=True):
        together += digit * stride
    assert together == i


def test_values_are_defined_as_far_out_as_they_can_be() -> None:
    row, u = Var("row", 8), Var("u", 4)
    region = Region([row])
    with region.unrolled(u):
        address = region.index(Index.of(row) * 12 + Index.of(u) * 3 + 5)
        region.statement(f"use({address.text});")
    assert region.text.splitlines() == [
        "const int v1 = row * 12 + 5;",
        "EQ_UNROLL",
        "for (int u = 0; u < 4; ++u) {",
        "  const int v2 = v1 + u * 3;",
        "  use(v2);",
        "}",
    ]


def test_the_documented_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0
