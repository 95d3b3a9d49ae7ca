"""Typical faults of rewriting, planted in attention, convolutions and towers: the check finds all of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import eqsat
from eqsat.base.numerics import FLOATS, np_dtype
from eqsat.check import check as checking
from eqsat.check import folded, part
from eqsat.check.demand import Moved
from eqsat.check.part import Check
from eqsat.check.strata import borders, positions
from eqsat.errors import CheckFailed
from eqsat.program import composites, ops
from eqsat.program.ir import Program
from eqsat.program.term import Term, make, topological

RNG = np.random.default_rng(5)


def weight(*shape: int) -> Term:
    return ops.constant((RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))


def scaled(x: Term, factor: float) -> Term:
    return ops.mul(x, ops.full_like(factor, x))


def attention() -> Program:
    """Merged projections, four heads, a causal mask; the residual and the norm dampen what is wrong before them."""
    n, width, heads = 96, 64, 4
    x = ops.input("x", (n, width), "float32")
    merged = ops.matmul(x, weight(width, 3 * width))

    def head(i: int) -> Term:
        part = ops.slice_(merged, [i * width], [(i + 1) * width], [1])
        return ops.transpose(ops.reshape(part, (n, heads, width // heads)), (1, 0, 2))

    scores = scaled(ops.matmul(head(0), ops.transpose(head(1), (0, 2, 1))), 0.25)
    mask = np.where(np.tri(n, dtype=bool), 0, -1e9).astype(np.float32)
    weights = composites.softmax(ops.add(scores, ops.broadcast(ops.constant(mask), scores.shape)))
    mixed = ops.reshape(ops.transpose(ops.matmul(weights, head(2)), (1, 0, 2)), (n, width))
    y = composites.layernorm(ops.add(x, ops.matmul(mixed, weight(width, width))))
    return Program((x,), {"y": ops.add(y, ops.matmul(ops.relu(ops.matmul(y, weight(width, 256))), weight(256, width)))})


def convolutions() -> Program:
    x = ops.input("x", (1, 8, 56, 56), "float32")
    y = ops.relu(ops.conv(x, weight(64, 8, 3, 3), (1, 1), (1, 1), (1, 1)))
    halves = [ops.slice_(y, [i], [i + 32], [1]) for i in (0, 32)]
    parts = [ops.conv(half, weight(32, 32, 3, 3), (2, 2), (1, 1), (1, 1)) for half in halves]
    return Program((x,), {"y": ops.relu(ops.concat(parts, 1))})


def tower() -> Program:
    """Blocks of rows that go through a product each, as kernels in tiles do, and once more all together."""
    x = ops.input("x", (300, 64), "float32")
    w = weight(64, 80)
    blocks = [ops.slice_(x, [i], [min(i + 128, 300)], [0]) for i in range(0, 300, 128)]
    y = ops.concat([ops.relu(ops.matmul(block, w)) for block in blocks], 0)
    parts = [ops.slice_(y, [i], [i + 40], [1]) for i in (0, 40)]
    return Program((x,), {"y": composites.softmax(ops.matmul(ops.concat(parts, 1), weight(80, 48)))})


PROGRAMS = {"attention": attention(), "convolutions": convolutions(), "tower": tower()}


def slice_one_off(term: Term) -> Iterator[Term]:
    """A cut of the same size that begins one early or late."""
    (x,) = term.args
    for axis, (start, stop) in enumerate(zip(term.attr("starts"), term.attr("stops"), strict=True)):
        for by in (-1, 1):
            if start + by >= 0 and stop + by <= x.shape[axis]:
                starts, stops = list(term.attr("starts")), list(term.attr("stops"))
                starts[axis], stops[axis] = start + by, stop + by
                yield ops.slice_(x, starts, stops, None, term.attr("steps"))


def swapped_parts(term: Term) -> Iterator[Term]:
    yield ops.concat([*term.args[1:], term.args[0]], term.attr("axis"))


def wrong_stride_at_the_end(term: Term) -> Iterator[Term]:
    """The last rows of a product are those of a place one further on."""
    axis = term.ndim - 2
    n = term.shape[axis]

    def rows(start: int, stop: int) -> Term:
        return ops.slice_(term, [start], [stop], [axis])

    yield ops.concat([rows(0, n - 4), rows(n - 3, n), rows(n - 1, n)], axis)


def one_element(term: Term) -> Iterator[Term]:
    """A weight in the middle is off by the largest of all, and by a thousandth of it."""
    array = term.attr("value").array
    if array.min() > -1e8:
        for by in (1, 1e-3):
            changed = array.copy()
            changed[tuple(n // 2 for n in array.shape)] += by * np.abs(array).max()
            yield ops.constant(changed)


def mask_one_off(term: Term) -> Iterator[Term]:
    array = term.attr("value").array
    if array.min() < -1e8:
        yield ops.constant(np.where(np.tri(len(array), k=1, dtype=bool), 0, -1e9).astype(np.float32))


def padding_one_off(term: Term) -> Iterator[Term]:
    lo, hi = term.attr("pads_lo"), term.attr("pads_hi")
    moved = {"pads_lo": (lo[0] - 1, *lo[1:]), "pads_hi": (hi[0] + 1, *hi[1:])}
    yield make("conv", *term.args, **{**dict(term.attrs), **moved})


def other_order(term: Term) -> Iterator[Term]:
    """Heads taken apart the other way round."""
    (x,) = term.args
    if term.ndim == 3 and x.ndim == 2:
        n, heads, width = term.shape
        yield ops.transpose(ops.reshape(x, (n, width, heads)), (0, 2, 1))


FAULTS: dict[str, tuple[str, Callable[[Term], Iterator[Term]]]] = {
    "slice one off": ("slice", slice_one_off),
    "parts swapped": ("concat", swapped_parts),
    "stride of the last block": ("matmul", wrong_stride_at_the_end),
    "one constant element": ("constant", one_element),
    "mask one off": ("constant", mask_one_off),
    "padding one off": ("conv", padding_one_off),
    "order of heads": ("reshape", other_order),
}


def planted(program: Program, at: Term, fault: Term) -> Program:
    made: dict[Term, Term] = {}
    for term in [*topological([fault]), *program.terms()]:
        if term is at:
            made[term] = fault
        else:
            made[term] = make(term.op, *(made.get(a, a) for a in term.args), **dict(term.attrs)) if term.args else term
    return Program(program.inputs, {name: made[term] for name, term in program.outputs.items()})


@pytest.mark.parametrize("sampled", [False, True], ids=["in full", "sampled"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_structural_faults_are_found(name: str, fault: str, sampled: bool, monkeypatch: pytest.MonkeyPatch):
    if sampled:
        monkeypatch.setattr(checking, "CHEAP", 1_000_000)
        monkeypatch.setattr(part, "PER_WEIGHT", 1)
    program = PROGRAMS[name]
    op, makes = FAULTS[fault]
    for term in program.terms():
        for wrong in makes(term) if term.op == op else ():
            with pytest.raises(CheckFailed):
                print(term.spec, checking.check(program, planted(program, term, wrong)).as_json())


def folded_chain(dtype: str, seed: int, by: float) -> tuple[Term, Term, Term, Callable[[np.ndarray, np.ndarray], Term]]:
    """(x w v + by) s; the weights and the shift that it takes in one product, folded and rounded once; that product."""
    rng = np.random.default_rng(seed)
    x = ops.input("x", (40, 64), dtype)

    def constant(values: np.ndarray) -> Term:
        return ops.constant(values.astype(np_dtype(dtype)))

    def folded(term: Term) -> Term:
        return constant(Program((), {"y": term}).run({}, "float64")["y"])

    w, v, s = (constant(rng.standard_normal(shape) / 8) for shape in ((64, 96), (96, 32), (32,)))
    shift = constant(np.full(32, by))
    product = ops.matmul(ops.matmul(x, w), v)
    source = ops.mul(ops.add(product, ops.broadcast(shift, product.shape)), ops.broadcast(s, product.shape))

    def result(weights: np.ndarray, shifts: np.ndarray) -> Term:
        return ops.add(ops.matmul(x, constant(weights)), ops.broadcast(constant(shifts), product.shape))

    weights = folded(ops.matmul(w, ops.mul(v, ops.broadcast(s, (96, 32)))))
    return source, weights, folded(ops.mul(shift, s)), result


SHOWN: tuple[Callable[[Term], Term], ...] = (lambda y: y, ops.exp, composites.layernorm)


def compare(source: Term, result: Term, shown: Callable[[Term], Term]) -> Check:
    (x,) = (t for t in topological([source]) if t.op == "input")
    return checking.check(Program((x,), {"y": shown(source)}), Program((x,), {"y": shown(result)}))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("seed", range(4))
def test_what_rounding_does_to_new_constants_passes(dtype: str, seed: int):
    """A scale folded into weights and rounded once, and products of weights computed ahead, though they cancel."""
    source, weights, shifts, result = folded_chain(dtype, seed, 30.0)
    for shown in SHOWN:
        compare(source, result(weights.attr("value").array, shifts.attr("value").array), shown)


def one_weight(w: np.ndarray) -> None:
    w[13, 17] += 2 * np.sqrt((w.astype(np.float64) ** 2).mean())


def swapped_rows(w: np.ndarray) -> None:
    w[[3, 4]] = w[[4, 3]]


def wrong_scale(w: np.ndarray) -> None:
    w *= w.dtype.type(1.01)


def lost_row(w: np.ndarray) -> None:
    w[20] = 0


def one_column_scaled(w: np.ndarray) -> None:
    w[:, 5] *= w.dtype.type(1.1)


WRONG_WEIGHTS = (one_weight, swapped_rows, wrong_scale, lost_row, one_column_scaled)


@pytest.mark.parametrize("wrong", WRONG_WEIGHTS, ids=lambda wrong: wrong.__name__)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_wrong_weights_are_no_rounding(dtype: str, wrong: Callable[[np.ndarray], None]):
    """Each changes the result by less than the type's tolerance, some by less than rounding does to the largest."""
    source, weights, shifts, result = folded_chain(dtype, 0, 1.0)
    changed = weights.attr("value").array.copy()
    wrong(changed)
    for shown in (lambda y: y, composites.layernorm):
        with pytest.raises(CheckFailed):
            compare(source, result(changed, shifts.attr("value").array), shown)


def test_a_constant_moved_by_its_last_place_stays_finite_and_keeps_zeros_and_repeats():
    for dtype in FLOATS:
        largest = float(ml_dtypes.finfo(np_dtype(dtype)).max)
        values = np.array([0, 1, -1, largest, np.inf, np.nan]).astype(np_dtype(dtype))
        moved = Moved(frozenset(), 1).of(values, np.random.default_rng(1))
        assert moved.dtype == values.dtype
        kept = moved.view(f"i{values.itemsize}") == values.view(f"i{values.itemsize}")
        assert kept.tolist() == [True, False, False, True, True, True]
        assert np.abs(moved[1:3].astype(float) - values[1:3].astype(float)).max() <= ml_dtypes.finfo(values.dtype).eps
    rows = Moved(frozenset(), 1).of(np.broadcast_to(np.ones(4, np.float32), (3, 4)), np.random.default_rng(1))
    assert (rows == rows[0]).all()
    scalar = Moved(frozenset(), 1).of(np.ones((), np.float32), np.random.default_rng(1))
    assert scalar.shape == ()
    assert scalar != 1


def test_a_test_for_nan_decides_nothing():
    """A value compared with itself, as softmax is guarded: the bounds are as tight as elsewhere."""
    x = ops.input("x", (8, 16), "float32")
    w = weight(16, 16)

    def guarded(w: Term, factor: float) -> Program:
        y = composites.softmax(ops.matmul(x, w))
        z = ops.where(ops.elementwise("equal", y, y), y, ops.full_like(0.0, y))
        return Program((x,), {"y": scaled(z, factor)})

    values = w.attr("value").array
    right = ops.constant((values.astype(np.float64) / 3 * 3).astype(np.float32))
    checking.check(guarded(w, 1.0), guarded(right, 1.0))
    with pytest.raises(CheckFailed):
        checking.check(guarded(w, 1.0), guarded(w, 1.00005))


def test_borders_follow_data_movement():
    x = ops.input("x", (300, 64), "float32")
    blocks = [ops.slice_(x, [i], [i + 100], [0]) for i in (200, 0)]
    y = ops.concat(blocks, 0)
    rows, columns = borders([y])
    assert (sorted(rows), sorted(columns)) == ([100], [])
    assert sorted(borders([ops.transpose(y, (1, 0))])[1]) == [100]
    assert sorted(borders([ops.slice_(y, [50], [150], [0])])[0]) == [50]
    assert sorted(borders([ops.slice_(y, [None], [None], [0], [-1])])[0]) == [100]
    assert sorted(borders([ops.reshape(y, (4, 50, 64))])[0]) == [2]
    assert 6400 in borders([ops.reshape(y, (200 * 64,))])[0]
    padded = ops.pad(y, [3, 0], [2, 0])
    assert sorted(borders([padded])[0]) == [3, 103, 203]


def test_a_value_without_elements_has_no_borders():
    x = ops.concat([ops.input("x", (0, 3), "float32"), ops.input("y", (0, 3), "float32")], 0)
    for shape in ((3, 0), (0,), (0, 5, 2)):
        assert borders([ops.reshape(x, shape)]) == [frozenset()] * len(shape)


def test_samples_hold_both_sides_of_borders():
    rng = np.random.default_rng(0)
    found = positions(1000, frozenset({400, 700}), 12, rng)
    assert len(found) == len(set(found)) == 12
    assert {0, 399, 400, 699, 700, 999} <= set(found.tolist())
    assert (np.diff(found) > 0).all()
    many = positions(1000, frozenset(range(1, 1000)), 6, rng)
    assert len(many) == 16
    assert {0, 999} <= set(many.tolist())
    assert positions(5, frozenset({2, 3}), 48, rng).tolist() == [0, 1, 2, 3, 4]
    assert positions(0, frozenset(), 1, rng, seen=0).tolist() == []
    huge = positions(10**12, frozenset({7}), 24, rng)  # without a list of all
    assert len(huge) == 24
    assert {0, 6, 7, 10**12 - 1} <= set(huge.tolist())


# Constants against what they came from


def scaled_weights(dtype: str) -> tuple[Term, np.ndarray]:
    """Weights and a scale of their rows; their product, rounded once."""
    rng = np.random.default_rng(7)
    w = ops.constant(rng.standard_normal((64, 96)).astype(np_dtype(dtype)))
    g = ops.constant(rng.uniform(0.5, 2, (64, 1)).astype(np_dtype(dtype)))
    term = ops.mul(w, ops.broadcast(g, w.shape))
    return term, Program((), {"y": term}).run({}, "float64")["y"].astype(np_dtype(dtype))


@pytest.mark.parametrize("how", ["element by element", "by rows and sums", "in a hurry"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("wrong", WRONG_WEIGHTS, ids=lambda wrong: wrong.__name__)
def test_wrong_weights_differ_from_what_they_came_from(
    wrong: Callable[[np.ndarray], None], dtype: str, how: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(folded, "DEAR", -1 if how == "by rows and sums" else folded.DEAR)
    monkeypatch.setattr(folded, "BLOCK", 0 if how == "in a hurry" else folded.BLOCK)
    term, values = scaled_weights(dtype)
    folded.compare((ops.constant(values), term), np.random.default_rng(0), hurried=how == "in a hurry")
    changed = values.copy()
    wrong(changed)
    with pytest.raises(CheckFailed, match="the constant"):
        folded.compare((ops.constant(changed), term), np.random.default_rng(0), hurried=how == "in a hurry")


def test_a_number_of_expensive_products_is_compared(monkeypatch: pytest.MonkeyPatch):
    """A number has no rows and no axis to add up along."""
    monkeypatch.setattr(folded, "DEAR", -1)
    w = ops.constant(np.arange(12, dtype=np.float32).reshape(3, 4))
    term = ops.reduce("max", ops.matmul(w, ops.transpose(w, (1, 0))), (0, 1))
    folded.compare((ops.constant(np.float32(366)), term), np.random.default_rng(0))
    with pytest.raises(CheckFailed, match="the constant"):
        folded.compare((ops.constant(np.float32(367)), term), np.random.default_rng(0))


def test_a_stack_of_products_of_weights_is_compared_by_little_work(monkeypatch: pytest.MonkeyPatch):
    """Its cheapest sums pass through all products; none is computed in full."""
    pairs = [(weight(1, 96, 96), weight(1, 96, 96)) for _ in range(20)]
    stack = ops.concat([ops.matmul(a, b) for a, b in pairs], 0)
    values = Program((), {"y": stack}).run({}, "float64")["y"].astype(np.float32)
    monkeypatch.setattr(folded, "DEAR", 2 * 96**3)
    flops: list[int] = []

    class Counted(folded.Demanded):
        def run(self, *args: Any, **settings: Any) -> list[np.ndarray]:
            flops.append(self.flops)
            return super().run(*args, **settings)

    monkeypatch.setattr(folded, "Demanded", Counted)
    folded.compare((ops.constant(values), stack), np.random.default_rng(0))
    assert sum(flops) < 20 * 2 * 96**3
    changed = values.copy()
    changed[7, 50, 60] += 1
    with pytest.raises(CheckFailed, match="its sums"):
        folded.compare((ops.constant(changed), stack), np.random.default_rng(0))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64"])
def test_products_of_integers_and_of_infinities_are_probed(dtype: str, monkeypatch: pytest.MonkeyPatch):
    """Sums of infinities say nothing: elements of these are compared. Squares of integers overflow."""
    monkeypatch.setattr(folded, "DEAR", -1)
    rng = np.random.default_rng(5)
    left, right = (rng.integers(-100, 100, shape).astype(np_dtype(dtype)) for shape in ((40, 30), (30, 50)))
    if dtype.startswith("float"):
        left[3, 4] = -np.inf
    term = ops.matmul(ops.constant(left), ops.constant(right))
    values = Program((), {"y": term}).run({})["y"]
    folded.compare((ops.constant(values), term), np.random.default_rng(0))
    for place in ((7, 9), (3, 9)):
        changed = values.copy()
        changed[place] = 12345
        with pytest.raises(CheckFailed, match="the constant"):
            folded.compare((ops.constant(changed), term), np.random.default_rng(0))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_two_last_places_in_one_element_are_too_much(dtype: str):
    term, values = scaled_weights(dtype)
    moved = values.copy()
    moved.view(f"i{moved.itemsize}")[5, 7] += 2
    with pytest.raises(CheckFailed, match="an element is"):
        folded.compare((ops.constant(moved), term), np.random.default_rng(0))


@pytest.mark.parametrize("dtype", FLOATS)
def test_constants_as_a_runtime_computes_them_pass(dtype: str):
    """Rounded operator by operator, and in part: the sums cancel."""
    rng = np.random.default_rng(3)
    a, b = (ops.constant(rng.standard_normal((64, 64)).astype(np_dtype(dtype))) for _ in range(2))
    product = ops.matmul(a, b)
    term = ops.mul(ops.sub(product, ops.transpose(product, (1, 0))), ops.exp(b))
    native = Program((), {"y": term}).run({})["y"]
    folded.compare((ops.constant(native), term), np.random.default_rng(0))
    (inner,) = Program((), {"y": product}).run({}).values()
    part = ops.sub(ops.constant(inner), ops.transpose(ops.constant(inner), (1, 0)))
    (mixed,) = Program((), {"y": ops.mul(part, ops.exp(b))}).run({}, "float64").values()
    folded.compare((ops.constant(mixed.astype(np_dtype(dtype))), term), np.random.default_rng(0), [product])


def test_constants_that_were_only_moved_keep_their_bits():
    w = weight(8, 6)
    moved = ops.transpose(ops.concat([w, w], 0), (1, 0))
    values = Program((), {"y": moved}).run({})["y"].copy()
    folded.compare((ops.constant(values), moved), np.random.default_rng(0))
    values[3, 4] = np.nextafter(values[3, 4], np.float32(9))
    with pytest.raises(CheckFailed, match="where they belong"):
        folded.compare((ops.constant(values), moved), np.random.default_rng(0))


def test_no_row_of_a_table_is_too_far_away_and_no_function_hides_a_column():
    """Neither shows in any output: an index never reads the row, an exponential makes the column small."""
    x, i = ops.input("x", (5, 64), "float32"), ops.input("i", (4,), "int64")
    table, values = scaled_weights("float32")

    def program(weights: Term) -> Program:
        return Program((x, i), {"a": ops.gather(weights, i), "b": ops.exp(ops.neg(ops.exp(ops.matmul(x, weights))))})

    source = program(table)
    for changed in ([40, slice(None)], [slice(None), 3]):
        wrong = values.copy()
        wrong[tuple(changed)] *= 1.1
        result = program(ops.constant(wrong))
        meanings = dict(zip(result.outputs.values(), source.outputs.values(), strict=True))
        with pytest.raises(CheckFailed, match="the constant"):
            checking.check(source, result, meanings=meanings)


def test_an_index_that_random_values_put_outside_its_axis_is_no_error():
    """A table of one row, read at a given index: only zero lies inside. Another table, and another index, are found."""
    x, i = ops.input("x", (1, 4), "float32"), ops.input("i", (3,), "int64")
    w, v = weight(4, 4), weight(4, 4)

    def program(table: Term, index: Term, *weights: Term) -> Program:
        read = ops.gather(table, index)
        for each in weights:
            read = ops.matmul(read, each)
        return Program((x, i), {"y": read})

    source = program(x, i, w, v)
    best = eqsat.optimize(source)
    assert "fallback" not in best.report
    assert best.report["check"]["parts"]["full"] == 1
    assert checking.check(source, program(x, i, ops.matmul(w, v))).max_error < 1e-4
    rows = ops.concat([x, ops.neg(x)], 0)
    with pytest.raises(CheckFailed):
        checking.check(program(rows, i, w), program(rows, ops.sub(i, ops.full_like(1, i)), w))
    with pytest.raises(CheckFailed):
        checking.check(source, program(ops.neg(x), i, w, v))


def test_a_product_of_constants_that_cancels_may_be_added_up_in_another_order():
    """Rounding each product before the sum loses digits that a fused addition keeps. More than that is a fault."""
    taps = np.array([[[1.1072552, -0.81242865]], [[0.5783769, -0.7313346]]], np.float32)
    factor = np.float32(-3.3708031177)
    column = ops.pad(ops.full(float(factor), (2, 2, 1), "float32"), (0, 0, 1), (0, 0, 1), 0.0)
    values = np.pad((taps * factor).sum(2, keepdims=True, dtype=np.float32), ((0, 0), (0, 0), (1, 1)))
    term = ops.matmul(ops.constant(taps), column)
    folded.compare((ops.constant(values), term), np.random.default_rng(0))
    values[1, 0, 1] *= np.float32(1 + 1e-5)
    with pytest.raises(CheckFailed, match="an element is"):
        folded.compare((ops.constant(values), term), np.random.default_rng(0))


def test_a_product_of_float64_constants_may_be_added_up_in_another_order():
    """There is no wider type to compare with."""
    columns = np.array([[0.5, 1e-8, np.nan], [1e-40, 65504.0, 1e-8], [2.0, 1e-40, -np.inf]])
    term = ops.matmul(ops.broadcast(ops.full(1e-8, (1, 1), "float64"), (1, 3)), ops.constant(columns))
    values = 1e-8 * columns.sum(0, keepdims=True)
    folded.compare((ops.constant(values), term), np.random.default_rng(0))
    with pytest.raises(CheckFailed, match="an element is"):
        folded.compare((ops.constant(values * (1 + 1e-12)), term), np.random.default_rng(0))


@pytest.mark.parametrize("how", ["reshape", "slice"])
def test_a_constant_in_another_shape_than_its_meaning_is_compared_in_its_own(how: str):
    x = ops.input("x", (3, 4), "float32")
    term = ops.exp(ops.constant(np.arange(12, dtype=np.float32).reshape(2, 6)))
    meant = ops.reshape(term, (3, 4))
    if how == "slice":
        meant = ops.slice_(ops.concat([meant, meant], 0), [0], [3])
    source = Program((x,), {"y": ops.add(x, meant)})
    values = np.exp(np.arange(12, dtype=np.float32))
    for wrong in (False, True):
        values[5] *= 1 + wrong
        result = ops.add(x, ops.reshape(ops.constant(values.copy()), (3, 4)))
        compared = source, Program((x,), {"y": result})
        if not wrong:
            checking.check(*compared, meanings={result: source.outputs["y"]})
            continue
        with pytest.raises(CheckFailed, match="an element is"):
            checking.check(*compared, meanings={result: source.outputs["y"]})


@pytest.mark.parametrize("value", [0, 1])
def test_a_constant_may_mean_what_depends_on_an_input_in_name_only(value: int):
    x = ops.input("x", (2, 1, 4), "float32")
    meant = ops.argmin(x, (1,))
    source = Program((x,), {"y": meant})
    result = ops.constant(np.full(meant.shape, value, np.int64))
    compared = source, Program((x,), {"y": result})
    if value == 0:
        checking.check(*compared, meanings={result: meant})
        return
    with pytest.raises(CheckFailed, match="its elements are others"):
        checking.check(*compared, meanings={result: meant})


def test_a_wrong_meaning_is_found_by_the_source():
    """A rule that computes other constants than it should: what they came from is not what the source says."""
    x = ops.input("x", (5, 64), "float32")
    term, values = scaled_weights("float32")
    source = Program((x,), {"y": ops.exp(ops.matmul(x, term))})
    wrong = ops.add(term, ops.mul(ops.full_like(2.0**-20, term), ops.exp(term)))
    meant = ops.exp(ops.matmul(x, wrong))
    values = Program((), {"y": wrong}).run({}, "float64")["y"].astype(np.float32)
    result = Program((x,), {"y": ops.exp(ops.matmul(x, ops.constant(values)))})
    with pytest.raises(CheckFailed, match="differs from the source"):
        checking.check(source, result, meanings={result.outputs["y"]: meant})


def test_what_the_source_computes_from_constants_keeps_its_rounding():
    """log 3 in bfloat16, which float32 would hold better: as one repeated number it came from nothing."""
    x = ops.input("x", (4,), "float32")
    value = ops.log(ops.full(3.0, (4,), "bfloat16"))
    source = Program((x,), {"y": ops.add(x, ops.cast(value, "float32"))})
    (number,) = {float(v) for v in Program((), {"y": value}).run({})["y"]}
    result = ops.add(x, ops.full(number, (4,), "float32"))
    checking.check(source, Program((x,), {"y": result}), meanings={result: result})
    wrong = ops.add(x, ops.full(number + 0.1, (4,), "float32"))
    with pytest.raises(CheckFailed, match="differs from the source"):
        checking.check(source, Program((x,), {"y": wrong}), meanings={wrong: wrong})


def test_a_result_that_is_not_what_it_means_is_found():
    x = ops.input("x", (5, 64), "float32")
    term, values = scaled_weights("float32")
    result = Program((x,), {"y": ops.relu(ops.matmul(x, ops.constant(values)))})
    source = Program((x,), {"y": ops.exp(ops.matmul(x, term))})
    with pytest.raises(CheckFailed, match="stands for"):
        checking.check(source, result, meanings={result.outputs["y"]: source.outputs["y"]})


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_wrong_weight_of_an_optimised_program_is_found(dtype: str):
    """Through the whole of `optimize`: what the search computed ahead of time is spoilt just before the check."""
    rng = np.random.default_rng(0)
    w, v, g = ((rng.standard_normal(n) / 8).astype(dtype) for n in ((64, 32), (32, 64), (64,)))
    program = eqsat.trace(lambda x: eqsat.exp((x * g) @ w @ v), eqsat.spec((40, 64), dtype))
    module = importlib.import_module("eqsat.pipeline.assemble")
    plain = module.fold_constants
    for wrong in WRONG_WEIGHTS:

        def spoilt(*given: Any, wrong: Callable[[np.ndarray], None] = wrong) -> tuple[Program, list[Term]]:
            found, became = plain(*given)
            constants = [t for t in found.terms() if t.op == "constant" and t.size >= 2048]
            changed = {}
            for constant in constants:
                values = constant.attr("value").array.copy()
                wrong(values)
                changed[constant] = ops.constant(values)
            new = {term: planted_all(term, changed) for term in [*found.outputs.values(), *became]}
            outputs = {name: new[term] for name, term in found.outputs.items()}
            return Program(found.inputs, outputs), [new[term] for term in became]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "fold_constants", spoilt)
            with pytest.raises(CheckFailed):
                eqsat.optimize(program)
    assert "fallback" not in eqsat.optimize(program).report


def planted_all(root: Term, changed: Mapping[Term, Term]) -> Term:
    made: dict[Term, Term] = {}
    for term in topological([root]):
        args = [made[a] for a in term.args]
        made[term] = changed.get(term) or (make(term.op, *args, **dict(term.attrs)) if args else term)
    return made[root]
