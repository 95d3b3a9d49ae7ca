"""Wrong arguments of public functions are refused in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import testing
from eqsat.errors import InputError
from eqsat.evidence.judge import judge
from eqsat.inspection.why_not import why_not
from eqsat.rule import rule

HUGE = 10**400
ARRAY = np.ones(2)

ENDLESS = np.lib.stride_tricks.as_strided(ARRAY, (1 << 40,), (0,))

PROGRAM = eqsat.trace(lambda x: x + 1, eqsat.spec(3))


@pytest.fixture(scope="module")
def result() -> Any:
    return eqsat.optimize(PROGRAM, time_limit=0.3, explain_time=0.0, rules=[])


def sized(sizes: Any) -> Any:
    return eqsat.trace(lambda x: x + x, eqsat.spec((sizes["n"], 3)))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: rule("n", "a*b/b == a", when=None), "when takes a text"),  # type: ignore[arg-type]
        (lambda: rule("n", ["a == a"]), "takes a text"),  # type: ignore[arg-type]
        (lambda: rule("n", "a + b == b + a", why=3), "why takes a text"),  # type: ignore[arg-type]
        (lambda: rule("n", "\ud800 == a"), "in Unicode"),
        (lambda: judge("x"), "judge takes a rule"),  # type: ignore[arg-type]
        (lambda: why_not(PROGRAM, "name"), "takes a rule second"),  # type: ignore[arg-type]
        (lambda: eqsat.optimize_dynamic(sized, "n"), "a mapping from dimension"),  # type: ignore[arg-type]
        (lambda: eqsat.optimize_dynamic(sized, ARRAY), "a mapping from dimension"),  # type: ignore[arg-type]
        (lambda: eqsat.optimize_dynamic(lambda sizes: None, {"n": (2, 9)}), "to a Program"),  # type: ignore[arg-type]
        (lambda: eqsat.optimize_dynamic(sized, {"n": (2, HUGE)}), "no value has more than 2147483647 elements"),
        (lambda: eqsat.optimize_dynamic(sized, {"\ud800": (2, 9)}), "in Unicode"),
        (lambda: eqsat.jit(lambda x: x, dynamic={"x": ("", None)}), "not empty"),
        (lambda: eqsat.prove(PROGRAM, PROGRAM, certify=ARRAY), "certify takes True or False"),  # type: ignore[arg-type]
        (lambda: eqsat.prove(PROGRAM, PROGRAM, progress=3), "progress 3: expected a function"),  # type: ignore[arg-type]
        (lambda: eqsat.prove(PROGRAM, PROGRAM, assume="x < n", sizes={"n": HUGE}), "a number beyond floats"),
        (lambda: eqsat.prove(PROGRAM, PROGRAM, assume="x < n", sizes={"n": 2.5}), "a whole number"),  # type: ignore[dict-item]
        (lambda: eqsat.optimize(PROGRAM, objective={"latency": HUGE}), "objective"),
        (lambda: eqsat.optimize(PROGRAM, progress=ARRAY), "progress"),  # type: ignore[arg-type]
        (lambda: testing.assert_equivalent(PROGRAM, PROGRAM, rtol=ARRAY), "rtol"),  # type: ignore[arg-type]
        (lambda: testing.assert_equivalent(PROGRAM, PROGRAM, rtol=float("nan")), "rtol"),
        (lambda: testing.assert_equivalent(PROGRAM, PROGRAM, rtol=HUGE), "rtol"),
        (lambda: testing.assert_equivalent(PROGRAM, eqsat.Program), "got the class"),  # type: ignore[arg-type]
        (lambda: testing.random_inputs(PROGRAM, [[1]]), "seed"),  # type: ignore[arg-type]
        (lambda: eqsat.Program(PROGRAM.inputs, PROGRAM.outputs, 3), "names takes a mapping"),  # type: ignore[arg-type]
        (lambda: eqsat.to_onnx(PROGRAM, "\ud800"), "no name of a file"),
        (lambda: eqsat.trace(lambda x: {1: x, "1": x + 1}, eqsat.spec(3)), "two outputs have one name"),
        (lambda: eqsat.spec((2,), "(2,"), r"unsupported element type \(2,"),
        (lambda: eqsat.spec((2,), "f4,("), r"unsupported element type f4,\("),
        (lambda: eqsat.optimize(PROGRAM, rules=sys.stdout), "expected a list of rules"),  # type: ignore[arg-type]
        (lambda: eqsat.optimize(PROGRAM, rules=ENDLESS), "expected a list of rules"),  # type: ignore[arg-type]
        (lambda: eqsat.optimize(PROGRAM, rules="relu"), "expected a list of rules"),  # type: ignore[arg-type]
        (lambda: eqsat.optimize(PROGRAM, progress=int), "a function of a stage and a fraction"),  # type: ignore[arg-type]
        (lambda: eqsat.optimize(PROGRAM, progress=lambda: None), "a function of a stage and a fraction"),  # type: ignore[misc]
        (lambda: eqsat.prove(PROGRAM, PROGRAM, progress=int), "a function of a stage and a share"),  # type: ignore[arg-type]
        (lambda: eqsat.trace(np, eqsat.spec(3)), "a function is traced, got <module 'numpy'"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        call()


def test_what_has_no_hash_is_named_with_its_type() -> None:
    for value in (PROGRAM, (1, PROGRAM), [1]):
        with pytest.raises(TypeError, match=r"jit: an argument holds a (Program|list), which may change"):
            eqsat.jit(lambda x, y: x)(ARRAY, value)


def test_a_module_is_passed_to_a_traced_function_as_it_is() -> None:
    assert "exp" in str(eqsat.trace(lambda x, np: np.exp(x), eqsat.spec(3), np))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"device": ARRAY}, "device"),
        ({"device": ""}, "there is no ''"),
        ({"device": []}, "device"),
        ({"held": 5}, "held"),
        ({"held": [5]}, "held"),
    ],
)
def test_what_compile_does_not_take_is_named(result: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        result.compile("numpy", **arguments)


@pytest.mark.parametrize("sizes", [None, [4]])
def test_sizes_of_a_dynamic_result_are_a_mapping(sizes: Any) -> None:
    with pytest.raises(InputError, match="from dimension to size"):
        eqsat.optimize_dynamic(sized, {"n": (2, 9)}, time_limit=0.3, rules=[]).at(sizes)


def test_seconds_of_any_size_are_seconds() -> None:
    assert eqsat.prove(PROGRAM, PROGRAM, HUGE)
    assert eqsat.optimize(PROGRAM, time_limit=0.3, explain_time=HUGE, rules=[]).program
