"""Every exception that eqsat raises on purpose."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_WORD, _LINE = 240, 1200
"""Longest word and longest message, in characters, that are shown whole."""


def one_line(text: str) -> str:
    """A text that is safe to print on a terminal: one line, cut to length, without control, direction or unpaired
    characters.

    >>> one_line("a name with \\x1b[31m and a\\nsecond line")
    'a name with \\\\x1b[31m and a second line'
    """
    text = " ".join(text.split("\n"))
    if not text.isprintable():
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    if len(text) > _WORD:
        text = re.sub(rf"\S{{{_WORD},}}", lambda found: _cut(found[0], _WORD), text)
    return _cut(text, _LINE)


def escaped(value: Any) -> Any:
    """A text, or a report with every text in it, safe to print on one line of a terminal: names in models may hold any
    characters. Reports keep names unchanged; code that prints them for people calls this function.

    >>> escaped({"name": "a\\x1b[31m", "reads": ["b\\n"]})
    {'name': 'a\\\\x1b[31m', 'reads': ['b\\\\n']}
    """
    if isinstance(value, str):
        return value if value.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in value)
    if isinstance(value, Mapping):
        return {escaped(key): escaped(each) for key, each in value.items()}
    return [escaped(each) for each in value] if isinstance(value, list | tuple) else value


def _cut(text: str, most: int) -> str:
    """The text, or its beginning and end if it is too long."""
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 4 :]}"


class EqsatError(Exception):
    """Base of all errors of this package."""


class InputError(EqsatError):
    """Bad input. The message is one line: what is wrong, where, what to do. The command line exits with code 3.

    The message may quote arbitrary text from a file, so it is escaped and cut (`one_line`).
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


class ShapeError(InputError):
    """Shapes that an operator does not take. The message states the rule and the given shapes."""


class DtypeError(InputError, TypeError):
    """Element types that an operator does not take."""


class StoredError(DtypeError):
    """An element type that programs only store, given to an operator that computes."""


class NoAttributeError(InputError, AttributeError):
    """An attribute that a traced value does not have."""


class CheckFailed(EqsatError):
    """An optimised program disagrees with its source: a defect of eqsat, which is always reported."""


class CheckTooLarge(CheckFailed):
    """There is not enough memory to compare an optimised program with its source, so it is not returned."""


class CheckUndecided(CheckFailed):
    """There is not enough time to tell whether an optimised program agrees with its source, so it is not returned."""


def missing(error: Exception) -> str:
    """What an error says of a document: a KeyError names an entry that it lacks."""
    return f"there is no entry {error}" if isinstance(error, KeyError) else str(error)


def unknown(kind: str, name: str, valid: Iterable[str]) -> InputError:
    """The error for an unknown name; it suggests the nearest valid names.

    >>> str(unknown("device", "mi300", ["mi300x", "h100"]))
    "unknown device 'mi300': did you mean mi300x?"
    """
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return InputError(f"unknown {kind} {name!r}: did you mean {' or '.join(close)}?")
    return InputError(f"unknown {kind} {name!r}: the valid ones are {', '.join(names)}")


_PLAIN: Mapping[type[Exception], str] = {
    ZeroDivisionError: "it divides by zero",
    OverflowError: "a number is too large, or infinite",
    IndexError: "a list or an array is too short, or has too few dims",
}
"""What errors of Python mean to a reader of a message who does not know the code."""


@contextmanager
def refusing(where: Callable[[], str], let: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Guards code that reads untrusted input: any exception becomes an InputError.

    Args:
        where: gives the beginning of the message.
        let: exceptions that pass unchanged, besides errors of eqsat.
    """
    try:
        yield
    except (EqsatError, *let):
        raise
    except MemoryError as error:
        raise InputError(f"{where()}: takes more memory than there is") from error
    except RecursionError as error:
        raise InputError(f"{where()}: is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{where()}: holds a text that is not UTF-8 ({error.object[:40]!r}); correct it") from error
    except Exception as error:
        said = next((text for kind, text in _PLAIN.items() if isinstance(error, kind)), None)
        said = said or f"{type(error).__name__}: {str(error) or 'no message'}"
        raise InputError(f"{where()}: is malformed ({said}); check it with onnx.checker") from error
