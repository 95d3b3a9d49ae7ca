"""Tasks and their outcomes: work that any process can do, on this machine or another, with the same result."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from eqsat.base.version import version as own_version

Tell = Callable[[str], None]
"""A task calls it with its current stage, which is reported if its process dies."""

Work = Callable[[Mapping[str, Any], Tell], Any]
"""What a task names: takes what the task is given, and returns a value that JSON can hold.

It must be deterministic: the same value whatever the process did before, and wherever it runs.
"""

_LIBRARIES = ("numpy", "egglog", "highspy", "onnx", "onnxruntime")
"""Results depend on these."""


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work.

    Attributes:
        name: for people; unique in a run.
        work: `module:function`, a `Work`.
        given: what it takes, as JSON holds it: seeds, options, digests of files.
        seconds: wall-clock seconds after which its process is ended.
        memory: bytes of address space that its process may take.
        places: further arguments that its result does not depend on: where files are.
    """

    name: str
    work: str
    given: Mapping[str, Any]
    seconds: float
    memory: int
    places: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What the result depends on, as a digest: the work, what it is given, and the code that does it."""
        text = json.dumps([build(), self.work, self.given], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task.

    Attributes:
        value: its result as JSON text; None where it failed.
        failure: why it failed, in one line; empty where it did not.
        stage: the last one that it told.
        trace: the traceback of what it raised, if that is how it failed.
        seconds: how long the last try took.
        tries: how many processes tried.
    """

    value: str | None
    failure: str = ""
    stage: str = ""
    trace: str = ""
    seconds: float = 0.0
    tries: int = 1

    @property
    def result(self) -> Any:
        """The value, read."""
        return None if self.value is None else json.loads(self.value)


@cache
def build() -> str:
    """A digest of this eqsat and of the libraries that results depend on: equal digests give equal results."""
    found = hashlib.sha256(own_version().encode())
    home = Path(__file__).parents[1]
    for folder, folders, files in os.walk(home, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            path = Path(folder, name)
            found.update(path.relative_to(home).as_posix().encode())
            found.update(path.read_bytes())
    for library in _LIBRARIES:
        found.update(_version(library).encode())
    return found.hexdigest()


def _version(library: str) -> str:
    try:
        return f"{library} {version(library)}"
    except PackageNotFoundError:
        return library
