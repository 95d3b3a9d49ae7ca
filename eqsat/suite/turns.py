"""Turns on a GPU that several processes use: one that measures has it to itself, others share it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Turns:
    """Two locks in a folder. A process that ends, however it ends, gives them back.

    A process holds the first while it waits for the second, so that later ones cannot overtake one that measures.
    Without a folder, a process is taken to be the only one.
    """

    folder: Path | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """With the GPU to oneself."""
        with self._turn(fcntl.LOCK_EX):
            yield

    @contextmanager
    def shared(self) -> Iterator[None]:
        """With the GPU beside others that share it."""
        with self._turn(fcntl.LOCK_SH):
            yield

    @contextmanager
    def _turn(self, kind: int) -> Iterator[None]:
        if self.folder is None:
            yield
            return
        files = [os.open(self.folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o644) for name in ("queue", "turn")]
        try:
            queue, turn = files
            fcntl.flock(queue, fcntl.LOCK_EX)
            fcntl.flock(turn, kind)
            fcntl.flock(queue, fcntl.LOCK_UN)
            yield
        finally:
            for file in files:
                os.close(file)
