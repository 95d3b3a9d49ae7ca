"""Constant expressions: folded to the bits that NumPy gives, operator by operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.evidence.reference import same_bits
from eqsat.language.rule import Policy
from eqsat.program import fold, ops, sizes
from eqsat.program.fold import fold_constants, fold_source
from eqsat.program.ir import Program, evaluated
from eqsat.program.sizes import ELEMENT_WORK, WORK_OF_WEIGHTS
from eqsat.program.term import Term, topological

F32, F16 = np.float32, np.float16
POLICIES: tuple[Policy, ...] = ("exact", "reassociate", "fast")


def drawn(*shape: int, dtype: Any = F32, seed: int = 0) -> Term:
    return ops.constant(np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype))


def like(c: Term, *shape: int) -> Term:
    return ops.broadcast(c, shape)


def number(value: float, *shape: int, dtype: str = "float32") -> Term:
    return ops.full(value, shape, dtype)


def buckets(positions: Term) -> Term:
    """Logarithmic buckets as T5 makes them; 16, 32 and 64 lie on their edges."""
    shape = positions.shape
    scaled = ops.div(ops.log(ops.div(positions, number(8, *shape))), number(float(F32(np.log(16))), *shape))
    return ops.cast(ops.mul(scaled, number(8, *shape)), "int64")


ROWS, LINE = ops.constant(np.arange(1, 41, dtype=F32)[:, None]), ops.constant(np.arange(1, 33, dtype=F32)[None])

ZERO = ops.constant(np.zeros((1, 1), F32))

WRITTEN: dict[str, Term] = {
    "exp": ops.exp(drawn(25, 6)),
    "sum over rows": ops.sum_(drawn(25, 6), 0),
    "sum over a row": ops.sum_(drawn(300, seed=1), 0),
    "half sum": ops.sum_(drawn(300, dtype=F16), 0),
    "product": ops.matmul(drawn(6, 40), drawn(40, 7)),
    "product that grows": ops.matmul(drawn(40, 6), drawn(6, 50)),
    "products": ops.matmul(ops.matmul(drawn(6, 40), drawn(40, 7)), drawn(7, 3)),
    "scaled in steps": ops.mul(ops.mul(drawn(25), number(0.1, 25)), number(0.3, 25)),
    "small and large": ops.sub(ops.add(drawn(25), number(1e8, 25)), number(1e8, 25)),
    "rounded logarithm": ops.cast(buckets(ops.constant(np.array([16, 32, 64], F32))), "float32"),
    "rounded table": ops.gather(drawn(32, 4), buckets(ops.mul(like(ROWS, 40, 32), like(LINE, 40, 32))), 0),
    "rounded down": ops.floor(ops.mul(ops.log(drawn(25, seed=3)), number(1e3, 25))),
    "of a broadcast": ops.exp(like(drawn(1, 6), 25, 6)),
    "of two broadcasts": ops.sqrt(ops.mul(like(ROWS, 40, 32), like(LINE, 40, 32))),
    "sum of a table": ops.sum_(ops.exp(ops.sub(like(LINE, 40, 32), like(ROWS, 40, 32))), 0),
    "shorter": ops.cast(ops.mul(drawn(25), number(3, 25)), "float16"),
    "empty": ops.add(ops.abs_(drawn(0)), number(1, 0)),
    "sum of nothing": ops.exp(ops.sum_(ops.mul(drawn(0, 3), like(drawn(1, 3), 0, 3)), 0)),
    "zero over zeros": like(ops.div(like(ZERO, 2, 2), ops.pad(ZERO, (1, 1), (0, 0), 0.0)), 3, 2, 2),
    "zeros times infinity": like(ops.mul(ops.pad(ZERO, (1, 1), (0, 0), 0.0), number(np.inf, 2, 2)), 3, 2, 2),
    "infinite": ops.log(ops.constant(np.array([0, -1, np.nan, 1e-40], F32))),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", WRITTEN)
def test_constants_have_the_bits_of_the_program_as_written(name: str, policy: Policy):
    c = WRITTEN[name]
    x = ops.input("x", c.shape, c.dtype)
    source = Program((x,), {"sum": ops.add(x, c), "itself": ops.neg(c)})
    best = eqsat.optimize(source, numerics=policy)
    inputs = {"x": np.zeros(c.shape, eqsat.base.numerics.np_dtype(c.dtype))}
    wanted = source.run(inputs)
    for found in (best.program.run(inputs), best.compile()(inputs)):
        for output, values in wanted.items():
            assert same_bits(found[output], values), output


@pytest.mark.parametrize("policy", POLICIES)
def test_what_reads_a_value_that_is_found_to_be_constant_is_computed(policy: Policy):
    x = ops.input("x", (1,), "float32")
    last = ops.slice_(ops.concat([drawn(2), ops.broadcast(x, (3,)), drawn(2)], 0), [6], [7])
    wanted = {"same": ops.max_(last, last), "twice": ops.neg(ops.neg(last)), "root": ops.exp(ops.abs_(last))}
    source = Program((x,), wanted)
    best = eqsat.optimize(source, numerics=policy)
    given = {"x": np.ones(1, F32)}
    for found in (best.program.run(given), best.compile()(given)):
        assert all(same_bits(found[name], values) for name, values in source.run(given).items())


def test_only_what_rewriting_made_is_computed_in_float64():
    a, c = drawn(40, 6), drawn(6, 50)
    x = ops.input("x", (500, 40))
    source = Program((x,), {"y": ops.matmul(ops.matmul(x, ops.exp(ops.matmul(a, c))), ops.neg(ops.exp(drawn(50, 3))))})
    left, right = _operands(source)
    wide = left.astype(np.float64) @ right.astype(np.float64)
    constants = [t.attr("value").array for t in eqsat.optimize(source).program.terms() if t.op == "constant"]
    assert any(same_bits(values.reshape(-1), wide.astype(F32).reshape(-1)) for values in constants)


def _operands(source: Program) -> list[np.ndarray]:
    """The two constants that the chain of products in `source` reads, natively."""
    product = source.outputs["y"]
    terms = {"left": product.args[0].args[1], "right": product.args[1]}
    values = Program((), terms).run({})
    return [values["left"], values["right"]]


SYMBOLIC: dict[str, tuple[Callable[[], Term], bool]] = {
    # what is computed, and whether it is left as it is where rounding may differ
    "product that grows": (lambda: ops.matmul(drawn(40, 6), drawn(6, 50)), True),
    "product that shrinks": (lambda: ops.matmul(drawn(6, 40), drawn(40, 7)), False),
    "outer sum": (lambda: ops.add(like(ROWS, 40, 32), like(LINE, 40, 32)), True),
    "comparison": (lambda: ops.less(like(ROWS, 40, 32), like(LINE, 40, 32)), False),
    "wider floats": (lambda: ops.cast(drawn(40, dtype=F16), "float32"), True),
    "shorter floats": (lambda: ops.cast(drawn(40), "float16"), False),
    "more rows of a table": (lambda: ops.gather(drawn(4, 6), ops.constant(np.zeros(30, np.int64)), 0), True),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_what_would_grow_stays_as_it_is_written(name: str):
    make, stays = SYMBOLIC[name]
    folded = fold_source(Program((), {"y": make()})).program
    assert (folded.outputs["y"].op == make().op) == stays


@pytest.mark.parametrize("make", [lambda t: ops.concat([t, t]), lambda t: ops.pad(t, (1, 1), (1, 1), 0), ops.transpose])
def test_movement_of_constants_is_left(make: Callable[[Term], Term]):
    source = Program((), {"y": make(drawn(5, 4))})
    assert fold_source(source, exact=True).program.outputs == source.outputs


def test_nothing_is_folded_beyond_its_limits(monkeypatch: pytest.MonkeyPatch):
    source = Program((), {"y": ops.exp(ops.exp(drawn(50)))})
    monkeypatch.setattr("eqsat.program.fold.WORK", 60)
    assert [t.op for t in fold_source(source).program.terms()] == ["constant", "exp"]
    monkeypatch.setattr("eqsat.program.fold.LIMIT", 49)
    assert fold_source(source).program.outputs == source.outputs


def test_doubling_a_constant_a_hundred_times_takes_no_time():
    c = drawn(3)
    for _ in range(100):
        c = ops.add(c, c)
    assert [t.op for t in fold_source(Program((), {"y": c})).program.terms()] == ["constant"]
    for _ in range(60):
        c = ops.concat([c, c])
        c = ops.neg(c)
    assert all(t.op != "constant" or t.size <= 1 << 26 for t in fold_source(Program((), {"y": c})).program.terms())


def test_views_of_constants_are_walked_once_and_without_recursion():
    shared = drawn(1)
    for _ in range(24):
        shared = ops.concat([shared, shared])
    deep = drawn(2, 2)
    for _ in range(3000):
        deep = ops.transpose(deep, (1, 0))
    source = Program((), {"shared": ops.exp(shared), "deep": ops.exp(deep)})
    folded, _ = fold_constants(source, source=source)
    assert [t.op for t in folded.outputs.values()] == ["constant", "constant"]


def test_results_that_vary_are_never_folded():
    (value,) = ops.opaque("Random", [drawn(4)], [((4,), "float32")], "s", lambda a: (a + 1,))
    source = Program((), {"y": ops.exp(value)})
    assert fold_source(source).program.outputs == source.outputs


def test_names_stay_with_values():
    c = ops.exp(drawn(4))
    x = ops.input("x", (4,))
    program = fold_source(Program((x,), {"y": ops.add(x, c)}, {c: "table"})).program
    (constant,) = [t for t in topological(program.outputs.values()) if t.op == "constant"]
    assert program.names[constant] == "table"


def test_folding_is_a_step_of_the_explanation():
    x = ops.input("x", (25, 6))
    steps = eqsat.optimize(Program((x,), {"y": ops.add(x, ops.exp(drawn(25, 6)))})).report["steps"]
    assert [(s["rule"], s["before"], s["after"]) for s in steps] == [
        ("fold-constants", "exp(c0)", "constant f32[25,6]")
    ]


def test_a_product_of_repeated_constants_has_the_bits_of_one_of_stored_constants() -> None:
    """Constants that repeat themselves are folded at the size of what they read, and repeated in the product."""
    rng = np.random.default_rng(0)
    weight = ops.constant(rng.standard_normal((257, 63)).astype(np.float32))
    third = ops.div(ops.full(1.0, (1, 257), "float32"), ops.full(3.0, (1, 257), "float32"))
    program = Program((), {"y": ops.matmul(third, weight)})
    (want,), (found,) = program.run({}).values(), fold_source(program).program.run({}).values()
    assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize("function", ["sum", "product"])
def test_what_adds_up_repeated_constants_adds_in_the_order_of_the_program(function: str) -> None:
    """A view turns an array that repeats itself: NumPy adds in the order in which elements lie in memory."""
    rng = np.random.default_rng(0)
    line, cells = rng.standard_normal((1, 33)).astype(F32), rng.standard_normal((65, 33)).astype(F32)
    repeated = ops.broadcast(ops.exp(ops.constant(line)), (65, 33))
    turned = ops.transpose(ops.mul(repeated, ops.full(0.1, (65, 33), "float32")), (1, 0))
    twice = ops.concat([turned, turned], 1)
    made = {"sum": lambda: ops.sum_(twice, 1), "product": lambda: ops.matmul(ops.constant(cells[:1]), turned)}
    program = Program((), {"y": made[function]()})
    (want,), (found,) = program.run({}).values(), fold_source(program).program.run({}).values()
    assert same_bits(found, want)


def test_large_constants_are_known_by_how_they_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read one for its digest takes longer than to compute it."""
    first, second = drawn(300, 100), drawn(300, 100, seed=1)
    assert len({first, second}) == 2  # their digests are known

    def refuse(array: np.ndarray) -> str:
        raise AssertionError(f"{array.shape} is hashed")

    monkeypatch.setattr("eqsat.program.term._hashed", refuse)

    def folded(c: Term, d: Term) -> Term:
        program = Program((), {"y": ops.mul(ops.exp(c), ops.transpose(ops.transpose(d, (1, 0)), (1, 0)))})
        return fold_constants(program)[0].outputs["y"]

    found = folded(first, second)
    assert found is folded(first, second)
    assert found is not folded(second, first)
    want = np.exp(first.attr("value").array) * second.attr("value").array
    assert same_bits(found.attr("value").array, want)


def test_what_a_source_computes_of_constants_is_limited_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "READ_WORK", 0)
    term = drawn(64, 64)
    for _ in range(100):
        term = ops.sin(term)
    folded = fold_source(Program((), {"y": term}))
    (start,) = folded.values
    assert start.op == "constant"
    left = sum(t.op == "sin" for t in folded.program.terms())
    assert left == 100 - WORK_OF_WEIGHTS // ELEMENT_WORK, "as many as weights may have"


def test_sums_are_not_computed_as_written_where_that_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the sum are casts of a broadcast, which are narrowed: as they are written each has all elements."""
    term = number(1, 1 << 22)
    for i in range(60):
        term = ops.cast(term, ("float64", "float32")[i % 2])
    seen: list[int] = []

    def watched(terms: list[Term], known: dict[Term, Any]) -> list[np.ndarray[Any, Any]]:
        seen.append(sum(t.size for t in topological(terms)))
        return evaluated(terms, known)

    monkeypatch.setattr(fold, "evaluated", watched)
    monkeypatch.setattr(fold, "READ_WORK", 1 << 32)
    fold_source(Program((), {"y": ops.sum_(term)}))
    assert max(seen) <= 2 << 22


def test_stored_weights_are_multiplied_whatever_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "FOLDED_WORK", 20_000_000)
    products = {str(i): ops.matmul(drawn(100, 100), drawn(100, 100, seed=i)) for i in range(1, 30)}
    folded, _ = fold_constants(Program((), products))
    assert {term.op for term in folded.outputs.values()} == {"constant"}


def test_what_lifting_left_is_limited_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "WORK_OF_WEIGHTS", 0)
    monkeypatch.setattr(fold, "FOLDED_WORK", 20_000_000)
    products = {str(i): ops.matmul(drawn(100, 100), drawn(100, 100, seed=i)) for i in range(1, 30)}
    folded, _ = fold_constants(Program((), products))
    left = sum(term.op == "matmul" for term in folded.outputs.values())
    assert 0 < left < len(products)
