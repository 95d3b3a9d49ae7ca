"""Checks: kernels and plans against NumPy in float64, on random inputs."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

import eqsat
from eqsat.base.compare import relative_error
from eqsat.base.numerics import is_float, random_array
from eqsat.check.inputs import random_inputs
from eqsat.errors import EqsatError
from eqsat.extract.plan.plan import Kernel, Plan
from eqsat.gpu.catalogue import FAMILIES
from eqsat.gpu.families.base import Choice, Sizes
from eqsat.gpu.run.tune import TOLERANCE, alone, shown
from eqsat.gpu.table.limits import OPERANDS
from eqsat.gpu.table.targets import Target, target
from eqsat.program.core import Node, evaluate, topological
from eqsat.program.ir import Program
from eqsat.runs.task import Tell
from eqsat.suite.place import Given, Place, in_sound_process, place_of
from eqsat.suite.programs import program

Array = np.ndarray[Any, Any]

EDGES = (1, 2, 3, 5, 7, 8, 13, 16, 17, 24, 31, 33, 64, 67)
DEPTHS = (*EDGES, 40, 129, 300, 1031)
LARGE: tuple[Sizes, ...] = ((1, 512, 1024, 768), (2, 509, 1021, 333))
"""Sizes at which every variant fills many blocks; vectors divide the first."""

SANITIZER = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck")
SANITIZER_SECONDS = 100.0

NOISE = 16.0

_FOUND_CODE, _LONGEST_REPORT = 66, 2000


class WrongResult(EqsatError):
    """Results are not those of NumPy; the message says how far off."""


def kernels(within: Target, large: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, what a task is given) for every variant and example of every family and type, families in turns."""
    lists = []
    for family in FAMILIES.values():
        for dtype in OPERANDS:
            count = max(len(family.choices(within, dtype)), len(family.examples((1, 1, 1, 1), dtype)))
            lists.append([(family.name, dtype, i) for i in range(count)])
    for i in range(max(map(len, lists))):
        for items in lists:
            if i < len(items):
                name, dtype, index = items[i]
                yield f"{name} {index}, {dtype}", {"family": name, "dtype": dtype, "index": index, "large": large}


@in_sound_process
def kernel(given: Given, tell: Tell) -> dict[str, Any]:
    """Task: one variant of a family on one of its examples, at sizes drawn by its number, or at those of `LARGE`."""
    place = place_of(given)
    family, dtype, index = FAMILIES[given["family"]], given["dtype"], given["index"]
    within = target(place.row.arch)
    choices = family.choices(within, dtype)
    names = list(family.examples((1, 1, 1, 1), dtype))
    rng = random.Random(f"{family.name} {dtype} {index}")
    sizes: list[Sizes] = [(rng.randint(1, 3), rng.choice(EDGES), rng.choice(DEPTHS), rng.choice(EDGES))]
    sizes += LARGE if given["large"] else ()
    worst = 0.0
    for of in sizes:
        name = names[index % len(names)]
        tell(f"{name}, sizes {of}")
        share = _of_kernel(place, family.examples(of, dtype)[name], choices[index % len(choices)])
        worst = max(worst, share)
        if not worst <= 1:
            chosen = shown(choices[index % len(choices)])
            raise WrongResult(f"{name}, sizes {of}, {chosen}: the error is {share:.1e} times what is allowed")
    return {"share": worst}


def _of_kernel(place: Place, outputs: tuple[Node, ...], choice: Choice) -> float:
    """The largest error of the launches that compute an example, as a share of what its type allows."""
    inputs = tuple(n for n in topological(outputs) if n.op == "In")
    plan = alone(Kernel("example", "", outputs, inputs, inputs, outputs, 0, 0, 0.0))
    rng = np.random.default_rng(0)
    values = {n.attrs[0]: random_array((n.size,), n.dtype, rng) for n in inputs}
    got = place.results(plan, values, {outputs: choice})
    wanted = evaluate(outputs, values, {}, precision="float64")
    return max(error_of(a, b) / _tolerance(n.dtype) for a, b, n in zip(got, wanted, outputs, strict=True))


def error_of(got: Array, wanted: Array) -> float:
    """The largest error, as a share of the scale, of numbers of any type."""
    return relative_error(got.astype(np.float64).reshape(-1), wanted.astype(np.float64).reshape(-1))


def _tolerance(*dtypes: str) -> float:
    return max((TOLERANCE[dtype] for dtype in dtypes if is_float(dtype)), default=TOLERANCE["float64"])


@in_sound_process
def whole_program(given: Given, tell: Tell) -> dict[str, Any]:
    """Task: a program's best plan against the program as written."""
    tell("reading")
    return _of_program(place_of(given), program(given), given["search"], tell)


@in_sound_process
def random_program(given: Given, tell: Tell) -> dict[str, Any]:
    """Task: the best plan of the random program with this `seed`."""
    from eqsat.fuzzing.programs import MIXES, drawn

    seed = given["seed"]
    tell("drawing")
    return _of_program(place_of(given), drawn(seed, MIXES[seed % len(MIXES)], None), given["search"], tell)


def _of_program(place: Place, made: Program, seconds: float, tell: Tell) -> dict[str, Any]:
    tell("optimising")
    best = eqsat.optimize(made, device=place.row, time_limit=seconds, measure=False)
    inputs = next(random_inputs(made, 1, 0))
    tell("running")
    compare(place, best.plan, made, inputs)
    return {"kernels": len(best.plan.kernels)}


def compare(place: Place, plan: Plan, made: Program, inputs: Mapping[str, Array]) -> None:
    """Run a plan of a program.

    Raises:
        WrongResult: an output differs from NumPy's in float64 by more than its types allow, and by more than `NOISE`
            times what NumPy's own differs in those types.
    """
    with np.errstate(all="ignore"):
        wanted = made.run(inputs, precision="float64")
        native = made.run(inputs)
    got = place.results(plan, inputs)
    tolerance = _tolerance(*(t.dtype for t in made.terms()))
    for name, values in zip(wanted, got, strict=True):
        error = error_of(values, wanted[name])
        if error > max(tolerance, NOISE * error_of(native[name], wanted[name])):
            raise WrongResult(f"output {name} is off by {error:.1e} of its scale")


def sanitized(given: Given, tell: Tell) -> dict[str, Any]:
    """Task: another task's `script` under compute-sanitizer, with one of its `tool`s."""
    command = [SANITIZER, "--tool", given["tool"], "--error-exitcode", str(_FOUND_CODE)]
    tell(given["tool"])
    ran = subprocess.run(
        [*command, sys.executable, "-c", given["script"]],
        capture_output=True, text=True, timeout=SANITIZER_SECONDS, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # workers have no such variable
    )  # fmt: skip
    if ran.returncode:
        raise WrongResult((ran.stdout + ran.stderr).strip()[-_LONGEST_REPORT:])
    return {}


def has_sanitizer() -> bool:
    """Whether compute-sanitizer is on the PATH."""
    return shutil.which(SANITIZER) is not None


def has_hypothesis() -> bool:
    """Whether random programs can be drawn: they come from `eqsat.testing`."""
    return find_spec("hypothesis") is not None
