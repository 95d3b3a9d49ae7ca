"""The result of `optimize`: the program found, its plan, the report, and ways to run it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.base.arguments import PLACES, choice, flag, instance, seconds, text
from eqsat.errors import InputError
from eqsat.extract.device.table import DeviceLike
from eqsat.extract.device.table import device as find_device
from eqsat.extract.plan.plan import Plan
from eqsat.program.ir import Program, apart


@dataclass(slots=True)
class Result:
    """An optimised program.

    Attributes:
        source, program: before and after, NumPy-shaped; `program` is what `eqsat.to_onnx` writes.
        plan: the kernels that compute it.
        written: the kernels of the source as it was written, fused but not rewritten.
        report: the figures, as `eqsat optimize --json` writes them (schema 1).
        alternatives: further results for the same source, if `optimize` was asked for more than one.
    """

    source: Program
    program: Program
    plan: Plan
    written: Plan = field(repr=False)
    report: dict[str, Any] = field(repr=False)
    alternatives: list[Result] = field(default_factory=list, repr=False)

    @property
    def plans(self) -> list[Result]:
        """This result and its alternatives, the best first, for example to measure them."""
        return [self, *self.alternatives]

    def __str__(self) -> str:
        from eqsat.pipeline.report import summary

        return summary(self.report)

    def _repr_html_(self) -> str:
        from eqsat.explain.narration import alike, closing
        from eqsat.html.fragments import costs, fragment
        from eqsat.pipeline.report import unpriced

        report = self.report
        return fragment(
            "result",
            report=report,
            rows=costs(report),
            unknown=unpriced(report),
            steps=alike(report["steps"]),
            closing=closing(report),
            program=self.program.listing(),
        )

    def explain(self) -> str:
        """The steps to the result, each with its rule, place, before and after; and which kernels merged."""
        from eqsat.explain.narration import narration

        return narration(self.report)

    def compile(
        self,
        on: str | None = None,
        device: DeviceLike | None = None,
        *,
        tune: float | None = None,
        capture: bool = False,
        held: Collection[str] = (),
    ) -> Callable[..., Any]:
        """A callable that runs the plan's kernels.

        It takes the inputs in order, or one mapping from input name to array. It returns the outputs in the same way:
        an array, a tuple of arrays, or a mapping from output name to array, each in memory of its own, also where an
        output is an input. On a GPU it takes CuPy arrays, DLPack
        tensors (torch) or NumPy arrays and returns the same kind; calls are asynchronous on the caller's stream.
        With `numpy` it can be pickled.

        Args:
            on: `numpy`, `simt` (the kernels themselves, in the CPU checker) or `gpu` (through CuPy); by default `gpu`
                if a device is named, else `numpy`.
            device: the device to build kernels for, with `simt` and `gpu`; by default that of the plan, `auto` is this
                machine's GPU.
            tune: seconds for measuring variants of the kernels on the GPU first; the best are remembered.
            capture: replay the kernels as one graph, which saves launch time.
            held: names of inputs, such as weights, that come in the same memory at every call: with `capture` they are
                read there, others are copied first.

        Raises:
            InputError: `on` is unknown, or cannot run the plan on this machine.
        """
        if on is not None:
            choice("compile: on", on, PLACES)
        flag("compile: capture", capture)
        instance("compile: held", held, Collection, "a list of names of inputs")
        for name in held:
            text("compile: held", name)
        if tune is not None:
            seconds("compile: tune", tune)
        on = on or ("numpy" if device is None else "gpu")
        if on == "gpu":
            from eqsat.gpu.launch.lower import Signature
            from eqsat.gpu.run.run import gpu_runner

            signature = Signature.of(self.source)
            target = self.report["device"] if device is None else device
            run = gpu_runner(self.plan, target, signature, tune, capture, held)
            return _Compiled(self.source, run)
        if tune is not None or capture:
            raise InputError(f"compile: tuning and capturing are for a GPU, not for {on!r}: times there say nothing")
        if on == "numpy":
            find_device("cpu" if device is None else device)
            return _Compiled(self.source, _OnHost(self.source, self.plan.run_numpy))
        from eqsat.gpu.run.run import runner

        run = runner(self.plan, on, self.report["device"] if device is None else device)
        return _Compiled(self.source, _OnHost(self.source, run))


@dataclass(frozen=True, slots=True, eq=False)
class _Compiled:
    """The calling convention for users, around a function from inputs by name to the outputs in order."""

    source: Program
    run: Callable[[Mapping[str, Any]], Sequence[Any]]

    def __call__(self, *arrays: Any) -> Any:
        names = self.source.input_names
        by_name = len(arrays) == 1 and isinstance(arrays[0], Mapping)
        if not by_name and len(arrays) != len(names):
            raise InputError(f"the program takes {len(names)} arrays ({', '.join(names)}), got {len(arrays)}")
        results = self.run(arrays[0] if by_name else dict(zip(names, arrays, strict=True)))
        if by_name:
            return dict(zip(self.source.outputs, results, strict=True))
        return results[0] if len(results) == 1 else tuple(results)


@dataclass(frozen=True, slots=True, eq=False)
class _OnHost:
    """A function of flat NumPy arrays as a function of shaped ones, with checks."""

    source: Program
    run: Callable[..., Any]

    def __call__(self, given: Mapping[str, Any]) -> list[Any]:
        bound = self.source.bind_inputs(given, "native")
        found = self.run({term.attr("name"): array.reshape(-1) for term, array in bound.items()})
        shapes = [term.shape for term in self.source.outputs.values()]
        shaped = [array.reshape(shape) for array, shape in zip(found, shapes, strict=True)]
        return apart(shaped, bound.values())
