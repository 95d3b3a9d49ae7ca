"""One model for one device, as a task of a run: its figures, without times, so that they are the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eqsat.dynamic.optimize import optimize_dynamic
from eqsat.errors import InputError
from eqsat.extract.device.table import device
from eqsat.frontends.onnx.file.load import digest_of
from eqsat.frontends.onnx.read.model import from_onnx, named_sizes, open_dimensions
from eqsat.pipeline.optimize import optimize
from eqsat.runs.task import Task, Tell

EXPLAIN_SECONDS = 60.0
"""For the steps to a result: which rules earned it depends on them, so that they have to be found whole."""

LATE = 2.0
"""A process is ended after this many times the time limit, and `LOADING` seconds."""

LOADING = 60.0


def check_sizes(files: Iterable[Path], sizes: Mapping[str, int]) -> None:
    """Refuse a size of a dynamic dimension that no model has. One that cannot be read is refused in its row, and may
    have it.

    Raises:
        InputError: no model has the dimension.
    """
    left = set(sizes)
    for path in files:
        try:
            left -= set(named_sizes(path, sizes))
        except InputError:
            return
    for name in sizes:
        if name in left:
            raise InputError(f"--shape {name} names no dynamic dimension of an input of any model; leave it out")


def tasks(
    models: Mapping[str, Path],
    devices: Sequence[str],
    policies: Sequence[str],
    sizes: Mapping[str, int],
    time_limit: float,
    memory: int,
) -> Iterable[Task]:
    """A task for each model, device and policy.

    Args:
        models: files by name.
        sizes: of dynamic dimensions, for the models that have them; the others stay as they are.
        time_limit: seconds of each search.
        memory: bytes of address space of each process.
    """
    digests = {name: digest_of(path) for name, path in models.items()}
    priced = {on: _figures_of(on) for on in devices}
    for name, path in models.items():
        for on, has in priced.items():
            for policy in policies:
                asked = {"device": on, "figures": has, "numerics": policy, "sizes": dict(sizes)}
                yield Task(
                    f"{name} {on} {policy}",
                    "eqsat.sweeping.model:figures",
                    {"model": digests[name], **asked, "time_limit": time_limit},
                    LATE * time_limit + LOADING,
                    memory,
                    {"name": name, "path": str(path.absolute())},
                )


def largest_first(asked: Iterable[Task]) -> list[Task]:
    """Tasks by the sizes of their files: the largest take longest, and none is left over when all else is done."""
    return sorted(asked, key=lambda task: -Path(task.places["path"]).stat().st_size)


def figures(given: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """The figures of one model (`eqsat.sweeping.table.Row`), or why it is refused.

    Raises:
        InputError: the file, or the device's figures, are others than the task is about.
        CheckFailed: as `optimize`.
    """
    path = Path(given["path"])
    tell("reading")
    if digest_of(path) != given["model"]:
        raise InputError(f"{path}: is another file here than where the sweep began; let all workers see the same files")
    if _figures_of(given["device"]) != given["figures"]:
        raise InputError(f"device {given['device']} has other figures here than where the sweep began; calibrate once")
    options: dict[str, Any] = {
        "device": given["device"],
        "numerics": given["numerics"],
        "time_limit": given["time_limit"],
        "explain_time": EXPLAIN_SECONDS,
    }
    try:
        sizes = named_sizes(path, given["sizes"])
        tell("optimising")
        if open_dimensions(path, sizes):
            return _of(optimize_dynamic(path, sizes, **options).report)
        return _of(optimize(from_onnx(path, shapes=sizes, head=True), measure=False, **options).report)
    except InputError as error:
        return {"refused": str(error)}


def _figures_of(name: str) -> dict[str, float | str]:
    """The figures that prices for a device depend on: a file or a calibration may replace them."""
    row = device(name)
    return {"arch": row.arch, **{key: figure.value for key, figure in row.figures()}}


def _of(report: Mapping[str, Any]) -> dict[str, Any]:
    source, result = report["source"], report["result"]
    return {
        **{f"source_{key}": source[key] for key in ("predicted_us", "kernels", "flops", "bytes")},
        **{f"result_{key}": result[key] for key in ("predicted_us", "kernels", "flops", "bytes")},
        "lower_bound_us": report["lower_bound_us"],
        "optimal": report["optimal"],
        "stop": report["egraph"]["stop"],
        "as_written": bool(report.get("fallback") or report.get("memory") or report.get("overflow")),
        "carried": len(report["opaque"]),
        "after": len(report.get("after", ())),
        "rules": dict(sorted(report["rules"].items())),
    }
