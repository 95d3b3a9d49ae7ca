"""Short floats: a part that overflows only after rewriting stays as it was written."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat.check.overflow import folds_to_infinity, overflows
from eqsat.program import ops


def chain(dtype: str, large: float) -> eqsat.Program:
    """(x @ a) @ b, with a product of a and b of 64 * large."""
    a = np.full((64, 64), large).astype(eqsat.base.numerics.np_dtype(dtype))
    b = np.full((64, 2), 1.0).astype(a.dtype)
    return eqsat.trace(lambda x: (x @ a) @ b, eqsat.spec((200, 64), dtype))


@pytest.mark.parametrize(
    ("dtype", "large", "left"),
    [
        ("float16", 2000.0, True),  # 128 000: no float16
        ("float16", 100.0, False),
        ("bfloat16", 2000.0, False),
        ("bfloat16", 2e37, True),
        ("float32", 2000.0, False),
    ],
)
def test_constants_that_would_be_infinite_are_not_folded(dtype: str, large: float, left: bool):
    program = chain(dtype, large)
    small = {"x": np.full((200, 64), 1e-3).astype(eqsat.base.numerics.np_dtype(dtype))}
    best = eqsat.optimize(program, inputs=small)
    assert ("overflow" in best.report) == left
    assert best.report["result"]["matmul_flops"] == program.stats()["matmul_flops"] or not left
    wanted, found = program.run(small)["out"], best.program.run(small)["out"]
    assert np.isfinite(found.astype(np.float64)).all() or not np.isfinite(wanted.astype(np.float64)).all()


def test_a_sum_that_passes_through_infinity_is_found():
    x, y = ops.input("x", (2,), "float16"), ops.input("y", (2,), "float16")
    large = ops.full(60000.0, (2,), "float16")
    source = eqsat.Program((x, y), {"out": ops.add(ops.sub(large, ops.mul(y, large)), x)})
    result = eqsat.Program((x, y), {"out": ops.sub(ops.add(large, x), ops.mul(y, large))})
    given = {"x": np.full(2, 30000, np.float16), "y": np.ones(2, np.float16)}
    assert overflows(source, result, given)
    assert not overflows(result, source, given)
    assert not overflows(source, result, given | {"x": np.ones(2, np.float16)})


def test_wide_programs_are_left_to_the_check():
    x = ops.input("x", (2,))
    infinite = ops.mul(x, ops.full(float("inf"), (2,)))
    assert not overflows(eqsat.Program((x,), {"y": x}), eqsat.Program((x,), {"y": infinite}), {"x": np.ones(2)})


def test_infinities_of_the_source_are_its_own():
    infinite = np.array([np.inf])
    assert folds_to_infinity({"new": infinite}, {})
    assert not folds_to_infinity({"old": infinite, "whole": np.array([1])}, {"old": infinite})


def test_the_summary_says_so():
    assert "left the program as written" in str(eqsat.optimize(chain("float16", 2000.0)))
