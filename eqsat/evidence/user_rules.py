"""Rules of a user: a Python file with `RULES = [rule(...), ...]`, loaded, and checked before anything uses them.

from eqsat.rule import rule

RULES = [
    rule("relu-of-doubled", "relu(a * 2) == relu(a) * 2"),
]
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from eqsat.errors import EqsatError, InputError
from eqsat.evidence.judge import judge
from eqsat.language.rule import Rule
from eqsat.rules import ALL

_HELD = 100
"""More instances than our own rules get on every run: nobody has looked at these before."""


def load(path: str | Path) -> list[Rule]:
    """The rules of a file, each found sound on generated instances.

    Raises:
        InputError: as `read`; or a rule is wrong (with the counterexample), or never applies.
    """
    rows = read(path)
    for row in rows:
        _accept(row, path)
    return rows


def read(path: str | Path) -> list[Rule]:
    """The rules of a file, unchecked.

    Raises:
        InputError: the file cannot be run, does not define RULES, holds something else than rows of the rule language,
            or a name that is taken.
    """
    rows = getattr(_module(Path(path)), "RULES", None)
    if not isinstance(rows, list | tuple):
        raise InputError(f"{path}: defines no RULES; end it with RULES = [rule(...), ...]")
    names = {row.name for row in ALL}
    for row in rows:
        if not isinstance(row, Rule):
            raise InputError(f"{path}: RULES holds {row!r}; rows are made by eqsat.rule.rule(name, text, ...)")
        if row.name in names:
            raise InputError(f"{path}: a rule called {row.name!r} exists already; choose another name")
        names.add(row.name)
    return list(rows)


def _accept(row: Rule, path: str | Path) -> None:
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
    try:
        spec.loader.exec_module(module)
    except EqsatError as error:
        raise InputError(f"{path}: {error}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  the file is the user's: whatever it raises is bad input
        raise InputError(f"{path}: {type(error).__name__}: {error}") from None
    return module
