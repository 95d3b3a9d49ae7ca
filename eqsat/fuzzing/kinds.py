"""The kinds of cases, and what one is: a module of this room, or one of your own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from eqsat.errors import InputError, unknown
from eqsat.runs.task import Tell

KINDS = ("programs", "bundles", "large", "pieces", "mutants", "bombs", "misuse", "signals", "threads")


class Kind(Protocol):
    """A kind of cases. One whose cases consist of others has a function `parts`, too.

    Attributes:
        SECONDS, BYTES: limits of a case: wall-clock time, address space of its process.
    """

    SECONDS: float
    BYTES: int

    def steps(self, seed: int) -> int:
        """How many steps make the case of a seed: those that it does not need are left out to shrink it."""
        ...

    def case(self, seed: int, kept: Sequence[int] | None, models: Sequence[str]) -> Any:
        """The case of a seed, always the same.

        Args:
            kept: the steps that make it; all if None.
            models: ONNX files to cut pieces from.
        """
        ...

    def judge(self, case: Any, tell: Tell) -> str | Mapping[str, int]:
        """A word for the outcome, or how often each of them, if the case has parts.

        `tell("foreign")`: other code than eqsat runs from here on, whose crashes are no faults; `tell("")`: eqsat runs
        again.

        Raises:
            Fault: the answer is wrong. Any other exception is a fault, too.
        """
        ...

    def files(self, case: Any) -> dict[str, bytes]:
        """The case as files, by the ending of their names, for people to look at."""
        ...


_PARTS = ("SECONDS", "BYTES", "steps", "case", "judge", "files")
"""Of a module that is a `Kind`."""


def kind(name: str) -> Kind:
    """The kind of that name, or the module of that path.

    Raises:
        InputError: there is none, it is a module without cases, or Hypothesis is missing.
    """
    if name not in KINDS and not ("." in name and all(part.isidentifier() for part in name.split("."))):
        raise unknown("kind of cases", name, KINDS)
    try:
        module = importlib.import_module(name if "." in name else f"eqsat.fuzzing.{name}")
    except ModuleNotFoundError as error:
        if error.name == "hypothesis":
            raise InputError("fuzzing draws programs with Hypothesis's help; install eqsat[fuzz]") from None
        raise unknown("kind of cases", name, KINDS) from error
    lacks = sorted(part for part in _PARTS if not hasattr(module, part))
    if lacks:
        raise InputError(
            f"the module {name} is no kind of cases: it has no {lacks[0]}; eqsat/fuzzing/kinds.py says more"
        )
    return cast(Kind, module)


def parts(name: str, seed: int) -> list[tuple[str, int]]:
    """The cases that a case consists of, by kind and seed: if it has a fault, each of them is judged alone."""
    its = getattr(kind(name), "parts", None)
    return its(seed) if its else []


def one_piece(seed: int) -> int:
    """The `steps` of cases that are not shrunk."""
    return 0


def as_model(data: bytes) -> dict[str, bytes]:
    """The `files` of a case that is an ONNX file."""
    return {".onnx": data}


class Fault(Exception):
    """What is wrong with an answer."""
