"""Rules of a user: a Python file with `RULES = [rule(...), ...]`, loaded, and checked before anything uses them.

from eqsat.rule import rule

RULES = [
    rule("relu-of-doubled", "relu(a * 2) == relu(a) * 2"),
]
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from eqsat.base.interrupt import Interruptible
from eqsat.errors import EqsatError, InputError
from eqsat.evidence.judge import judge
from eqsat.language.rule import Rule
from eqsat.rules import ALL, EXPLORING

_HELD = 100
"""More instances than our own rules get on every run: nobody has looked at these before."""


def load(path: str | Path, seconds: float | None = None) -> list[Rule]:
    """The rules of a file, each found sound on generated instances.

    Args:
        seconds: how long running the file and judging its rules may take.

    Raises:
        InputError: as `read`; or a rule is wrong (with the counterexample), or never applies; or time is up.
        KeyboardInterrupt: Ctrl-C, which is heard at once, whatever the file is at.
    """
    run = Interruptible()
    rows = run.run(lambda: _accepted(path), None, seconds=seconds)
    if run.interrupted:
        raise KeyboardInterrupt
    if rows is None:
        raise InputError(f"{path}: its rules could not be checked within {seconds:.3g} s; raise --time-limit")
    return rows


def read(path: str | Path) -> list[Rule]:
    """The rules of a file, unchecked.

    Raises:
        InputError: the file cannot be run, does not define RULES, holds something else than rows of the rule language,
            or a name that is taken.
    """
    module = _module(Path(path))
    with _code_of(path):
        found = getattr(module, "RULES", None)
        rows = list(found) if isinstance(found, list | tuple) else None
    if rows is None:
        raise InputError(f"{path}: defines no RULES; end it with RULES = [rule(...), ...]")
    names = {row.name for row in [*ALL, *EXPLORING]}
    for row in rows:
        if type(row) is not Rule:
            raise InputError(
                f"{path}: RULES holds {_text(row, repr)}; rows are made by eqsat.rule.rule(name, text, ...)"
            )
        if row.name in names:
            raise InputError(f"{path}: a rule called {row.name!r} exists already; choose another name")
        names.add(row.name)
    return rows


def _accepted(path: str | Path) -> list[Rule]:
    rows = read(path)
    for row in rows:
        _accept(row, path)
    return rows


def _accept(row: Rule, path: str | Path) -> None:
    with _code_of(path):  # a row may have been made by other means than `rule`
        seen = judge(row, held=_HELD)
    if seen.verdict == "unsound":
        raise InputError(f"{path}: rule {row.name!r} ({row.numerics}) is wrong {seen.counterexample}")
    if seen.verdict == "not seen":
        raise InputError(
            f"{path}: rule {row.name!r} cannot be checked: its guard held on none of {seen.drawn} generated instances"
        )


def _module(path: Path) -> ModuleType:
    if not path.is_file():
        there = "is a folder; give a Python file (*.py)" if path.is_dir() else "no such file; check the path"
        raise InputError(f"{path}: {there}")
    spec = importlib.util.spec_from_file_location(f"eqsat_user_rules_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: is no Python file; rules are written in one (*.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as an import does: dataclasses look their module up
    with _code_of(path):
        spec.loader.exec_module(module)
    if sys.stdout.closed:
        raise InputError(f"{path}: closes stdout, where the answer goes")
    return module


@contextmanager
def _code_of(path: str | Path) -> Iterator[None]:
    """While the block runs code of a user's file, whatever it raises is bad input.

    Raises:
        InputError: in its place.
        KeyboardInterrupt: as it is.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except EqsatError as error:
        raise InputError(f"{path}: {_text(error)}") from None
    except BaseException as error:  # noqa: BLE001  the file may define what it raises, and raise anything
        raise InputError(f"{path}: {type(error).__name__}: {_text(error)}") from None


def _text(thing: Any, written: Callable[[Any], str] = str) -> str:
    """An object of a user's file in words, which are its own code."""
    try:
        return written(thing)
    except Exception:  # noqa: BLE001  as above
        return f"{type(thing).__name__} without a text"
