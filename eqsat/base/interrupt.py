"""Ctrl-C that works while compiled code runs, and work that is abandoned when its time is up."""

from __future__ import annotations

import atexit
import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

S = TypeVar("S")
T = TypeVar("T")

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 0.5
"""Seconds that work may take, by default, to return what it has after it was told to stop."""

_SOON_SECONDS = 0.001
"""Until an exception that was lost is raised again: by then, what lost it has most often ended."""

_LEAVING_SECONDS = 10.0
"""Most seconds that Python waits at its end for compiled code in abandoned work."""

_abandoned: WeakSet[threading.Thread] = WeakSet()
_stops: dict[int, Callable[[], None]] = {}
"""What ends the compiled code that a thread is in, by the identity of the thread."""


class _GivenUp(BaseException):
    """Raised inside abandoned work to end it."""


class Interruptible:
    """Runs work on a separate thread, so that Ctrl-C reaches Python while a solver is inside compiled code.

    Python handles signals on the main thread between bytecodes, so a solver call on that thread would delay them until
    it returns. Abandoned work is ended at its next bytecode; otherwise it would keep using processor time.

    Attributes:
        interrupted: whether Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        self.interrupted = False

    def stopped(self) -> bool:
        """Polled by the work: whether it should stop and return what it has."""
        return self.interrupted

    def run(
        self, work: Callable[[], T], otherwise: S, grace: float = _GRACE_SECONDS, seconds: float | None = None
    ) -> T | S:
        """The result of `work`, or `otherwise` if it takes longer than `seconds` or does not end within `grace` seconds
        after an interrupt.

        Raises:
            Whatever `work` raises.
        """
        if seconds is not None and seconds <= 0:
            return otherwise
        results: list[T] = []
        errors: list[BaseException] = []
        done = threading.Event()

        def body() -> None:
            try:
                results.append(work())
            except _GivenUp:
                pass
            except BaseException as error:  # noqa: BLE001  passed on to the caller's thread
                errors.append(error)
            finally:
                done.set()

        ends = None if seconds is None else time.monotonic() + seconds
        thread = threading.Thread(target=body, daemon=True)
        try:
            thread.start()  # inside: Ctrl-C may come while it waits for the thread to begin
            while not done.wait(_POLL_SECONDS) and (ends is None or time.monotonic() < ends):
                pass
        except KeyboardInterrupt:
            self.interrupted = True
            done.wait(grace)
        finally:  # this work may itself be given up
            if not done.is_set():
                _give_up(thread)
        if errors:
            raise errors[0]
        return results[0] if results else otherwise


@contextmanager
def ended_by(stop: Callable[[], None]) -> Iterator[None]:
    """While the block runs, `stop` ends the compiled code in it once the work that it is part of is abandoned."""
    _stops[threading.get_ident()] = stop
    try:
        yield
    finally:
        del _stops[threading.get_ident()]


def _give_up(thread: threading.Thread) -> None:
    """End a thread at its next bytecode. One that has not begun has no identity yet; its work is told to stop."""
    if thread.ident is None:
        return
    _abandoned.add(thread)
    if stop := _stops.get(thread.ident):
        stop()
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_GivenUp))


def raise_lost_again() -> None:
    """From now on, an exception that is to end work is raised again soon after Python has ignored it.

    A signal or the end of abandoned work may come while a destructor or the callback of a weak reference runs. Python
    prints and ignores all that is raised there: Ctrl-C would have no effect.
    """
    sys.unraisablehook = _raise_again


def _raise_again(lost: UnraisableHookArgs) -> None:
    thread = threading.current_thread()
    if lost.exc_type is _GivenUp:
        threading.Timer(_SOON_SECONDS, _give_up, [thread]).start()
        return
    error = lost.exc_value
    ends = isinstance(error, KeyboardInterrupt | SystemExit)
    if not ends or thread is not threading.main_thread() or not hasattr(signal, "setitimer"):
        sys.__unraisablehook__(lost)
        return
    kind, values = type(error), error.args  # not the error itself: its trace holds on to what is being dropped

    def raised(number: int, frame: FrameType | None) -> NoReturn:
        raise kind(*values)

    signal.signal(signal.SIGALRM, raised)
    signal.setitimer(signal.ITIMER_REAL, _SOON_SECONDS)


@atexit.register
def await_abandoned() -> None:
    """Wait for compiled code in abandoned work. Python ends threads that return from it too late, and where that code
    is C++ the whole process with them."""
    ends = time.monotonic() + _LEAVING_SECONDS
    for thread in tuple(_abandoned):
        thread.join(max(0.0, ends - time.monotonic()))
