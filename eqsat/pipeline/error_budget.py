"""Optimising within an error budget: the result is run at its own precision and compared with the source in float64.

If the error exceeds the budget, stricter numerics are tried, and last the program as written. The source runs first:
the time that it takes is kept for running results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from eqsat.base.compare import relative_error
from eqsat.base.interrupt import Interruptible
from eqsat.base.memory_limit import in_use, memory_limit
from eqsat.base.numerics import Precision, itemsize
from eqsat.base.time_budget import TimeBudget
from eqsat.check.demand import Demanded
from eqsat.check.inputs import SEED, random_values
from eqsat.check.wanted import everything
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

_SHARE = 1 / 3
"""Share of the time left that the source may take. A result hardly takes longer."""

_LEAST = 1.0
"""Seconds that the source may take in any case."""

_SLOWER = 4.0
"""Times as long as the source a result may take, even after the time limit: NumPy computes short floats slowly."""

Array = np.ndarray
T = TypeVar("T")


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
        InputError: the budget is not positive or not finite, the program cannot be run within the limits on memory and
            time, or even the program as written exceeds the budget.
    """
    if not 0 < max_error < np.inf:
        raise InputError(f"--max-error {max_error}: expected a positive number, as in --max-error 1e-3")
    if numerics not in _STRICTER:
        raise InputError(f"numerics policy {numerics!r} is none of {', '.join(_STRICTER)}")
    budget = TimeBudget.of(options.pop("time_limit", 10.0))
    measure = _Measure(program, inputs, budget, memory_limit(options.get("memory_limit")) - in_use())
    refused: list[dict[str, Any]] = []
    measured = np.inf
    for policy in (*_STRICTER[numerics], AS_WRITTEN):
        chosen = (
            {**options, "numerics": "exact", "rules": []} if policy == AS_WRITTEN else {**options, "numerics": policy}
        )
        best, measured = None, np.inf
        # A constant folded to infinity fails the check of every result: over any budget.
        with contextlib.suppress(CheckFailed):
            best = optimize(program, inputs=inputs, time_limit=budget, **chosen)
            measured = measure.of(best.program)
        if best is not None and measured <= max_error:
            best.report["error"] = {"budget": max_error, "measured": measured, "numerics": policy, "refused": refused}
            best.report["stages"] = budget.report()
            return best
        refused.append({"numerics": policy, "measured": measured if np.isfinite(measured) else None})
    raise InputError(
        f"--max-error {max_error:g}: the program as it was written is off by {measured:.2g} itself; "
        "allow more, or use a wider dtype"
    )


class _Measure:
    """Errors of results of a program, on given inputs or on random ones, within limits.

    Only the outputs of the source are kept: inputs are made again for each run.

    Args:
        memory: bytes that may be used.

    Raises:
        InputError: the source cannot be run within the limits.
    """

    def __init__(self, source: Program, inputs: Mapping[str, Array] | None, budget: TimeBudget, memory: int) -> None:
        self.source, self.inputs, self.budget = source, inputs, budget
        points = min(_fitting(source, memory), _POINTS if inputs is None else 1)
        seconds = max(_LEAST, _SHARE * budget.left("error"))
        begun = budget.clock()
        self.expected = self._timed(lambda: self._outputs(points, begun + seconds / 2), seconds)
        self.took = budget.clock() - begun
        budget.expect("error", self.took)

    def _outputs(self, points: int, until: float) -> list[dict[str, Array]]:
        """The outputs of the source at one point, and further ones that are begun in time."""
        found = [self._run(self.source, 0, "float64")]
        while len(found) < points and self.budget.clock() < until:
            found.append(self._run(self.source, len(found), "float64"))
        return found

    def of(self, result: Program) -> float:
        """The largest error of a result at its own precision; infinite where it overflows and the source does not.

        Raises:
            InputError: it takes far longer than the source.
        """
        return self._timed(
            lambda: max(self._distance(result, point, want) for point, want in enumerate(self.expected)),
            max(_LEAST, _SLOWER * self.took, self.budget.left("error")),
        )

    def _distance(self, result: Program, point: int, want: Mapping[str, Array]) -> float:
        found = self._run(result, point, "native")
        return max((_relative(found[name], exact) for name, exact in want.items()), default=0.0)

    def _run(self, program: Program, point: int, precision: Precision) -> dict[str, Array]:
        inputs = random_values(self.source.inputs, point, SEED) if self.inputs is None else self.inputs
        return program.run(inputs, precision)

    def _timed(self, work: Callable[[], T], seconds: float) -> T:
        """What `work` returns. Raises InputError if it takes longer."""
        working = Interruptible()
        with self.budget.stage("error"):
            found = working.run(lambda: (work(),), None, seconds=seconds)
        if found is not None:
            return found[0]
        if working.interrupted:
            raise KeyboardInterrupt
        raise InputError(
            f"--max-error: the program could not be run with NumPy in {seconds:.1f} s, the time that there is for it; "
            "allow more time, or do without --max-error"
        )


def _fitting(source: Program, memory: int) -> int:
    """Of how many points all outputs fit into memory, while a program runs on one of them and is compared.

    Raises:
        InputError: not even those of one do.
    """
    outputs = 8 * sum(term.size for term in source.outputs.values())
    inputs = sum(term.size * itemsize(term.dtype) for term in source.inputs)
    running = Demanded({term: everything(term) for term in source.outputs.values()}).peak_bytes() + inputs
    if running + outputs > memory:
        raise InputError(
            f"--max-error: to run the program takes about {(running + outputs) / 1e9:.2g} GB, more than the memory "
            f"limit leaves ({max(0, memory) / 1e9:.2g} GB); raise it, or do without --max-error"
        )
    return (memory - running) // max(1, outputs)


def _relative(found: Array, exact: Array) -> float:
    """The largest difference over the largest magnitude; infinite if the result is not finite where the source is."""
    a, b = found.astype(np.float64, copy=False), exact.astype(np.float64, copy=False)
    finite = np.isfinite(b)
    if not finite.all():
        a, b = a[finite], b[finite]
    return relative_error(a, b, least=0.0 if b.any() else 1.0)
