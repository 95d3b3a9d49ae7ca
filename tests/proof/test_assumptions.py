"""Assumptions on inputs: their syntax, and equalities that hold only under them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import eqsat
from eqsat.cli.app import app
from eqsat.errors import InputError
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term
from eqsat.proof.normal_form.assumptions import Bounds, read

ROWS = 6
INPUTS = {
    "i": ops.input("i", (4,), "int64"),
    "x": ops.input("x", (ROWS, 3), "float32"),
    "flag": ops.input("flag", (2,), "bool"),
    "input.1": ops.input("input.1", (2,), "float32"),
}

READ = {
    "0 <= i < 16": {"i": Bounds(0, 15)},
    "16 > i >= 0": {"i": Bounds(0, 15)},
    "-1.5 < i": {"i": Bounds(-1)},
    "i == 3": {"i": Bounds(3, 3)},
    "x > 0": {"x": Bounds(0, low_open=True)},
    "x >= 0 and x <= 2 * n - 1": {"x": Bounds(0, 9)},
    "0 <= i < x.shape[0] and x < 1": {"i": Bounds(0, ROWS - 1), "x": Bounds(high=1, high_open=True)},
    "'input.1' <= n": {"input.1": Bounds(high=5)},
}


@pytest.mark.parametrize("text", READ)
def test_an_assumption_is_read_as_bounds(text: str):
    assert read(text, INPUTS, {"n": 5}) == READ[text]


def test_a_size_that_nobody_named_is_answered_with_what_to_write():
    with pytest.raises(InputError, match=r"a dim such as i\.shape\[0\], or --shape rows=\.\.\."):
        read("0 <= i < rows", INPUTS, {})


def test_assumptions_add_up():
    assert read(["i >= 0", "i < 4", "i < 9"], INPUTS, {}) == {"i": Bounds(0, 3)}


REFUSED = {
    "": "cannot be read",
    "i <": "cannot be read",
    "i != 3": "is no comparison",
    "i < 3 or i > 4": "is no comparison",
    "__import__('os')": "is no comparison",
    "3 < 4": "compares other things",
    "i < x": "compares other things",
    "j < 3": "unknown input or size 'j'",
    "i < 2 ** 3": "where a number is expected",
    "x.shape[9] > i": "where a number is expected",
    "flag > 0": "bounds 'flag', which is bool",
    "i > 5 and i < 2": "no int64 is so",
    "0 < i < 1": "no int64 is so",
    "i < " + "(" * 5000: "cannot be read",
    "i < " + "-" * 2500 + "1": "cannot be read",
    "i < f('" + "a" * 5000 + "')": "where a number is expected",
    "i > 1e30": "no int64 is so",
    "i > 9223372036854775807": "no int64 is so",
    "i < -1e999": "no int64 is so",
    "i < -9e99 and " + " and ".join(["i < 1"] * 900): "no int64 is so",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:20])
def test_what_is_no_assumption_is_bad_input(text: str):
    with pytest.raises(InputError, match=REFUSED[text]) as caught:
        read(text, INPUTS, {})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int32", "int64"])
@pytest.mark.parametrize("bounds", [Bounds(2, 5), Bounds(low=3), Bounds(high=-1), Bounds(0, 1000), Bounds()])
def test_drawn_values_lie_within_bounds(bounds: Bounds, dtype: str):
    rng = np.random.default_rng(0)
    values = (10 * rng.standard_normal(1000)).astype(dtype)
    found = bounds.within(values, rng)
    assert found.dtype == values.dtype
    assert ((found >= bounds.low) & (found <= bounds.high)).all()
    inside = (values >= bounds.low) & (values <= bounds.high)
    np.testing.assert_array_equal(found[inside], values[inside])
    assert len(np.unique(found)) > 3


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_an_open_end_is_not_reached(dtype: str):
    found = Bounds(0.1, 0.2, True, True).within(np.array([0.1, 0.2, 0, 1], dtype), np.random.default_rng(0))
    assert ((found.astype(np.float64) > 0.1) & (found.astype(np.float64) < 0.2)).all()


def gathered(index: Callable[[Term], Term]) -> Program:
    x, i = INPUTS["x"], INPUTS["i"]
    return Program((x, i), {"out": ops.gather(x, index(i), 0)})


def one_hot() -> Program:
    x, i = INPUTS["x"], INPUTS["i"]
    row = ops.broadcast(ops.reshape(i, (4, 1)), (4, ROWS))
    return Program((x, i), {"out": ops.matmul(ops.cast(ops.equal(row, ops.iota((4, ROWS), 1)), "float32"), x)})


def number(value: int) -> Term:
    return ops.full(value, (4,), "int64")


INDICES = {
    "a product with one-hot rows": (one_hot, "0 <= i < 6", "-1 <= i < 6"),
    "negative indices cut off": (lambda: gathered(ops.relu), "0 <= i < x.shape[0]", "-1 <= i < 6"),
    "a remainder": (lambda: gathered(lambda i: ops.min_(i, number(4))), "0 <= i < 5", "0 <= i < 6"),
}


@pytest.mark.parametrize("name", INDICES)
def test_a_gather_of_indices_in_range_is_proved_and_others_refute_it(name: str):
    other, enough, too_little = INDICES[name]
    plain = gathered(lambda i: i)
    proof = eqsat.prove(plain, other(), assume=enough)
    assert (proof.verdict, proof.assumed) == ("proved", [enough]), str(proof)
    assert str(proof).startswith("proved: ")
    assert f"assuming {enough}" in str(proof)
    for assume in (None, too_little):
        proof = eqsat.prove(plain, other(), assume=assume)
        assert proof.verdict == "refuted"
        assert proof.difference is not None
        (decider,) = [d for d in proof.difference.decided if d.name == "i"]
        assert decider.value == proof.difference.inputs["i"][decider.index]
        assert decider.index[0] == proof.difference.index[0]
        assert f"where i[{decider.index[0]}] = {decider.value}" in proof.reason


FLOATS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "a root": (lambda x: eqsat.sqrt(x * x), lambda x: x, "x >= 0"),
    "a magnitude": (lambda x: eqsat.abs(x - 3.0), lambda x: x - 3.0, "x > 3"),
    "limits": (lambda x: eqsat.clip(x, 0.0, 6.0), lambda x: x, "0 <= x <= 6"),
    "a choice": (lambda x: eqsat.where(x < 0.0, x, -x), lambda x: x, "x < 0"),
    "a whole part": (lambda x: eqsat.floor(x), lambda x: x * 0.0, "0 <= x < 1"),
}


@pytest.mark.parametrize("name", FLOATS)
def test_bounds_on_floats_prove_what_is_false_without_them(name: str):
    left, right, assume = FLOATS[name]
    p, q = (eqsat.trace(side, eqsat.spec((3,), "float64")) for side in (left, right))
    assert eqsat.prove(p, q).verdict == "refuted"
    proof = eqsat.prove(p, q, assume=assume)
    assert proof.verdict == "proved", str(proof)


def test_the_command_line_takes_assumptions_and_sizes(tmp_path: Path):
    paths = [str(tmp_path / name) for name in ("a.onnx", "b.onnx")]
    for program, path in zip((gathered(lambda i: i), gathered(ops.relu)), paths, strict=True):
        eqsat.to_onnx(program, path)
        model = onnx.load(path)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
        onnx.save(model, path)
    run = CliRunner().invoke
    paths += ["--shape", "n=6"]
    assert run(app, ["prove", *paths, "--assume", "0 <= i < 6"]).exit_code == 0
    assert run(app, ["prove", *paths, "--assume", "0 <= i < n"]).exit_code == 0
    assert run(app, ["prove", *paths]).exit_code == 1
    wrong = run(app, ["prove", *paths, "--assume", "0 <= j < 6"])
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (3, 1)


def test_what_is_equal_for_all_indices_is_equal_for_those_in_range():
    """Of an index in bounds each comparison is a case, and a maximum of a choice has too many of them."""
    given = eqsat.spec((7, 5)), eqsat.spec((3,), "int64")
    outside = eqsat.trace(lambda x, i: eqsat.take(eqsat.relu(x), i, 0), *given)
    inside = eqsat.trace(lambda x, i: eqsat.relu(eqsat.take(x, i, 0)), *given)
    for assume in (None, "0 <= i < 7"):
        proof = eqsat.prove(outside, inside, time_limit=6, assume=assume)
        assert proof.verdict == "proved", str(proof)


def test_bounds_of_nothing_are_infinite():
    assert Bounds() == Bounds(-math.inf, math.inf)


ONE_VALUE = {
    "x == 1": ("float32", "proved"),
    "0 < x < 2": ("int64", "proved"),
    "1 <= x <= 1": ("float64", "proved"),
    "0 <= x <= 2": ("int64", "refuted"),
}


@pytest.mark.parametrize("assumed", ONE_VALUE)
def test_the_one_value_that_bounds_leave_is_known(assumed: str):
    dtype, verdict = ONE_VALUE[assumed]
    square, plain = (eqsat.trace(f, x=eqsat.spec((3,), dtype)) for f in (lambda x: x * x, lambda x: x * x * x))
    assert eqsat.prove(square, plain, time_limit=4, assume=assumed).verdict == verdict


def test_where_one_side_is_not_defined_nothing_differs():
    """The logarithm of a negative number is none: with or without bounds that is no difference."""
    there, back = (eqsat.trace(f, x=eqsat.spec((3,))) for f in (lambda x: eqsat.exp(np.log(x)), lambda x: x))
    assert eqsat.prove(there, back, time_limit=4).verdict == "proved"
    proof = eqsat.prove(there, back, time_limit=4, assume="x < 0")
    assert proof.verdict == "unknown"
    assert "both programs have finite values on none of the inputs" in proof.reason
