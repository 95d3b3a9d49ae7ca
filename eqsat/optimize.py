"""`optimize`: a program in, an equal and cheaper one out, with the reasons, a lower bound and a check."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat import check as checking
from eqsat.core import CoreProgram, lower
from eqsat.errors import InputError
from eqsat.explain import Explanation, explain, merged_kernels
from eqsat.extract.cover import CoverResult, cover
from eqsat.extract.devices import Device
from eqsat.extract.devices import device as find_device
from eqsat.extract.plan import Plan, folding_flops
from eqsat.fold import fold_constants
from eqsat.interrupt import Interruptible
from eqsat.ir import Program
from eqsat.lift_segments import lift_parts
from eqsat.replay import WORK, Replayer
from eqsat.report import build_report
from eqsat.rule import AnyRule, Policy
from eqsat.saturate import Limits, saturate, warm_up
from eqsat.segments import Segment, segments
from eqsat.snapshot import Snapshot
from eqsat.stitch import Solved, stitch

Progress = Callable[[str, float], None]
"""`progress(stage, fraction)`: what is being done, and how much of the whole is behind (0 to 1)."""

SATURATION_SHARE = 0.5
"""Part of a segment's time that saturation may use; the cover has the rest."""

SOURCE_COVER_SECONDS = 2.0

HURRIED_FOLDING_FLOPS = 4_000_000_000
"""Work on constants that a form may ask for once Ctrl-C was pressed: the answer is due within a second."""

EXPLANATION_SECONDS = 1.0
"""Time for finding, evaluating and writing the steps to a result; a quarter of it may lie behind the time limit."""


@dataclass(slots=True)
class Result:
    """An optimised program.

    Attributes:
        source, program: before and after, NumPy-shaped; `program` is what `eqsat.to_onnx` writes.
        plan: the kernels that compute it.
        report: the figures, as `eqsat optimize --json` writes them (schema 1).
    """

    source: Program
    program: Program
    plan: Plan
    report: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        from eqsat.report import summary

        return summary(self.report)

    def explain(self) -> str:
        """How the result was reached: each step with its rule, before and after and where, and which kernels merged."""
        from eqsat.narration import narration

        return narration(self.report)

    def compile(
        self,
        on: str | None = None,
        device: str | Device | None = None,
        *,
        tune: float | None = None,
        capture: bool = False,
    ) -> Callable[..., Any]:
        """A callable that runs the plan's kernels.

        It takes the inputs in order, or one mapping from input name to array; it returns the outputs alike: an array, a
        tuple of arrays, or a mapping from output name to array. On a GPU, CuPy arrays, DLPack tensors (torch) and NumPy
        arrays are taken, results are of the same kind, and calls are asynchronous on the caller's stream.

        Args:
            on: `numpy`, `simt` (the kernels themselves, in the CPU checker) or `gpu` (through CuPy); by default `gpu`
                where a device is named, else `numpy`.
            device: whose kernels to build for `simt` and `gpu`, that of the plan by default; `auto` is this machine's.
            tune: seconds for measuring variants of the kernels on the GPU first; what is found is remembered.
            capture: replay the kernels as one graph, which saves the time of their launches.

        Raises:
            InputError: nothing of that name can run the plan here.
        """
        on = on or ("numpy" if device is None else "gpu")
        exact = self.report["numerics"] == "exact"  # no sums in the order in which atomics happen to arrive
        if on == "gpu":
            from eqsat.gpu.lower import Signature
            from eqsat.gpu.run import gpu_runner

            signature = Signature.of(self.source)
            run = gpu_runner(self.plan, device or self.report["device"], signature, exact, tune, capture)
            return self._callable(run)
        if tune is not None or capture:
            raise InputError(f"compile: tuning and capturing are for a GPU, not for {on!r}: times there say nothing")
        if on == "numpy":
            return self._callable(self._on_host(self.plan.run_numpy))
        if on == "simt":
            from eqsat.gpu.run import runner

            return self._callable(self._on_host(runner(self.plan, on, device or self.report["device"], exact=exact)))
        raise InputError(f"compile: nothing runs on {on!r} (numpy, simt and gpu do)")

    def _callable(self, run: Callable[[Mapping[str, Any]], Sequence[Any]]) -> Callable[..., Any]:
        """How users call a function from inputs by name to the outputs in order."""
        names, outputs = self.source.input_names, list(self.source.outputs)

        def call(*arrays: Any) -> Any:
            by_name = len(arrays) == 1 and isinstance(arrays[0], Mapping)
            if not by_name and len(arrays) != len(names):
                raise InputError(f"the program takes {len(names)} arrays ({', '.join(names)}), got {len(arrays)}")
            results = run(arrays[0] if by_name else dict(zip(names, arrays, strict=True)))
            if by_name:
                return dict(zip(outputs, results, strict=True))
            return results[0] if len(results) == 1 else tuple(results)

        return call

    def _on_host(self, run: Callable[..., Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
        """A function of flat NumPy arrays as one of shaped ones, which are checked."""
        source = self.source

        def call(given: Mapping[str, Any]) -> list[Any]:
            flat = {t.attr("name"): a.reshape(-1) for t, a in source.bind_inputs(given, "native").items()}
            shapes = [term.shape for term in source.outputs.values()]
            return [array.reshape(shape) for array, shape in zip(run(flat), shapes, strict=True)]

        return call


def prepare(numerics: Policy = "reassociate", rules: Sequence[AnyRule] | None = None) -> None:
    """Have the rules of an `optimize` to come declared in the background, for instance while its program is read."""
    from eqsat.rules import ALL, allowed

    usable = allowed(list(ALL) if rules is None else list(rules), numerics)
    if usable:
        warm_up(usable)


def optimize(
    program: Program,
    device: str | Device = "mi300x",
    time_limit: float = 10.0,
    numerics: Policy = "reassociate",
    rules: Sequence[AnyRule] | None = None,
    progress: Progress | None = None,
    explain_time: float = EXPLANATION_SECONDS,
) -> Result:
    """Find an equal program with the least predicted time on a device.

    Args:
        time_limit: seconds for the search; the best program so far is returned when they are over, and Ctrl-C ends the
            search in the same way.
        numerics: `exact` (bitwise the same), `reassociate` (rounding may differ) or `fast` (ranges may differ too).
        rules: what may be rewritten; all of `eqsat.rules.ALL` by default, nothing for `[]`.
        progress: called as the search goes on.
        explain_time: seconds for finding, evaluating and writing the steps to the result; more than the default comes
            on top of the time limit.

    Raises:
        InputError: the device or the policy is unknown.
        CheckFailed: the result differs from the source on random inputs: a defect, never silently returned.
    """
    from eqsat.rules import ALL, allowed

    begun = time.monotonic()
    row = find_device(device)
    prepare(numerics, rules)
    usable = allowed(list(ALL) if rules is None else list(rules), numerics)
    tell = progress or (lambda stage, fraction: None)
    search = Search(program, row, usable, begun + time_limit, tell)
    parts = search.run()
    tell("folding constants", 0.85)
    after, plan = search.assembled(parts)
    tell("checking", 0.95)
    hurried = time.monotonic() > search.deadline or search.interrupted
    verdict = checking.check(program, after, points=1 if hurried else None)
    report = build_report(program, after, plan, search.outcome(parts, plan, explain_time), row.name, numerics, verdict)
    report["seconds"] = round(time.monotonic() - begun, 3)
    tell("done", 1.0)
    return Result(program, after, plan, report)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found, over all instances of all segments.

    Attributes:
        source: cover of the program as written, per segment instance.
        chosen: cover of the result, per segment instance.
        stop: why saturation ended: of the segment that was cut shortest.
        explanation: the steps from the program as written to the result.
        merges: which kernels as written became which of the result.
    """

    source: list[CoverResult]
    chosen: list[CoverResult]
    snapshots: list[Snapshot]
    source_plan: Plan
    explanation: Explanation
    merges: list[dict[str, Any]]


class Search:
    """Saturation and covers of a program's segments, each form once."""

    def __init__(
        self, program: Program, device: Device, rules: Sequence[AnyRule], deadline: float, tell: Progress
    ) -> None:
        self.device, self.rules, self.deadline, self.tell = device, rules, deadline, tell
        self.program = program
        self.core: CoreProgram = lower(program)
        self.solved: dict[tuple, Solved] = {}
        self.written: dict[tuple, Solved] = {}
        self.explored: dict[tuple, Snapshot] = {}
        self._interrupts = Interruptible()

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the search."""
        return self._interrupts.interrupted

    def run(self) -> list[Segment]:
        """Solve every form; the segments in order."""
        parts = segments(self.core.roots)
        forms = list(dict.fromkeys(part.form for part in parts))
        for i, form in enumerate(forms):
            left = max(0.0, self.deadline - time.monotonic()) / (len(forms) - i)
            self.tell(f"part {i + 1} of {len(forms)}", 0.8 * i / len(forms))
            self._solve(form, 0.0 if self._interrupts.interrupted else left)
        return parts

    def _solve(self, form: tuple, seconds: float) -> None:
        source = Snapshot.from_core(form)
        stopped, limit = self._interrupts.stopped, min(SOURCE_COVER_SECONDS, seconds)
        written = self._interrupts.run(lambda: cover(source, self.device, limit, should_stop=stopped), None)
        if written is None:
            written = cover(source, self.device, 0.0)
        self.written[form] = Solved(source, written)
        begun = time.monotonic()
        found = saturate(source, self.rules, Limits(seconds=SATURATION_SHARE * seconds)) if self.rules else source
        found.stats.setdefault("stop", "saturated")
        self.explored[form] = found
        self._interrupts.interrupted |= found.stats["stop"] == "interrupted"
        left = 0.0 if self._interrupts.interrupted else max(0.0, seconds - (time.monotonic() - begun))
        chosen = self._interrupts.run(lambda: cover(found, self.device, left, should_stop=stopped), written)
        if self._interrupts.interrupted:
            found.stats["stop"] = "interrupted"
        self.solved[form] = Solved(found, chosen)
        late = self._interrupts.interrupted and folding_flops(found, chosen) > HURRIED_FOLDING_FLOPS
        if chosen.cost >= written.cost or late:
            self._keep_written(form)

    def _keep_written(self, form: tuple) -> None:
        """Leave a form as its author wrote it, with the bound that the search has proved."""
        source, written = self.written[form].snapshot, self.written[form].cover
        found, chosen = self.solved[form].snapshot, self.solved[form].cover
        source.stats = found.stats | {"nodes": len(found.nodes), "classes": found.n_classes}
        bound = min(chosen.lower_bound, written.cost)
        kept = CoverResult(written.chosen, written.cost, bound, bound == written.cost, chosen.stats)
        self.solved[form] = Solved(source, kept)

    def assembled(self, parts: Sequence[Segment]) -> tuple[Program, Plan]:
        """The whole program and its plan; those as written where Ctrl-C is pressed while constants are folded."""
        found = self._interrupts.run(lambda: self._assembled(parts), None, grace=0.0)
        if found is None:
            for form, solved in self.solved.items():
                solved.snapshot.stats["stop"] = "interrupted"
                self._keep_written(form)
            found = self._assembled(parts)
        return found

    def _assembled(self, parts: Sequence[Segment]) -> tuple[Program, Plan]:
        stitched = stitch([(segment, self.solved[segment.form]) for segment in parts], self.core)
        return fold_constants(lift_parts(stitched.parts, self.core)), stitched.plan

    def explanation(self, parts: Sequence[Segment], seconds: float = EXPLANATION_SECONDS) -> Explanation:
        """The way from the program as written to what was chosen: just what each rule made, where time is short."""
        beyond = seconds if seconds > EXPLANATION_SECONDS else seconds / 4
        ends = min(time.monotonic() + seconds, self.deadline + beyond)

        def left() -> float:
            return 0.0 if self.interrupted else max(0.0, ends - time.monotonic())

        def explained() -> Explanation:
            replayer = Replayer(int(WORK * seconds / EXPLANATION_SECONDS) if left() else 0)
            return explain(self.program, self.core, parts, self.solved, self.rules, left, replayer)

        found = None if self.interrupted else self._interrupts.run(explained, None)
        return explained() if found is None else found

    def outcome(self, parts: Sequence[Segment], plan: Plan, explain_time: float) -> Outcome:
        """The whole search, for the report; `plan` is its result."""
        source_plan = stitch([(p, self.written[p.form]) for p in parts], self.core).plan
        return Outcome(
            source=[self.written[p.form].cover for p in parts],
            chosen=[self.solved[p.form].cover for p in parts],
            snapshots=[self.solved[f].snapshot for f in dict.fromkeys(p.form for p in parts)],
            source_plan=source_plan,
            explanation=self.explanation(parts, explain_time),
            merges=merged_kernels(parts, self.written, self.solved, self.rules, source_plan, plan),
        )
