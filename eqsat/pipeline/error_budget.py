"""Optimising within an error budget: the result is run at its own precision and compared with the source in float64.

If the error exceeds the budget, stricter numerics are tried, and last the program as written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from eqsat.base.compare import relative_error
from eqsat.check.inputs import random_inputs
from eqsat.errors import CheckFailed, InputError
from eqsat.language.rule import Policy
from eqsat.pipeline.optimize import optimize
from eqsat.pipeline.result import Result
from eqsat.program.ir import Program

_POINTS = 2
_STRICTER: dict[Policy, tuple[Policy, ...]] = {
    "fast": ("fast", "reassociate", "exact"),
    "reassociate": ("reassociate", "exact"),
    "exact": ("exact",),
}
AS_WRITTEN = "as written"

Array = np.ndarray


def optimize_within(
    program: Program,
    max_error: float,
    inputs: Mapping[str, Array] | None = None,
    numerics: Policy = "reassociate",
    **options: Any,
) -> Result:
    """As `eqsat.optimize`, with the largest error of any output, relative to its scale, at most `max_error`.

    The error compares the result at its own precision with the source in float64, on `inputs` or on random inputs.
    `report["error"]` holds the error measured and the fallback taken.

    Raises:
        InputError: the budget is not positive or not finite, or even the program as written exceeds it.
    """
    if not 0 < max_error < np.inf:
        raise InputError(f"--max-error {max_error}: expected a positive number, as in --max-error 1e-3")
    if numerics not in _STRICTER:
        raise InputError(f"numerics policy {numerics!r} is none of {', '.join(_STRICTER)}")
    points = [dict(inputs)] if inputs is not None else list(random_inputs(program, _POINTS, seed=0))
    expected = [program.run(point, "float64") for point in points]
    refused: list[dict[str, Any]] = []
    measured = np.inf
    for policy in (*_STRICTER[numerics], AS_WRITTEN):
        chosen = (
            {**options, "numerics": "exact", "rules": []} if policy == AS_WRITTEN else {**options, "numerics": policy}
        )
        best, measured = None, np.inf
        # A constant folded to infinity fails the check of every result: over any budget.
        with contextlib.suppress(CheckFailed):
            best = optimize(program, inputs=inputs, **chosen)
            measured = _error(best.program, points, expected)
        if best is not None and measured <= max_error:
            best.report["error"] = {"budget": max_error, "measured": measured, "numerics": policy, "refused": refused}
            return best
        refused.append({"numerics": policy, "measured": measured if np.isfinite(measured) else None})
    raise InputError(
        f"--max-error {max_error:g}: the program as it was written is off by {measured:.2g} itself; "
        "allow more, or use a wider dtype"
    )


def _error(program: Program, points: list[dict[str, Array]], expected: list[dict[str, Array]]) -> float:
    """The largest error of a program at its own precision; infinite where it overflows and the source does not."""
    worst = 0.0
    for point, want in zip(points, expected, strict=True):
        found = program.run(point, "native")
        for name, exact in want.items():
            worst = max(worst, _relative(found[name], exact))
    return worst


def _relative(found: Array, exact: Array) -> float:
    """The largest difference over the largest magnitude; infinite if the result is not finite where the source is."""
    a, b = found.astype(np.float64), exact.astype(np.float64)
    finite = np.isfinite(b)
    return relative_error(a[finite], b[finite], least=0.0 if b.any() else 1.0)
