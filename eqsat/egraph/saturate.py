"""Saturation: apply rules until nothing changes or a limit is met, in a process that can be stopped at any moment.

egglog knows no limit of time or memory inside an iteration, and a failed allocation aborts its process. So it runs in a
worker (`eqsat.base.worker`) that sends checkpoints; whatever happens to the worker, the parent goes on with the last
one. One worker serves many requests, so that only the first pays for starting it.
"""

from __future__ import annotations

import errno
import pickle
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from eqsat.base.worker import Worker, packed
from eqsat.egraph.host_terms import Terms
from eqsat.egraph.pool import MEMORY
from eqsat.egraph.pool import WORKERS as _WORKERS
from eqsat.egraph.required import Derivation
from eqsat.egraph.snapshot import SOURCE, Snapshot
from eqsat.errors import EqsatError
from eqsat.language.rule import AnyRule, HostRule

if TYPE_CHECKING:
    from eqsat.egraph.encoding import EGraph

Equality = tuple[str, int, Any]
"""A rule's name, a class, and a term that equals it (`eqsat.egraph.host_terms.Term`)."""

_CHECKPOINT_SECONDS = 0.25
_SMALL = 500
"""E-nodes up to which every iteration ends with a checkpoint."""

_GROUP_ROUNDS = 3

_KEPT = 3
"""Sets of rules that a worker holds ready: those of as many policies."""

_POLL_SECONDS = 0.1
_GRACE_SHARE, _GRACE_SECONDS = 0.05, 0.25
"""How much later than its limit a worker is ended: it stops by itself, and to start another takes a second."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop: wall-clock seconds, e-nodes, bytes of address space of the worker, and iterations.

    The first e-graph with more e-nodes than that is the result; with `strict` it is the one before it, if there is one.
    """

    seconds: float = 10.0
    nodes: int = 30_000
    memory: int = MEMORY
    iterations: int | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """What a saturation is at: shown while it runs. `matches` counts those of each rule so far."""

    iteration: int
    nodes: int
    classes: int
    seconds: float
    matches: dict[str, int]


def saturate(
    source: Snapshot,
    rules: Sequence[AnyRule],
    limits: Limits | None = None,
    progress: Callable[[Progress], None] | None = None,
    goals: Sequence[tuple[int, int]] = (),
    further: Sequence[Equality] = (),
    should_stop: Callable[[], bool] = lambda: False,
) -> Snapshot:
    """The e-graph of `source` under `rules`.

    `goals` are pairs of positions in the roots: once both of each pair are one class, saturation ends with stop `goal`.
    `further` is what else holds in an e-graph that was saturated already: it goes on from there. `should_stop` is
    polled: True ends it as Ctrl-C does, for threads that get no signals.

    `stats["stop"]` says why it ended: `saturated`, `goal`, `time`, `nodes`, `steps` (iterations), `memory` or
    `interrupted` (Ctrl-C; the snapshot is then the last checkpoint, at worst the source itself).

    Raises:
        EqsatError: a rule merged two classes that cannot be equal, or failed.
    """
    limits = limits or Limits()
    begun = time.monotonic()
    best = source
    best.stats = source.stats if further else {"iterations": 0, "matches": {}}
    if limits.seconds <= 0:
        best.stats |= {"stop": "time", "seconds": 0.0}
        return best
    declared = tuple(rules)
    request = _Request(source, limits, tuple(goals), tuple(further))
    stop = "time"
    try:
        with _WORKERS.lent(limits.memory, declared, limits.seconds) as worker:
            if worker is not None:
                best, stop = _ask(worker, declared, request, best, begun, progress, should_stop)
    except KeyboardInterrupt:
        stop = "interrupted"
    best.stats |= {"stop": stop, "seconds": time.monotonic() - begun}
    return best


class Growing:
    """E-graphs that grow bit by bit, in one worker. One that goes on keeps its matches and what its tables answered. So
    it takes a part of the time of one that is made of its snapshot again. Used as a context."""

    def __init__(self, rules: Sequence[AnyRule]) -> None:
        self._rules = tuple(rules)
        self._lent = ExitStack()
        self._worker: Worker | None = None
        self._last: Snapshot | None = None

    def __enter__(self) -> Growing:
        return self

    def __exit__(self, *raised: object) -> None:
        with suppress(OSError):
            if self._worker is not None and self._worker.alive:
                self._worker.send(_Request(None, Limits()))  # nothing waits for the e-graph to be emptied
        self._lent.close()

    def saturate(
        self, source: Snapshot, alike: Sequence[tuple[int, int]], limits: Limits, goals: Sequence[tuple[int, int]] = ()
    ) -> Snapshot:
        """The e-graph of `source` with each of these pairs of its classes as one; else as the function `saturate`.

        The e-graph goes on if `source` is what was given back last.
        """
        goes_on, self._last = source is self._last, None
        best, stop = source.merged(alike), "time"
        best.stats = {"iterations": 0, "matches": {}}
        worker = self._ready(limits)
        begun = time.monotonic()
        if worker is not None:
            request = _Request(best, limits, tuple(goals), stays=True, alike=tuple(alike) if goes_on else None)
            best, stop = _ask(worker, self._rules, request, best, begun)
            self._last = best if worker.alive else None
        best.stats |= {"stop": stop, "seconds": time.monotonic() - begun}
        return best

    def _ready(self, limits: Limits) -> Worker | None:
        """A worker that has declared the rules: in place of one that has ended, another. None once time is up."""
        if limits.seconds > 0 and (self._worker is None or not self._worker.alive):
            self._lent.close()
            warm_up(self._rules, limits.seconds)
            self._worker = self._lent.enter_context(_WORKERS.lent(limits.memory, self._rules, limits.seconds))
        return self._worker if limits.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class _Request:
    """What a worker is asked for.

    Attributes:
        source: what to saturate; None only asks to declare the rules.
        stays: whether the e-graph may be asked to go on.
        alike: pairs of classes of the last snapshot that are one: the last e-graph goes on with them.
        rules: packed, if they are not those of the last request.
    """

    source: Snapshot | None
    limits: Limits
    goals: tuple[tuple[int, int], ...] = ()
    further: tuple[Equality, ...] = ()
    stays: bool = False
    alike: tuple[tuple[int, int], ...] | None = None
    rules: bytes | None = None


def _ask(
    worker: Worker,
    rules: tuple[AnyRule, ...],
    request: _Request,
    best: Snapshot,
    begun: float,
    progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[Snapshot, str]:
    """The last snapshot that a worker sends, and why it is the last; a worker that has not finished is ended."""
    finished = False
    deadline = begun + request.limits.seconds * (1 + _GRACE_SHARE) + _GRACE_SECONDS
    try:
        declared = worker.answered and worker.holding == rules
        source = None if request.alike is not None else request.source
        worker.send(replace(request, source=source, rules=None if declared else _packed(rules)))
        worker.holding = rules
        while True:
            if should_stop():
                return best, "interrupted"
            left = max(deadline - time.monotonic(), 0.0)
            message = worker.receive(min(left, _POLL_SECONDS))
            if message is None and left > 0:
                continue
            if message is None:
                return best, "time"
            kind, content = message
            if kind == "error":  # compiled code may have panicked: nobody asks this worker again
                raise EqsatError(f"saturation failed: {content}")
            if kind in ("checkpoint", "done"):
                best = content
            if kind == "progress" and progress is not None:
                progress(content)
            if kind == "done":
                finished = True
                return best, best.stats["stop"]
    except KeyboardInterrupt:
        return best, "interrupted"
    except (EOFError, BrokenPipeError):
        return best, _died(worker)
    finally:
        if not finished:
            worker.kill()


def _died(worker: Worker) -> str:
    """Why a worker ended without a word: by its limit of memory, which compiled code leaves by a signal."""
    code = worker.ended()
    if code < 0 or code == errno.ENOMEM:
        return "memory"
    raise EqsatError(f"saturation failed: its process ended with exit code {code}")


def warm_up(rules: Sequence[AnyRule], seconds: float = 0.0) -> None:
    """Start a worker ahead of its first request: it loads egglog and declares the rules.

    Args:
        seconds: how long to wait for it; by default the caller goes on at once.
    """
    rules, memory = tuple(rules), Limits().memory
    if not seconds and _WORKERS.is_holding(memory, rules):
        return
    with _WORKERS.lent(memory, rules, timeout=0.0) as worker:
        if worker is not None:
            with suppress(EOFError, OSError):  # a worker that ends here is replaced by the search
                if worker.holding != rules:
                    worker.send(_Request(None, Limits(), rules=_packed(rules)))
                    worker.holding = rules
                if seconds and not worker.answered:
                    worker.receive(seconds)


@lru_cache(_KEPT)
def _packed(rules: tuple[AnyRule, ...]) -> bytes:
    """Rules as they are sent: to pickle them, and to read and compare them, takes as long as a small saturation."""
    return packed(rules)


def _declaring(rules: Sequence[AnyRule]) -> EGraph:
    """An e-graph in which rules are declared. egglog is loaded when it is first needed, which is in the worker."""
    from eqsat.egraph.encoding import EGraph

    return EGraph(rules)


@dataclass(frozen=True, slots=True)
class _Ready:
    """An empty e-graph with rules, and these as they were sent."""

    sent: bytes
    rules: tuple[AnyRule, ...]
    graph: EGraph


class Saturations:
    """The service of a worker. It keeps an e-graph ready for each of the last few sets of rules: declaring them takes
    longer than most saturations."""

    def __init__(self) -> None:
        from eqsat.egraph.encoding import EGraph

        self._new_graph = EGraph
        self._ready: list[_Ready] = []
        self._open: tuple[_Ready, Saturation] | None = None
        self._rules = b""

    def __call__(self, request: _Request, send: Callable[[str, Any], None]) -> None:
        """Send what was asked for. An answer is sent before the e-graph is emptied, which takes as long as a small
        saturation: the caller goes on meanwhile."""
        self._rules = self._rules if request.rules is None else request.rules
        if request.alike is not None and self._open is not None:
            (ready, run), self._open = self._open, None
            send("done", run.go_on(request.alike, request.limits, request.goals, send))
            self._open = ready, run
            return
        self._close()
        ready = self._taken(self._rules)
        if request.source is None:
            send("ready", None)
            self._ready.append(ready)
            return
        run = Saturation(request.source, ready.rules, request.limits, send, request.goals, ready.graph, request.further)
        send("done", run.run())
        self._open = ready, run
        if not request.stays:
            self._close()

    def _close(self) -> None:
        """Empty the e-graph that is open, if one is."""
        if self._open is not None:
            (ready, _), self._open = self._open, None
            ready.graph.clear()
            self._ready.append(ready)

    def _taken(self, sent: bytes) -> _Ready:
        """An empty e-graph with these rules. It is not kept meanwhile: whatever fails leaves none behind."""
        for i in reversed(range(len(self._ready))):
            if self._ready[i].sent == sent:
                return self._ready.pop(i)
        del self._ready[: len(self._ready) + 1 - _KEPT]
        rules = pickle.loads(sent)
        graph = self._new_graph(rules)
        graph.clear()
        return _Ready(sent, rules, graph)


def stated(rules: Sequence[HostRule], snapshot: Snapshot, derivations: Sequence[Derivation] = ()) -> list[Equality]:
    """What rules that the host runs find to be equal, given some good programs in the snapshot."""
    terms = Terms(snapshot, derivations)
    found: list[Equality] = []
    for row in rules:
        row.apply(terms, lambda cls, term, name=row.name: found.append((name, cls, term)) if term != cls else None)
    return found


def _next_end(ends: Sequence[float], sizes: Sequence[int]) -> float:
    """When an iteration will end that grows as the one before it did.

    `ends` are those of the last two or three, `sizes` the e-nodes at these. Time grows at least as they did, and
    at most with the square of that: a longer iteration was held up by other processes.
    """
    *before, last = (b - a for a, b in pairwise(ends))
    growth = last / max(before[0], 1e-9) if before else 1.0
    grown = [b / a for a, b in pairwise(sizes)]
    return ends[-1] + last * max(1.0, grown[-1], min(growth, max(grown) ** 2))


class Saturation:
    """One run: algebra to a fixpoint, then rounds of groups and algebra again."""

    def __init__(
        self,
        source: Snapshot,
        rules: Sequence[AnyRule],
        limits: Limits,
        send: Callable[[str, Any], None] = lambda kind, content: None,
        goals: Sequence[tuple[int, int]] = (),
        graph: EGraph | None = None,
        further: Sequence[Equality] = (),
    ) -> None:
        self._graph = graph or _declaring(rules)
        self._graph.insert_source(source)
        self._limits, self._send, self._goals = limits, send, goals
        self._begun = self._sent = time.monotonic()
        self._further, self._before = further, source.stats if further else {}
        self._iterations = 0
        self._growth = [(source.n_classes, len(source.nodes))]
        self._matches: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._new_matches: list[dict[str, int]] = [{}]
        self._seconds: dict[str, float] = {}
        self._stop = "saturated"
        self._snapshot = source
        self._frozen: Any = None
        self._names = {r.name for r in rules}
        host = [r for r in rules if isinstance(r, HostRule)]
        self._always = [r for r in host if r.phase == "algebra"]
        self._first = [r for r in host if r.phase == "before-groups"]
        self._groups = [r for r in host if r.phase == "groups"]

    def run(self) -> Snapshot:
        """The saturated e-graph, or as far as the limits allow."""
        if self._further:
            self._graph.insert(self._snapshot, self._further)
        return self._grown(self._always if self._further else self._always + self._first)

    def go_on(
        self,
        alike: Sequence[tuple[int, int]],
        limits: Limits,
        goals: Sequence[tuple[int, int]],
        send: Callable[[str, Any], None],
    ) -> Snapshot:
        """The same, with pairs of classes of its snapshot as one, within other limits, which count from here."""
        self._limits, self._goals, self._send = limits, goals, send
        self._begun = self._sent = time.monotonic()
        self._iterations, self._stop = 0, "saturated"
        self._timed("tables", lambda: self._graph.fill_tables(self._frozen))
        found = self._timed("host rules", lambda: self._ask_host(self._always))
        found += [(SOURCE, a, b) for a, b in alike]
        self._timed("insertion", lambda: self._graph.insert(self._snapshot, found))
        return self._grown(self._always)

    def _grown(self, host: Sequence[HostRule]) -> Snapshot:
        """Rules to a fixpoint, groups in between."""
        open_ended = self._fixpoint(host)
        for _ in range(_GROUP_ROUNDS):
            if not open_ended or not self._groups:
                break
            equalities = self._ask_host(self._groups)
            if not equalities:
                break
            self._checkpoint(force=True)
            self._graph.insert(self._snapshot, equalities)
            open_ended = self._fixpoint(self._always)
        self._describe()
        return self._snapshot

    def _fixpoint(self, host: Sequence[HostRule]) -> bool:
        """Rules until nothing changes; False when a limit was met first."""
        before, ends = None, [time.monotonic()]
        while True:
            smaller, seen = self._snapshot, self._seen
            self._step()
            size = (self._snapshot.n_classes, len(self._snapshot.nodes))
            if self._reached():
                self._stop = "goal"
                return False
            if size[1] > self._limits.nodes:
                self._stop = "nodes"
                if self._limits.strict and self._iterations > 1:
                    self._undo(smaller, seen)
                return False
            if self._iterations == self._limits.iterations:
                self._stop = "steps"
                return False
            ends = [*ends[-2:], time.monotonic()]
            if _next_end(ends, [nodes for _, nodes in self._growth[-3:]]) > self._begun + self._limits.seconds:
                self._stop = "time"
                return False
            rows = self._timed("tables", lambda: self._graph.fill_tables(self._frozen))
            equalities = self._timed("host rules", lambda: self._ask_host(host))
            if size == before and not rows:
                return True
            if equalities:
                self._timed("insertion", lambda eqs=equalities: self._graph.insert(self._snapshot, eqs))
            before = size
            self._checkpoint()

    def _reached(self) -> bool:
        roots = self._snapshot.roots
        return bool(self._goals) and all(roots[a] == roots[b] for a, b in self._goals)

    def _step(self) -> None:
        """One iteration of the rules that egglog runs, and the snapshot after it."""
        self._iterations += 1
        graph = self._graph
        self._timed("egglog", lambda: graph.run("analysis", saturate=True))
        self._count(self._timed("egglog", lambda: graph.run("simplify", saturate=True)))
        self._count(self._timed("egglog", lambda: graph.run("algebra")))
        self._timed("egglog", lambda: graph.run("analysis", saturate=True))
        self._timed("egglog", lambda: graph.run("demand"))
        self._frozen = self._timed("snapshots", graph.freeze)
        self._snapshot = self._timed("snapshots", lambda: graph.snapshot(self._frozen))
        self._growth.append((self._snapshot.n_classes, len(self._snapshot.nodes)))
        seen = Counter(self._fired())
        self._new_matches.append(dict(seen - self._seen))
        self._seen = seen

    def _undo(self, smaller: Snapshot, seen: Counter[str]) -> None:
        """Give back the e-graph before the last iteration, and the matches that it came from. Saturation ends there:
        the e-graph in egglog is the larger one."""
        self._snapshot = smaller
        self._matches = self._seen = seen
        self._iterations -= 1
        del self._growth[-1], self._new_matches[-1]

    def _count(self, matches: dict[str, int]) -> None:
        """Add the matches of rules; what the e-graph does of its own accord is not among them."""
        self._matches.update({name: n for name, n in matches.items() if name in self._names})

    def _fired(self) -> dict[str, int]:
        """Matches of each rule so far."""
        return {name: n for name, n in sorted(self._matches.items()) if n}

    def _ask_host(self, rules: Sequence[HostRule]) -> list[Equality]:
        """What the host's rules find to be equal and the snapshot does not know yet."""
        found = stated(rules, self._snapshot)
        self._matches.update(name for name, _, _ in found)
        return found

    def _timed(self, what: str, action: Callable[[], Any]) -> Any:
        begun = time.monotonic()
        result = action()
        self._seconds[what] = self._seconds.get(what, 0.0) + time.monotonic() - begun
        return result

    def _describe(self) -> None:
        before = self._before
        matches = self._matches | Counter(before.get("matches", {}))  # what held before is found again
        spent = Counter(before.get("stages", {}))
        spent.update(self._seconds)
        self._snapshot.stats = {
            "iterations": before.get("iterations", 0) + self._iterations,
            "growth": [*before.get("growth", ()), *self._growth],
            "new_matches": [*before.get("new_matches", ()), *self._new_matches],
            "matches": {name: n for name, n in sorted(matches.items()) if n},
            "stages": {name: round(s, 4) for name, s in sorted(spent.items())},
            "stop": self._stop,
        }

    def _checkpoint(self, *, force: bool = False) -> None:
        now = time.monotonic()
        small = len(self._snapshot.nodes) <= _SMALL  # cheap to send, and the next iteration may be a very long one
        if force or small or now - self._sent > _CHECKPOINT_SECONDS:
            self._sent = now
            snapshot = self._snapshot
            spent = now - self._begun
            self._send(
                "progress",
                Progress(self._iterations, len(snapshot.nodes), snapshot.n_classes, spent, self._fired()),
            )
            self._describe()
            snapshot.stats["stop"] = None
            self._send("checkpoint", snapshot)
