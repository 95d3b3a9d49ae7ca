"""Ctrl-C that is answered while compiled code runs, and work that is given up when its time is over."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 0.5
"""How long work that was told to stop may take, by default, to hand over what it has."""


class _GivenUp(BaseException):
    """Raised inside work that nobody waits for any more."""


class Interruptible:
    """Runs work on a thread of its own, so that Ctrl-C reaches Python while a solver is inside compiled code.

    Python handles signals on the main thread between bytecodes; a solver call there would delay them until it returns.
    Work that is given up ends at its next bytecode: it would take processor time from what comes after it.

    Attributes:
        interrupted: whether Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        self.interrupted = False

    def stopped(self) -> bool:
        """For the work to poll: whether it should hand over what it has."""
        return self.interrupted

    def run(
        self, work: Callable[[], T], otherwise: S, grace: float = _GRACE_SECONDS, seconds: float | None = None
    ) -> T | S:
        """The result of `work`; `otherwise` where it takes longer than `seconds`, or was interrupted and did not end
        within `grace` seconds.

        Raises:
            Whatever `work` raises.
        """
        if seconds is not None and seconds <= 0:
            return otherwise
        results: list[T] = []
        errors: list[BaseException] = []

        def body() -> None:
            try:
                results.append(work())
            except _GivenUp:
                pass
            except BaseException as error:  # noqa: BLE001  handed to the caller's thread
                errors.append(error)

        ends = None if seconds is None else time.monotonic() + seconds
        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        try:
            while thread.is_alive() and (ends is None or time.monotonic() < ends):
                thread.join(_POLL_SECONDS)
        except KeyboardInterrupt:
            self.interrupted = True
            thread.join(grace)
        if thread.is_alive():
            _give_up(thread)
        if errors:
            raise errors[0]
        return results[0] if results else otherwise


def _give_up(thread: threading.Thread) -> None:
    """End a thread at its next bytecode."""
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_GivenUp))
