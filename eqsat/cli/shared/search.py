"""Loads and optimises a program, for the commands that start with this."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from eqsat.base.time_budget import TimeBudget
from eqsat.cli.shared.options import parse_ranges, parse_shapes
from eqsat.errors import InputError

EXPLAIN_SECONDS = 1.0
"""Seconds for the derivation steps of a result, in commands that do not ask for them."""

if TYPE_CHECKING:
    from eqsat.dynamic.result import Dynamic
    from eqsat.language.rule import AnyRule, Policy
    from eqsat.pipeline.result import Result
    from eqsat.program.ir import Program


def begun(context: typer.Context, time_limit: float) -> TimeBudget:
    """The time limit of a command, which counts from the start of the process."""
    return TimeBudget(time_limit, {"start": time.monotonic() - context.find_root().obj})


def load(model: Path, shape: Sequence[str] | None, budget: TimeBudget | None = None, *, head: bool = False) -> Program:
    """The program in an ONNX file, with dynamic dimensions fixed by `--shape`; the time counts as reading. With `head`
    it may be the part before operators that no program holds (`from_onnx`)."""
    import eqsat

    with budget.stage("read") if budget is not None else nullcontext():
        return eqsat.from_onnx(model, shapes=parse_shapes(shape), head=head)


def load_pair(first: Path, second: Path, shape: Sequence[str] | None) -> tuple[Program, Program]:
    """The programs in two ONNX files. A size of `--shape` may name a dimension of one of them only."""
    import eqsat
    from eqsat.frontends.onnx.read.model import named_sizes

    sizes = parse_shapes(shape) or {}
    own = {path: named_sizes(path, sizes) for path in (first, second)}
    nobodys = {name: size for name, size in sizes.items() if all(name not in named for named in own.values())}
    left, right = (eqsat.from_onnx(path, shapes=own[path] | nobodys) for path in (first, second))
    return left, right


def resolved(device: str) -> str:
    """The device for a `--device` value; `auto` is this machine's GPU.

    Raises:
        InputError: the value is `auto`, and there is no CuPy or no GPU.
    """
    if device != "auto":
        return device
    from eqsat.gpu.run.cupy_runtime import this_machine

    return this_machine().row.name


def optimise(
    program: Program,
    device: str,
    time_limit: float | TimeBudget,
    numerics: Policy,
    rules: Sequence[AnyRule] | None,
    max_error: float | None = None,
    explain_time: float = EXPLAIN_SECONDS,
    top: int = 1,
    objective: str = "latency",
    inputs: Path | None = None,
    memory_limit: float | None = None,
    measure_threads: int | None = None,
) -> Result:
    """`eqsat.optimize` with a progress bar; `rules=[]` divides the program as written into a device's kernels.

    With `max_error`, the result's error stays within it (`eqsat.pipeline.error_budget`), on the arrays of `inputs`
    (.npz) if given; this does not hold for alternatives. The device `auto` is this machine's GPU. `memory_limit` is in
    GB. Plans are measured if `measure_threads` is given.
    """
    import eqsat
    from eqsat.base.progress_bar import progress_bar
    from eqsat.cli.shared.arrays import read_arrays

    device = resolved(device)
    memory = as_bytes(memory_limit)
    arrays = read_arrays(inputs, program)[0] if inputs is not None else None
    measuring: dict[str, Any] = {"measure": measure_threads is not None, "measure_threads": measure_threads or 1}

    with progress_bar("optimising") as report:
        options: dict[str, Any] = {
            "device": device,
            "time_limit": time_limit,
            "numerics": numerics,
            "rules": rules,
            "progress": report,
            "inputs": arrays,
            "top": top,
            "objective": objective,
            "memory_limit": memory,
            **measuring,
        }
        if max_error is not None:
            from eqsat.pipeline.error_budget import optimize_within

            return optimize_within(program, max_error, **options)
        return eqsat.optimize(program, explain_time=explain_time, **options)


def as_bytes(gigabytes: float | None) -> int | None:
    """A limit on memory that an option gives, in bytes."""
    return None if gigabytes is None else int(gigabytes * 1e9)


def stays_dynamic(model: Path, shape: Sequence[str] | None) -> bool:
    """Whether a model has dynamic dimensions that `--shape` gives no size, or a range.

    Raises:
        InputError: the model cannot be read, or `--shape` names no dynamic dimension of it.
    """
    from eqsat.frontends.onnx.read.model import open_dimensions

    given = parse_ranges(shape)
    ranges = {name: size[0] for name, size in given.items() if isinstance(size, tuple)}
    fixed = {name: size for name, size in given.items() if isinstance(size, int)}
    return bool(open_dimensions(model, fixed | ranges)) or bool(ranges)


def kinds_in(model: Path) -> int:
    """How many kinds of operators a model has (`eqsat.frontends.onnx.read.model.kinds`)."""
    from eqsat.frontends.onnx.read.model import kinds

    return kinds(model)


def require_fixed(model: Path, options: Sequence[str]) -> None:
    """Raises InputError if there is an option that needs a model of fixed sizes."""
    if options:
        raise InputError(f"{options[0]}: {model.name} has dynamic dimensions; fix each of them with --shape NAME=SIZE")


def bucket_ranges(model: Path, shape: Sequence[str] | None) -> list[dict[str, tuple[int, int]]]:
    """The ranges of the results that `optimise_dynamic` returns with `buckets`, in order."""
    from eqsat.dynamic.buckets import halves
    from eqsat.dynamic.family import Family

    return halves(Family.of(model, parse_ranges(shape)).ranges)


def optimise_dynamic(
    model: Path,
    shape: Sequence[str] | None,
    device: str,
    time_limit: float | TimeBudget,
    numerics: Policy,
    rules: Sequence[AnyRule] | None,
    memory_limit: float | None,
    buckets: bool,
) -> list[Dynamic]:
    """`eqsat.optimize_dynamic` with a progress bar; one result, or with `buckets` one for each half of wide ranges."""
    from eqsat.base.progress_bar import progress_bar
    from eqsat.dynamic.buckets import optimize_buckets
    from eqsat.dynamic.optimize import optimize_dynamic

    with progress_bar("optimising") as report:
        options: dict[str, Any] = {
            "device": resolved(device),
            "time_limit": time_limit,
            "numerics": numerics,
            "rules": rules,
            "progress": report,
            "explain_time": EXPLAIN_SECONDS,
            "memory_limit": as_bytes(memory_limit),
        }
        given = parse_ranges(shape)
        return optimize_buckets(model, given, **options) if buckets else [optimize_dynamic(model, given, **options)]
