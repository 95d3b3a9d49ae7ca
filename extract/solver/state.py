"""State shared by the stages of extraction: the best answer, the best bound, the deadline, and time by stage."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from eqsat.extract.solver.problem import Problem, checked

PROVEN = 1e-8
"""A bound within this share of the cost counts as a proof, because of floating-point rounding."""


class Search:
    """The state that stages share: the best answer, the best bound and the deadline.

    The parts of a problem may share ``seconds`` of each stage and ``counts``, which then add up over the parts.
    ``hurried`` says whether a stage ended early since its time was over. A gap of the share ``enough`` of the cost ends
    the search.
    """

    def __init__(
        self, problem: Problem, deadline: float, should_stop: Callable[[], bool] | None, enough: float = 0.0
    ) -> None:
        self.problem = problem
        self.start = time.monotonic()
        self.deadline = deadline
        self.should_stop = should_stop
        self.enough = enough
        self.choice: dict[int, int] | None = None
        self.cost = 0
        self.bound = 0
        self.step = math.gcd(*problem.node_cost) or 1
        self.a_pass = 0.0
        self.hurried = False
        self.answers: list[tuple[str, int, float]] = []
        self.seconds: dict[str, float] = {}
        self.counts: Counter[str] = Counter(left=0, rounds=0, rows=0, cuts=0, branched=0)

    def late(self, passes: float = 0.0) -> bool:
        """Whether to return now and not start work that takes ``passes`` times as long as copying the problem."""
        late = time.monotonic() + passes * self.a_pass > self.deadline
        late = late or (self.should_stop is not None and self.should_stop())
        self.hurried = self.hurried or late
        return late

    def share(self, part: float) -> float:
        """The time at which ``part`` of the remaining time is over."""
        now = time.monotonic()
        return now + part * max(0.0, self.deadline - now)

    @contextmanager
    def within(self, part: float, less: float = 0.0) -> Iterator[float]:
        """The time at which ``part`` of the remaining time is over but for ``less`` seconds, for the work inside."""
        end = self.share(part) - less
        yield end
        self.hurried = self.hurried or time.monotonic() > end

    def offer(self, choice: Mapping[int, int], source: str) -> bool:
        """Check an answer, and keep it if it is the cheapest so far."""
        used, cost = checked(self.problem, choice)
        if self.choice is not None and cost >= self.cost:
            return False
        self.choice, self.cost = used, cost
        self.answers.append((source, cost, round(time.monotonic() - self.start, 3)))
        return True

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time inside the block as time of a stage."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begun

    @property
    def stats(self) -> dict[str, Any]:
        """How the answer was found, for `Solution`."""
        seconds = {name: round(spent, 3) for name, spent in self.seconds.items()}
        return {"answers": self.answers, "seconds": seconds, **self.counts}

    @property
    def slack(self) -> float:
        """The possible floating-point error of a bound."""
        return PROVEN * self.cost

    @property
    def cutoff(self) -> float:
        """Only answers that cost at most this are better than the known one."""
        return self.cost - self.step + self.slack

    def raise_bound(self, bound: float, exact: bool = False) -> None:
        """Record a valid lower bound, rounded up to the next cost that an answer can have. Minus infinity says nothing:
        a solver that had no time."""
        if bound == -math.inf:
            return
        lost = 0 if exact else self.slack
        reached = self.cost if bound >= self.cost - lost else self.step * math.ceil((bound - lost) / self.step)
        self.bound = max(self.bound, min(reached, self.cost))

    @property
    def proven(self) -> bool:
        """Whether no answer is cheaper than the known one."""
        return self.bound == self.cost

    @property
    def done(self) -> bool:
        """Whether the bound is so near to the known answer that the search ends."""
        return self.cost - self.bound <= self.enough * self.cost
