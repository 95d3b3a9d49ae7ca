"""Every exception that eqsat raises on purpose."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_WORD, _LINE = 240, 1200
"""Characters of a word and of a message that are shown whole."""


def one_line(text: str) -> str:
    """A text that a terminal shows as it stands: no control, direction or unpaired characters, one line, cut.

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
    """A text, or a report with every text in it, as a terminal shows it in one line: what models call things may hold
    anything. Reports keep names as they are; what prints them for people goes through here.

    >>> escaped({"name": "a\\x1b[31m", "reads": ["b\\n"]})
    {'name': 'a\\\\x1b[31m', 'reads': ['b\\\\n']}
    """
    if isinstance(value, str):
        return value if value.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in value)
    if isinstance(value, Mapping):
        return {escaped(key): escaped(each) for key, each in value.items()}
    return [escaped(each) for each in value] if isinstance(value, list | tuple) else value


def _cut(text: str, most: int) -> str:
    """The beginning and the end of a text that is too long."""
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 4 :]}"


class EqsatError(Exception):
    """Base of all errors of this package."""


class InputError(EqsatError):
    """Bad input. The message is one line: what is wrong, where, what to do. The command line exits with code 3.

    What the message quotes may be anything that a file holds: it is escaped and cut (`one_line`).
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


class ShapeError(InputError):
    """Shapes that an operator does not take. The message states the rule and the shapes it got."""


class DtypeError(InputError, TypeError):
    """Element types that an operator does not take."""


class StoredError(DtypeError):
    """An element type that programs store but do not compute with, where an operator computes."""


class CheckFailed(EqsatError):
    """An optimised program disagreed with its source: a defect of eqsat, never silently passed on."""


class CheckTooLarge(CheckFailed):
    """An optimised program cannot be compared with its source in the memory that there is: it is not returned."""


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


@contextmanager
def refusing(where: Callable[[], str], let: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """The boundary around code that reads what somebody else wrote: whatever it raises becomes an InputError.

    Args:
        where: what the message begins with.
        let: what passes as it is, besides errors of eqsat.
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
        said = f"{type(error).__name__}: {str(error) or 'no message'}"
        raise InputError(f"{where()}: is malformed ({said}); check it with onnx.checker") from error
