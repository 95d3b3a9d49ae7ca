"""Random programs through `optimize`: every policy, mixed element types, tiny limits.

`Program.run` judges the results on inputs of its own, independent of the check in `optimize`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import eqsat
from eqsat.base.compare import relative_error
from eqsat.base.numerics import is_float
from eqsat.egraph.saturate import Limits
from eqsat.evidence.reference import same_bits
from eqsat.language.rule import ALLOWED, Policy
from eqsat.pipeline.optimize import optimize
from eqsat.pipeline.result import Result
from eqsat.program.ir import Program
from eqsat.program.term import Term
from eqsat.rules import ALL
from eqsat.testing import programs, random_inputs

MIXES: dict[str, tuple[str, ...]] = {
    "float32": ("float32",),
    "wide": ("float32", "float64", "int64", "bool"),
    "halves": ("float16", "bfloat16"),
    "integers": ("int32", "int64", "bool"),
    "everything": ("float32", "float16", "bfloat16", "int32", "bool"),
}
POLICIES: tuple[Policy, ...] = ("exact", "reassociate", "fast")
EACH = 21
"""Programs of each mix and policy: 315 in all."""

TOLERANCE = {"float64": 1e-7, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest error as a share of an output's scale, both sides in float64: constants are rounded to their own type."""

SEED = 77
"""Of the inputs; `optimize` tries others."""

ROUNDING = frozenset({"matmul", "conv", "pool", "reduce", "cumsum"})
"""Operators whose bits depend on the order in which NumPy adds."""


def for_each(count: int, judge: Callable[[Program], None], **options: Any) -> None:
    """Judge as many random programs, the same on every run."""
    quiet = settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    quiet(given(programs(max_ops=12, **options))(judge))()


def assert_right(program: Program, best: Result, policy: Policy) -> None:
    """The result computes what the program does, and says truly how it was found."""
    inputs = random_inputs(program, SEED)
    narrowest = max((TOLERANCE[t.dtype] for t in program.terms() if is_float(t.dtype)), default=0.0)
    wanted, found = program.run(inputs, "float64"), best.program.run(inputs, "float64")
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        assert (found[name].shape, found[name].dtype) == (values.shape, values.dtype)
        assert relative_error(found[name], values) <= narrowest, f"{name} of\n{program}\nbecame\n{best.program}"
    by_kernels = best.compile()(inputs)
    for name, values in best.program.run(inputs).items():
        assert by_kernels[name].shape == values.shape
        assert relative_error(*(a.astype(np.float64) for a in (by_kernels[name], values))) <= narrowest
    if policy == "exact":
        assert_same_bits(program, best, inputs)
    assert_labelled(best, policy)


def assert_same_bits(program: Program, best: Result, inputs: dict[str, np.ndarray]) -> None:
    """Exact outputs have the bits of their source, where NumPy adds nothing up that varies."""
    varies: dict[Term, bool] = {}
    plain: dict[Term, bool] = {}
    for t in program.terms():
        varies[t] = t.op in ("input", "opaque") or any(varies[a] for a in t.args)
        plain[t] = not varies[t] or (t.op not in ROUNDING and all(plain[a] for a in t.args))
    wanted, found = program.run(inputs), best.program.run(inputs)
    for name, term in program.outputs.items():
        if plain[term]:
            assert same_bits(found[name], wanted[name]), f"{name} of\n{program}\nbecame\n{best.program}"


def assert_labelled(best: Result, policy: Policy) -> None:
    report = best.report
    classes = {row.name: row.numerics for row in ALL}
    assert report["numerics"] == policy
    assert {classes[name] for name in report["rules"] if name in classes} <= set(ALLOWED[policy])
    assert report["lower_bound_us"] <= report["result"]["predicted_us"] * (1 + 1e-9)
    assert report["result"]["predicted_us"] <= report["source"]["predicted_us"] * (1 + 1e-9)
    assert report["result"]["kernels"] == len(report["kernels"])
    assert report["egraph"]["stop"] in ("saturated", "time", "nodes", "memory")
    assert report["check"]["passed"]


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("policy", POLICIES)
def test_results_are_right_and_truly_labelled(policy: Policy, mix: str) -> None:
    def judge(program: Program) -> None:
        assert_right(program, optimize(program, time_limit=5.0, numerics=policy), policy)

    for_each(EACH, judge, dtypes=MIXES[mix])


def test_programs_with_empty_arrays() -> None:
    def judge(program: Program) -> None:
        assert_right(program, optimize(program, time_limit=5.0), "reassociate")

    for_each(40, judge, dtypes=MIXES["wide"], empty=True)


@pytest.mark.parametrize(
    ("limits", "seconds", "count"),
    [
        (Limits, 0.0, 15),
        (Limits, 0.02, 15),
        (partial(Limits, nodes=12), 5.0, 25),
        (partial(Limits, memory=1 << 28), 5.0, 6),
    ],
    ids=["no time", "hardly any time", "few nodes", "tiny memory"],
)
def test_tiny_limits(
    limits: Callable[..., Limits], seconds: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eqsat.search.form.Limits", limits)

    def judge(program: Program) -> None:
        assert_right(program, optimize(program, time_limit=seconds), "reassociate")

    for_each(count, judge, dtypes=MIXES["everything"])


def test_a_large_program_ends_in_time() -> None:
    """Limits hold where there is something to do: forty layers, of which no two are equal."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((8 + i, 9 + i)).astype(np.float32) for i in range(40)]

    def layers(x):
        for w in weights:
            x = eqsat.relu(x @ w) * 0.5
        return x

    program = eqsat.trace(layers, eqsat.spec((4, 8)))
    begun = time.process_time()
    best = optimize(program, time_limit=0.5)
    assert time.process_time() - begun < 20
    assert prod(best.program.outputs["out"].shape) == 4 * 48
    assert_right(program, best, "reassociate")
