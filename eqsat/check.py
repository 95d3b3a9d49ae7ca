"""The check that every result passes before it is returned: source and result on random inputs, in float64."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eqsat.errors import CheckFailed
from eqsat.ir import Program
from eqsat.numerics import dtype_name, is_float, np_dtype

POINTS = 2
HEAVY = 2_000_000_000
"""Matmul FLOPs of a program from which on one point is evaluated: the check must not outlast the search."""

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest difference, as a share of an output's scale, by the narrowest float of the program: both sides are evaluated
in float64, so only the rounding of folded constants to that type may show."""

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Check:
    """Outcome: the largest error relative to the scale of its output, over some random inputs."""

    max_error: float
    points: int

    def as_json(self) -> dict[str, object]:
        """As in the report."""
        return {"passed": True, "max_error": self.max_error, "points": self.points, "method": "float64"}


def check(
    source: Program, result: Program, points: int | None = None, seed: int = 0, seconds: float | None = None
) -> Check:
    """Evaluate both programs in float64 on random inputs and compare.

    Args:
        points: random inputs to try; `POINTS` by default, one where the source is `HEAVY`.
        seconds: time from which on no further point is begun; the first is always compared.

    Raises:
        CheckFailed: an output is missing, has another shape or dtype, or differs.
    """
    if list(source.outputs) != list(result.outputs):
        raise CheckFailed(f"outputs {list(result.outputs)} are not those of the source, {list(source.outputs)}")
    for name, term in source.outputs.items():
        other = result.outputs[name]
        if (term.shape, term.dtype) != (other.shape, other.dtype):
            raise CheckFailed(f"output {name!r} is {other.spec} where the source gives {term.spec}")
    if points is None:
        points = 1 if source.stats()["matmul_flops"] > HEAVY else POINTS
    tolerance = max((TOLERANCE[t.dtype] for t in source.terms() if is_float(t.dtype)), default=0.0)
    worst, tried, begun = 0.0, 0, time.monotonic()
    # One program for both, so that what they share is evaluated once.
    both = Program(
        source.inputs,
        {f"source {name}": term for name, term in source.outputs.items()}
        | {f"result {name}": term for name, term in result.outputs.items()},
    )
    for inputs in random_inputs(source, points, seed):
        if tried and seconds is not None and time.monotonic() - begun >= seconds:
            break
        tried += 1
        values = both.run(inputs, "float64")
        for name in source.outputs:
            want = values[f"source {name}"]
            error = relative_error(values[f"result {name}"], want)
            if not error <= tolerance:
                raise CheckFailed(
                    f"output {name!r} differs from the source by {error:.2e} of its scale on random inputs "
                    f"(seed {seed}; {tolerance:.0e} allowed): please report this program"
                )
            worst = max(worst, error)
    return Check(worst, tried)


def relative_error(found: Array, want: Array) -> float:
    """Largest difference as a share of the largest finite magnitude of `want`; infinite where NaN or Inf differ."""
    if not is_float(dtype_name(want.dtype)):
        return 0.0 if found.shape == want.shape and found.tobytes() == want.tobytes() else np.inf
    finite = np.isfinite(want)
    special = ~finite
    if not np.array_equal(found[special], want[special], equal_nan=True) or not np.isfinite(found[finite]).all():
        return np.inf
    if not finite.any():
        return 0.0
    scale = max(float(np.abs(want[finite]).max()), float(np.finfo(want.dtype).tiny))
    return float(np.abs(found[finite] - want[finite]).max()) / scale


def random_inputs(program: Program, points: int, seed: int) -> Iterator[dict[str, Array]]:
    """Inputs by name: normal values, at every other point their magnitudes (logarithms and roots need those)."""
    for point in range(points):
        rng = np.random.default_rng([seed, point])
        inputs = {}
        for term in program.inputs:
            shape, dtype = term.shape, np_dtype(term.dtype)
            if is_float(term.dtype):
                values = rng.standard_normal(shape)
                inputs[term.attr("name")] = (np.abs(values) if point % 2 else values).astype(dtype)
            else:
                inputs[term.attr("name")] = rng.integers(0, 2, shape).astype(dtype)
        yield inputs
