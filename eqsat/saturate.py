"""Saturation: apply rules until nothing changes or a limit is met, in a process that can be stopped at any moment.

egglog knows no limit of time or memory inside an iteration, and a failed allocation aborts its process. So it runs in a
worker that sends checkpoints; whatever happens to the worker, the parent goes on with the last one. One worker serves
many requests, so that only the first pays for starting it.
"""

from __future__ import annotations

import atexit
import pickle
import select
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eqsat.errors import EqsatError
from eqsat.rule import AnyRule, HostRule
from eqsat.snapshot import Snapshot

if TYPE_CHECKING:
    from eqsat.egraph import EGraph

_CHECKPOINT_SECONDS = 0.25
_SMALL = 500
"""E-nodes up to which every iteration ends with a checkpoint."""

_POLL_SECONDS = 0.1
_GROUP_ROUNDS = 3
_HEADER = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop: wall-clock seconds, e-nodes, bytes of address space of the worker, and iterations."""

    seconds: float = 10.0
    nodes: int = 30_000
    memory: int = 3 << 30
    iterations: int | None = None


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
) -> Snapshot:
    """The e-graph of `source` under `rules`.

    `goals` are pairs of positions in the roots: once both of each pair are one class, saturation ends with stop `goal`.

    `stats["stop"]` says why it ended: `saturated`, `goal`, `time`, `nodes`, `steps` (iterations), `memory` or
    `interrupted` (Ctrl-C; the snapshot is then the last checkpoint, at worst the source itself).

    Raises:
        EqsatError: a rule merged two classes that cannot be equal, or failed.
    """
    limits = limits or Limits()
    begun = time.monotonic()
    best = source
    best.stats = {"iterations": 0, "matches": {}}
    if limits.seconds <= 0:
        best.stats |= {"stop": "time", "seconds": 0.0}
        return best
    worker = _Worker.get(limits.memory)
    stop, finished = "memory", False  # a worker that ends without a word was killed by its memory limit
    try:
        worker.send((source, tuple(rules), limits, tuple(goals)))
        while True:
            left = limits.seconds - (time.monotonic() - begun)
            message = worker.receive(max(left, 0.0))
            if message is None:
                stop = "time"
                break
            kind, content = message
            if kind == "error":
                raise EqsatError(content)
            if kind in ("checkpoint", "done"):
                best = content
            if kind == "progress" and progress is not None:
                progress(content)
            if kind == "done":
                stop = best.stats["stop"]
                finished = True
                break
    except KeyboardInterrupt:
        stop = "interrupted"
    except (EOFError, BrokenPipeError):
        pass
    finally:
        if not finished:
            worker.kill()
    best.stats |= {"stop": stop, "seconds": time.monotonic() - begun}
    return best


class _Worker:
    """The worker process, seen from the parent: pickled messages over pipes, each after its length."""

    _current: _Worker | None = None

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.declared: tuple[AnyRule, ...] | None = None
        # Its own session: Ctrl-C goes to the parent alone, which decides what to do with what there is.
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from eqsat.saturate import serve; serve({memory})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what a buffer has read ahead, select would not see
            start_new_session=True,
        )

    @classmethod
    def get(cls, memory: int) -> _Worker:
        """The running worker, or a new one."""
        worker = cls._current
        if worker is None or worker._process.poll() is not None or worker.memory != memory:
            if worker is not None:
                worker.kill()
            worker = cls._current = cls(memory)
        return worker

    def send(self, message: Any) -> None:
        assert self._process.stdin is not None
        try:
            _write(self._process.stdin, message)
        except (KeyboardInterrupt, OSError):
            self.kill()  # half a message would be taken for the start of the next
            raise

    def receive(self, timeout: float) -> Any:
        """The next message; None when there is none in time. EOFError when the worker has died."""
        pipe = self._process.stdout
        assert pipe is not None
        deadline = time.monotonic() + timeout
        while True:
            # In short waits: a signal that another thread received is acted on between two of them.
            ready, _, _ = select.select([pipe], [], [], min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
            if ready:
                return _read(pipe)
            if time.monotonic() >= deadline:
                return None

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if _Worker._current is self:
            _Worker._current = None


def warm_up(rules: Sequence[AnyRule], memory: int = Limits().memory) -> None:
    """Start the worker ahead of its first request: it loads egglog and declares the rules while the caller goes on."""
    worker = _Worker.get(memory)
    if worker.declared != tuple(rules):
        worker.declared = tuple(rules)
        worker.send((None, worker.declared, None, ()))


@atexit.register
def _kill_worker() -> None:
    if _Worker._current is not None:
        _Worker._current.kill()


def _write(pipe: Any, message: Any) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    rest = memoryview(_HEADER.pack(len(data)) + data)
    while rest:
        rest = rest[pipe.write(rest) :]
    pipe.flush()


def _read(pipe: Any) -> Any:
    (length,) = _HEADER.unpack(_read_exactly(pipe, _HEADER.size))
    return pickle.loads(_read_exactly(pipe, length))


def _read_exactly(pipe: Any, length: int) -> bytes:
    """That many bytes from a pipe that gives what it has; EOFError when it ends before."""
    data = bytearray()
    while len(data) < length:
        part = pipe.read(length - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def serve(memory: int) -> None:
    """Answer requests on standard input until it closes. Runs in the worker."""
    import os
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # egglog's own prints must not mix with the replies
    declared: tuple[AnyRule, ...] | None = None
    graph: EGraph | None = None

    def send(kind: str, content: Any) -> None:
        _write(replies, (kind, content))

    while True:
        try:
            source, rules, limits, goals = _read(requests)
        except EOFError:
            return
        try:
            if graph is None or rules != declared:
                from eqsat.egraph import EGraph  # once a request is read: its sender need not wait for this

                graph, declared = EGraph(rules), rules
            if source is not None:
                with graph.scratch():
                    snapshot = Saturation(source, rules, limits, send, goals, graph).run()
                send("done", snapshot)
        except MemoryError:
            return
        except Exception as error:  # noqa: BLE001  every failure must reach the parent as a message
            graph = None
            if source is not None:  # else the request itself will meet the error again
                send("error", f"saturation failed: {type(error).__name__}: {error}")


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
    ) -> None:
        if graph is None:
            from eqsat.egraph import EGraph

            graph = EGraph(rules)
        self._graph = graph
        self._graph.insert_source(source)
        self._limits, self._send, self._goals = limits, send, goals
        self._begun = self._sent = time.monotonic()
        self._iterations = 0
        self._growth = [(source.n_classes, len(source.nodes))]
        self._matches: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._new_matches: list[dict[str, int]] = [{}]
        self._seconds: dict[str, float] = {}
        self._stop = "saturated"
        self._snapshot = source
        host = [r for r in rules if isinstance(r, HostRule)]
        self._always = [r for r in host if r.phase == "algebra"]
        self._first = [r for r in host if r.phase == "before-groups"]
        self._groups = [r for r in host if r.phase == "groups"]

    def run(self) -> Snapshot:
        """The saturated e-graph, or as far as the limits allow."""
        open_ended = self._fixpoint(self._always + self._first)
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
        before = None
        while True:
            frozen = self._step()
            size = (self._snapshot.n_classes, len(self._snapshot.nodes))
            if self._reached():
                self._stop = "goal"
                return False
            if size[1] > self._limits.nodes:
                self._stop = "nodes"
                return False
            if self._iterations == self._limits.iterations:
                self._stop = "steps"
                return False
            if time.monotonic() - self._begun > self._limits.seconds:
                self._stop = "time"
                return False
            rows = self._timed("tables", lambda frozen=frozen: self._graph.fill_tables(frozen))
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

    def _step(self) -> Any:
        """One iteration of the rules that egglog runs, and the snapshot after it."""
        self._iterations += 1
        graph = self._graph
        self._timed("egglog", lambda: graph.run("analysis", saturate=True))
        self._matches.update(self._timed("egglog", lambda: graph.run("simplify", saturate=True)))
        self._matches.update(self._timed("egglog", lambda: graph.run("algebra")))
        self._timed("egglog", lambda: graph.run("analysis", saturate=True))
        self._timed("egglog", lambda: graph.run("demand"))
        frozen = self._timed("snapshots", graph.freeze)
        self._snapshot = self._timed("snapshots", lambda: graph.snapshot(frozen))
        self._growth.append((self._snapshot.n_classes, len(self._snapshot.nodes)))
        seen = Counter(self._fired())
        self._new_matches.append(dict(seen - self._seen))
        self._seen = seen
        return frozen

    def _fired(self) -> dict[str, int]:
        """Matches of each rule so far; what rules ask of tables is not among them."""
        return {name: n for name, n in sorted(self._matches.items()) if n and " asks " not in name}

    def _ask_host(self, rules: Sequence[HostRule]) -> list[tuple[str, int, Any]]:
        """What the host's rules find to be equal and the snapshot does not know yet."""
        from eqsat.terms import Terms

        terms = Terms(self._snapshot)
        found: list[tuple[str, int, Any]] = []
        for row in rules:
            name, count = row.name, len(found)
            row.apply(terms, lambda cls, term, name=name: found.append((name, cls, term)) if term != cls else None)
            self._matches[name] += len(found) - count
        return found

    def _timed(self, what: str, action: Callable[[], Any]) -> Any:
        begun = time.monotonic()
        result = action()
        self._seconds[what] = self._seconds.get(what, 0.0) + time.monotonic() - begun
        return result

    def _describe(self) -> None:
        self._snapshot.stats = {
            "iterations": self._iterations,
            "growth": list(self._growth),
            "new_matches": list(self._new_matches),
            "matches": {name: n for name, n in sorted(self._matches.items()) if n},
            "stages": {name: round(s, 4) for name, s in sorted(self._seconds.items())},
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
