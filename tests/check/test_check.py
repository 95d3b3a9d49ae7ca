"""The check of results: equal programs pass at little cost, and planted faults are found."""

import time
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eqsat.base.memory_limit import collector_paused
from eqsat.check.check import check
from eqsat.check.demand import Demanded
from eqsat.check.means import Means
from eqsat.check.part import SPEED, TOLERANCE, Special
from eqsat.errors import CheckFailed, CheckTooLarge, CheckUndecided
from eqsat.program import composites, ops
from eqsat.program.ir import Program
from eqsat.program.term import Term, topological

RNG = np.random.default_rng(11)
N, K = 2048, 1024
X = ops.input("x", (N, K), "float32")
W = (RNG.standard_normal((K, 3 * 512)) / 32).astype(np.float32)
B = RNG.standard_normal(3 * 512).astype(np.float32)


def merged(w: np.ndarray = W, b: np.ndarray | None = B, starts: tuple[int, ...] = (0, 512, 1024)) -> list[Term]:
    """Three products at once, cut apart."""
    product = ops.matmul(X, ops.constant(w))
    if b is not None:
        product = ops.add(product, ops.broadcast(ops.constant(b), product.shape))
    return [ops.slice_(product, [i], [i + 512], [1]) for i in starts]


def apart() -> list[Term]:
    """The same one by one."""
    parts = []
    for i in (0, 512, 1024):
        product = ops.matmul(X, ops.constant(W[:, i : i + 512].copy()))
        parts.append(ops.add(product, ops.broadcast(ops.constant(B[i : i + 512].copy()), product.shape)))
    return parts


def program(parts: list[Term], f: Callable[[Term], Term]) -> Program:
    return Program((X,), {f"y{i}": f(part) for i, part in enumerate(parts)})


def heads(x: Term) -> Term:
    return ops.transpose(ops.reshape(x, (N, 8, 64)), (1, 0, 2))


def swapped(x: Term) -> Term:
    """Two heads in the wrong order."""
    y = heads(x)
    return ops.concat([ops.slice_(y, [1], [2]), ops.slice_(y, [0], [1]), ops.slice_(y, [2], [8])])


def one_off(array: np.ndarray, *place: int, by: float = 0.3) -> np.ndarray:
    changed = array.copy()
    changed[place] += by
    return changed


def late_row(x: Term) -> Term:
    """One row of 2048 is that before it."""
    return ops.concat([ops.slice_(x, [0], [901]), ops.slice_(x, [900], [901]), ops.slice_(x, [902], [N])])


SHOWN: dict[str, Callable[[Term], Term]] = {"linear": lambda x: x, "relu": ops.relu, "heads": heads}


@pytest.mark.parametrize("name", SHOWN)
def test_equal_programs_pass_by_samples(name: str) -> None:
    found = check(program(apart(), SHOWN[name]), program(merged(), SHOWN[name]))
    assert found.max_error < 1e-6
    assert found.parts == {"same": 0, "full": 0, "sampled": 1}
    assert found.as_json()["method"] == "float64, sampled"
    assert found.missed == 0.0


def test_a_function_before_a_view_is_seen_through() -> None:
    source = program(apart(), ops.relu)
    product = ops.relu(ops.add(ops.matmul(X, ops.constant(W)), ops.broadcast(ops.constant(B), (N, 3 * 512))))
    result = program([ops.slice_(product, [i], [i + 512], [1]) for i in (0, 512, 1024)], lambda x: x)
    found = check(source, result)
    assert found.parts["sampled"] == 1
    assert found.missed == 0.0


FAULTS: dict[str, tuple[list[Term], Callable[[Term], Term], Callable[[Term], Term]]] = {
    "one weight": (merged(one_off(W, 777, 1301)), ops.relu, ops.relu),
    "one weight, no relu": (merged(one_off(W, 3, 5)), lambda x: x, lambda x: x),
    "one bias": (merged(b=one_off(B, 1300, by=0.02)), ops.relu, ops.relu),
    "no bias": (merged(b=None), ops.relu, ops.relu),
    "slice": (merged(starts=(0, 512, 1023)), ops.relu, ops.relu),
    "order of slices": (merged(starts=(512, 0, 1024)), ops.relu, ops.relu),
    "order of heads": (merged(), heads, swapped),
    "one row": (merged(), lambda x: x, late_row),
    "one row under exp": (merged(), lambda x: ops.exp(ops.mul(x, ops.full_like(0.1, x))), lambda x: ops.exp(
        ops.mul(late_row(x), ops.full_like(0.1, x)))),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str) -> None:
    parts, before, after = FAULTS[name]
    for seed in range(3):
        with pytest.raises(CheckFailed, match="differs from the source"):
            check(program(apart(), before), program(parts, after), seed=seed)


def test_the_same_terms_need_no_evaluation() -> None:
    x = ops.input("x", (4096, 4096), "float32")
    w = ops.input("w", (4096, 4096), "float32")
    p = Program((x, w), {"y": ops.relu(ops.matmul(x, w))})
    assert check(p, p).parts == {"same": 1, "full": 0, "sampled": 0}


def test_empty_values_are_equal_beside_large_ones() -> None:
    x, w, e = ops.input("x", (1024, 2048)), ops.input("w", (2048, 2048)), ops.input("e", (0, 3))
    once = ops.matmul(x, w)
    source = Program((x, w, e), {"y": ops.matmul(x, ops.add(w, w)), "z": ops.add(e, e)})
    result = Program((x, w, e), {"y": ops.add(once, once), "z": ops.neg(e)})
    assert check(source, result, seconds=1.0).parts["sampled"] == 1


def test_a_program_is_not_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("a walk through all terms")

    x = ops.input("x", (4, 4), "float32")
    program = Program((x,), {"y": ops.matmul(x, x)})
    found = check(program, program)
    monkeypatch.setattr("eqsat.check.check._Comparison", refuse)
    assert check(program, program) == found
    assert (found.points, found.parts) == (0, {"same": 1, "full": 0, "sampled": 0})


def test_constants_folded_in_another_precision_are_found() -> None:
    """A position table: a logarithm that is a whole number in float64 lies just below it in float32."""
    c = np.arange(1, 4000, dtype=np.float32)
    two = ops.full_like(float(np.float32(np.log(2))), ops.constant(c))
    bucket = ops.cast(ops.mul(ops.div(ops.log(ops.constant(c)), two), ops.full_like(5.0, two)), "int64")
    wide = Program((), {"y": bucket}).run({}, "float64")["y"]
    native = Program((), {"y": bucket}).run({}, "native")["y"]
    table = ops.constant(RNG.standard_normal(64).astype(np.float32))
    x = ops.input("x", (len(c),), "float32")

    def shown(index: Term) -> Program:
        return Program((x,), {"y": ops.add(x, ops.gather(table, index))})

    assert check(shown(bucket), shown(ops.constant(native))).max_error == 0.0
    with pytest.raises(CheckFailed):
        check(shown(bucket), shown(ops.constant(wide)))


def test_a_result_that_loses_digits_in_its_own_types_is_found() -> None:
    x = ops.input("x", (64,), "float32")
    big = ops.full_like(1e6, x)
    source = Program((x,), {"y": ops.add(x, ops.full_like(1.0, x))})
    result = Program((x,), {"y": ops.sub(ops.add(ops.add(x, big), ops.full_like(1.0, x)), big)})
    with pytest.raises(CheckFailed, match="own types"):
        check(source, result)


def test_parts_are_checked_one_by_one() -> None:
    """A layer as written is the same in both once its input is; a wrong one is named by its value."""
    x = ops.input("x", (8, 16), "float32")
    w = [RNG.standard_normal((16, 16)).astype(np.float32) for _ in range(3)]

    def layers(second: Callable[[Term], Term]) -> list[Term]:
        values = [ops.relu(ops.matmul(x, ops.constant(w[0])))]
        values.append(second(values[-1]))
        return [*values, ops.relu(ops.matmul(values[-1], ops.constant(w[2])))]

    source = layers(lambda y: ops.relu(ops.matmul(y, ops.constant(w[1]))))
    right = layers(lambda y: ops.transpose(ops.relu(ops.matmul(ops.constant(w[1].T.copy()), ops.transpose(y)))))
    wrong = layers(lambda y: ops.relu(ops.matmul(y, ops.constant(one_off(w[1], 3, 3)))))

    def checked(values: list[Term]) -> dict[str, int]:
        cuts = list(zip(source[:2], values[:2], strict=True))
        before, after = (Program((x,), {"y": v[-1]}) for v in (source, values))
        return dict(check(before, after, cuts=cuts).parts)

    assert checked(right) == {"same": 2, "full": 1, "sampled": 0}
    with pytest.raises(CheckFailed, match="inside"):
        checked(wrong)


def test_samples_of_large_inputs_take_little_memory_and_time() -> None:
    x, weights = ops.input("x", (1 << 26, 32), "float32"), RNG.standard_normal((2, 32, 32)).astype(np.float32)
    a, b = map(ops.constant, weights)
    source, result = ops.matmul(ops.matmul(x, a), b), ops.matmul(x, ops.matmul(a, b))
    begun = time.process_time()
    tracemalloc.start()
    try:
        before, after = (Program((x,), {"y": term}) for term in (source, result))
        found = check(before, after, seconds=0.5, means=Means(memory=1 << 28))
        assert tracemalloc.get_traced_memory()[1] < 1 << 28
    finally:
        tracemalloc.stop()
    assert found.parts["sampled"] == 1
    assert time.process_time() - begun < 5


def test_no_further_point_is_begun_late() -> None:
    x = ops.input("x", (8,), "float32")
    source, result = Program((x,), {"y": ops.add(x, x)}), Program((x,), {"y": ops.mul(x, ops.full_like(2.0, x))})
    assert check(source, result).points == 2
    assert check(source, result, seconds=0.0).points == 1
    assert check(source, result, means=Means(stopped=lambda: True)).points == 1  # after Ctrl-C


def convolutions(n: int, fault: bool = False) -> tuple[Program, Program, list[tuple[Term, Term]]]:
    """A chain of convolutions, each of other shapes, and the same with doubled weights and halved values; one border of
    the last may be wrong."""
    x = ops.input("x", (1, 16, 40, 40), "float32")
    values = [(x, x)]
    for i in range(n):
        w = (RNG.standard_normal((17 + i, 16 + i, 3, 3)) / 32).astype(np.float32)
        source = ops.conv(values[-1][0], ops.constant(w), pads_lo=(1, 1), pads_hi=(1, 1))
        pads = ((0, 1), (2, 1)) if fault and i == n - 1 else ((1, 1), (1, 1))
        twice = ops.conv(values[-1][1], ops.constant(2 * w), pads_lo=pads[0], pads_hi=pads[1])
        values.append((source, ops.mul(twice, ops.full_like(0.5, twice))))
    *cuts, last = values[1:]
    before, after = (Program((x,), {"y": y}) for y in last)
    return before, after, cuts


def test_many_parts_keep_the_seconds_of_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that counts operations, and two milliseconds for each evaluation."""
    now = 0.0
    plain = Demanded.run

    def counted(self: Demanded, *args: Any, **settings: Any) -> list[np.ndarray]:
        nonlocal now
        now += self.flops / SPEED + 0.002
        return plain(self, *args, **settings)

    monkeypatch.setattr(Demanded, "run", counted)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    before, after, cuts = convolutions(40)
    check(before, after, cuts=cuts)
    took, now = now, 0.0
    found = check(before, after, cuts=cuts, seconds=took / 8)
    assert now < 1.1 * took / 8, (now, took)
    assert found.parts["sampled"] > 30
    assert found.missed > 0.9
    now = 0.0
    check(before, after, cuts=cuts, seconds=0.0)
    assert now < 0.2, now
    before, after, cuts = convolutions(40, fault=True)
    with pytest.raises(CheckFailed, match="differs from the source"):
        check(before, after, cuts=cuts, seconds=0.0)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_shifted_output_is_found_in_every_type(dtype: str) -> None:
    x = ops.input("x", (32,), dtype)
    source, result = Program((x,), {"y": ops.exp(x)}), Program((x,), {"y": ops.exp(ops.flip(x))})
    with pytest.raises(CheckFailed):
        check(source, result)


S = ops.input("s", (4, 1), "float32")


def row_of_equals(x: Term) -> Term:
    return ops.broadcast(x, (4, 3))


def less_mean(x: Term) -> Term:
    mean = ops.mul(ops.sum_(row_of_equals(x), 1, keepdims=True), ops.full(1 / 3, (4, 1), x.dtype))
    return ops.sub(row_of_equals(x), row_of_equals(mean))


ZERO_OVER = ops.div(ops.full(0, (4, 1)), ops.sub(S, S))
LARGE = ops.mul(S, ops.full(1e3, (4, 1)))

ENDLESS = ops.add(S, ops.full(np.inf, (4, 1)))

CANCELLED: dict[str, tuple[Term, Term, Special, bool]] = {
    # source, result, what may become of NaN and infinities, whether it passes
    "nothing but rounding": (less_mean(S), ops.mul(row_of_equals(S), ops.full(0, (4, 3))), "same", True),
    "more than rounding": (less_mean(S), ops.mul(row_of_equals(S), ops.full(1e-4, (4, 3))), "same", False),
    "rounding of something": (ops.add(less_mean(S), row_of_equals(LARGE)), row_of_equals(LARGE), "same", True),
    "a tenth of something": (row_of_equals(S), ops.mul(row_of_equals(S), ops.full(1.1, (4, 3))), "same", False),
    "a hidden NaN": (ZERO_OVER, ops.full(0, (4, 1)), "hidden", True),
    "a NaN that may not be hidden": (ZERO_OVER, ops.full(0, (4, 1)), "same", False),
    "a NaN instead of an infinity": (ENDLESS, ops.mul(ENDLESS, ops.full(0, (4, 1))), "placed", True),
    "one that must stay infinite": (ENDLESS, ops.mul(ENDLESS, ops.full(0, (4, 1))), "same", False),
    "a number instead of an infinity": (ENDLESS, S, "placed", False),
    "an infinity that is new": (S, ENDLESS, "placed", False),
    "a NaN that is new": (S, ops.add(S, ZERO_OVER), "hidden", False),
}


@pytest.mark.parametrize("name", CANCELLED)
def test_outputs_that_have_cancelled(name: str) -> None:
    source, result, special, passes = CANCELLED[name]
    before, after = Program((S,), {"y": source}), Program((S,), {"y": result})
    if passes:
        check(before, after, special=special)
    else:
        with pytest.raises(CheckFailed):
            check(before, after, special=special)


@pytest.mark.parametrize(("size", "passes"), [(16, True), (512, False)])
def test_the_whole_decides_over_values_that_are_not_defined_only_where_there_is_time(size: int, passes: bool) -> None:
    """A stand-in of a square is negative, so that its root is NaN."""
    x, y = (ops.input(name, (size, size), "float32") for name in "xy")
    square, same = ops.mul(x, x), ops.mul(ops.abs_(x), ops.abs_(x))
    after_root, after = ops.mul(ops.sqrt(square), ops.sqrt(square)), same
    for _ in range(2):
        after_root, after = (ops.tanh(ops.matmul(ops.tanh(ops.matmul(y, t)), y)) for t in (after_root, after))
    given = Program((x, y), {"out": after_root}), Program((x, y), {"out": after})
    check(*given, cuts=[(square, same)])
    if passes:
        check(*given, cuts=[(square, same)], seconds=0.0)
        return
    with pytest.raises(CheckUndecided):
        check(*given, cuts=[(square, same)], seconds=0.0)


def smaller(x: Term) -> Term:
    """Of x and one, as files write it."""
    one = ops.full(1, x.shape, x.dtype)
    return ops.where(ops.less_equal(x, one), x, one)


@pytest.mark.parametrize("passes", [True, False])
def test_an_input_that_is_rounded_to_integers_is_no_decision(passes: bool) -> None:
    x = ops.round_(ops.reshape(S, (4, 1)))
    source, result = less_mean(x), ops.mul(row_of_equals(x), ops.full(0 if passes else 1e-4, (4, 3)))
    before, after = Program((S,), {"y": source}), Program((S,), {"y": result})
    if passes:
        check(before, after)
    else:
        with pytest.raises(CheckFailed):
            check(before, after)


@pytest.mark.parametrize("passes", [True, False])
def test_a_chosen_value_that_has_cancelled_is_no_decision(passes: bool) -> None:
    source, result = smaller(less_mean(S)), ops.mul(row_of_equals(S), ops.full(0 if passes else 1e-4, (4, 3)))
    before, after = Program((S,), {"y": source}), Program((S,), {"y": smaller(result)})
    if passes:
        check(before, after)
    else:
        with pytest.raises(CheckFailed):
            check(before, after)


def test_outputs_of_float64_that_have_cancelled() -> None:
    """The program's own types round as the reference does: equal values less their mean, over a root of nearly zero."""
    x = ops.input("x", (4, 1), "float64")
    less = less_mean(x)
    source = ops.div(less, ops.sqrt(ops.add(ops.mul(less, less), ops.full(1e-5, less.shape, "float64"))))
    zero = ops.mul(row_of_equals(x), ops.full(0, (4, 3), "float64"))
    small = ops.mul(row_of_equals(x), ops.full(1e-8, (4, 3), "float64"))
    check(Program((x,), {"y": source}), Program((x,), {"y": zero}))
    with pytest.raises(CheckFailed):
        check(Program((x,), {"y": source}), Program((x,), {"y": small}))


def test_a_decision_of_one_output_says_nothing_of_another_that_has_cancelled() -> None:
    twice = ops.add(S, S), ops.mul(S, ops.full(2, (4, 1)))
    before, after = (Program((S,), {"y": less_mean(S), "z": ops.floor(x)}) for x in twice)
    zero = ops.mul(row_of_equals(S), ops.full(0, (4, 3)))
    check(before, Program((S,), {"y": zero, "z": after.outputs["z"]}))


def test_values_that_do_not_vary_are_not_replaced() -> None:
    """A constant that repeats itself is its own transpose; random values in its place are not."""
    inner = ops.broadcast(ops.constant(np.full((3, 1), 2, np.float32)), (3, 3))
    source = Program((S,), {"y": ops.transpose(inner)})
    repeated = ops.full(2, (3, 3))
    check(source, Program((S,), {"y": repeated}), cuts=[(inner, repeated)])


def test_values_that_are_tied_to_others_are_judged_whole() -> None:
    """Turned twice is as it was: random values in place of both say otherwise."""

    def turned(x: Term) -> Term:
        return ops.slice_(x, [None], [None], None, [-1])

    e = ops.exp(S)
    source = Program((S,), {"y": turned(e), "z": turned(turned(e))})
    check(source, Program((S,), {"y": turned(e), "z": e}), cuts=[(turned(e), turned(e)), (e, e)])
    with pytest.raises(CheckFailed):
        check(source, Program((S,), {"y": e, "z": e}), cuts=[(turned(e), turned(e)), (e, e)])


def test_a_part_that_differs_keeps_nothing_of_the_caller_alive() -> None:
    """Its error would hold the frames below it in a cycle, and these all that a search made."""
    x, y = (ops.input(name, (16, 16), "float32") for name in "xy")
    square, same = ops.mul(x, x), ops.mul(ops.abs_(x), ops.abs_(x))
    source, result = (ops.matmul(ops.sqrt(square), y), ops.matmul(ops.abs_(x), y))

    def called() -> weakref.ref[set[int]]:
        kept = KeptAlive()
        found = check(Program((x, y), {"out": source}), Program((x, y), {"out": result}), cuts=[(square, same)])
        assert found.parts["full"] + found.parts["sampled"]
        return weakref.ref(kept)

    with collector_paused():
        assert called()() is None


class KeptAlive(set[int]):
    """An object of the caller."""


def number(value: float, like: Term) -> Term:
    return ops.full_like(value, like)


def grouped() -> list[list[Term]]:
    """Two products, as slices of one in the result, and a product of both."""
    x = ops.input("x", (8, 16), "float32")
    w = [ops.constant(RNG.standard_normal((16, 16)).astype(np.float32)) for _ in range(2)]
    source = [ops.matmul(x, each) for each in w]
    group = ops.matmul(x, ops.concat(w, 1))
    result = [ops.slice_(group, [None, i], [None, i + 16]) for i in (0, 16)]
    return [[*pair, ops.matmul(ops.transpose(pair[0]), pair[1])] for pair in (source, result)]


def squares() -> list[list[Term]]:
    """A row, its mean, and the squares of the distances from it, in two ways that agree for no other mean."""
    x = ops.exp(ops.input("x", (16,), "float32"))
    mean = ops.mul(ops.sum_(x, 0, keepdims=True), ops.full(1 / 16, (1,)))
    off = ops.sub(x, ops.broadcast(mean, (16,)))
    apart = ops.sub(ops.sum_(ops.mul(x, x), 0, keepdims=True), ops.mul(ops.full(16, (1,)), ops.mul(mean, mean)))
    return [[x, mean, ops.sum_(ops.mul(off, off), 0, keepdims=True)], [x, mean, apart]]


def late_member() -> list[list[Term]]:
    """A group, one of whose members reads a value that comes after another member."""
    x = ops.input("x", (8,), "float32")
    early, between = ops.neg(x), ops.exp(x)
    group = ops.concat([early, ops.relu(between)])
    return [
        [first, between, ops.abs_(second), ops.neg(ops.abs_(second))]
        for first, second in ((early, ops.relu(between)), (ops.slice_(group, [0], [8]), ops.slice_(group, [8], [16])))
    ]


def circle() -> list[list[Term]]:
    """Each of two values is right if the other one is; none is."""
    x = ops.input("x", (8,), "float32")
    twice = ops.mul(x, number(2, x))
    wrong = ops.add(x, number(1, x))
    return [[twice, ops.mul(twice, number(0.5, x)), twice], [ops.mul(wrong, number(2, x)), wrong, wrong]]


CUT: dict[str, tuple[Callable[[], list[list[Term]]], dict[str, int] | None]] = {
    # values in order, the last an output; the parts, None where a fault must be found
    "slices of a group": (grouped, {"same": 1, "full": 2, "sampled": 0}),
    "a row and its mean": (squares, {"same": 2, "full": 1, "sampled": 0}),
    "a member that comes late": (late_member, {"same": 2, "full": 2, "sampled": 0}),
    "a circle": (circle, None),
}


@pytest.mark.parametrize("name", CUT)
def test_values_are_compared_over_those_below(name: str) -> None:
    make, parts = CUT[name]
    source, result = make()
    inputs = tuple(t for t in topological(source) if t.op == "input")
    before, after = (Program(inputs, {"y": values[-1]}) for values in (source, result))
    cuts = list(zip(source[:-1], result[:-1], strict=True))
    if parts is None:
        with pytest.raises(CheckFailed, match="differs from the source"):
            check(before, after, cuts=cuts)
    else:
        assert dict(check(before, after, cuts=cuts).parts) == parts


def test_a_whole_exponent_says_nothing_of_rounding() -> None:
    """Moved by one last place it would make NaN of negative numbers, and no other number of the result explained."""
    x = ops.input("x", (2, 48))
    source = composites.div(x, ops.sqrt(ops.sum_(composites.square(x), -1, True)))
    mean = composites.mean(ops.elementwise("pow", x, ops.full_like(2, x)), -1, True)
    factor = ops.constant(np.full(48, 1 / np.sqrt(48), np.float32))
    result = composites.mul(composites.div(x, ops.sqrt(mean)), factor)
    assert check(Program((x,), {"y": source}), Program((x,), {"y": result})).max_error < 1e-6


SMALL = ops.input("x", (4, 4), "float32")


def enlarged(function: Callable[[Term], Term]) -> Term:
    """The sum of a large value, no element of which can be left out."""
    x = ops.reshape(SMALL, (4, 1, 4, 1))
    large = ops.reshape(ops.broadcast(x, (4, 7500, 4, 7500)), (30_000, 30_000))
    return ops.reduce("sum", function(large), (0, 1))


def test_what_there_is_no_time_or_memory_for_is_not_begun():
    """A sum of 9e8 elements is one number, but no small comparison."""
    functions = ops.exp, lambda x: ops.exp(ops.neg(ops.neg(x)))
    source, result = (Program((SMALL,), {"y": enlarged(f)}) for f in functions)
    begun = time.process_time()
    with pytest.raises(CheckUndecided, match="within the time limit"):
        check(source, result, seconds=1.0, means=Means(ends=lambda: 1.0))
    with pytest.raises(CheckTooLarge, match="within the memory limit, 1024 MiB left"):
        check(source, result, seconds=100.0, means=Means(1 << 30))
    assert time.process_time() - begun < 1


def test_what_constants_were_computed_from_is_counted_before_it_is_computed():
    """The constant is one number. 9e8 elements were computed for it, whatever the limits were."""
    numbers = ops.constant(np.arange(16, dtype=np.float32).reshape(4, 4))
    large = ops.reshape(ops.broadcast(ops.reshape(numbers, (4, 1, 4, 1)), (4, 7500, 4, 7500)), (30_000, 30_000))
    meaning = ops.reduce("max", ops.exp(large), (0, 1))
    x = ops.input("x", (), "float32")
    constant = ops.constant(np.exp(np.float32(15)))
    given, found = ops.add(x, meaning), ops.add(x, constant)
    source, result = (Program((x,), {"y": term}) for term in (given, found))
    meanings = {found: given}
    begun = time.process_time()
    for hurried in (True, False):
        seconds = 0.0 if hurried else 9.0
        with pytest.raises(CheckUndecided, match=r"constant f32.* cannot be checked within the time limit"):
            check(source, result, seconds=seconds, meanings=meanings, means=Means(ends=lambda: 1.0))
        with pytest.raises(CheckTooLarge, match=r"constant f32.* cannot be checked within the memory limit"):
            check(source, result, seconds=seconds, meanings=meanings, means=Means(1 << 30))
    assert time.process_time() - begun < 1
