"""Refutation: never because of rounding, however bad, but for every real difference; bounds hold the exact values."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.errors import InputError
from eqsat.program.core import lower
from eqsat.program.fold import fold_source
from eqsat.program.ir import Program
from eqsat.proof.values import enclosure, intervals
from eqsat.proof.values.enclosure import constants_of, enclose
from eqsat.proof.values.noise import Overflow, noise
from eqsat.proof.values.refute import Refutation, Search, refute
from eqsat.testing import programs, random_inputs
from support.rounding_pairs import DIFFERENT, EQUAL, Row

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
SECONDS = 60.0


def search(row: Row, dtype: str, seed: int = 0) -> Search:
    left, right = (eqsat.trace(side, *[eqsat.spec(shape, dtype) for shape in row[2]]) for side in row[:2])
    return refute(left, right, {name: name for name in left.input_names}, SECONDS, seed)


def cases(table: dict[str, Row]) -> list[tuple[str, str]]:
    pairs = product(table, ("float64", "float32", "float16"))
    return [(name, dtype) for name, dtype in pairs if len(table[name]) == 3 or dtype in table[name][3:]]


@pytest.mark.parametrize(("name", "dtype"), cases(EQUAL))
def test_rounding_refutes_nothing(name: str, dtype: str):
    for seed in range(2):
        assert search(EQUAL[name], dtype, seed).found is None


@pytest.mark.parametrize(("name", "dtype"), cases(EQUAL))
def test_noise_alone_would_refute_nothing_either(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("eqsat.proof.values.refute._TOO_WIDE", -1.0)
    monkeypatch.setattr(intervals.Interval, "apart", lambda self, other: np.zeros(self.lo.shape, bool))
    assert search(EQUAL[name], dtype).found is None


@pytest.mark.parametrize(("name", "dtype"), cases(DIFFERENT))
def test_small_differences_are_found(name: str, dtype: str):
    assert search(DIFFERENT[name], dtype).found is not None


def deep(scale: float) -> Program:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((2, 64, 64)).astype(np.float32) / 8 for _ in range(12)]

    def function(x):
        for i, (a, b) in enumerate(weights):
            x = eqsat.layernorm(x + eqsat.softmax(x @ a * (scale if i == 5 else 1.25), -1) @ b)
        return x

    return eqsat.trace(function, eqsat.spec((8, 64)))


def test_a_difference_in_a_deep_program_is_found_where_bounds_say_nothing():
    p, q = deep(1.25), deep(1.2625)
    found = refute(p, q, {"x": "x"}, SECONDS).found
    assert found is not None
    for program in (p, q):
        bounds = enclose(lower(program), found.inputs, constants_of(lower(program)), time.monotonic() + SECONDS)
        assert (bounds["out"].hi - bounds["out"].lo).max() > 1.0


def test_few_points_are_enough_where_each_takes_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("eqsat.proof.values.refute._DECIDING_SECONDS", 0.0)
    program = deep(1.25)
    few = refute(program, program, {"x": "x"}, SECONDS)
    assert few.points == 3
    assert few.defined


def test_a_difference_that_rounding_may_have_made_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("eqsat.proof.values.refute._BEYOND_NOISE", 1e30)
    unsure = refute(deep(1.25), deep(1.2625), {"x": "x"}, 0.0)
    assert unsure.found is None
    assert unsure.unsure > 1e-4
    assert not unsure.infinite
    monkeypatch.setattr("eqsat.proof.values.refute.Refutation.look", lambda *args: unsure)
    sides = [eqsat.trace(side, eqsat.spec((2,))) for side in (eqsat.sin, eqsat.cos)]
    reason = eqsat.prove(*sides, time_limit=0.5).reason
    assert f"outputs differ by up to {unsure.unsure:.2g}, and how much of that rounding may make was not" in reason
    assert "integers" not in reason


def test_only_programs_with_integers_or_jumps_are_said_to_have_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "eqsat.proof.values.refute.Refutation.look", lambda *args: Search(None, 1, True, 2.0, rounding=1.0)
    )
    seen = "outputs differ by up to 2, of which rounding was seen to make 1"
    for sides, others in (((eqsat.sin, eqsat.cos), ""), ((eqsat.floor, eqsat.cos), ": values may jump")):
        pair = [eqsat.trace(side, eqsat.spec((2,))) for side in sides]
        assert eqsat.prove(*pair, time_limit=0.5).reason.endswith(seen + others)


def test_a_difference_that_a_mask_of_everything_makes_is_told():
    """A softmax over one score is one, or not a number where that is masked: exporters write zero there."""

    def masked(x, keep):
        weights = eqsat.softmax(eqsat.where(keep > 0.0, x, -np.inf), -1)
        return eqsat.where(weights == weights, weights, 0.0)

    sides = masked, lambda x, keep: x * 0.0 + 1.0
    left, right = (eqsat.trace(side, eqsat.spec((3, 1)), eqsat.spec((3, 1))) for side in sides)
    found = refute(left, right, {name: name for name in left.input_names}, SECONDS)
    assert found.found is None
    assert found.unsure == 1.0
    assert found.infinite


def chained(folded: bool, last: float) -> Program:
    """Layers that are two products, or one by weights that were multiplied ahead of time; the last has its own bias."""
    rng = np.random.default_rng(0)
    sizes = (16, 64), (64, 16)
    weights = [[rng.standard_normal(size).astype(np.float32) for size in sizes] for _ in range(6)]
    bias = rng.standard_normal(16).astype(np.float32)

    def function(x):
        for i, (a, b) in enumerate(weights):
            x = x @ (a.astype(np.float64) @ b).astype(np.float32) if folded else (x @ a) @ b
            x = eqsat.tanh(x + bias * np.float32(last if i == 5 else 1.0))
            x = x / eqsat.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        return x

    return eqsat.trace(function, eqsat.spec((4, 16)))


def test_what_a_sweep_proves_equal_hides_no_small_difference():
    left, right = chained(False, 1.0), chained(True, 1.0003)
    alone = refute(left, right, {"x": "x"}, SECONDS)
    assert alone.found is None
    assert alone.unsure > 1e-5
    proof = eqsat.prove(left, right, time_limit=10.0)
    assert proof.verdict == "refuted"
    assert proof.difference is not None
    given = {"x": proof.difference.inputs["x"]}
    np.testing.assert_allclose(proof.difference.right["out"], right.run(given, "float64")["out"], rtol=1e-9)


def test_noise_leaves_whole_numbers_as_they_are():
    core = lower(eqsat.trace(lambda x: x**3.0, eqsat.spec((1,), "float64")))
    (moved,) = noise(core, {"x": np.array([-1.5])}, [np.array([-3.375])], set(), time.monotonic() + SECONDS)
    assert 0.0 < moved < 1e-14


def test_noise_knows_which_elements_come_of_a_value_that_overflows():
    core = lower(eqsat.trace(lambda x: eqsat.exp(400.0 * x) / eqsat.exp(800.0 * x), eqsat.spec((2,), "float64")))
    x = np.array([0.9, 0.5])
    (moved,) = noise(core, {"x": x}, [np.exp(-400.0 * x)], set(), time.monotonic() + SECONDS)
    assert moved[0] == np.inf
    assert 0.0 < moved[1] < 1e-80


def test_noise_says_where_an_overflow_decides():
    core = lower(eqsat.trace(lambda x: eqsat.where(eqsat.exp(800.0 * x) > 1.0, x, 2.0), eqsat.spec((1,), "float64")))
    with pytest.raises(Overflow):
        noise(core, {"x": np.array([0.9])}, [np.array([0.9])], set(), time.monotonic() + SECONDS)


def biased(weight: np.ndarray, mask: float) -> Program:
    """Attention with a bias by distance, as T5 computes it: logarithms decide the row, that of zero is left out."""
    rows, width = 12, 4
    far = np.abs(np.arange(rows)[:, None] - np.arange(rows)).astype(np.float32)
    hidden = np.where(np.arange(rows)[:, None] < np.arange(rows), np.float32(mask), np.float32(0))
    table = np.linspace(-1.0, 1.0, 16, dtype=np.float32)

    def function(x):
        d = eqsat.ones((rows, rows)) * far
        place = eqsat.where(d < 4.0, d, 4.0 + eqsat.log(d / 4.0) / np.float32(np.log(2.0)) * 4.0).astype("int64")
        scores = x @ weight @ x.T + (eqsat.take(table, place.reshape(-1), 0).reshape(rows, rows) + hidden)
        return eqsat.softmax(scores, -1) @ x

    return eqsat.trace(function, eqsat.spec((rows, width)))


@pytest.mark.parametrize("mask", [-1e9, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("by", [1.01, 1.0])
def test_constants_with_masks_hide_no_difference(mask: float, by: float, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("eqsat.proof.values.refute._MOST_BOUNDED_FLOPS", 0.0)  # noise alone, as in large programs
    weight = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    found = refute(
        biased(weight, mask), fold_source(biased(weight * np.float32(by), mask)).program, {"x": "x"}, SECONDS
    ).found
    assert (found is None) == (by == 1.0)


def masked(normed: bool, layers: int, hidden: float = -np.inf) -> Program:
    """Layers of causal attention, or of its scores without their softmax."""
    rows, width = 8, 4
    rng = np.random.default_rng(0)
    mask = np.where(np.arange(rows)[:, None] < np.arange(rows), np.float32(hidden), np.float32(0))
    weights = [rng.standard_normal((width, width)).astype(np.float32) for _ in range(layers)]

    def function(x):
        for i, weight in enumerate(weights):
            scores = x @ weight @ x.T + mask
            x = x + (eqsat.softmax(scores, -1) if normed or i else scores) @ x
        return x

    return eqsat.trace(function, eqsat.spec((rows, width)))


@pytest.mark.parametrize("layers", [2, 12])
def test_numbers_that_an_infinite_mask_leaves_out_everywhere_are_missed(layers: int):
    """Bounds of deep programs are too wide to say so."""
    found = refute(masked(True, layers), masked(False, layers), {"x": "x"}, SECONDS).found
    assert found is not None
    assert np.isfinite(found.left[found.output]).all()
    assert not np.isfinite(found.right[found.output]).any()
    assert not found.decided


@pytest.mark.parametrize(
    "far",
    [
        lambda x: eqsat.log(eqsat.exp(-1000.0 - x)),
        lambda x: eqsat.exp(1000.0 + x) / eqsat.exp(1000.0),
        lambda x: eqsat.exp(1000.0 + x).sum() - eqsat.exp(1000.0 + x).sum() + x,
        lambda x: eqsat.where(eqsat.exp(1000.0 + x) / eqsat.exp(1000.0) > 0.0, x, np.inf),
    ],
)
def test_values_beyond_float64_refute_nothing(far):
    left, right = (eqsat.trace(side, eqsat.spec((3,))) for side in (far, lambda x: x))
    assert refute(left, right, {"x": "x"}, SECONDS).found is None


@given(program=programs(max_ops=8), seed=st.integers(0, 99))
@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
def test_bounds_hold_what_a_program_computes(program: Program, seed: int):
    # Constants are drawn with small seeds: an input equal to one would leave a comparison to the rounding of constants.
    core, inputs = lower(program), random_inputs(program, 1000 + seed)
    try:
        bounds = enclose(core, inputs, constants_of(core), time.monotonic() + SECONDS)
        values = core.run(inputs, "float64")
    except InputError:
        return
    for name, value in values.items():
        flat = value.reshape(-1).astype(np.float64)
        lo, hi = bounds[name].lo, bounds[name].hi
        near = np.where(
            np.isfinite(flat), 1e-6 * (1.0 + np.abs(flat)), 0.0
        )  # constants are read as the rationals that they were rounded from
        finite = np.isfinite(flat) & (np.abs(flat) < 2.0**63)  # the least integer has no negation
        assert not (bounds[name].undefined & finite).any()
        assert ((lo - near)[finite] <= flat[finite]).all()
        assert (flat[finite] <= (hi + near)[finite]).all()


POINTS = {
    "sums of whole numbers are exact": (lambda x: x + x * 3.0, [1.0, -7.0], [4.0, -28.0], [4.0, -28.0]),
    "a quotient that comes out even is exact": (lambda x: x / 3.0, [6.0], [2.0], [2.0]),
    "a root that comes out even is exact": (lambda x: eqsat.sqrt(x), [9.0], [3.0], [3.0]),
    "a negative root has no value": (lambda x: eqsat.sqrt(x), [-1.0], [np.nan], [np.nan]),
    "nor has the logarithm of a negative number": (lambda x: eqsat.log(x), [-1.0], [np.nan], [np.nan]),
    "nor has one over zero": (lambda x: 1.0 / (x - x), [3.0], [np.nan], [np.nan]),
    "a power of a negative number": (lambda x: eqsat.power(x, 3.0), [-2.0], [-8.0], [-8.0]),
    "a comparison of equal numbers": (lambda x: eqsat.where(x >= 2.0, x, 0.0), [2.0], [2.0], [2.0]),
    "the first of equal maxima": (lambda x: eqsat.argmax(x, 0), [1.0, 5.0, 5.0], 1.0, 1.0),
    "a choice that rounding decides": (lambda x: eqsat.where(eqsat.exp(x) * 0.0 >= 0.0, 1.0, 2.0), [1.0], [1.0], [1.0]),
}


@pytest.mark.parametrize("name", POINTS)
def test_bounds_at_a_point(name: str):
    function, x, lo, hi = POINTS[name]
    core = lower(eqsat.trace(function, eqsat.spec((len(x),), "float64")))
    bounds = enclose(core, {"x": np.array(x)}, set(), time.monotonic() + SECONDS)["out"]
    np.testing.assert_array_equal(bounds.lo, np.atleast_1d(lo))
    np.testing.assert_array_equal(bounds.hi, np.atleast_1d(hi))


def test_the_logarithm_of_a_subnormal_number_is_bounded_by_what_it_may_have_lost():
    core = lower(eqsat.trace(lambda x: eqsat.log(eqsat.exp(x)), eqsat.spec((1,), "float64")))
    bounds = enclose(core, {"x": np.array([-732.8629423])}, set(), time.monotonic() + SECONDS)["out"]
    assert bounds.lo[0] < -732.8629423 < bounds.hi[0]
    assert 1e-6 < bounds.hi[0] - bounds.lo[0] < 1e-3


@pytest.mark.parametrize("epsilon", [1e-5, 1e-12])
@pytest.mark.parametrize("axes", [-1, (-2, -1)])
def test_an_epsilon_shows_on_small_inputs(epsilon: float, axes: int | tuple[int, int], monkeypatch: pytest.MonkeyPatch):
    """Added twice it moves the norm of unit normals by less than is looked at here."""
    monkeypatch.setattr("eqsat.proof.values.refute._CONSTANTS", 1e-3)

    def norm(factor: float):
        return lambda x: x / eqsat.sqrt((x * x).mean(axes, keepdims=True) + np.float32(factor * epsilon))

    once, twice = (eqsat.trace(norm(factor), eqsat.spec((4, 8))) for factor in (1, 2))
    assert refute(once, twice, {"x": "x"}, SECONDS).found is not None


def test_what_rounded_constants_account_for_refutes_nothing():
    """A difference from a program that is equal up to rounded constants must be one of the programs asked about."""
    first, other = (eqsat.trace(lambda x, by=by: x * by, eqsat.spec((2,))) for by in (3.0, 3.0003))
    assert Refutation(first, first, {"x": "x"}).told_apart(lower(other), SECONDS).found is None
    found = Refutation(first, other, {"x": "x"}).told_apart(lower(other), SECONDS).found
    assert found is not None
    assert found.right["out"][found.index] != found.left["out"][found.index]


def test_a_mask_that_hides_nothing_is_tried():
    sides = [lambda x, shown, by=by: eqsat.where(shown.min() > 0, eqsat.exp(x) * by, 0.0) for by in (1.0, 2.0)]
    left, right = (eqsat.trace(side, eqsat.spec((8,)), eqsat.spec((400,), "int64")) for side in sides)
    found = refute(left, right, {name: name for name in left.input_names}, SECONDS).found
    assert found is not None
    assert (found.inputs["shown"] > 0).all()


def test_types_that_were_rounded_are_found_without_bounds_of_each_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    def tolerance_of(constant: np.ndarray) -> set[str]:
        program = lower(eqsat.trace(lambda x: x * constant, eqsat.spec(constant.shape, str(constant.dtype))))
        return enclosure.rounded(program, ())

    monkeypatch.setattr(enclosure, "_scales", None)
    assert tolerance_of(np.array([0.1, np.inf], np.float32)) == {"float32"}
    assert tolerance_of(np.array([1.0, np.inf], np.float32)) == set()
    assert tolerance_of(np.array([1, 3], np.int64)) == set()
