"""Processes beside this one that may be ended at any moment: started isolated, spoken to over pipes, kept in a pool.

A worker answers one request at a time, with any number of messages. Each request has a number, and each
message the number of its request, so that no answer is taken for the answer to another. A worker serves one thread at
a time. It ends when its pipe closes, so also when this process is killed.

    caller                          pool                      worker process
      lent(memory, ...)   ->  an idle worker, or a new one
      send(request)       ->  pipe  ->  reader thread  ->  service(request, send)
      receive(timeout)    <-  pipe  <-  messages
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import importlib
import os
import pickle
import queue
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from eqsat.base.files import open_stderr
from eqsat.base.interrupt import raise_lost_again
from eqsat.base.memory_limit import collector_paused
from eqsat.base.search_path import search_path
from eqsat.errors import InputError

_POLL_SECONDS = 0.1
"""Waits are this short: a signal that another thread received is acted on between two of them."""

_ENDING_SECONDS = 1.0
"""A process whose pipe has ended takes less than this to exit."""

ONE_THREAD: dict[str, str] = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""An environment for workers: where there is one for each processor, and so that sums are added up alike everywhere."""

serving = False
"""Whether this process is itself a worker."""


def processors() -> int:
    """Processors that this process may use; one in a worker, as each processor has a worker of its own."""
    if serving:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_PIPE_BYTES = 1 << 20
"""What a pipe may hold: the most that Linux allows without a privilege (pipe(7))."""

_HEADER = struct.Struct("<QQ")
"""Before each message: the number of its request, and its length in bytes."""

Send = Callable[[str, Any], None]
"""How a service answers: a kind of message, and its content."""

Service = Callable[[Any, Send], None]
"""Answers a request; whatever it raises is sent as a message of kind "error"."""

_LEFT_OUT = ("PYTHONPATH", "MALLOC_TRIM_THRESHOLD_")
"""Not for workers. Dask sets the second for its own: a process that computes would hand each array that it frees back
to the system, and take it again."""


class Worker:
    """A worker process, seen from its parent. One thread at a time uses it.

    Attributes:
        memory: bytes of address space that the process may take.
        holding: what it was told to keep ready, for those who lend it out to compare; None again after an error.
        answered: whether a message has come since the last request.
    """

    def __init__(self, service: str, memory: int, environment: Mapping[str, str] = {}) -> None:
        """`environment` is added to this process's own."""
        self.memory = memory
        self.holding: Any = None
        self.answered = False
        self._number = 0
        own, later = search_path()
        # -P and no PYTHONPATH: nothing comes from the current folder, which is searched last, and only for what
        # requests name. A session of its own: Ctrl-C goes to the parent alone, which decides what to do with it.
        script = (
            f"import sys; sys.path[:] = {own!a}; from eqsat.base.worker import serve; "
            f"serve({service!r}, {memory}, {later!a})"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what a buffer has read ahead, select would not see
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name not in _LEFT_OUT} | dict(environment),
        )

        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            _widen(pipe.fileno())

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, request: Any) -> None:
        """Ask for something; messages for earlier requests are dropped from now on.

        Raises:
            InputError: the request holds something that cannot be sent to another process.
            OSError: the worker has ended.
        """
        assert self._process.stdin is not None
        self._number += 1
        self.answered = False
        data = packed(request)
        try:
            _write(self._process.stdin, self._number, data)
        except (KeyboardInterrupt, OSError):
            self.kill()  # half a message would be taken for the start of the next
            raise

    def receive(self, timeout: float) -> tuple[str, Any] | None:
        """The next message that answers the last request; None when there is none in time.

        Raises:
            EOFError: the worker has died.
        """
        pipe = self._process.stdout
        assert pipe is not None
        deadline = time.monotonic() + timeout
        while True:
            ready, _, _ = select.select([pipe], [], [], min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
            if ready:
                number, data = _read(pipe)
                if number == self._number:
                    kind, content = pickle.loads(data)
                    self.answered = True
                    self.holding = None if kind == "error" else self.holding
                    return kind, content
            elif time.monotonic() >= deadline:
                return None

    def kill(self) -> None:
        """End the process at once."""
        self.end()
        self._close()

    def end(self) -> None:
        """The same from any thread: the one that uses this worker sees its pipe end."""
        self._process.kill()
        self._process.wait()

    def signal(self, number: int) -> None:
        """Send the process a signal, from any thread: the one that waits for an answer sees the pipe end."""
        self._process.send_signal(number)

    def ended(self) -> int:
        """The exit code of a process whose pipe has ended: ENOMEM where it ran out of memory, -N after signal N."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING_SECONDS)
        self.kill()
        return self._process.returncode

    def forget(self) -> None:
        """Let go of a process that is another's: a forked child shares the pipes of its parent, and nothing else."""
        self._process.returncode = 0  # nothing to wait for, nothing to kill
        self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.kill()


class Pool:
    """Workers for the threads of this process: each has one to itself while it needs it, at most `most` there are."""

    def __init__(self, service: str, most: int, environment: Mapping[str, str] = {}) -> None:
        self._service, self._most, self._environment = service, most, environment
        self._reset()
        _POOLS.append(self)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._idle: list[Worker] = []
        self._all: weakref.WeakSet[Worker] = weakref.WeakSet()

    @contextmanager
    def lent(self, memory: int, holding: Any, timeout: float) -> Iterator[Worker | None]:
        """A worker, if possible one that is `holding` what is needed; None when all are taken for `timeout` seconds."""
        worker = self._take(memory, holding, timeout)
        try:
            yield worker
        finally:
            if worker is not None:
                with self._changed:
                    if worker.alive:
                        self._idle.append(worker)
                    else:
                        self._all.discard(worker)
                    self._changed.notify()

    def _take(self, memory: int, holding: Any, timeout: float) -> Worker | None:
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                idle = [w for w in self._idle if w.memory == memory and w.alive]
                idle.sort(key=lambda w: w.holding != holding)
                if idle:
                    self._idle.remove(idle[0])
                    return idle[0]
                if len(self._all) >= self._most and self._idle:
                    self._end(self._idle.pop(0))
                if len(self._all) < self._most:
                    worker = Worker(self._service, memory, self._environment)
                    self._all.add(worker)
                    return worker
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(_POLL_SECONDS, left))

    def _end(self, worker: Worker) -> None:
        worker.kill()
        self._all.discard(worker)

    def is_holding(self, memory: int, holding: Any) -> bool:
        """Whether an idle worker is ready for requests of this kind."""
        with self._changed:
            return any(w.memory == memory and w.holding == holding for w in self._idle)

    def end_idle(self) -> None:
        """End the workers that nobody has."""
        with self._changed:
            while self._idle:
                self._end(self._idle.pop())

    def close(self) -> None:
        """End all workers. A thread that still uses one sees its pipe end."""
        with self._changed:
            while self._idle:
                self._end(self._idle.pop())
            for worker in list(self._all):
                worker.end()
                self._all.discard(worker)

    def forget(self) -> None:
        """In a forked child: leave the parent's workers alone, and start with none."""
        for worker in list(self._all):
            worker.forget()
        self._reset()


_POOLS: list[Pool] = []


@atexit.register
def _close_all() -> None:
    for pool in _POOLS:
        pool.close()


def _forget_all() -> None:
    for pool in _POOLS:
        pool.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def ending(code: int) -> str:
    """Why a process ended, by its exit code."""
    if code < 0:
        return signal.Signals(-code).name
    return "out of memory" if code == errno.ENOMEM else f"exit code {code}"


def packed(value: Any) -> bytes:
    """A value as it is sent.

    Raises:
        InputError: it holds something that cannot be sent to another process.
    """
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(f"{error}: functions of rules must stand at the top of a module") from None


def _widen(pipe: int) -> None:
    """Let a pipe hold most messages whole, where the system can: otherwise a process that sends one waits for the other
    to take it bit by bit, and that one may be busy."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _write(pipe: Any, number: int, data: bytes) -> None:
    rest = memoryview(_HEADER.pack(number, len(data)) + data)
    while rest:
        rest = rest[pipe.write(rest) :]
    pipe.flush()


def _read(pipe: Any) -> tuple[int, bytearray]:
    """A message, undecoded, after the number of its request. EOFError when the pipe ends before."""
    number, length = _HEADER.unpack(_read_exactly(pipe, _HEADER.size))
    return number, _read_exactly(pipe, length)


def _read_exactly(pipe: Any, length: int) -> bytearray:
    data = bytearray(length)
    rest = memoryview(data)
    while rest:
        if not (count := pipe.readinto(rest)):
            raise EOFError
        rest = rest[count:]
    return data


def serve(service: str, memory: int, later: list[str]) -> None:
    """Answer requests on standard input until it closes. Runs in the worker.

    Args:
        service: `module:class`; an instance is the `Service`.
        memory: bytes of address space that this process may take, within what its parent may.
        later: folders to look for modules in once the service is loaded.
    """
    try:
        _serve(service, memory, later)
    except MemoryError:
        os._exit(errno.ENOMEM)  # an orderly exit takes memory, too, and waits for the thread that listens


def _serve(service: str, memory: int, later: list[str]) -> None:
    import resource

    global serving
    serving = True
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    memory = memory if most == resource.RLIM_INFINITY else min(memory, most)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    open_stderr()
    raise_lost_again()
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not mix with the replies
    requests: queue.SimpleQueue[tuple[int, bytearray]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    answer: Service | None = None
    with contextlib.suppress(Exception):  # the first request loads it again, and is told what failed
        answer = _loaded(service, later)
    while True:
        number, data = requests.get()

        def send(kind: str, content: Any, number: int = number) -> None:
            _write(replies, number, pickle.dumps((kind, content), protocol=pickle.HIGHEST_PROTOCOL))

        try:
            if answer is None:
                answer = _loaded(service, later)
            with collector_paused():
                answer(pickle.loads(data), send)
        except MemoryError:
            raise
        except BrokenPipeError:
            return
        except BaseException as error:  # noqa: BLE001  every failure must reach the parent, panics of compiled code too
            send("error", f"{type(error).__name__}: {error}")


def _loaded(service: str, later: list[str]) -> Service:
    module, name = service.split(":")
    with collector_paused():
        found = getattr(importlib.import_module(module), name)()
    sys.path += later
    return found


def _listen(requests: queue.SimpleQueue[tuple[int, bytearray]]) -> None:
    """Pass on requests, and end the process with the parent that sends them, whatever it is at."""
    try:
        while True:
            requests.put(_read(sys.stdin.buffer))
    except MemoryError:
        os._exit(errno.ENOMEM)
    finally:
        os._exit(0)
