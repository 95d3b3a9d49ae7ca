"""Four threads that optimise and prove random programs at once. Right: the same results as from one thread alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import eqsat
from eqsat.errors import InputError
from eqsat.fuzzing.kinds import Fault, one_piece
from eqsat.fuzzing.programs import POLICIES
from eqsat.fuzzing.programs import case as made
from eqsat.language.rule import Policy
from eqsat.program.ir import Program
from eqsat.runs.task import Tell

SECONDS = 240.0
BYTES = 8_000_000_000

steps = one_piece

THREADS = 4

PROGRAMS = 6
"""Programs of a case: a few more than there are threads."""

Task = tuple[str, Program, Policy]


def case(seed: int, kept: Sequence[int] | None, models: Sequence[str] = ()) -> list[Task]:
    """Programs to optimise under some policy; every third is then proved equal to its result."""
    first = 10_000_019 + seed * PROGRAMS
    tasks: list[Task] = []
    for number in range(first, first + PROGRAMS):
        program = made(number, None).program
        policy = POLICIES[number % len(POLICIES)]
        tasks.append(("prove" if number % 3 == 0 else "optimize", program, policy))
    return tasks


def files(tasks: Sequence[Task]) -> dict[str, bytes]:
    """The programs as text."""
    return {".txt": "\n\n".join(f"{kind}, {policy}\n{program}" for kind, program, policy in tasks).encode()}


def judge(tasks: Sequence[Task], tell: Tell) -> str:
    """Do all tasks in one thread and then in four."""
    alone = [_answer(task) for task in tasks]
    with ThreadPoolExecutor(THREADS) as threads:
        together = list(threads.map(_answer, reversed(tasks)))[::-1]
    for task, one, other in zip(tasks, alone, together, strict=True):
        if one != other:
            raise Fault(f"{task[0]}, {task[2]}: {one}\nalone, in threads {other}, of\n{task[1]}")
    return "result" if any(answer[0] != "InputError" for answer in alone) else "refused"


def _answer(task: Task) -> tuple[str, ...]:
    kind, program, policy = task
    try:
        best = eqsat.optimize(program, numerics=policy, time_limit=60.0, explain_time=0.0)
        said = (eqsat.prove(program, best.program, 60.0).verdict,) if kind == "prove" else ()
    except InputError as error:
        return "InputError", str(error)
    return kind, *said, str(best.program), repr(best.report["result"]), repr(best.report["kernels"])
