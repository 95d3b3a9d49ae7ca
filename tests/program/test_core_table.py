"""The table of core operators: the facts of each row, and that a new operator needs only one row."""

from __future__ import annotations

import math
import pickle
import random
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from eqsat.egraph.encoding import EGraph
from eqsat.egraph.files import to_dot, to_json
from eqsat.egraph.saturate import Limits, Saturation
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import InputError, ShapeError
from eqsat.evidence.guard_proofs import prove_guard
from eqsat.evidence.instances import Instance, Unfit, rough, whole
from eqsat.evidence.reference import PRIME, apply, exact
from eqsat.evidence.soundness import check_rule
from eqsat.explain.derivation import derive
from eqsat.language.equation import rule
from eqsat.language.rule import Lit, Pat, Rule, Var
from eqsat.language.text import kind
from eqsat.layout import arithmetic as lay
from eqsat.program.core import CoreProgram, Node, evaluate, fold, make
from eqsat.program.core_table import CORE, CoreOp
from eqsat.proof.normal_form.elements import compare
from eqsat.proof.values.enclosure import enclose
from support.core_programs import CUMSUM

ROWS, C = 3, 4
SIZE = ROWS * C


@pytest.fixture(name="cumsum")
def added() -> Iterator[None]:
    """The operator, for one test."""
    CORE["CumSum"] = CUMSUM
    yield
    del CORE["CumSum"]


def x_(name: str, dtype: str = "float32") -> Node:
    return make("In", (name, SIZE, dtype))


def bin_(f: str, a: Node, b: Node) -> Node:
    return make("Bin", (f,), (a, b))


def cumsum(a: Node) -> Node:
    return make("CumSum", (C,), (a,))


def pair(f: str = "add") -> tuple[Node, Node]:
    """The sum of f(a, b), and f of the sums."""
    a, b = x_("a"), x_("b")
    return cumsum(bin_(f, a, b)), bin_(f, cumsum(a), cumsum(b))


ADD = "cumsum(a + b) == cumsum(a) + cumsum(b)"
MUL = "cumsum(a * b) == cumsum(a) * cumsum(b)"  # wrong


def cumsum_rule(text: str) -> Rule:
    return rule("cumsum-of-both", text, numerics="reassociating", source="a test", why="a test")


@pytest.mark.usefixtures("cumsum")
def test_a_row_makes_an_operator():
    node = cumsum(x_("a"))
    assert (node.size, node.dtype) == (SIZE, "float32")
    with pytest.raises(ShapeError, match="CumSum"):
        make("CumSum", (5,), (x_("a"),))
    program = CoreProgram((node,), ("y",), ((ROWS, C),), (x_("a"),), {})
    assert "CumSum(4) float32[12]" in str(program)
    assert pickle.loads(pickle.dumps(program)).roots[0] is node


@pytest.mark.usefixtures("cumsum")
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64"])
def test_a_row_is_evaluated(dtype: str):
    a = np.random.default_rng(1).integers(-4, 5, SIZE).astype(dtype)
    expected = np.cumsum(a.reshape(ROWS, C), axis=1, dtype=dtype).reshape(-1)
    (found,) = evaluate([cumsum(x_("a", dtype))], {"a": a}, {})
    np.testing.assert_array_equal(found, expected, strict=True)
    np.testing.assert_array_equal(apply("CumSum", (C,), [a]), expected, strict=True)
    np.testing.assert_array_equal(
        exact("CumSum", (C,), [a.astype(np.int64) % PRIME]), expected.astype(np.int64) % PRIME
    )


@pytest.mark.usefixtures("cumsum")
def test_a_row_is_folded_and_enclosed():
    digest, values = "w", np.arange(SIZE, dtype=np.float32)
    folded = fold([cumsum(make("Const", (digest, SIZE, "float32")))], {digest: values})
    assert folded.roots[0].op == "Const"
    program = CoreProgram((cumsum(x_("a")),), ("y",), ((ROWS, C),), (x_("a"),), {})
    a = np.random.default_rng(2).standard_normal(SIZE).astype(np.float32)
    bounds = enclose(program, {"a": a}, (), time.monotonic() + 60)["y"]
    expected = np.cumsum(a.astype(np.float64).reshape(ROWS, C), axis=1).reshape(-1)
    assert (bounds.lo <= expected).all()
    assert (expected <= bounds.hi).all()
    assert (bounds.hi - bounds.lo < 1e-12).all()


@pytest.mark.usefixtures("cumsum")
def test_a_row_is_saturated_and_explained():
    left, right = pair()
    wrong, other = pair("mul")
    source = Snapshot.from_core([left, right, wrong, other])
    found = Saturation(source, [cumsum_rule(ADD)], Limits()).run()
    assert found.stats["stop"] == "saturated"
    assert found.roots[0] == found.roots[1]
    assert found.roots[2] != found.roots[3]
    assert not any(found.const)
    steps = derive(found, [cumsum_rule(ADD)], [(left, right)], 10.0)
    assert [step.rule for step in steps or ()] == ["cumsum-of-both"]


@pytest.mark.usefixtures("cumsum")
def test_a_row_is_read_back_with_its_size_and_constness():
    constant = make("Const", ("w", SIZE, "float16"))
    source = Snapshot.from_core([cumsum(constant), cumsum(x_("a"))])
    graph = EGraph([])
    graph.insert_source(source)
    graph.run("analysis", saturate=True)
    found = graph.snapshot(graph.freeze())
    assert [(found.size[r], found.dtype[r], found.const[r]) for r in found.roots] == [
        (SIZE, "float16", True),
        (SIZE, "float32", False),
    ]


@pytest.mark.usefixtures("cumsum")
def test_a_row_is_printed():
    snapshot = Snapshot.from_core([cumsum(x_("a"))])
    (node,) = [n for n in to_json(snapshot)["nodes"].values() if n["children"]]
    assert (node["op"], node["cost"]) == ("cumsum", 2.0 * SIZE)
    assert 'label="cumsum"' in to_dot(snapshot)
    assert kind(cumsum_rule(ADD).left) == "a cumulative sum"


@pytest.mark.usefixtures("cumsum")
def test_a_row_is_written_in_rules():
    found, (a, b) = cumsum_rule(ADD), map(Var, "ab")
    assert found.text == "cumsum(a + b) => cumsum(a) + cumsum(b)"
    assert found.left == Pat("CumSum", (Var("K"),), (Pat("Bin", (Lit("add"),), (a, b)),))
    of_product = rule("of-product", "cumsum(x @ y) == x @ cumsum(y)", numerics="reassociating").left
    dims = (Lit(1), Var("M"), Var("K"), Var("N"))  # a matrix is a batch of one
    assert of_product == Pat("CumSum", (Var("N"),), (Pat("MM", dims, (Var("x"), Var("y"))),))
    with pytest.raises(InputError, match="cumsum takes 1 argument, got 'cumsum\\(a, b\\)'"):
        cumsum_rule("cumsum(a, b) == a")


@pytest.mark.usefixtures("cumsum")
def test_a_row_is_proved_with():
    left, right = pair()
    assert compare([left], [right], {}, seconds=30).equal
    wrong, other = pair("mul")
    assert not compare([wrong], [other], {}, seconds=30).equal
    tail = make("V", (lay.of_slice((ROWS, C), (0, C - 1), (ROWS, C), (1, 1)),), (cumsum(x_("a")),))
    assert compare([tail], [make("Red", ("sum", C), (x_("a"),))], {}, seconds=30).equal
    of_product = rule("cumsum-of-matmul", "cumsum(x @ y) == x @ cumsum(y)", numerics="reassociating")
    assert check_rule(of_product).failure is None
    sound, refuted = check_rule(cumsum_rule(ADD)), check_rule(cumsum_rule(MUL))
    assert sound.failure is None
    assert sound.held >= 40
    assert refuted.failure is not None
    assert prove_guard(cumsum_rule(ADD)).status == "proved"
    assert prove_guard(cumsum_rule(MUL)).status == "refuted"


def test_a_row_that_is_taken_out_is_gone():
    with pytest.raises(ShapeError, match="no operator 'CumSum'"):
        cumsum(x_("of its own"))
    with pytest.raises(InputError, match="no operator or function is called 'cumsum'"):
        cumsum_rule(ADD)


# --- every row


ROWS_OF_TABLE = [row for row in CORE.values() if row.signature.operands and not row.signature.variadic]


@pytest.mark.parametrize("row", ROWS_OF_TABLE, ids=lambda row: row.name)
def test_numpy_computes_what_a_meaning_says(row: CoreOp):
    """By NumPy's own functions, and element by element in a fixed order."""
    attrs = tuple(Var(attr.name) for attr in row.attrs)
    operands = tuple(Var(f"x{i}") for i in range(len(row.signature.operands)))
    pattern = Pat(row.name, attrs, operands)
    single = replace(rule("any", "a + b == b + a"), name=row.name, left=pattern, right=pattern)
    draw, compared = random.Random(0), 0
    while compared < 30:
        try:
            instance = Instance(single, draw, draw.choice(("float64", "float32", "int64")))
        except Unfit:
            continue
        leaves = instance.arrays(rough if draw.random() < 0.5 else whole)
        if row.name == "Gather":  # its index is drawn as any integers are
            count = max(instance.bindings["N"], 1)
            leaves["x1"] = leaves["x1"] % count
            if not instance.bindings["N"]:
                continue
        nodes = [make("In", (name, array.size, array.dtype.name)) for name, array in leaves.items()]
        by_name = dict(zip(leaves, nodes, strict=True))
        node = make(row.name, [instance.number(a) for a in attrs], [by_name[v.name] for v in operands])
        if node.op != row.name:  # an identity view
            continue
        with np.errstate(all="ignore"):
            (found,) = evaluate([node], leaves, {})
            expected = apply(row.name, node.attrs, [leaves[v.name] for v in operands])
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        compared += 1


def test_flops_are_those_of_the_operators():
    a, b = make("In", ("a", 24, "float32")), make("In", ("b", 40, "float32"))
    product = CORE["MM"]
    assert product.flops((2, 3, 4, 5), (24, 40)) == 2 * math.prod((2, 3, 4, 5))
    assert make("MM", (2, 3, 4, 5), (a, b)).size == 30
    assert CORE["Red"].flops(("sum", 4), (24,)) == 24
    assert CORE["V"].flops((lay.strided(0, ((6, 2),)),), (24,)) == 0
