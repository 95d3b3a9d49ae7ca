"""Forms searched in several processes at once: this one, and others that end with the search.

    this process                                      another
      begin                     ->  pipe  ->  Searching:  load, and have a worker of its own load egglog and the rules
      take a form, search it
      a thread:  take a form    ->  pipe  ->              search it
                 keep the result  <-  pipe  <-
      carry on with what                                carry on with what
      it has begun                                      it has begun

Another process begins to load as soon as the sizes of the forms are known, or while a varied model is still being read
(`start_early`), and takes part once it has loaded. Forms do not depend on each other. Whichever process searches a
form, the result is the same. Work that is only begun with a form goes on in the same process, once each form is taken
that there is time for.
"""

from __future__ import annotations

import pickle
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import FrameType, TracebackType
from typing import Any, TypeVar

from eqsat.base.memory_limit import collector_paused
from eqsat.base.time_budget import TimeBudget
from eqsat.base.worker import ONE_THREAD, Pool, Send, Worker, packed, processors
from eqsat.egraph.pool import start
from eqsat.egraph.saturate import warm_up
from eqsat.errors import EqsatError, InputError
from eqsat.search import limits
from eqsat.search.asked import Asked
from eqsat.search.form import Sought
from eqsat.search.runner import Begun, Runner

T = TypeVar("T")

Work = Callable[..., T | Begun[T]]
"""`work(sought, *given, seconds, run)`: what is done with a form, or begun, here or elsewhere. A function of a module.
"""

Worthwhile = Callable[[Sequence[float], Sequence[int], int], Sequence[int]]
"""`worthwhile(busy, waiting, least)`: the places of the next forms, of all that wait, for processes that are busy for
so many seconds each; at least so many if there is any time."""

_POLL_SECONDS = 0.05


_SEARCHERS = Pool("eqsat.search.crew:Searching", most=max(1, processors() - 1), environment=ONE_THREAD)


def start_early(kinds: int, memory: int, seconds: float) -> None:
    """Start other processes for a program with so many kinds of operators, before its forms are known.

    Args:
        memory: bytes that this process may take, as in `Asked`.
        seconds: left for the search.
    """
    others = _allowed(kinds // limits.TOGETHER.kinds + 1, memory) - 1
    with ExitStack() as taken:
        for _ in range(others if seconds >= limits.TOGETHER.seconds else 0):
            taken.enter_context(_SEARCHERS.lent(memory, None, 0.0))


class Crew:
    """The processes that search the forms of one program. The others begin to load when its context does; whatever they
    still do when it ends is given up.

    Attributes:
        processes: how many there are, this one included.
        alone: whether this process searches them all.
    """

    def __init__(self, asked: Asked, sizes: Sequence[int], run: Runner) -> None:
        """`sizes` are the nodes of each form, in the order of all that `each` is given."""
        self._sizes, self._run = sizes, run
        self._others = _others(asked, sizes, run)
        self._memory = asked.memory
        self._asked = packed(replace(asked, inputs=None)) if self._others else b""
        self._lock = threading.Lock()
        self._ended = False

    @property
    def processes(self) -> int:
        return 1 + self._others

    @property
    def alone(self) -> bool:
        return self._others == 0

    def __enter__(self) -> Crew:
        with ExitStack() as taken:  # all at once, so that each is another one
            for _ in range(self._others):
                self._prepare(taken.enter_context(_SEARCHERS.lent(self._memory, self._asked, 0.0)))
        return self

    def _prepare(self, other: Worker | None) -> None:
        """Tell another process what is asked, unless it has been told: it gets ready for forms, and then answers."""
        with suppress(OSError):
            if other is not None and other.alive and other.holding != self._asked:
                other.send(self._asked)
                other.holding = self._asked

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended = True
        if not self.alone:
            _SEARCHERS.end_idle()  # each holds some hundred megabytes with its egglog

    def each(
        self,
        work: Work[T],
        given: Sequence[tuple[Any, ...]],
        worthwhile: Worthwhile = lambda busy, waiting, least: waiting,
        expected: Callable[[int], float] | None = None,
        order: Sequence[int] | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[T | EqsatError | None]:
        """The result for each form; None where there was no time for it or its process was lost or too late, an error
        where its search failed.

        A process takes worthwhile forms, then goes on with begun ones, and then takes the others.

        Args:
            given: the arguments of `work` before the seconds, the form first.
            worthwhile: which forms come next; all by default.
            expected: seconds that the work takes with a form of so many nodes; a search by default.
            order: the places of the forms, first the ones to begin with; as they are given by default.
            meanwhile: called when this process is done, and waits for others.

        Raises:
            Whatever `work` raises in this process, and InputError of another.
        """
        expected = expected or limits.SEARCH.expected
        found: list[T | EqsatError | None] = [None] * len(given)
        waiting = list(order if order is not None else range(len(given)))
        ends: dict[int, float] = {}  # when each process is expected to be done
        spent: list[Mapping[str, float]] = []

        def next_task(least: int) -> tuple[int, float] | None:
            with self._lock:
                ends.pop(me := threading.get_ident(), None)
                busy = [max(0.0, end - time.monotonic()) for end in ends.values()]
                busy += [0.0] * (self.processes - len(busy))
                some = worthwhile(busy, waiting, least) if waiting and not self._ended else ()
                if not some:
                    return None
                place, seconds = self._next(busy, [self._sizes[i] for i in some], expected)
                waiting.remove(taken := some[place])
                ends[me] = time.monotonic() + min(seconds, expected(self._sizes[taken]))
                return taken, seconds

        def share(search: Callable[[int, float, Begun[T] | None], Any], ready: Callable[[], bool]) -> None:
            """The work of one process."""
            begun: dict[int, Begun[T]] = {}
            while ready() and (task := next_task(0) or (self._next_begun(begun) if begun else next_task(1))):
                i, seconds = task
                x = search(i, seconds, begun.pop(i, None))
                if isinstance(x, Begun):
                    begun[i], x = x, x.found
                found[i] = found[i] if x is None else x

        def here(i: int, seconds: float, begun: Begun[T] | None) -> T | Begun[T]:
            tell()
            return begun.rest(seconds, self._run) if begun and begun.rest else work(*given[i], seconds, self._run)

        def elsewhere() -> None:
            with _SEARCHERS.lent(self._memory, self._asked, 0.0) as other:

                def search(i: int, seconds: float, begun: Begun[T] | None) -> T | Begun[T] | EqsatError | None:
                    assert other is not None
                    try:
                        answer, took = self._asked_of(other, None if begun else work, given[i], seconds, i)
                    except EqsatError as error:
                        return error
                    spent.append(took)
                    return answer

                if other is not None:
                    share(search, lambda: self._loaded(other, waiting))

        def tell() -> None:
            done = len(given) - len(waiting)
            self._run.tell(f"part {done} of {len(self._sizes)}", 0.8 * done / len(self._sizes))

        threads = [threading.Thread(target=elsewhere, daemon=True) for _ in range(self._others)]
        for thread in threads:
            thread.start()
        share(here, lambda: True)
        tell()
        meanwhile()
        self._wait(threads)
        for x in found:
            if isinstance(x, InputError):
                raise x
        for took in spent:
            for stage, seconds in took.items():
                self._run.budget.add(stage, seconds)
        return found

    def _loaded(self, other: Worker, waiting: Collection[int]) -> bool:
        """Whether another process takes part. It loads for a second or two: a form that it took before would be held up
        for as long, and all others with it. So this waits until it has loaded, or no form or time is left for it."""
        self._prepare(other)
        with suppress(EOFError, OSError):
            while other.alive and not other.answered and waiting and not self._ended and self._run.left("solve"):
                other.receive(_POLL_SECONDS)
        return other.alive and other.answered and other.holding == self._asked

    def _next(
        self, busy: Sequence[float], waiting: Sequence[int], expected: Callable[[int], float]
    ) -> tuple[int, float]:
        """The place of the next form in `waiting`, which are sizes, and its seconds. Each process is expected to be
        `busy` for so many seconds; this one is not."""
        left = self._run.left("solve")
        elsewhere = sum(max(0.0, left - seconds) for seconds in busy) - left
        return limits.SEARCH.next_form(left, elsewhere, waiting, expected)

    def _next_begun(self, begun: Mapping[int, Begun[Any]]) -> tuple[int, float] | None:
        """The form to go on with in a process, and its seconds; None if there is no time."""
        if self._ended:
            return None
        return limits.SEARCH.next_begun(self._run.left("solve"), {i: x.expected for i, x in begun.items()})

    def _wait(self, threads: Sequence[threading.Thread]) -> None:
        while any(thread.is_alive() for thread in threads):
            try:
                for thread in threads:
                    thread.join(_POLL_SECONDS)
            except KeyboardInterrupt:
                self._run.interrupt()

    def _asked_of(
        self, other: Worker, work: Work[T] | None, given: tuple[Any, ...], seconds: float, place: int
    ) -> tuple[T | Begun[T] | None, Mapping[str, float]]:
        """What another process finds for a form, and the seconds of its stages. Without work it goes on with the one
        that it has begun at this place."""
        late = limits.LATE
        ends = time.monotonic() + late.patience(seconds, self._run.budget.limit) + late.grace
        told, finished = False, False
        sought, *rest = given
        try:
            part = None if work is None else (work, sought.source, sought.operators, rest)
            other.send((place, part, seconds))
            while not self._ended and time.monotonic() < ends:
                if message := other.receive(_POLL_SECONDS):
                    finished = True
                    return _content(message)
                if self._run.interrupted and not told:
                    other.signal(signal.SIGINT)
                    told, ends = True, time.monotonic() + 2 * late.grace
        except (EOFError, OSError):  # it ran out of memory, or was killed
            pass
        finally:
            if not finished:
                other.kill()
        return None, {}


def _others(asked: Asked, sizes: Sequence[int], run: Runner) -> int:
    """How many further processes are worth their start."""
    least = limits.TOGETHER
    if len(sizes) < 2 or not asked.rules or sum(sizes) < least.nodes or run.left("solve") < least.seconds:
        return 0
    return _allowed(len(sizes), asked.memory) - 1


def _allowed(wanted: int, memory: int) -> int:
    """How many of so many processes the machine and the limit on memory allow, this one included."""
    return max(1, min(wanted, processors(), memory // limits.TOGETHER.memory))


def _content(message: tuple[str, Any]) -> tuple[Any, Mapping[str, float]]:
    """What a message of `Searching` says.

    Raises:
        EqsatError: the search did, or failed by a fault of eqsat.
    """
    kind, content = message
    if kind == "refused":
        raise content
    if kind == "error":
        raise EqsatError(f"a search failed: {content}")
    return content if kind == "found" else (None, {})


class Searching:
    """The service of another process. SIGINT ends its search as Ctrl-C does here: it answers with the best so far. One
    that overtakes its request counts for that."""

    def __init__(self) -> None:
        self._asked: Asked | None = None
        self._begun: dict[int, Begun[Any]] = {}
        self._searching = self._told_to_end = False
        start()
        signal.signal(signal.SIGINT, self._interrupted)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self._told_to_end = True
        if self._searching:
            raise KeyboardInterrupt

    def __call__(self, request: Any, send: Send) -> None:
        """Answer `(place, (work, source, operators, given), seconds)`, or `(place, None, seconds)` for the rest of what
        it has begun there. What is asked comes before, packed: so its rules are declared ahead of the first form."""
        if isinstance(request, bytes):
            asked: Asked = pickle.loads(request)
            self._asked = asked
            self._begun.clear()
            warm_up(asked.rules)
            send("ready", None)
            return
        place, part, seconds = request
        run = Runner(TimeBudget(seconds))
        self._searching = True
        if self._told_to_end:
            run.interrupt()
        try:
            with collector_paused():
                found = self._found(place, part, seconds, run)
            self._searching = False
            send("found", (found, run.budget.spent))
        except KeyboardInterrupt:  # between two stages
            send("interrupted", None)
        except EqsatError as error:
            send("refused", error)
        finally:
            self._searching = False

    def _found(self, place: int, part: tuple[Any, ...] | None, seconds: float, run: Runner) -> Any:
        if part is None:
            rest = self._begun.pop(place).rest
            assert rest is not None
            return rest(seconds, run)
        assert self._asked is not None
        work, source, operators, given = part
        found = work(Sought(self._asked, source, operators, run.budget), *given, seconds, run)
        if isinstance(found, Begun):
            self._begun[place] = found
            return replace(found, rest=None)
        return found
