"""`optimize`: a program in, an equal and cheaper one out, with the reasons, a lower bound and a check."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.base.arguments import instance, seconds, shown, whole
from eqsat.base.interrupt import Interruptible
from eqsat.base.memory_limit import in_use
from eqsat.base.memory_limit import memory_limit as memory_limit_of
from eqsat.base.time_budget import TimeBudget
from eqsat.check import check as checking
from eqsat.check.overflow import folds_to_infinity, overflows
from eqsat.egraph.saturate import Limits, saturate, stated, wait_until_ready, warm_up
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import CheckFailed, CheckTooLarge, EqsatError, InputError
from eqsat.explain.explain import Explanation, explain, merged_kernels
from eqsat.explain.replay import WORK, Replayer
from eqsat.extract.alternatives import kernel_counts, next_covers
from eqsat.extract.cover import CoverResult, cover
from eqsat.extract.device.table import Device
from eqsat.extract.device.table import device as find_device
from eqsat.extract.plan.memory import lean_order, lean_plan
from eqsat.extract.plan.plan import Plan, folding_bytes, folding_flops
from eqsat.extract.plan.stitch import Solved, stitch
from eqsat.extract.plan.tradeoffs import cover_launches, least_peak, trade_offs
from eqsat.language.rule import AnyRule, HostRule, Policy
from eqsat.lift.segments import lift_parts
from eqsat.pipeline.objective import Objective
from eqsat.pipeline.ranking import (
    Combination,
    alternative_rows,
    by_objective,
    next_plans,
    program_launches,
    trade_off_plans,
)
from eqsat.pipeline.report import Outcome, advice_on, build_report, objective_report
from eqsat.program.core import CoreProgram, lower, topological
from eqsat.program.fold import fold_constants, fold_source
from eqsat.program.ir import Program
from eqsat.program.segments import Segment, segments
from eqsat.program.sizes import check_program

Progress = Callable[[str, float], None]
"""`progress(stage, fraction)`: what is being done, and how much of the whole is behind (0 to 1)."""

SATURATION_SHARE = 0.5
"""Part of a segment's time that saturation may use; the cover has the rest."""

SOURCE_SHARE = 0.3
"""Part of a segment's time that the cover of the program as written may use."""

HURRIED = 0.15
"""What an e-node takes in a hurried cover, as a share of what it takes where there is time for all of its kernels."""

STARTING_SHARE = 0.5
"""Part of the time left for which the search waits for its worker to start."""

FURTHER_SHARE = 0.25
"""Part of the time limit kept for further plans, where they are asked for."""

FURTHER_SECONDS = 1.0
"""Time for further covers of a form, even past the time limit."""

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
        alternatives: further results for the same source, where `optimize` was asked for more than one.
    """

    source: Program
    program: Program
    plan: Plan
    report: dict[str, Any] = field(repr=False)
    alternatives: list[Result] = field(default_factory=list, repr=False)

    @property
    def plans(self) -> list[Result]:
        """This result and its alternatives, the best first: what to measure."""
        return [self, *self.alternatives]

    def __str__(self) -> str:
        from eqsat.pipeline.report import summary

        return summary(self.report)

    def explain(self) -> str:
        """How the result was reached: each step with its rule, before and after and where, and which kernels merged."""
        from eqsat.explain.narration import narration

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
        if on is not None:
            instance("compile: on", on, str, "numpy, simt or gpu")
        instance("compile: capture", capture, bool, "True or False")
        on = on or ("numpy" if device is None else "gpu")
        exact = self.report["numerics"] == "exact"  # no sums in the order in which atomics happen to arrive
        if on == "gpu":
            from eqsat.gpu.launch.lower import Signature
            from eqsat.gpu.run.run import gpu_runner

            signature = Signature.of(self.source)
            run = gpu_runner(self.plan, device or self.report["device"], signature, exact, tune, capture)
            return self._callable(run)
        if tune is not None or capture:
            raise InputError(f"compile: tuning and capturing are for a GPU, not for {on!r}: times there say nothing")
        if on == "numpy":
            return self._callable(self._on_host(self.plan.run_numpy))
        if on == "simt":
            from eqsat.gpu.run.run import runner

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


def _row(device: str | Device) -> Device:
    """The row that a device is named by; `auto` is the GPU of this machine."""
    if not isinstance(device, str) or device != "auto":
        return find_device(device)
    from eqsat.gpu.run.cupy_runtime import this_machine

    return this_machine().row


def prepare(numerics: Policy = "reassociate", rules: Sequence[AnyRule] | None = None) -> None:
    """Have the rules of an `optimize` to come declared in the background, for instance while its program is read."""
    usable = _usable(numerics, rules)
    if usable:
        warm_up(usable)


def _usable(numerics: Policy, rules: Sequence[AnyRule] | None) -> list[AnyRule]:
    """The rules that the policy allows. Raises InputError for an unknown policy, or what is no list of rules."""
    from eqsat.rules import ALL, allowed

    if rules is None:
        return allowed(list(ALL), numerics)
    given = list(rules) if isinstance(rules, Iterable) else []
    if not isinstance(rules, Iterable) or not all(isinstance(row, AnyRule) for row in given):
        raise InputError(
            f"rules {shown(rules)}: expected a list of rules (eqsat.rules.ALL, rule(...)), or None for all"
        )
    return allowed(given, numerics)


def optimize(
    program: Program,
    device: str | Device = "mi300x",
    time_limit: float | TimeBudget = 10.0,
    numerics: Policy = "reassociate",
    rules: Sequence[AnyRule] | None = None,
    progress: Progress | None = None,
    explain_time: float = EXPLANATION_SECONDS,
    top: int = 1,
    objective: str | Mapping[str, float] = "latency",
    inputs: Mapping[str, Any] | None = None,
    memory_limit: int | None = None,
) -> Result:
    """Find an equal program with the least predicted time on a device.

    Args:
        device: one of `eqsat devices`, a file of `eqsat calibrate`, `auto` for this machine's GPU, or a row.
        time_limit: seconds for everything up to the checked result, or a budget that began earlier; the best program so
            far is returned when they are over, and Ctrl-C ends the search in the same way.
        numerics: `exact` (bitwise the same), `reassociate` (rounding may differ) or `fast` (ranges may differ too).
        rules: what may be rewritten; all of `eqsat.rules.ALL` by default, nothing for `[]`.
        progress: called as the search goes on.
        explain_time: seconds for finding, evaluating and writing the steps to the result; more than the default comes
            on top of the time limit.
        top: how many different plans to return: the result, and the next best as its `alternatives`. Each is checked,
            after the time limit where need be. All instances of a part that repeats itself get the same kernels.
        objective: `latency`, `memory` (the most bytes that temporaries take at once, launch after launch; inputs,
            constants and outputs are not counted), `mix:W` with the weight W of memory, or the weights themselves, both
            relative to the program as written. With memory in it, alternatives are the other plans found that none
            beats in both, and the bound is on each of the two alone.
        inputs: arrays by name, on which no float16 or bfloat16 overflows in the result that does not in the program;
            random ones by default. What would is left as it was written, and the report says so (`overflow`).
        memory_limit: bytes that this process may take, mapped weights aside; by default three quarters of the
            machine's. Parts whose constants or check would take more are left as they were written, and the report
            says so (`memory`, `fallback`). The search has a worker with a limit of its own.

    Raises:
        InputError: the device, the policy or the objective is unknown, `top` is less than 1, the time limit is no
            number of seconds, or `program` is no program.
        CheckFailed: even the program as it was written, cut into kernels, differs from it on random inputs. Where a
            rewritten part differs, or its search fails, that part is left as it was written, and the report says so
            (`fallback`).
    """
    begun = time.monotonic()
    if not isinstance(program, Program):
        raise InputError(f"optimize takes a Program (eqsat.trace, from_onnx, from_torch), got {type(program).__name__}")
    check_program(program)
    memory = memory_limit_of(memory_limit)
    row, goal = _row(device), Objective.of(objective)
    whole("top", top, 1)
    if progress is not None and not callable(progress):
        raise InputError(f"progress {shown(progress)}: expected a function of a stage and a fraction, or None")
    seconds("explain_time", explain_time)
    if inputs is not None:
        program.bind_inputs(inputs, "float64")
    budget = TimeBudget.of(time_limit)
    prepare(numerics, rules)
    usable = _usable(numerics, rules)
    tell = progress or (lambda stage, fraction: None)
    if top > 1 or goal != Objective():
        budget.expect("further", FURTHER_SHARE * budget.limit)
    search = Search(program, row, usable, budget, tell, inputs, exact=numerics == "exact", memory=memory)
    parts = search.run()
    tell("comparing plans", 0.8)
    with budget.stage("further"):
        plans = search.plans(parts, goal, top)
    search.solved, search.lean = plans[0].solved, goal.memory > 0
    tell("folding constants", 0.85)

    def made(search: Search, explaining: float) -> Result:
        return _result(search, parts, search.assembled(parts), goal, numerics, explaining)

    asked = {"numerics": numerics, "objective": str(objective), "top": top}
    refused: list[EqsatError] = list(search.failed.values())
    found: list[tuple[Result, Combination]] = []
    for rank, plan in enumerate(plans, 1):
        tell(f"plan {rank} of {len(plans)}", 0.95)
        explaining = 0.0 if found else explain_time
        try:
            if rank == 1:
                found.append((made(search, explaining), plan))
                continue
            result = search.having(plan.solved).attempt(lambda other, t=explaining: made(other, t))
        except CheckFailed as error:
            refused.append(error)
            continue
        if result is None:
            break
        found.append((result, plan))
    if not found:
        found.append((search.what_passes(parts, lambda other: made(other, explain_time), refused, asked), plans[0]))
    (best, _), *others = found
    best.alternatives = [result for result, _ in others]
    if refused:
        best.report["fallback"] = search.fallback(parts, refused, asked)
    if top > 1:
        proven = [plan.proven for _, plan in others]
        best.report["alternatives"] = alternative_rows([p.report for p in best.plans], proven)
    best.report["seconds"] = round(time.monotonic() - begun, 3)
    best.report["stages"] = budget.report()
    tell("done", 1.0)
    return best


def _result(
    search: Search,
    parts: Sequence[Segment],
    made: Assembled,
    goal: Objective,
    numerics: Policy,
    explain_time: float,
) -> Result:
    """A plan as a result: checked against the source, with its report."""
    search.tell("checking", 0.95)
    budget = search.budget
    with budget.stage("check"):
        verdict = search.checked(made, 0.0 if search.interrupted else budget.left("check"), finite=numerics == "fast")
    after, plan = made.program, made.plan
    outcome = search.outcome(parts, plan, explain_time)
    with budget.stage("report"):
        report = build_report(search.program, after, plan, outcome, search.device.name, numerics, verdict)
    if search.narrow:
        report["overflow"] = {"parts": sum(p.form in search.narrow for p in parts), "of": len(parts)}
    if search.large:
        report["memory"] = {
            "limit": search.memory,
            "parts": sum(p.form in search.large for p in parts),
            "of": len(parts),
        }
    if goal.memory:
        report["objective"] = objective_report(goal, report, max(search.least_peaks(), default=0))
    return Result(search.program, after, plan, report)


def _passes(work: Callable[[], Result], refused: list[EqsatError]) -> bool:
    """Whether the check passes; what it refuses goes into `refused`."""
    try:
        work()
    except CheckFailed as error:
        refused.append(error)
        return False
    return True


def _affordable(written: CoverResult, nodes: int, seconds: float) -> int:
    """E-nodes that a cover can be found over in so many seconds, judged by that of the program as written."""
    each = HURRIED * written.stats["seconds"]["candidates"] / nodes
    return int(min(max(0.0, seconds) / max(each, 1e-9), sys.maxsize))


def _folding(solved: Solved) -> int:
    return folding_bytes(solved.snapshot, solved.cover)


@dataclass(frozen=True, slots=True)
class Assembled:
    """A whole result: its program and plan, and which of its values are which of the source, part by part."""

    program: Program
    plan: Plan
    cuts: list[list[checking.Pair]]


class Search:
    """Saturation and covers of a program's segments, each form once."""

    def __init__(
        self,
        program: Program,
        device: Device,
        rules: Sequence[AnyRule],
        budget: TimeBudget,
        tell: Progress,
        inputs: Mapping[str, Any] | None = None,
        exact: bool = False,
        memory: int | None = None,
    ) -> None:
        self.memory = memory_limit_of(memory)
        self.large: dict[tuple, None] = {}
        """Forms left as written because their constants would take too much memory."""
        self.device, self.rules, self.budget, self.tell = device, rules, budget, tell
        self.program, self.inputs, self.exact = program, inputs, exact
        with budget.stage("fold"):
            self.folded = fold_source(program, exact)
        with budget.stage("lower"):
            self.core: CoreProgram = lower(self.folded.program)
        self.solved: dict[tuple, Solved] = {}
        self.written: dict[tuple, Solved] = {}
        self.cheapest: dict[tuple, Solved] = {}
        """The best cover of each form's e-graph, even where the form is left as written."""
        self.explored: dict[tuple, Snapshot] = {}
        self.narrow: dict[tuple, None] = {}
        """Forms left as written because a float16 or bfloat16 would overflow."""
        self.refused: dict[tuple, None] = {}
        """Forms left as written because the check refused their result."""
        self.failed: dict[tuple, EqsatError] = {}
        """Forms left as written because their search failed, and how."""
        self.lean = False
        """Whether launches are ordered for low memory."""
        self._source_plan: Plan | None = None
        self._interrupts = Interruptible()

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the search."""
        return self._interrupts.interrupted

    def run(self) -> list[Segment]:
        """Solve every form; the segments in order."""
        with self.budget.stage("partition"):
            parts = segments(self.core.roots)
        sizes = {part.form: len(topological(part.form)) for part in parts}
        self.budget.expect_after_search(sum(sizes.values()) / max(1, sum(sizes[part.form] for part in parts)))
        self._start_worker()
        forms = sorted(sizes, key=sizes.__getitem__)  # what small ones leave is for larger ones
        shares = [(form, [sizes[f] for f in forms[i:]]) for i, form in enumerate(forms)]
        for form, waiting in shares:  # all before the first is searched: each has a cover to fall back to
            self.cover_written(form, self.budget.part("solve", sizes[form], waiting))
        for i, (form, waiting) in enumerate(shares):
            share = self.budget.part("solve", sizes[form], waiting)
            self.tell(f"part {i + 1} of {len(sizes)}", 0.8 * i / len(sizes))
            try:
                self.solve(form, 0.0 if self._interrupts.interrupted else share)
            except InputError:
                raise
            except EqsatError as error:
                self._failed(form, error)
        return parts

    def _failed(self, form: tuple, error: EqsatError) -> None:
        """Leave a form as its author wrote it because its search failed: its e-graph is the source alone."""
        written = self.written[form]
        written.snapshot.stats = {"iterations": 0, "matches": {}, "stop": "failed", "seconds": 0.0}
        self.failed[form] = error
        self.explored[form] = written.snapshot
        self.solved[form] = self.cheapest[form] = written

    def _start_worker(self) -> None:
        """No part of the program shall pay for the time that the worker takes to load."""
        if self.rules:
            with self.budget.stage("saturate"):
                try:
                    wait_until_ready(self.rules, STARTING_SHARE * self.budget.left("solve"))
                except KeyboardInterrupt:
                    self._interrupts.interrupted = True

    def _cover(self, snapshot: Snapshot, seconds: float, stopped: Callable[[], bool] | None) -> CoverResult:
        found = cover(snapshot, self.device, seconds, should_stop=stopped, exact=self.exact)
        for stage, spent in found.stats["seconds"].items():
            self.budget.add("solve" if stage == "incumbents" else stage, spent)
        return found

    def cover_written(self, form: tuple, seconds: float) -> None:
        """Find the best cover of a form as its author wrote it."""
        source = Snapshot.from_core(form)
        limit, stopped = SOURCE_SHARE * seconds, self._interrupts.stopped
        written = None
        if not self._interrupts.interrupted:
            written = self._interrupts.run(lambda: self._cover(source, limit, stopped), None)
        if written is None:
            written = self._cover(source, 0.0, None)
        self.written[form] = Solved(source, written)

    def solve(self, form: tuple, seconds: float) -> None:
        """Find the best cover of one form, with as much of its e-graph as there is time for."""
        source, written = self.written[form].snapshot, self.written[form].cover
        begun, stopped = self.budget.clock(), self._interrupts.stopped
        limits = Limits(seconds=SATURATION_SHARE * seconds)
        affordable = _affordable(written, len(source.nodes), seconds - limits.seconds)
        limits = replace(limits, nodes=min(limits.nodes, affordable))
        found = saturate(source, self.rules, limits) if self.rules else source
        if found.stats.get("stop") == "nodes" and limits.nodes == affordable:
            found.stats["stop"] = "time"
        found.stats.setdefault("stop", "saturated")
        self.budget.add("saturate", self.budget.clock() - begun)
        self.explored[form] = found
        self._interrupts.interrupted |= found.stats["stop"] == "interrupted"
        left = 0.0 if self._interrupts.interrupted else max(0.0, seconds - (self.budget.clock() - begun))
        patience = self.budget.patience(left)
        chosen = self._interrupts.run(lambda: self._cover(found, left, stopped), None, seconds=patience)
        if chosen is None:  # what was found can no longer be priced: it counts as not found
            source.stats = found.stats | {"stop": "time"}
            found, chosen = source, written
        if not self._interrupts.interrupted:
            first = Solved(found, chosen)
            patience = self.budget.patience(begun + seconds - self.budget.clock())
            kept = self._interrupts.run(lambda: self._regrouped(first, begun + seconds), first, seconds=patience)
            found, chosen = kept.snapshot, kept.cover
        if self._interrupts.interrupted:
            found.stats["stop"] = "interrupted"
        self.solved[form] = self.cheapest[form] = Solved(found, chosen)
        late = self._interrupts.interrupted and folding_flops(found, chosen) > HURRIED_FOLDING_FLOPS
        if chosen.cost >= written.cost or late:
            self._keep_written(form)

    def _regrouped(self, best: Solved, deadline: float) -> Solved:
        """The cheapest cover once what covers compute is joined into groups, again and again until nothing is gained.

        A good cover is only known once there is one, and tells what else may be joined: its products may have been made
        by rules, and have other derivations, so that no group of required ones holds them.
        """
        groups = [r for r in self.rules if isinstance(r, HostRule) and r.phase == "groups"]
        while best.snapshot.stats["stop"] == "saturated":
            further = stated(groups, best.snapshot, [best.cover.derivation])
            begun = self.budget.clock()
            left = deadline - begun
            if not further or left <= 0:
                break
            limits = Limits(seconds=SATURATION_SHARE * left)
            more = saturate(best.snapshot, self.rules, limits, further=further)
            self.budget.add("saturate", self.budget.clock() - begun)
            better = self._cover(more, max(0.0, deadline - self.budget.clock()), self._interrupts.stopped)
            if better.cost >= best.cover.cost:
                break
            best = Solved(more, better)
        return best

    def _keep_written(self, form: tuple) -> None:
        """Leave a form as its author wrote it, with the bound that the search has proved."""
        self.solved[form] = self._left_written(form)

    def _left_written(self, form: tuple) -> Solved:
        source, written = self.written[form].snapshot, self.written[form].cover
        found, chosen = self.solved[form].snapshot, self.solved[form].cover
        source.stats = found.stats | {"nodes": len(found.nodes), "classes": found.n_classes}
        bound = min(chosen.lower_bound, written.cost)
        kept = CoverResult(written.chosen, written.cost, bound, bound == written.cost, chosen.stats)
        return Solved(source, kept)

    def what_passes(
        self,
        parts: Sequence[Segment],
        make: Callable[[Search], Result],
        refused: list[EqsatError],
        asked: Mapping[str, Any],
    ) -> Result:
        """The result where the check refused what was found: with every form as optimised that passes by itself, or
        else as written. What else is refused goes into `refused`.

        Raises:
            CheckFailed: even the program as written is refused.
        """
        chosen = dict(self.solved)
        changed = [f for f, solved in chosen.items() if solved.snapshot is not self.written[f].snapshot]
        as_written = chosen | {form: self._left_written(form) for form in changed}
        passing: list[tuple] = []
        for form in changed if len(changed) > 1 else ():
            if self.interrupted or not self.budget.left("check"):
                break
            if _passes(lambda form=form: make(self.having(as_written | {form: chosen[form]})), refused):
                passing.append(form)
        for kept in (passing, []) if passing else ([],):
            self.solved = as_written | {form: chosen[form] for form in kept}
            self.refused = dict.fromkeys(form for form in changed if form not in kept)
            try:
                return make(self)
            except CheckFailed as error:
                refused.append(error)
        about = self.fallback(parts, refused, asked)
        raise type(refused[-1])(
            f"{refused[-1]}, even as it is written: run the program without eqsat. {advice_on(about)}"
        )

    def fallback(
        self, parts: Sequence[Segment], refused: Sequence[EqsatError], asked: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What failed or was refused, for the report; and the folder that reproduces it, unless memory was short."""
        from eqsat.pipeline.failures import keep

        told = list(dict.fromkeys(map(str, refused)))
        left = sum(part.form in self.refused or part.form in self.failed for part in parts)
        about: dict[str, Any] = {"parts": left, "of": len(parts), "refused": told, "folder": None}
        if all(isinstance(error, CheckTooLarge) for error in refused):
            return about | {"cause": "memory"}
        names = [row.name for row in self.rules]
        own = {
            "device": self.device.name,
            "time_limit": self.budget.limit,
            "seed": checking.SEED,
            "rules": names,
        }
        folder = keep(self.program, {**asked, **own}, told)
        return about | {"cause": "failed" if self.failed else "differs", "folder": folder and str(folder)}

    def _keep_narrow(self, forms: Sequence[tuple]) -> bool:
        """Leave forms as they were written because their result would overflow; whether any was not so yet."""
        written = {form: solved.snapshot for form, solved in self.written.items()}
        changed = [form for form in dict.fromkeys(forms) if self.solved[form].snapshot is not written[form]]
        for form in changed:
            self._keep_written(form)
        self.narrow.update(dict.fromkeys(changed))
        return bool(changed)

    def plans(self, parts: Sequence[Segment], goal: Objective, top: int) -> list[Combination]:
        """The covers to build plans of, the best first; just the one that `run` chose after Ctrl-C."""
        chosen = [Combination(dict(self.solved), 0)]
        if self.interrupted or (top == 1 and goal == Objective()):
            return chosen
        if goal.memory:
            found = self._interrupts.run(lambda: self._traded(parts, goal), chosen)
            return found[:top]
        return chosen + self._interrupts.run(lambda: self._next(parts, top - 1), [])

    def _next(self, parts: Sequence[Segment], count: int) -> list[Combination]:
        late = time.monotonic() + max(self.budget.left("further"), FURTHER_SECONDS)
        choices: dict[tuple, list[Solved]] = {}
        for form, first in self.solved.items():
            cheapest = self.cheapest[form]
            further = [cheapest.cover, *next_covers(cheapest.cover, count, late, self._interrupts.stopped)]
            others = [c for c in further if not kernel_counts(first.cover) <= kernel_counts(c)]
            choices[form] = [first, *(Solved(cheapest.snapshot, c) for c in others)]
        return next_plans(parts, choices, count)

    def _traded(self, parts: Sequence[Segment], goal: Objective) -> list[Combination]:
        late = time.monotonic() + max(self.budget.left("further"), FURTHER_SECONDS)
        choices: dict[tuple, list[tuple[Solved, int]]] = {}
        for form, cheapest in self.cheapest.items():
            covers = trade_offs(cheapest.cover, FURTHER_SECONDS, late, self._interrupts.stopped)
            options = [self.written[form], *(Solved(cheapest.snapshot, c) for c in covers)]
            launched = [cover_launches(s.snapshot, s.cover) for s in options]
            choices[form] = [(s, x.peak(lean_order(x))) for s, x in zip(options, launched, strict=True)]
        written = program_launches(parts, self.written, self.core)
        cost = sum(self.written[part.form].cover.cost for part in parts)
        return by_objective(trade_off_plans(parts, choices, self.core), goal, cost, written.peak())

    def least_peaks(self) -> list[int]:
        """For each form, bytes of temporaries that every cover of it has at once."""
        return [least_peak(s.cover.problem) for s in self.cheapest.values() if s.cover.problem is not None]

    def _bounded(self, form: tuple) -> CoverResult:
        """The cover of a form with a bound on all covers of its e-graph, be it the cheapest or not."""
        chosen = self.solved[form].cover
        bound = min(chosen.cost, self.cheapest[form].cover.lower_bound)
        return replace(chosen, lower_bound=bound, optimal=bound == chosen.cost)

    def having(self, solved: dict[tuple, Solved]) -> Search:
        """The same search with other covers."""
        other = copy(self)
        other.solved, other.narrow, other.large = solved, {}, {}
        return other

    def attempt(self, work: Callable[[Search], Result]) -> Result | None:
        """What `work` makes of this search; None after Ctrl-C."""
        return None if self.interrupted else self._interrupts.run(lambda: work(self), None, grace=0.0)

    def assembled(self, parts: Sequence[Segment]) -> Assembled:
        """The whole program and its plan; those as written where time is over or Ctrl-C is pressed meanwhile."""
        patience = self.budget.patience(self.budget.left("fold"))
        found = self._interrupts.run(lambda: self._assembled(parts), None, grace=0.0, seconds=patience)
        left = self._memory_left()
        if found is not None and not self.interrupted and overflows(self.program, found.program, self.inputs, left):
            self._keep_narrow(list(self.solved))
            found = self._assembled(parts)
        if found is None:
            for form, solved in self.solved.items():
                solved.snapshot.stats["stop"] = "interrupted" if self.interrupted else "time"
                self._keep_written(form)
            found = Assembled(self.folded.program, self.source_plan(parts), [])
        return found

    def source_plan(self, parts: Sequence[Segment]) -> Plan:
        """The plan of the program as written."""
        if self._source_plan is None:
            with self.budget.stage("plan"):
                self._source_plan = stitch([(p, self.written[p.form]) for p in parts], self.core, self.exact).plan
        return self._source_plan

    def _memory_left(self) -> int:
        return max(0, self.memory - in_use())

    def _keep_large(self, parts: Sequence[Segment]) -> None:
        """Leave forms as they were written, the largest first, until the constants of all parts fit into memory."""
        count = Counter(part.form for part in parts)
        needed = {form: n * _folding(self.solved[form]) for form, n in count.items()}
        left = self._memory_left()
        for form in sorted(needed, key=lambda form: -needed[form]):
            if sum(needed.values()) <= left:
                break
            if needed[form] > count[form] * _folding(self.written[form]):
                self._keep_written(form)
                self.large[form] = None
                needed[form] = count[form] * _folding(self.written[form])

    def _assembled(self, parts: Sequence[Segment]) -> Assembled:
        self._keep_large(parts)
        with self.budget.stage("plan"):
            stitched = stitch([(segment, self.solved[segment.form]) for segment in parts], self.core, self.exact)
        narrow = [p.segment.form for p in stitched.parts if folds_to_infinity(p.constants, self.core.constants)]
        if narrow and self._keep_narrow(narrow):
            stitched = stitch([(segment, self.solved[segment.form]) for segment in parts], self.core, self.exact)
        plan = lean_plan(stitched.plan) if self.lean else stitched.plan
        with self.budget.stage("lift"):
            lifted = lift_parts(stitched.parts, self.core)
        with self.budget.stage("fold"):
            folded, inside = fold_constants(lifted.program, [term for cut in lifted.cuts for _, term in cut])
        became = iter(inside)
        return Assembled(folded, plan, [[(source, next(became)) for source, _ in cut] for cut in lifted.cuts])

    def checked(self, made: Assembled, seconds: float | None, finite: bool) -> checking.Check:
        """What was folded ahead against the program as it came, and the result against what was folded.

        Raises:
            CheckFailed: one differs.
        """
        memory = self._memory_left()
        found = checking.check(
            self.folded.program, made.program, seconds=seconds, cuts=made.cuts, finite=finite, memory=memory
        )
        if not self.folded.computed:
            return found
        before, after = (
            Program((), {str(i): term for i, term in enumerate(terms)})
            for terms in (self.folded.computed, self.folded.values)
        )
        return found + checking.check(before, after, seconds=seconds, memory=memory)

    def explanation(self, parts: Sequence[Segment], seconds: float = EXPLANATION_SECONDS) -> Explanation:
        """The way from the program as written to what was chosen: just what each rule made, where time is short."""
        if seconds <= EXPLANATION_SECONDS:
            seconds = min(seconds, self.budget.left("explain") + seconds / 4)
        ends = time.monotonic() + seconds

        def left() -> float:
            return 0.0 if self.interrupted else max(0.0, ends - time.monotonic())

        def explained() -> Explanation:
            replayer = Replayer(int(min(WORK * seconds / EXPLANATION_SECONDS, sys.maxsize)) if left() else 0)
            return explain(self.folded.program, self.core, parts, self.solved, self.rules, left, replayer, self.folded)

        found = None if self.interrupted else self._interrupts.run(explained, None)
        return explained() if found is None else found

    def outcome(self, parts: Sequence[Segment], plan: Plan, explain_time: float) -> Outcome:
        """The whole search, for the report; `plan` is its result."""
        source_plan = self.source_plan(parts)
        with self.budget.stage("explain"):
            explanation = self.explanation(parts, explain_time)
            merges = merged_kernels(parts, self.written, self.solved, self.rules, source_plan, plan)
        return Outcome(
            source=[self.written[p.form].cover for p in parts],
            chosen=[self._bounded(p.form) for p in parts],
            snapshots=[self.solved[f].snapshot for f in dict.fromkeys(p.form for p in parts)],
            source_plan=source_plan,
            explanation=explanation,
            merges=merges,
        )
