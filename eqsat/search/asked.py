"""The arguments of `optimize`, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import IOBase
from typing import Any

from eqsat.base.arguments import choice, flag, function_of, seconds, shown, whole
from eqsat.base.memory_limit import memory_limit as memory_limit_of
from eqsat.errors import InputError
from eqsat.extract.device.table import Device, DeviceLike
from eqsat.extract.device.table import device as find_device
from eqsat.language.rule import ALLOWED, AnyRule, Policy
from eqsat.program.ir import Program
from eqsat.program.sizes import check_program
from eqsat.search.objective import Objective


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a result.

    Attributes:
        device: the device of the prices.
        rules: the rules that the policy `numerics` allows.
        goal: the objective.
        top: how many plans.
        inputs: arrays by name on which nothing may overflow.
        memory: bytes that this process may take.
        measure_threads: threads of each plan that is measured; None if none is.
        explain_time: seconds for the steps to the result.
    """

    device: Device
    rules: tuple[AnyRule, ...]
    numerics: Policy = "reassociate"
    goal: Objective = field(default_factory=Objective)
    top: int = 1
    inputs: Mapping[str, Any] | None = None
    memory: int = field(default_factory=lambda: memory_limit_of(None))
    measure_threads: int | None = None
    explain_time: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether results must be bitwise the same."""
        return self.numerics == "exact"


def judged(
    program: Program,
    device: DeviceLike,
    numerics: Policy,
    rules: Sequence[AnyRule] | None,
    progress: Callable[[str, float], None] | None,
    explain_time: float,
    top: int,
    objective: str | Mapping[str, float],
    inputs: Mapping[str, Any] | None,
    memory_limit: int | None,
    measure: bool,
    measure_threads: int,
) -> Asked:
    """The arguments of `optimize` as one value.

    Raises:
        InputError: an argument is not as `optimize` requires.
    """
    if not isinstance(program, Program):
        raise InputError(f"optimize takes a Program (eqsat.trace, from_onnx, from_torch), got {type(program).__name__}")
    check_program(program)
    memory = memory_limit_of(memory_limit)
    row, goal, plans = _row(device), Objective.of(objective), whole("top", top, 1)
    if progress is not None:
        function_of("progress", progress, ("a stage", "a fraction"))
    explaining = seconds("explain_time", explain_time)
    if inputs is not None:
        program.bind_inputs(inputs, "float64")
    threads = whole("measure_threads", measure_threads, 1)
    measured = flag("measure", measure) and row.runtime and not goal.memory
    known = usable(numerics, rules)
    return Asked(row, known, numerics, goal, plans, inputs, memory, threads if measured else None, explaining)


def usable(numerics: Policy, rules: Sequence[AnyRule] | None) -> tuple[AnyRule, ...]:
    """The rules that the policy allows, of all rules by default.

    Raises:
        InputError: the policy is unknown, or `rules` is not a list of rules.
    """
    if isinstance(rules, list | tuple) and not rules:
        choice("numerics policy", numerics, ALLOWED)
        return ()
    from eqsat.rules import ALL, allowed  # a sixth of a second, in vain where no rule is used

    if rules is None:
        return tuple(allowed(list(ALL), numerics))
    given: list[AnyRule] = []
    for row in rules if isinstance(rules, Iterable) and not isinstance(rules, IOBase) else [None]:
        if not isinstance(row, AnyRule):  # an array may have elements without end, a file waits for input
            raise InputError(
                f"rules {shown(rules)}: expected a list of rules (eqsat.rules.ALL, rule(...)), or None for all"
            )
        given.append(row)
    return tuple(allowed(given, numerics))


def _row(device: DeviceLike) -> Device:
    """The row of a device; `auto` is the GPU of this machine."""
    if not isinstance(device, str) or device != "auto":
        return find_device(device)
    from eqsat.gpu.run.cupy_runtime import this_machine

    return this_machine().row
