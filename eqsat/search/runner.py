"""Runs the stages of one optimisation, each within its time, or its fallback when the time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Concatenate, Generic, Literal, ParamSpec, TypeVar

from eqsat.base.interrupt import Interruptible
from eqsat.base.time_budget import TimeBudget
from eqsat.search import limits

P = ParamSpec("P")
T = TypeVar("T")

Progress = Callable[[str, float], None]
"""`progress(stage, fraction)`: the current stage, and the fraction done of the whole (0 to 1)."""


class Deadline:
    """When a stage must return its best answer.

    Attributes:
        ends: by `time.monotonic`.
        stopped: whether Ctrl-C was pressed, for work to poll.
    """

    def __init__(self, seconds: float, stopped: Callable[[], bool]) -> None:
        self.ends = time.monotonic() + seconds
        self.stopped = stopped

    def left(self) -> float:
        """Seconds left, at least 0; none after Ctrl-C."""
        return 0.0 if self.stopped() else max(0.0, self.ends - time.monotonic())


@dataclass(frozen=True, slots=True)
class Stage(Generic[P, T]):
    """A stage.

    Attributes:
        work: the stage itself, a function of its deadline and its arguments.
        otherwise: the fallback, a function of the same arguments that takes next to no time.
        always: run it even if no time is left, because earlier results would be lost.
        borrows: share of the time reserved for the stages after the search that passes before it is abandoned: without
            its result they would have nothing to do.
        grace: seconds for returning the best answer after Ctrl-C.
    """

    work: Callable[Concatenate[Deadline, P], T]
    otherwise: Callable[P, T]
    always: bool = False
    borrows: float = 0.0
    grace: float = limits.LATE.grace


class Runner:
    """The clock, the progress and the interrupts of one optimisation.

    Attributes:
        budget: the time limit, and the seconds of each stage.
        tell: called as the work goes on.
    """

    def __init__(self, budget: TimeBudget, tell: Progress | None = None) -> None:
        self.budget = budget
        self.tell: Progress = tell if tell is not None else lambda stage, fraction: None
        self._working = Interruptible()

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._working.interrupted

    def interrupt(self) -> None:
        """Note that Ctrl-C was pressed outside of `run`."""
        self._working.interrupted = True

    @property
    def why_stopped(self) -> Literal["interrupted", "time"]:
        """The report's word for why work was not finished."""
        return "interrupted" if self.interrupted else "time"

    @property
    def unlimited(self) -> float:
        """Seconds of a stage that only Ctrl-C ends."""
        return 0.0 if self.interrupted else inf

    def left(self, stage: str, expected: Mapping[str, float] | None = None) -> float:
        """Seconds that a stage may take, if later ones are `expected` to take as long; none after Ctrl-C."""
        return 0.0 if self.interrupted else self.budget.left(stage, expected)

    def deadline(self, seconds: float) -> Deadline:
        """So many seconds from now, or Ctrl-C."""
        return Deadline(seconds, self._working.stopped)

    def checking(self) -> float:
        """Seconds until a check is given up, from now."""
        late = limits.CHECKING
        if self.interrupted:
            return late.interrupted
        left = self.budget.end - self.budget.clock()
        return max(late.least, left + late.share * self.budget.limit + late.seconds)

    def check(self, work: Callable[[], T]) -> T | None:
        """The result of a check; None if it is given up.

        Raises:
            Whatever the check raises.
        """
        found = self._working.run(lambda: (work(),), None, limits.CHECKING.least, self.checking())
        return None if found is None else found[0]

    def run(self, stage: Stage[P, T], seconds: float, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a stage that may take `seconds`; its fallback if there are none, if the stage does not end soon
        after them, or on Ctrl-C.

        Raises:
            Whatever the stage raises.
        """
        if seconds > 0 or stage.always:
            deadline = self.deadline(seconds)
            late = limits.LATE
            borrowed = stage.borrows * self.budget.reserved("solve")
            patience = (
                late.grace if self.interrupted else max(late.patience(seconds, self.budget.limit), seconds + borrowed)
            )
            found = self._working.run(lambda: (stage.work(deadline, *args, **kwargs),), None, stage.grace, patience)
            if found is not None:
                return found[0]
        return stage.otherwise(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Begun(Generic[T]):
    """Work of which the first part is done.

    Attributes:
        found: its result so far.
        expected: seconds that the rest is expected to take.
        rest: `rest(seconds, run)` is the result of all; None where another process holds it.
    """

    found: T
    expected: float
    rest: Callable[[float, Runner], T] | None


class Prefetch(Generic[T]):
    """Work in a thread of its own, begun before its result is asked for. It must end by itself.

    Attributes:
        seconds: that the work was given.
    """

    def __init__(self, work: Callable[[], T], seconds: float) -> None:
        self.seconds = seconds
        self._done = threading.Event()
        self._results: list[T] = []
        self._errors: list[BaseException] = []
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._results.append(work())
        except BaseException as error:  # noqa: BLE001  raised again by `result`
            self._errors.append(error)
        finally:
            self._done.set()

    def wait(self, seconds: float | None) -> None:
        """Until the work is done, at most so many seconds."""
        self._done.wait(seconds)

    def result(self, seconds: float | None = None) -> T | None:
        """The result; None if it is not there after so many seconds, where there is such a limit.

        Raises:
            Whatever the work raises.
        """
        self.wait(seconds)
        if self._errors:
            raise self._errors[0]
        return self._results[0] if self._results else None
