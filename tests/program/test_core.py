"""Lowering: compact cores in normal form with the values of the program, evaluated and folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.base.numerics import np_dtype, random_array
from eqsat.errors import InputError, ShapeError
from eqsat.layout import arithmetic as lay
from eqsat.program import composites, constants, core, ops, sizes
from eqsat.program.core import Node, make
from eqsat.program.ir import Program
from eqsat.program.term import Term, topological
from eqsat.testing import STEPS, assert_equivalent, programs, random_inputs
from support.core_programs import full, view

X = ops.input("x", (2, 3, 4))
M = ops.input("m", (4, 6))
W = ops.constant(np.arange(20, dtype=np.float32).reshape(4, 5))


def program(*outputs: Term) -> Program:
    inputs = tuple(t for t in topological(outputs) if t.op == "input")
    return Program(inputs, {str(i): t for i, t in enumerate(outputs)})


def lowered(*outputs: Term) -> core.CoreProgram:
    return core.lower(program(*outputs))


def ops_of(*outputs: Term) -> Counter[str]:
    return Counter(n.op for n in core.topological(lowered(*outputs).roots))


# The same values


@pytest.mark.parametrize("name", sorted(STEPS))
@settings(max_examples=12)
@given(data=st.data())
def test_the_core_of_an_operator_computes_the_same(name: str, data: st.DataObject) -> None:
    dtypes = ("float32", "float64", "float16", "int32", "int64", "bool")
    p = data.draw(programs(only={name}, dtypes=dtypes, max_ops=3, empty=True))
    assert_equivalent(p, core.lower(p))


@settings(max_examples=150)
@given(programs(dtypes=("float32", "bfloat16", "int64", "bool")))
def test_the_core_of_a_program_computes_the_same(p: Program) -> None:
    assert_equivalent(p, core.lower(p))
    assert_equivalent(p, core.lower(p), precision="native", rtol=0.05)


@settings(max_examples=60)
@given(programs())
def test_every_root_has_the_size_and_type_of_its_output(p: Program) -> None:
    c = core.lower(p)
    assert c.root_names == tuple(p.outputs)
    assert c.root_shapes == tuple(t.shape for t in p.outputs.values())
    assert [(r.size, r.dtype) for r in c.roots] == [(t.size, t.dtype) for t in p.outputs.values()]
    for node, term in c.source_term.items():
        assert (node.size, node.dtype) == (term.size, term.dtype)


@settings(max_examples=60)
@given(programs())
def test_folding_constants_keeps_the_values(p: Program) -> None:
    c = core.lower(p)
    roots, constants = core.fold(c.roots, c.constants)[:2]
    flat = {name: array.reshape(-1) for name, array in random_inputs(p).items()}
    before = core.evaluate(c.roots, flat, c.constants, c.opaque, "float64")
    after = core.evaluate(roots, flat, constants, c.opaque, "float64")
    for a, b in zip(before, after, strict=True):
        scale = np.abs(a[np.isfinite(a)]).max(initial=1.0) if a.dtype.kind == "f" else 1
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6 * scale)


# Compact cores


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (ops.reshape(ops.unsqueeze(X, 0), (24,)), {"In": 1}),
        (ops.transpose(ops.transpose(X)), {"In": 1}),
        (ops.reshape(ops.transpose(X, (0, 2, 1)), (8, 3)), {"In": 1, "V": 1}),
        (ops.flip(ops.transpose(ops.slice_(X, [1], [2]))), {"In": 1, "V": 1}),
        (ops.sum_(X), {"In": 1, "Red": 1}),
        (ops.sum_(X, (1, 2)), {"In": 1, "Red": 1}),
        (ops.sum_(X, (0, 2)), {"In": 1, "V": 1, "Red": 1}),
        (ops.amax(ops.unsqueeze(X, 0), 0), {"In": 1}),
        (ops.concat([X, X], 0), {"In": 1, "Cat": 1}),
        (ops.concat([X, X], 1), {"In": 1, "V": 2, "Cat": 1}),
        (ops.concat([ops.unsqueeze(X, 0), ops.unsqueeze(X, 0)], 1), {"In": 1, "Cat": 1}),
        (ops.pad(X, (1, 0, 0), (0, 0, 2), 7), {"In": 1, "V": 1}),
        (composites.scaled(X, 2), {"In": 1, "Full": 1, "Bin": 1}),
        (composites.mul(X, ops.constant(np.full((3, 1), 2, np.float32))), {"In": 1, "Full": 1, "Bin": 1}),
        (composites.mul(X, ops.input("s", ())), {"In": 2, "V": 1, "Bin": 1}),
        (ops.gather(X, ops.constant([2, 1, 0]), 1), {"In": 1, "V": 1}),
        (ops.gather(X, ops.constant([0, 2, 1]), 1), {"In": 1, "Const": 1, "Gather": 1}),
        (ops.gather(X, ops.constant([[-1, -2], [-2, -3]]), 2), {"In": 1, "V": 1}),
        (ops.gather(M, ops.iota((6,)), 1), {"In": 1}),
        (ops.iota((2, 5), 1), {"Const": 1, "V": 1}),
        (ops.full(3, (2, 0)), {"Full": 1}),
        (ops.concat([X, ops.full(0, (2, 0, 4))], 1), {"In": 1}),
        (ops.pool("max", X, (4,)), {"In": 1, "Red": 1}),
        (ops.pool("max", X, (1,)), {"In": 1}),
        (ops.sum_(ops.unsqueeze(ops.cast(X, "int32"), 0), 0), {"In": 1, "Un": 1}),
    ],
)
def test_views_cost_nothing_and_compose(term: Term, expected: dict[str, int]) -> None:
    assert ops_of(term) == expected


@pytest.mark.parametrize(
    ("term", "negative"),
    [
        (ops.sum_(X, 0), False),
        (ops.sum_(ops.unsqueeze(X, 0), 0), False),
        (ops.pool("sum", X, (1,)), False),
        (ops.matmul(ops.full(1.0, (2, 3, 1)), ops.slice_(X, [0, 0, 0], [2, 1, 4])), False),
        (ops.reduce("prod", ops.unsqueeze(X, 0), 0), True),
        (ops.amax(ops.unsqueeze(X, 0), 0), True),
        (ops.pool("max", X, (1,)), True),
    ],
)
def test_sums_of_negative_zeros_are_zero_however_few_they_add(term: Term, negative: bool) -> None:
    program = Program((X,), {"y": term})
    zeros = {"x": np.full(X.shape, -0.0, np.float32)}

    for found in (program.run(zeros), core.lower(program).run(zeros)):
        assert set(np.signbit(found["y"]).flat) == {negative}


@pytest.mark.parametrize(
    ("a", "b", "dims"),
    [
        (M, ops.input("n", (6, 2)), (1, 4, 6, 2)),
        (X, W, (1, 6, 4, 5)),  # a weight that every batch shares: one product of more rows
        (ops.input("q", (2, 3, 4, 5)), ops.input("k", (3, 5, 6)), (6, 4, 5, 6)),
        (ops.input("q", (2, 3, 4, 5)), ops.input("k", (2, 1, 5, 6)), (2, 12, 5, 6)),
        (ops.input("q", (2, 3, 4, 5)), ops.input("k", (2, 3, 5, 6)), (6, 4, 5, 6)),
        (ops.input("q", (1, 1, 4, 5)), ops.input("k", (1, 1, 5, 6)), (1, 4, 5, 6)),
        (X, ops.input("v", (4,)), (1, 6, 4, 1)),
        (X, ops.full(1, (2, 4, 5)), (1, 6, 4, 5)),
    ],
)
def test_a_matmul_is_one_product_with_as_few_batches_as_possible(a: Term, b: Term, dims: tuple[int, ...]) -> None:
    term = composites.matmul(a, b)
    c = lowered(term)
    products = [n for n in core.topological(c.roots) if n.op == "MM"]
    assert [n.attrs for n in products] == [dims]
    assert_equivalent(program(term), c)


@pytest.mark.parametrize(
    ("x", "w", "options", "dims"),
    [
        ((2, 3, 8), (4, 3, 1), {}, (1, 16, 3, 4)),
        ((2, 4, 8, 8), (6, 2, 3, 3), {"groups": 2, "pads_lo": (1, 1), "pads_hi": (1, 1)}, (2, 128, 18, 3)),
        ((1, 4, 8, 8), (4, 1, 3, 3), {"groups": 4, "strides": (2, 2)}, (4, 9, 9, 1)),
        ((1, 2, 4, 5, 6), (3, 2, 2, 2, 2), {"dilations": (1, 2, 3)}, (1, 27, 16, 3)),
    ],
)
def test_a_conv_is_a_product_over_a_window_view(
    x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any], dims: tuple[int, ...]
) -> None:
    term = ops.conv(ops.input("x", x), ops.input("w", w), **options)
    nodes = core.topological(lowered(term).roots)
    assert [n.attrs for n in nodes if n.op == "MM"] == [dims]
    assert {n.op for n in nodes} <= {"In", "V", "MM"}
    assert core.flops(next(n for n in nodes if n.op == "MM")) == ops.row("conv").flops(term)


def test_source_terms_prefer_what_computes_over_what_views() -> None:
    y = ops.relu(X)
    flat = ops.reshape(y, (24,))
    turned = ops.transpose(y, (2, 0, 1))
    c = lowered(flat, turned, ops.reshape(X, (6, 4)))
    assert [c.source_term[r] for r in c.roots] == [y, turned, X]


def test_constants_are_known_by_their_values_whatever_their_shape() -> None:
    c = lowered(W, ops.reshape(ops.constant(W.attr("value").array.reshape(5, 4)), (20,)))
    assert c.roots[0] is c.roots[1]
    assert list(c.constants) == [W.attr("value").digest]


def test_an_index_out_of_range_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"gather takes indices in \[-3, 3\), got 0 to 3"):
        lowered(ops.gather(X, ops.constant([0, 3]), 1))


# Normal form of nodes


A = make("In", ("a", 12, "float32"))
MASK = lay.of_pad((3, 4), (1, 0), (0, 0), 0.0)


@pytest.mark.parametrize(
    ("node", "same"),
    [
        (lambda: make("V", (lay.identity(12),), (A,)), lambda: A),
        (lambda: view(view(A, lay.of_transpose((3, 4), (1, 0))), lay.of_transpose((4, 3), (1, 0))), lambda: A),
        (lambda: view(full(2.0, 12), lay.strided(0, [(4, 2)])), lambda: full(2.0, 4)),
        (lambda: view(full(0.0, 12), MASK), lambda: full(0.0, 16)),
        (lambda: make("Full", (0.1, 3, "float32")), lambda: make("Full", (float(np.float32(0.1)), 3, "float32"))),
    ],
)
def test_nodes_are_normalised(node: Callable[[], Node], same: Callable[[], Node]) -> None:
    assert node() is same()


def test_a_mask_over_another_value_is_kept() -> None:
    for value in (1.0, -0.0):
        node = view(full(value, 12), MASK)
        assert node.op == "V"
        np.testing.assert_array_equal(core.evaluate([node], {}, {})[0], [0.0] * 4 + [value] * 12)


def test_nodes_are_numbered_as_they_are_made_and_cannot_be_changed() -> None:
    a, b = make("In", ("first", 1, "bool")), make("In", ("second", 1, "bool"))
    assert a.uid < b.uid
    assert make("In", ("first", 1, "bool")) is a
    with pytest.raises(AttributeError, match="immutable"):
        a.size = 2


@pytest.mark.parametrize(
    ("op", "attrs", "args"),
    [
        ("MM", (1, 3, 4, 2), (A, A)),
        ("Bin", ("add",), (A, make("In", ("b", 11, "float32")))),
        ("Bin", ("add",), (A, make("In", ("b", 12, "float64")))),
        ("Red", ("sum", 5), (A,)),
        ("Where", (), (A, A, A)),
        ("V", (lay.strided(0, [(13, 1)]),), (A,)),
        ("V", (lay.strided(3, [(5, -1)]),), (A,)),
        ("Gather", (1, 11, 1), (A, A)),
        ("Cat", (), (A, make("In", ("b", 12, "float64")))),
        ("Scan", (), (A,)),
    ],
)
def test_nodes_whose_operands_do_not_fit_are_refused(op: str, attrs: Any, args: Any) -> None:
    with pytest.raises(ShapeError):
        make(op, attrs, args)


# Evaluation


def strided_layouts() -> st.SearchStrategy[tuple[int, lay.Layout]]:
    """(input size, layout): transposes, slices, flips, broadcasts and windows of small shapes."""

    @st.composite
    def build(draw: Callable[[st.SearchStrategy[Any]], Any]) -> tuple[int, lay.Layout]:
        dims = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(-5, 5)), max_size=4))
        low = sum(min((n - 1) * s, 0) for n, s in dims)
        high = sum(max((n - 1) * s, 0) for n, s in dims)
        slack = draw(st.integers(0, 3))
        return high - low + 1 + slack, lay.strided(draw(st.integers(0, slack)) - low, dims)

    return build()


@given(strided_layouts())
def test_reading_by_strides_is_reading_by_index(sized: tuple[int, lay.Layout]) -> None:
    size, layout = sized
    a = random_array((size,), "float32", np.random.default_rng(0))
    node = view(make("In", ("x", size, "float32")), layout)
    np.testing.assert_array_equal(core.evaluate([node], {"x": a}, {})[0], a[layout.index()])


def masked_layouts() -> st.SearchStrategy[tuple[int, lay.Layout]]:
    """(input size, layout): masks over digits that may also move on their own: pads, windows, triangles and worse."""

    @st.composite
    def build(draw: Callable[[st.SearchStrategy[Any]], Any]) -> tuple[int, lay.Layout]:
        dims = draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0, 0, 1, 4, -3])), min_size=1, max_size=4))
        coeffs = st.lists(st.sampled_from([0, 0, 1, 1, -1, 2]), min_size=len(dims), max_size=len(dims)).map(tuple)
        axes = st.lists(st.builds(lay.Axis, st.integers(0, 4), st.integers(-4, 9), st.integers(-3, 3), coeffs))
        layout = lay.masked(64, dims, draw(axes)[:2], -1.0)  # from 64 on, no read is negative
        return int(layout.index().max(initial=0)) + 1, layout

    return build()


@settings(max_examples=200)
@given(masked_layouts())
def test_reading_through_a_mask_is_reading_by_index(sized: tuple[int, lay.Layout]) -> None:
    size, layout = sized
    a = np.arange(size, dtype=np.float32)
    index = layout.index()
    node = view(make("In", ("x", size, "float32")), layout)
    np.testing.assert_array_equal(core.evaluate([node], {"x": a}, {})[0], np.where(index < 0, -1, a[index]))


def test_windows_of_an_image_need_no_index_array() -> None:
    import tracemalloc

    windows = lay.windows((1, 8, 64, 64), (5, 5), (1, 1), (1, 1), (2, 2), (2, 2), 0.0, 1)
    x = np.ones(8 * 64 * 64, np.float32)
    tracemalloc.start()
    (got,) = core.evaluate([view(make("In", ("x", x.size, "float32")), windows)], {"x": x}, {})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.2 * got.nbytes


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32", "int64", "bool"])
def test_masked_reads_fill_in_the_type_of_the_array(dtype: str) -> None:
    fill = {"bool": True, "int32": 7, "int64": 7}.get(dtype, float("-inf"))
    node = view(make("In", ("x", 2, dtype)), lay.of_pad((2,), (1,), (1,), fill))
    x = np.array([0, 1]).astype(np_dtype(dtype))
    (got,) = core.evaluate([node], {"x": x}, {})
    assert got.dtype == x.dtype
    assert got.tolist() == [fill, *x.tolist(), fill]


def test_a_missing_value_is_named() -> None:
    with pytest.raises(InputError, match="input 'a' is missing"):
        core.evaluate([A], {}, {})
    with pytest.raises(InputError, match="takes 12 elements, got 3"):
        core.evaluate([A], {"a": np.zeros(3)}, {})
    with pytest.raises(InputError, match="constant abc is missing"):
        core.evaluate([make("Const", ("abc", 2, "float32"))], {}, {})


# Folding


def test_folding_computes_in_float64_and_rounds_once() -> None:
    tiny = np.array([1.0, 2**-12, -1.0], np.float16)
    term = ops.sum_(ops.add(ops.constant(tiny), ops.full(1, (3,), "float16")))  # 1 + 2**-12 is 1 in float16
    c = lowered(term)
    (root,), constants = core.fold(c.roots, c.constants)[:2]
    assert constants == {}
    assert root.attrs == (float(np.float16(3 + 2**-12)), 1, "float16")


def test_folding_leaves_views_and_what_varies() -> None:
    square = ops.mul(W, W)
    c = lowered(ops.matmul(M, ops.transpose(M)), ops.transpose(square))
    roots, constants = core.fold(c.roots, c.constants)[:2]
    assert [n.op for n in core.topological(roots[1:])] == ["Const", "V"]
    assert roots[0] is c.roots[0]
    assert len(constants) == 1


def test_folding_respects_its_limit() -> None:
    c = lowered(ops.mul(W, W))
    assert core.fold(c.roots, c.constants, limit=19)[0] == c.roots
    assert core.fold(c.roots, c.constants, limit=20)[0] != c.roots


def test_opaque_results_are_never_folded() -> None:
    (value,) = ops.opaque("Random", [W], [((4, 5), "float32")], "s", lambda a: (a + 1,))
    c = lowered(ops.exp(value))
    assert core.fold(c.roots, c.constants)[0] == c.roots
    assert_equivalent(program(ops.exp(value)), c)


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "float16"])
@pytest.mark.parametrize("n", [8, 9, 16, 21, 2055])
def test_a_long_ramp_is_computed_of_short_ones(monkeypatch: pytest.MonkeyPatch, n: int, dtype: str) -> None:
    monkeypatch.setattr(core, "_LINE", 8)
    found = lowered(ops.iota((2, n, 3), 1, dtype))
    np.testing.assert_array_equal(found.run({})["0"], np.broadcast_to(np.arange(n)[:, None].astype(dtype), (2, n, 3)))
    assert max(array.size for array in found.constants.values()) <= max(8, n // 8)


def test_a_ramp_takes_no_memory_of_its_length() -> None:
    found = lowered(ops.cast(ops.iota((2**31 - 8,), 0, "int64"), "float32"))
    assert sum(array.nbytes for array in found.constants.values()) < 1 << 24


def test_indices_that_are_too_many_to_compute_are_looked_up_where_the_program_runs() -> None:
    x = ops.input("x", (4,))
    many = ops.broadcast(ops.constant(np.array([1, 3])), (10**9, 2))
    assert ops_of(ops.gather(x, many))["Gather"] == 1
    assert ops_of(ops.gather(x, ops.broadcast(ops.constant(np.array([1, 3])), (4, 2))))["Gather"] == 0


def test_all_constants_together_are_computed_ahead_for_so_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "WORK_OF_WEIGHTS", 0)
    monkeypatch.setattr(constants, "FOLDED_WORK", 20_000_000)
    ones = np.random.default_rng(0).standard_normal((100, 100)).astype(np.float32)
    products = [ops.matmul(ops.constant(ones), ops.constant(ones + i)) for i in range(1, 30)]
    found = lowered(*products)
    folded = core.fold(found.roots, found.constants)
    left = sum(root.op == "MM" for root in folded.roots)
    assert 0 < left < len(products)
    again = core.fold(found.roots, found.constants)
    assert again.roots == folded.roots


def test_parts_of_a_program_share_what_is_computed_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "WORK_OF_WEIGHTS", 0)
    monkeypatch.setattr(constants, "FOLDED_WORK", 7_000_000)
    ones = np.random.default_rng(0).standard_normal((100, 100)).astype(np.float32)
    found = lowered(*(ops.matmul(ops.constant(ones), ops.constant(ones + i)) for i in (1, 2)))
    budget = constants.folding_budget(found.constants.values())
    folded = [core.fold([root], found.constants, budget=budget).roots[0].op for root in found.roots]
    assert folded == ["Const", "MM"]
