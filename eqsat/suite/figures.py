"""Measurements: times of plans, of their kernels, and of what other libraries do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

import numpy as np

import eqsat
from eqsat.base.numerics import itemsize
from eqsat.check.inputs import random_inputs
from eqsat.extract.device.table import DEVICES, Device
from eqsat.extract.plan.calibrate import Micro, micro
from eqsat.extract.plan.plan import Plan
from eqsat.frontends.torch.module import graph_module
from eqsat.gpu.launch.grouping import groups
from eqsat.gpu.launch.lower import LIBRARY_DTYPES
from eqsat.gpu.run.timing import WARM_UP, elapsed_us
from eqsat.gpu.run.tune import alone, tune
from eqsat.gpu.run.tune import random_inputs as kernel_inputs
from eqsat.gpu.run.tune import shown as choice_shown
from eqsat.pipeline.result import Result
from eqsat.program.ir import Program
from eqsat.runs.task import Tell
from eqsat.suite.checks import compare
from eqsat.suite.libraries import Function, InRuntime, in_cupy
from eqsat.suite.place import Given, Gpu, Place, Run, Sample, Time, in_sound_process, place_of, turns_of
from eqsat.suite.programs import PRODUCT, compulsory_bytes, product, program
from eqsat.suite.streaming import ROWS

TOP = 5
"""Plans of a program that are measured against the one that was chosen."""

_SAMPLE_RUNS, _SAMPLE_US = 20, 2000.0
"""Runs of another library between two events: fewer where they take longer."""

_Sets = list[tuple[Any, ...]]
"""Arrays for the inputs of a program, in order, several times."""


@in_sound_process
def micro_kernel(given: Given, tell: Tell) -> dict[str, Any]:
    """Task: the time of one of the programs that `eqsat calibrate` fits to."""
    place = place_of(given)
    made = micro(given["name"])
    plan = made.plan(place.row)
    tell("timing")
    time = place.times({"kernel": Run(plan)}, given["rounds"])["kernel"]
    return {"measured": time._asdict(), "predicted_us": made.predicted_us(place.row), "clocks": place.clocks()}


@in_sound_process
def tuned(given: Given, tell: Tell) -> dict[str, Any]:
    """Task: tune the kernels of a program's best plan, or a product's own; runs on this machine use what is found."""
    place, made = place_of(given), program(given)
    tell("optimising")
    if PRODUCT.fullmatch(given.get("program", "")):
        plan = Micro(made).plan(place.row)
    else:
        plan = _optimised(made, place.row, given["search"], 1).plan
    tell("tuning")
    found = tune(plan, place.row, given["seconds"], alone=turns_of(given).alone)
    kernels = [
        {
            "name": each.kernel.name,
            "us": each.record.us,
            "untuned_us": each.record.untuned_us,
            "choice": choice_shown(each.record.choice),
            "left": each.record.left,
            "refused": list(each.record.refused),
        }
        for each in found.kernels
        if each.record is not None
    ]
    return {"stop": found.stop, "kernels": kernels}


@in_sound_process
def vendors_product(given: Given, tell: Tell) -> dict[str, Any]:
    """Task: a square product by our kernel and by the vendor's library."""
    place = place_of(given)
    edge, dtype = given["edge"], given["dtype"]
    plan = Micro(product(edge, dtype)).plan(place.row)
    runs = {"eqsat": Run(plan)}
    kernel = plan.kernels[0]
    missing, others = {}, {}
    if isinstance(place, Gpu):
        others, missing = _by_library(place, edge, dtype)
    tell("timing")
    found = place.times(runs, given["rounds"], rotated=True, others=others)
    return {
        "times": _shown(found),
        "missing": missing,
        "predicted_us": kernel.predicted_us,
        "kernels": _kernels(place, plan, given["rounds"]),
        "limit_us": limit_us(place.row, kernel.bytes, kernel.flops, dtype),
        "clocks": place.clocks(),
    }


def _by_library(place: Gpu, edge: int, dtype: str) -> tuple[dict[str, Sample], dict[str, str]]:
    """The bare product by the vendor's library, as torch calls it, or else CuPy, which has not all types."""
    cupy, sets = place.machine.cupy, place.sets(3 * 2 * edge * edge)
    try:
        torch = _torch()
    except ImportError as failure:
        if dtype not in LIBRARY_DTYPES:
            return {}, {"library": f"CuPy has no {dtype}; {_reason(failure)}"}
        arrays = [tuple(cupy.random.standard_normal((edge, edge)).astype(dtype) for _ in "xw") for _ in range(sets)]
        return {"library": _cycled(cupy, cupy.matmul, arrays)}, {}
    kind = getattr(torch, dtype)
    tensors = [tuple(torch.randn(edge, edge, device="cuda", dtype=kind) for _ in "xw") for _ in range(sets)]
    return {"library": _graphed(torch, cupy, torch.matmul, tensors)}, {}


@in_sound_process
def whole_program(given: Given, tell: Tell) -> dict[str, Any]:
    """Task: a program's plans, their kernels, and the program in other libraries, each checked or timed."""
    place = place_of(given)
    made = program(given)
    tell("optimising")
    best = _optimised(made, place.row, given["search"], TOP if place.measures else 1)
    written = eqsat.optimize(made, device=place.row, rules=[], measure=False)
    inputs = next(random_inputs(made, 1, 0))
    if given["compared"]:
        tell("comparing")
        compare(place, best.plan, made, inputs)
    runs = {"eqsat": Run(best.plan, inputs), "as written": Run(written.plan, inputs)}
    runs |= {f"plan {i}": Run(each.plan, inputs) for i, each in enumerate(best.plans[1:], 2)}
    tell("other libraries")
    others, missing = _rivals(place, made, inputs, given) if isinstance(place, Gpu) else ({}, {})
    tell("timing")
    found = place.times(runs, given["rounds"], rotated=True, others=others)
    tell("timing kernels")
    dtype = min((t.dtype for t in made.terms() if t.dtype in place.row.matrix), key=itemsize, default="float32")
    flops = best.report["result"]["flops"]
    return {
        "times": _shown({name: time for name, time in found.items() if not name.startswith("plan ")}),
        "plans": _shown({name: time for name, time in found.items() if name == "eqsat" or name.startswith("plan ")}),
        "missing": missing,
        "predicted_us": best.report["result"]["predicted_us"],
        "limit_us": limit_us(place.row, compulsory_bytes(best.program), flops, dtype),
        "kernels": _kernels(place, best.plan, given["rounds"]),
        "clocks": place.clocks(),
    }


def _kernels(place: Place, plan: Plan, rounds: int) -> list[dict[str, Any]]:
    """Each distinct kernel of a plan that is launched by itself: predicted and measured."""
    single = {plan.kernels[g[0]].body: plan.kernels[g[0]] for g in groups(plan) if len(g) == 1}
    kernels = [k for k in single.values() if k.family != "opaque" and any(n.size for n in k.outputs)]
    runs = {str(i): Run(alone(k), kernel_inputs(k)) for i, k in enumerate(kernels)}
    found = place.times(runs, rounds) if runs else {}
    return [
        {"name": k.name, "family": k.family, "predicted_us": k.predicted_us, "measured": found[str(i)]._asdict()}
        for i, k in enumerate(kernels)
    ]


def limit_us(row: Device, nbytes: int, flops: int, dtype: str) -> float:
    """The least time in microseconds by the row's figures: bytes at its bandwidth, or FLOPs at its rate for a type.

    A fitted rate may exceed the peak: it explains times by the formulas of the cost model.
    """
    rate = min(
        (x.matrix.get(dtype) or x.vector.get(dtype) or x.vector["float32"]).value for x in (row, DEVICES[row.name])
    )
    return max(nbytes / (row.bandwidth.value * row.achieved.value) * 1e-3, flops / rate * 1e-6)


def _optimised(made: Program, row: Device, seconds: float, top: int) -> Result:
    return eqsat.optimize(made, device=row, time_limit=seconds, top=top, measure=False)


def _shown(times: Mapping[str, Time]) -> dict[str, Any]:
    return {name: time._asdict() for name, time in times.items()}


# Other libraries


def _rivals(
    place: Gpu, made: Program, inputs: Mapping[str, Any], given: Given
) -> tuple[dict[str, Sample], dict[str, str]]:
    """The program as written by libraries that are installed and have its operators; why others are missing."""
    cupy = place.machine.cupy
    found: dict[str, Sample] = {}
    missing: dict[str, str] = {}
    sets = place.sets(compulsory_bytes(made))
    try:
        from cupyx.scipy.special import erf  # pyright: ignore[reportMissingImports]

        found["cupy"] = _cycled(cupy, in_cupy(made, cupy, erf), _copies(cupy.asarray, made, inputs, sets))
    except Exception as failure:  # noqa: BLE001  whatever another library raises leaves its column empty
        missing["cupy"] = _reason(failure)
    try:
        runtime = InRuntime(made)
        found["onnxruntime"] = _cycled(cupy, runtime, [(runtime.bound(inputs),) for _ in range(sets)])
    except Exception as failure:  # noqa: BLE001
        missing["onnxruntime"] = _reason(failure)
    try:
        torch = _torch()
        arrays = _copies(lambda array: torch.from_numpy(array.copy()).to("cuda"), made, inputs, sets)
    except Exception as failure:  # noqa: BLE001
        return found, missing | {"torch": _reason(failure)}
    for title, call in _torch_runs(torch, cupy, made, given).items():
        try:
            found[title] = call(arrays)
        except Exception as failure:  # noqa: BLE001
            missing[title] = _reason(failure)
    return found, missing


def _torch() -> Any:
    """The module.

    Raises:
        ImportError: it is not installed, or sees no GPU.
    """
    import torch  # pyright: ignore[reportMissingImports]

    if not torch.cuda.is_available():
        raise ImportError("torch sees no GPU")
    torch.set_grad_enabled(False)
    torch.backends.cudnn.allow_tf32 = False  # convolutions round float32 otherwise: products do not by default
    return torch


def _torch_runs(torch: Any, cupy: Any, made: Program, given: Given) -> dict[str, Callable[[_Sets], Sample]]:
    """torch as it launches by itself, replayed as one graph as the plans are, compiled, and its fused attention."""
    runs: dict[str, Callable[[_Sets], Sample]] = {
        "torch": lambda sets: _cycled(cupy, graph_module(made, "cuda"), sets),
        "torch, graph": lambda sets: _graphed(torch, cupy, graph_module(made, "cuda"), sets),
        "torch.compile": lambda sets: _graphed(
            torch, cupy, torch.compile(graph_module(made, "cuda"), mode=given["compile"]), sets
        ),
    }
    fused = ROWS[given["program"]].fused if given.get("program") in ROWS else None
    if fused is not None:
        attention = torch.nn.functional.scaled_dot_product_attention
        runs["SDPA"] = lambda sets: _graphed(
            torch,
            cupy,
            lambda q, k, v, mask=None: attention(
                *(each[None] for each in (q, k, v)), attn_mask=mask, is_causal=fused == "causal"
            ),
            sets,
        )
    return runs


def _copies(array: Callable[[Any], Any], made: Program, inputs: Mapping[str, Any], sets: int) -> _Sets:
    return [tuple(array(np.asarray(inputs[name])) for name in made.input_names) for _ in range(sets)]


def _cycled(cupy: Any, call: Function, sets: _Sets) -> Sample:
    """Microseconds of a run over sets of arrays in turns, on the null stream, where all libraries work."""
    several, count = _several(cupy, call, sets)
    return lambda: elapsed_us(cupy, several) / count


def _graphed(torch: Any, cupy: Any, call: Function, sets: _Sets) -> Sample:
    """The same, with the launches of torch replayed as one graph."""
    several, count = _several(cupy, call, sets)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        several()

    def sample(held: Any = several) -> float:  # keeps the arrays: the graph has their addresses
        return elapsed_us(cupy, graph.replay) / count

    return sample


def _several(cupy: Any, call: Function, sets: _Sets) -> tuple[Callable[[], None], int]:
    """A function that runs over sets of arrays in turns, and how many times: for long enough to be timed."""
    for _ in range(WARM_UP):
        call(*sets[0])
    once = elapsed_us(cupy, lambda: call(*sets[0]))
    count = max(len(sets), min(_SAMPLE_RUNS, ceil(_SAMPLE_US / max(once, 1.0))))

    def several() -> None:
        for arrays in itertools.islice(itertools.cycle(sets), count):
            call(*arrays)

    return several, count


def _reason(failure: Exception) -> str:
    return f"{type(failure).__name__}: {failure}".splitlines()[0]
