"""Every exception that eqsat raises on purpose."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EqsatError(Exception):
    """Base of all errors of this package."""


class InputError(EqsatError):
    """Bad input. The message is one line: what is wrong, where, what to do. The command line exits with code 3."""


class ShapeError(InputError):
    """Shapes that an operator does not take. The message states the rule and the shapes it got."""


class DtypeError(InputError, TypeError):
    """Element types that an operator does not take."""


class StoredError(DtypeError):
    """An element type that programs store but do not compute with, where an operator computes."""


class CheckFailed(EqsatError):
    """An optimised program disagreed with its source: a defect of eqsat, never silently passed on."""


def unknown(kind: str, name: str, valid: Iterable[str]) -> InputError:
    """The error for a name that does not exist: it answers with the nearest valid ones.

    >>> str(unknown("device", "mi300", ["mi300x", "h100"]))
    "unknown device 'mi300': did you mean mi300x?"
    """
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return InputError(f"unknown {kind} {name!r}: did you mean {' or '.join(close)}?")
    return InputError(f"unknown {kind} {name!r}: the valid ones are {', '.join(names)}")
