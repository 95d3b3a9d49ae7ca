"""Models against what became of them: proved cut by cut, and refuted where a fault was planted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

import eqsat
from eqsat.program import ops
from eqsat.program.core import lower, topological
from eqsat.program.ir import Program
from eqsat.program.node import Node, make
from eqsat.program.term import Term
from eqsat.program.term import make as make_term
from eqsat.proof import sweep as sweeping
from eqsat.proof.attempt import Attempt, Effort, Facts
from eqsat.proof.values.ahead import Ahead
from eqsat.proof.values.refute import refute
from eqsat.proof.values.signatures import Index, signature

RNG = np.random.default_rng(0)
ROWS, WIDTH, HEADS, LAYERS = 12, 32, 4, 2
W16 = (np.random.default_rng(3).standard_normal((32, 32)) / 8).astype(np.float16)


def weight(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def encoder() -> Program:
    """Layers of attention and gelu, as exporters write them."""
    shapes = dict.fromkeys("qkvo", (WIDTH, WIDTH)) | {"up": (WIDTH, 2 * WIDTH), "down": (2 * WIDTH, WIDTH)}
    layers = [{name: weight(*shape) for name, shape in shapes.items()} for _ in range(LAYERS)]
    biases = [{name: weight(w.shape[1]) for name, w in layer.items()} for layer in layers]

    def norm(x):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))

    def heads(x):
        return x.reshape(ROWS, HEADS, WIDTH // HEADS).transpose(1, 0, 2)

    def model(x):
        for w, b in zip(layers, biases, strict=True):
            y = norm(x)
            q, k, v = (heads(y @ w[name] + b[name]) for name in "qkv")
            scores = np.exp(q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(WIDTH / HEADS)))
            shares = scores / scores.sum(-1, keepdims=True)
            x = x + (shares @ v).transpose(1, 0, 2).reshape(ROWS, WIDTH) @ w["o"] + b["o"]
            up = norm(x) @ w["up"] + b["up"]
            x = x + (up * np.float32(0.5) * (1 + np.tanh(up))) @ w["down"] + b["down"]
        return x

    return eqsat.trace(model, eqsat.spec((ROWS, WIDTH)))


@pytest.fixture(scope="module")
def pair() -> tuple[Program, Program]:
    source = encoder()
    return source, eqsat.optimize(source, time_limit=40).program


def test_a_model_is_proved_equal_to_its_optimised_form(pair: tuple[Program, Program]) -> None:
    proof = eqsat.prove(*pair, time_limit=40)
    assert (proof.verdict, proof.method) == ("proved", "sweep"), proof.reason
    assert proof.stats["proofs"] < proof.stats["cuts"] <= len(proof.steps)


def changed(program: Program, change: Callable[[Term], Term | None]) -> Program:
    """The program with the last term that `change` takes changed."""
    target = [term for term in program.terms() if change(term) is not None][-1]
    made: dict[Term, Term] = {}
    for term in program.terms():
        args = [made[a] for a in term.args]
        same = make_term(term.op, *args, **dict(term.attrs)) if args else term
        made[term] = change(term) or same if term is target else same
    return Program(program.inputs, {name: made[term] for name, term in program.outputs.items()})


def one_weight(term: Term) -> Term | None:
    if term.op != "constant" or min(term.shape, default=0) < 8:
        return None
    array = term.attr("value").array.copy()
    array[(3,) * array.ndim] *= 1.01
    return ops.constant(array)


def swapped_rows(term: Term) -> Term | None:
    if term.op != "constant" or min(term.shape, default=0) < 8:
        return None
    array = term.attr("value").array.copy()
    array[[0, 1]] = array[[1, 0]]
    return ops.constant(array)


FAULTS = {
    "a weight changed by 1 %": one_weight,
    "two rows of weights swapped": swapped_rows,
    "an add for a mul": lambda t: make_term("add", *t.args) if t.op == "mul" else None,
    "a function left out": lambda t: t.args[0] if t.op == "tanh" else None,
    "a bias added twice": lambda t: make_term("add", t, t.args[1]) if t.op == "add" else None,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_refuted(pair: tuple[Program, Program], fault: str) -> None:
    source, result = pair
    proof = eqsat.prove(source, changed(result, FAULTS[fault]), time_limit=8)
    assert proof.verdict == "refuted", proof.reason


def test_what_stays_open_is_named() -> None:
    x = ops.input("x", (3, 64), "float32")
    y = x
    for _ in range(30):
        y = ops.add(ops.tanh(y), ops.sin(y))
    # Equal, by a law that no rule states: sin(2y) = 2 sin(y) cos(y)
    two = ops.full(2.0, y.shape, y.dtype)
    one = ops.tanh(ops.sin(ops.mul(two, y)))
    other = ops.tanh(ops.mul(two, ops.mul(ops.sin(y), ops.cos(y))))
    proof = eqsat.prove(Program((x,), {"z": one}), Program((x,), {"z": other}), time_limit=4)
    assert proof.verdict == "unknown"
    assert "sin" in proof.reason or "Un" in proof.reason


def test_a_constant_that_a_float_decides_is_computed_in_its_own_type() -> None:
    steps = 512
    eight, log16 = (ops.full(x, (steps,), "float32") for x in (8.0, np.log(16.0)))
    far = ops.constant(np.arange(1, steps + 1, dtype=np.float32))
    scaled = ops.mul(ops.div(ops.log(ops.div(far, eight)), log16), eight)
    places = ops.add(ops.cast(scaled, dtype="int64"), ops.full(8, (steps,), "int64"))
    table = ops.constant(weight(32))
    computed = ops.gather(table, places, axis=0)
    [read] = Program((), {"y": computed}).run({}).values()
    x = ops.input("x", (steps,), "float32")
    y = x
    for _ in range(20):
        y = ops.add(ops.tanh(y), ops.sin(y))
    pair = [Program((x,), {"z": ops.add(y, bias)}) for bias in (computed, ops.constant(read))]
    proof = eqsat.prove(*pair, time_limit=20)
    assert proof.verdict == "proved", proof.reason


def test_what_is_added_to_a_mask_is_seen_beside_it() -> None:
    scores = RNG.standard_normal(256)
    mask = np.where(RNG.random(256) < 0.5, -3.4e38, 0.0)
    masked, others, alone = (signature("float32", [x]) for x in (scores + mask, scores[::-1] + mask, mask))
    assert masked.close(signature("float32", [scores + mask + 1e-12]), 1e-5)
    assert not masked.close(alone, 1e-5)
    assert not masked.close(others, 1e-5)


@pytest.mark.parametrize("always", [True, False])
def test_a_computed_mask_that_hides_nothing_is_one_number(always: bool) -> None:
    x = ops.input("x", (64,), "float32")
    y = x
    for _ in range(20):
        y = ops.add(ops.tanh(y), ops.sin(y))
    places = ops.constant(np.arange(64, dtype=np.int64))
    mask = ops.less(places, ops.constant(np.full(64, 64 if always else 63, dtype=np.int64) + (np.arange(1, 65) % 2)))
    shown = make_term("where", ops.elementwise("and", mask, ops.less(x, y)), y, ops.full(-np.inf, (64,), "float32"))
    plain = make_term("where", ops.less(x, y), y, ops.full(-np.inf, (64,), "float32"))
    proof = eqsat.prove(Program((x,), {"z": shown}), Program((x,), {"z": plain}), time_limit=20)
    assert (proof.verdict == "proved") is always


@pytest.mark.parametrize(
    ("other", "agree"),
    [
        pytest.param(lambda a: a, True, id="the same"),
        pytest.param(lambda a: np.nextafter(a, np.float32(9)), True, id="rounded otherwise"),
        pytest.param(lambda a: a * np.float32(1.01), False, id="scaled"),
        pytest.param(lambda a: a[::-1], False, id="in another order"),
    ],
)
def test_constants_agree_up_to_rounding(other: Callable[[np.ndarray], np.ndarray], agree: bool) -> None:
    values = {"a": weight(64), "b": np.zeros(0)}
    values["b"] = np.ascontiguousarray(other(values["a"]))
    a, b = (make("Const", (name, 64, "float32")) for name in "ab")
    assert Ahead(values, [[a], [b]]).agree(a, b) is agree


def test_constants_that_one_program_stores_apart_stay_apart() -> None:
    values = {"a": weight(64)}
    values["b"] = np.nextafter(values["a"], np.float32(9))
    values["c"] = np.nextafter(values["b"], np.float32(9))
    a, b, c = (make("Const", (name, 64, "float32")) for name in "abc")
    assert not Ahead(values, [[a, b], [a]]).agree(a, b)
    ahead = Ahead(values, [[a, c], [b]])
    assert ahead.agree(a, b)
    assert not ahead.agree(c, b)
    assert not ahead.agree(a, c)


@pytest.mark.parametrize("certify", [False, True])
def test_what_is_rounded_decides_nothing(certify: bool) -> None:
    """x @ a is above x @ b at every other place, although a and b are a few units apart."""
    a = weight(4, 4)
    b = a * np.float32(1 + 8 * 2.0**-23)
    pair = [eqsat.trace(lambda x, o=o: np.where(x @ a > x @ o, 1, 0), eqsat.spec((3, 4))) for o in (a, b)]
    assert eqsat.prove(*pair, time_limit=6, certify=certify).verdict != "proved"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("certify", [False, True])
@pytest.mark.parametrize(("units", "verdict"), [(2, "proved"), (40, "unknown")])
def test_stored_constants_are_compared_the_same_way_with_and_without_certificates(
    dtype: str, certify: bool, units: int, verdict: str
) -> None:
    a = weight(4, 4).astype(dtype)
    b = a * (1 + units * np.finfo(dtype).eps)
    pair = [eqsat.trace(lambda x, o=o: x @ o, eqsat.spec((3, 4), dtype)) for o in (a, b.astype(dtype))]
    proof = eqsat.prove(*pair, time_limit=6, certify=certify)
    assert proof.verdict == verdict, proof.reason
    assert (proof.certificate is not None) == (certify and verdict == "proved")


@pytest.mark.parametrize(("last", "agree"), [(-np.inf, True), (np.inf, False), (np.nan, False), (1.0, False)])
def test_infinities_agree_with_themselves(last: float, agree: bool) -> None:
    values = {"a": np.array([0.5, -np.inf], np.float32), "b": np.array([0.5, last], np.float32)}
    a, b = (make("Const", (name, 2, "float32")) for name in "ab")
    assert Ahead(values, [[a], [b]]).agree(a, b) is agree


def test_signatures_find_equal_values_alone() -> None:
    values = [weight(40) for _ in range(20)]
    index = Index({i: signature("float32", [value]) for i, value in enumerate(values)}, 1e-5)
    for i, value in enumerate(values):
        assert list(index.close_to(signature("float32", [value * np.float32(1 + 1e-6)]))) == [i]
        assert not list(index.close_to(signature("float32", [value[::-1]])))


def test_points_on_which_an_index_is_out_of_range_are_left_out() -> None:
    """Positions that a mask counts: the table has rows for each place, not for all sums of whole numbers."""
    table, first, second = weight(ROWS + 1, WIDTH), weight(WIDTH, WIDTH), weight(WIDTH, WIDTH)
    before = np.tri(ROWS, dtype=np.int64)

    def layers(x):
        for _ in range(4):
            x = x + np.tanh(np.tanh(x @ first) @ second)
        return x

    def source(x, mask):
        return layers(x + eqsat.take(table, (mask * before).sum(1), axis=0))

    def other(x, mask):
        return layers(eqsat.take(table, (before * mask).sum(1), axis=0) + x)

    shapes = {"x": eqsat.spec((ROWS, WIDTH)), "mask": eqsat.spec((ROWS,), "int64")}
    proof = eqsat.prove(eqsat.trace(source, **shapes), eqsat.trace(other, **shapes), time_limit=20)
    assert (proof.verdict, proof.method) == ("proved", "sweep")


def test_values_that_are_held_transposed_are_met() -> None:
    """The second program only looks at its values in order behind a power and a norm."""
    gate, up, down = weight(WIDTH, WIDTH), weight(WIDTH, WIDTH), weight(WIDTH, WIDTH)

    def source(x):
        for _ in range(4):
            y = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5))
            x = x + (np.tanh(y @ gate) * (y @ up)) @ down
        return x

    def other(x):
        t = x.T
        for _ in range(4):
            y = (t / np.sqrt((t * t).T.mean(-1) + np.float32(1e-5))).T
            t = t + down.T @ (np.tanh(y @ gate) * (y @ up)).T
        return t.T

    pair = [eqsat.trace(f, eqsat.spec((ROWS, WIDTH))) for f in (source, other)]
    proof = eqsat.prove(*pair, time_limit=20, certify=True)
    assert (proof.verdict, proof.method, proof.uncertified) == ("proved", "sweep", "")


def test_sweeping_stops_in_time(pair: tuple[Program, Program]) -> None:
    assert len(topological(lower(pair[0]).roots)) > 40
    assert eqsat.prove(*pair, time_limit=0.5).seconds < 3.0


def test_what_is_too_large_is_not_tried_again_in_what_is_computed_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = Effort(0, 1, 24, 1), sweeping._EFFORTS[-1]
    tried: list[Effort] = []

    class Noted(Attempt):
        def __init__(self, facts: Facts, sides: tuple[Node, Node], leaves: Mapping[Node, Node], effort: Effort) -> None:
            super().__init__(facts, sides, leaves, effort)
            tried.append(effort)

    monkeypatch.setattr(sweeping, "_EFFORTS", (first, last))
    monkeypatch.setattr(sweeping, "Attempt", Noted)
    w, b, c = (weight(WIDTH, WIDTH) for _ in "wbc")

    def layers(y):
        for _ in range(12):
            y = eqsat.tanh(y) + y * y
        return y

    sides = (lambda x, y: layers(((x + b) + (y + c)) @ w), lambda x, y: layers(x @ w + (y @ w + (b + c) @ w)))
    pair = [eqsat.trace(side, *[eqsat.spec((WIDTH, WIDTH))] * 2) for side in sides]
    assert eqsat.prove(*pair, time_limit=20).verdict == "proved"
    assert tried.count(first) <= 2
    assert tried.count(last) == 1


def normed(epsilon: float, folded: bool) -> Program:
    """Rows of a table, normed and multiplied, in layers; with the scales of the norms in the products, if `folded`.
    The epsilon is that of the first norm."""
    rng = np.random.default_rng(1)
    table, *scales = (rng.standard_normal(shape).astype(np.float32) for shape in ((20, WIDTH), *[WIDTH] * 4))
    weights = [rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / np.float32(8) for _ in scales]

    def model(index):
        x = eqsat.take(table / np.float32(4), index, 0)
        for w, scale, added in zip(weights, scales, (epsilon, *[1e-5] * 3), strict=True):
            y = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(added))
            x = x + eqsat.tanh(y @ (scale[:, None] * w) if folded else (y * scale) @ w)
        return x

    return eqsat.trace(model, eqsat.spec((ROWS,), "int64"))


@pytest.mark.parametrize(("epsilon", "verdict"), [(2e-5, "refuted"), (0.5e-5, "refuted"), (1e-5, "proved")])
def test_one_value_that_differs_by_little_is_exchanged(epsilon: float, verdict: str) -> None:
    """Indices cannot be small: the difference is clear only once no constants are rounded beside it."""
    pair = normed(1e-5, folded=False), normed(epsilon, folded=True)
    assert refute(*pair, {"index": "index"}, 10.0).found is None
    proof = eqsat.prove(*pair, time_limit=60)
    assert proof.verdict == verdict, proof.reason


def test_an_answer_says_what_rounding_may_make(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.proof.prove.exchanged", lambda *args: None)
    monkeypatch.setattr("eqsat.proof.values.refute._BEYOND_NOISE", 1e30)
    proof = eqsat.prove(normed(1e-5, False), normed(2e-5, True), time_limit=8)
    assert proof.verdict == "unknown"
    assert proof.within_rounding is not None
    most, rounding = proof.within_rounding
    assert 0 < most < rounding
    assert f"differ by up to {most:.2g}, which is within rounding: it may make {rounding:.2g}" in proof.reason


def test_an_answer_says_where_types_differ() -> None:
    """What is computed in float32 is not proved to be what float16 gives."""

    def model(wide: bool):
        def function(x):
            y = (
                (eqsat.exp(x.astype("float32")) @ W16.astype(np.float32)).astype("float16")
                if wide
                else eqsat.exp(x) @ W16
            )
            for _ in range(20):
                y = eqsat.tanh(y) + y
            return y

        return eqsat.trace(function, eqsat.spec((ROWS, WIDTH), "float16"))

    proof = eqsat.prove(model(False), model(True), time_limit=6)
    assert proof.verdict == "unknown"
    assert "the first computes MM in float16, Un in float16, the second MM in float32, Un in float32" in proof.reason
