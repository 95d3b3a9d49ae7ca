"""Ctrl-C that is answered while compiled code runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 0.5
"""How long work that was told to stop may take, by default, to hand over what it has."""


class Interruptible:
    """Runs work on a thread of its own, so that Ctrl-C reaches Python while a solver is inside compiled code.

    Python handles signals on the main thread between bytecodes; a solver call there would delay them until it returns.

    Attributes:
        interrupted: whether Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        self.interrupted = False

    def stopped(self) -> bool:
        """For the work to poll: whether it should hand over what it has."""
        return self.interrupted

    def run(self, work: Callable[[], T], otherwise: S, grace: float = _GRACE_SECONDS) -> T | S:
        """The result of `work`; `otherwise` where it was interrupted and did not end within `grace` seconds.

        Raises:
            Whatever `work` raises.
        """
        results: list[T] = []
        errors: list[BaseException] = []

        def body() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001  handed to the caller's thread
                errors.append(error)

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_POLL_SECONDS)
        except KeyboardInterrupt:
            self.interrupted = True
            thread.join(grace)
        if errors:
            raise errors[0]
        return results[0] if results else otherwise
