"""Evaluating some elements of a program's outputs gives the same values as evaluating all."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.check import demand, wanted
from eqsat.check.demand import Demanded
from eqsat.check.wanted import Demand, Repeated, Sums, Wanted, everything, reshape_groups, selected
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term
from eqsat.testing import programs, random_inputs

RNG = np.random.default_rng(3)
X = ops.input("x", (2, 6, 8), "float32")
IMAGE = ops.input("x", (2, 4, 9, 7), "float32")
W = ops.constant(RNG.standard_normal((2, 8, 5)).astype(np.float32))
KERNEL = ops.constant(RNG.standard_normal((6, 4, 3, 3)).astype(np.float32))
DEPTHWISE = ops.constant(RNG.standard_normal((4, 1, 3, 2)).astype(np.float32))
GROUPED = ops.constant(RNG.standard_normal((6, 2, 3, 2)).astype(np.float32))
ROWS = ops.constant(np.array([3, 0, 5]))

TERMS: dict[str, Term] = {
    "product": ops.matmul(X, W),
    "rows merged": ops.reshape(ops.matmul(X, W), (12, 5)),
    "heads": ops.transpose(ops.reshape(X, (2, 6, 2, 4)), (0, 2, 1, 3)),
    "across groups": ops.reshape(X, (3, 4, 8)),
    "slice": ops.slice_(X, [5, 1], [0, 7], [1, 2], [-2, 3]),
    "flip": ops.flip(X, 1),
    "broadcast": ops.broadcast(ops.reduce("sum", X, 1, True), (3, 2, 6, 8)),
    "concat": ops.concat([X, ops.relu(X), ops.slice_(X, [0], [2], [1])], 1),
    "pad": ops.pad(X, (0, 2, 1), (1, 0, 3), 1.5),
    "max": ops.reduce("max", X, (0, 2)),
    "argmax": ops.reduce("argmax", X, 1, True),
    "gather": ops.gather(X, ROWS, 1),
    "iota": ops.add(ops.iota((2, 6, 8), 1, "float32"), X),
    "full": ops.where(ops.less(X, ops.full_like(0.0, X)), ops.full_like(2.0, X), X),
    "conv": ops.conv(IMAGE, KERNEL, (2, 1), (1, 2), (0, 1), (1, 2)),
    "depthwise": ops.conv(IMAGE, DEPTHWISE, groups=4),
    "grouped": ops.conv(IMAGE, GROUPED, (1, 2), (1, 1), (1, 0), groups=2),
    "quarters": ops.concat(
        [ops.slice_(ops.relu(X), [i, j], [i + 3, j + 4], [1, 2]) for i in (0, 3) for j in (0, 4)], 1
    ),
    "pool": ops.pool("max", IMAGE, (3, 2), (2, 1), (1, 1), (1, 0)),
    "scalar": ops.reshape(ops.reduce("sum", X), (1, 1)),
}


def _inputs(term: Term) -> dict[str, np.ndarray]:
    x = IMAGE if term.op in ("conv", "pool") else X
    return random_inputs(Program((x,), {"y": term}))


def _whole(term: Term, inputs: dict[str, np.ndarray]) -> np.ndarray:
    return Demanded({term: everything(term)}).run(inputs)[0]


@pytest.mark.parametrize("name", TERMS)
def test_the_whole_is_what_the_program_computes(name: str) -> None:
    term = TERMS[name]
    inputs = _inputs(term)
    x = IMAGE if term.op in ("conv", "pool") else X
    for precision in ("native", "float64"):
        want = Program((x,), {"y": term}).run(inputs, precision)["y"]
        (found,) = Demanded({term: everything(term)}).run(inputs, precision)
        assert found.dtype == want.dtype
        np.testing.assert_allclose(found, want, rtol=1e-6 if precision == "native" else 1e-13, atol=1e-6)


@pytest.mark.parametrize("name", TERMS)
def test_some_elements_are_those_of_the_whole(name: str) -> None:
    term = TERMS[name]
    inputs = _inputs(term)
    want = _whole(term, inputs)
    for axis, n in enumerate(term.shape):
        for index in ([], [0], [n - 1], sorted({0, n // 2, n - 1}), list(range(n))):
            places = np.array(index, np.int64)
            demand: list[Wanted] = [None] * term.ndim
            demand[axis] = places
            (found,) = Demanded({term: tuple(demand)}).run(inputs)
            np.testing.assert_allclose(found, want.take(places, axis), rtol=1e-13, atol=1e-13)
    both = [np.array([0, n - 1]) if n > 1 else None for n in term.shape]
    (found,) = Demanded({term: tuple(both)}).run(inputs)
    np.testing.assert_allclose(found, want[np.ix_(*([0, n - 1] if n > 1 else [0] for n in want.shape))], atol=1e-13)


@pytest.mark.parametrize("name", TERMS)
def test_sums_along_an_axis_are_those_of_the_whole(name: str) -> None:
    term = TERMS[name]
    inputs = _inputs(term)
    want = _whole(term, inputs)
    for axis, n in enumerate(term.shape):
        weights = np.random.default_rng(axis).choice([-1.0, 1.0], (2, n))
        demand: list[Wanted] = [None] * term.ndim
        demand[axis] = Sums(weights)
        (found,) = Demanded({term: tuple(demand)}).run(inputs)
        np.testing.assert_allclose(found, np.moveaxis(np.tensordot(weights, want, (1, axis)), 0, axis), atol=1e-11)


@pytest.mark.parametrize("block", [8, 1 << 20])
def test_values_that_repeat_are_made_where_they_are_wanted(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wanted, "BLOCK_BYTES", block)
    value = Repeated(RNG.standard_normal(7), (3, 4, 5))
    whole = np.resize(value.drawn, value.shape)
    sums = Sums(RNG.standard_normal((2, 4)))
    demands: list[Demand] = [
        (None, None, None),
        (np.array([0, 2]), None, np.array([4])),
        (None, sums, np.array([1, 3])),
    ]
    for wish in demands:
        np.testing.assert_allclose(value.selected(wish), selected(whole, (None,) * 3, wish), atol=1e-13)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(programs(), st.integers(0, 99))
def test_random_programs(p: Program, seed: int) -> None:
    inputs = random_inputs(p)
    for term in p.outputs.values():
        want = _whole(term, inputs)
        index = [np.array(sorted({seed % n, (seed // 3) % n} if n else ())).astype(int) for n in term.shape]
        (found,) = Demanded({term: tuple(index)}).run(inputs)
        np.testing.assert_allclose(found, want[np.ix_(*index)] if index else want, rtol=1e-5, atol=1e-6)


def test_a_row_of_a_product_costs_one_row() -> None:
    x, w = ops.input("x", (4096, 512), "float32"), ops.input("w", (512, 4096), "float32")
    product = ops.relu(ops.matmul(x, w))
    assert Demanded({product: (np.array([7]), None)}).flops < 20 * 512 * 4096
    summed = Demanded({product.args[0]: (Sums(np.ones((1, 4096))), None)})
    assert summed.flops < 40 * 512 * 4096


def test_joined_constants_are_read_whole_where_many_are_wanted() -> None:
    parts = [ops.constant(RNG.standard_normal(64).astype(np.float32)) for _ in range(4)]
    weights = ops.reshape(ops.concat(parts, 0), (32, 8))
    read = ops.matmul(weights, ops.input("x", (8, 2), "float32"))
    inputs = {"x": RNG.standard_normal((8, 2)).astype(np.float32)}
    for rows, whole in (([0, 1, 5, 9], True), ([3], False)):
        demanded = Demanded({read: (np.array(rows), None)})
        assert (demanded.demand[weights][0] is None) is whole
        assert demanded.demand[read][0] is not None
        np.testing.assert_allclose(demanded.run(inputs)[0], _whole(read, inputs)[rows], rtol=1e-13)


def test_sums_beside_rows_of_one_operand_alone() -> None:
    a, b, c, d = (ops.constant(np.arange(12.0, dtype=np.float32).reshape(1, 3, 4) + i) for i in range(4))
    joined = ops.concat([ops.matmul(x, ops.transpose(y, (0, 2, 1))) for x, y in ((a, b), (c, d))], 0)
    ones = Sums(np.ones((1, 3)))
    (found,) = Demanded({joined: (np.array([0]), ones, None)}, exact=True).run({})
    (want,) = Demanded({joined: everything(joined)}, exact=True).run({})
    np.testing.assert_array_equal(found, want[:1].sum(axis=1, keepdims=True))


def test_constants_are_computed_in_the_types_of_the_program() -> None:
    """log(8)/log(2) is 3 or just below it: a cast tells which precision was used."""
    c = ops.constant(np.arange(1, 4000, dtype=np.float32))
    ratio = ops.div(ops.log(c), ops.full_like(float(np.float32(np.log(2))), c))
    whole = ops.cast(ops.mul(ratio, ops.full_like(5.0, c)), "int64")
    native = Program((), {"y": whole}).run({}, "native")["y"]
    assert (native != Program((), {"y": whole}).run({}, "float64")["y"]).any()
    np.testing.assert_array_equal(Demanded({whole: everything(whole)}).run({})[0], native)


@pytest.mark.parametrize("groups", [1, 4])
def test_some_elements_of_a_convolution_of_nothing(groups: int) -> None:
    x = ops.input("x", (0, 4, 9, 7), "float32")
    y = ops.conv(x, DEPTHWISE if groups == 4 else KERNEL, groups=groups)
    (found,) = Demanded({y: (None, None, np.array([0, 2]), None)}).run({"x": np.zeros(x.shape, np.float32)})
    assert found.shape == (0, y.shape[1], 2, y.shape[3])


@pytest.mark.parametrize(("before", "after"), [((0, 3), (0,)), ((2, 0, 3), (0, 5)), ((0,), (4, 0))])
def test_axes_of_a_reshape_of_nothing_are_one_group(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    groups = reshape_groups(ops.reshape(ops.input("x", before, "float32"), after))
    assert groups == [(range(len(before)), range(len(after)))]


def test_where_nothing_is_wanted_of_a_part_nothing_is_read_for_it() -> None:
    """A row of one part, and no element of another with other columns: else all of these rows and columns are read."""
    x = ops.input("x", (8, 10), "float32")
    left, right = (ops.slice_(ops.relu(x), [j], [j + 5], [1]) for j in (0, 5))
    demanded = Demanded({ops.concat([left, right], 0): (np.array([1]), np.array([2]))})
    rows, columns = demanded.demand[x]
    assert isinstance(rows, np.ndarray)
    assert list(rows) == [1]
    assert isinstance(columns, np.ndarray)
    assert list(columns) == [2]
    (value,) = demanded.run({"x": np.arange(80, dtype=np.float32).reshape(8, 10)})
    assert value.tolist() == [[12.0]]


def test_a_channel_of_a_grouped_convolution_reads_its_weights_alone() -> None:
    w = ops.input("w", (60, 3, 1, 1), "float32")
    image = ops.input("x", (1, 18, 4, 4), "float32")
    demanded = Demanded({ops.conv(image, w, groups=6): (None, np.array([13, 14, 34]), None, None)})
    (rows, *_), (_, channels, *_) = demanded.demand[w], demanded.demand[image]
    assert isinstance(rows, np.ndarray)
    assert list(rows) == [13, 14, 33, 34]
    assert isinstance(channels, np.ndarray)
    assert list(channels) == [3, 4, 5, 9, 10, 11]


def test_a_sum_of_nothing_is_zero() -> None:
    x = ops.input("x", (0, 3), "float32")
    (sums,) = Demanded({x: (Sums(np.ones((2, 0))), None)}).run({"x": np.zeros((0, 3), np.float32)})
    assert sums.tolist() == [[0.0] * 3] * 2


def test_constants_that_are_only_moved_are_widened_where_they_are_read() -> None:
    """Their sums are those of float64, whatever their own type holds."""
    parts = [ops.constant(RNG.standard_normal((64, 8)).astype(dtype)) for dtype in [np.float16] * 3]
    joined = ops.transpose(ops.concat(parts, 0), (1, 0))
    values = np.concatenate([part.attr("value").array for part in parts]).T.astype(np.float64)
    x = RNG.standard_normal((192, 2)).astype(np.float16)
    product = ops.matmul(joined, ops.input("x", (192, 2), "float16"))
    some, weights = np.array([1, 6]), RNG.standard_normal((3, 192))
    demanded = Demanded({joined: (some, Sums(weights)), product: (some, None)}, exact=True)
    sums, found = demanded.run({"x": x})
    np.testing.assert_allclose(sums, values[some] @ weights.T, rtol=1e-13)
    np.testing.assert_allclose(found, values[some] @ x.astype(np.float64), rtol=1e-13)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "argmax"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("strides", ["apart", "repeated", "all one"])
def test_large_values_are_computed_in_pieces(kind: str, keep: bool, strides: str, monkeypatch: pytest.MonkeyPatch):
    given = {"apart": (5, 6, 7), "repeated": (5, 1, 7), "all one": (1, 1, 1)}[strides]
    x = ops.input("x", given, "float32")
    large = ops.exp(ops.broadcast(x, (5, 6, 7)))
    axes = 1 if kind == "argmax" else (0, 1)
    terms = [ops.reduce(kind, large, axes, keep), ops.reshape(ops.transpose(large, (1, 0, 2)), (6, 35))]
    inputs = {"x": RNG.standard_normal(given).astype(np.float32)}
    wanted = Demanded({term: everything(term) for term in terms}).run(inputs)
    monkeypatch.setattr("eqsat.check.large.LARGE", 11)
    for found, want in zip(Demanded({term: everything(term) for term in terms}).run(inputs), wanted, strict=True):
        assert (found.shape, found.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(found, want, rtol=1e-12)


def test_halves_and_integers_of_large_values_are_added_up_as_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("eqsat.check.large.LARGE", 11)
    for dtype, value, want in (("float16", 300.0, 60000.0), ("int32", 1 << 28, 1 << 31), ("bool", True, True)):
        term = ops.broadcast(ops.full(value, (1, 1), dtype), (10, 20))
        term = ops.reduce("max" if dtype == "bool" else "sum", term, (0, 1))
        (found,) = Demanded({term: ()}).run({}, "native")
        assert found == np.asarray(want).astype(found.dtype)  # integers wrap


def test_numbers_that_repeat_take_neither_memory_nor_time():
    """1.6e9 zeros, and 2e9 times one exponential, were made to be added up: in 13 GB and 30 s."""
    x = ops.input("x", (1, 1), "float32")
    zeros = ops.reduce("sum", ops.full(0.5, (40_000, 40_000), "float32"), (0, 1))
    mean = ops.reduce("sum", ops.exp(ops.broadcast(x, (40_000, 50_000))), (0, 1))
    demanded = Demanded({zeros: (), mean: ()})
    assert demanded.peak_bytes() < 1 << 10
    assert demanded.flops < 1 << 10
    inputs = {"x": np.ones((1, 1), np.float32)}
    for precision in ("float64", "native"):
        np.testing.assert_allclose(demanded.run(inputs, precision), [8e8, np.e * 2e9], rtol=1e-6)


def test_what_repeats_along_some_axes_is_moved_as_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(demand, "LARGE", 8)
    values = np.broadcast_to(np.ones((1, 6, 5)), (3, 6, 5))
    moved = demand.nudged(values, np.random.default_rng(0))
    assert moved.shape == values.shape
    np.testing.assert_array_equal(moved[0], moved[1])
    assert 0 < np.abs(moved - 1).max() < 1e-14


def test_a_copy_of_a_large_view_counts():
    """[4, 4] enlarged to [40000, 44000] is a broadcast, and then a copy."""
    x = ops.reshape(ops.input("x", (4, 4), "float32"), (4, 1, 4, 1))
    large = ops.reshape(ops.broadcast(x, (4, 10_000, 4, 11_000)), (40_000, 44_000))
    demanded = Demanded({ops.reduce("sum", large, (0, 1)): ()})
    assert demanded.peak_bytes() >= 8 * large.size
    assert demanded.moving >= 16 * large.size


def test_large_outputs_count_though_they_repeat():
    """Each element is compared."""
    y = ops.exp(ops.broadcast(ops.input("x", (1, 1), "float32"), (40_000, 50_000)))
    demanded = Demanded({y: everything(y)})
    assert demanded.peak_bytes() >= 8 * y.size
    assert demanded.moving >= 16 * y.size


def test_some_of_a_large_value_that_repeats_are_taken_without_the_others():
    y = ops.exp(ops.broadcast(ops.input("x", (1, 1), "float32"), (40_000, 50_000)))
    total = ops.reduce("sum", y, 1, keepdims=True)
    share = ops.div(y, ops.broadcast(total, y.shape))
    some = np.array([0, 7, 39_999])
    tracemalloc.start()
    try:
        (found,) = Demanded({share: (some, some)}).run({"x": np.ones((1, 1), np.float32)})
        assert tracemalloc.get_traced_memory()[1] < 1 << 25
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(found, np.full((3, 3), 1 / 50_000))
