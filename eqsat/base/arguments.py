"""Checks of user arguments. Each raises an InputError that states what was expected and what was given."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from operator import index
from typing import Any

from eqsat.errors import EqsatError, InputError, one_line

PLACES = ("numpy", "simt", "gpu")
"""Where a compiled program runs: NumPy, the CPU checker of the kernels, or a GPU."""


LONGEST = threading.TIMEOUT_MAX / 2
"""Seconds of the longest limit: threads cannot wait for much more. Longer ones are as good as this."""


def shown(value: object) -> str:
    """A short text for a value in an error message, on one line; arrays show only their shape and dtype."""
    try:
        return one_line(_text(value))
    except Exception:  # noqa: BLE001  a class may describe itself wrongly, a list be nested too deeply
        return f"an object of type {type(value).__name__}"


def _text(value: object) -> str:
    if like_array(value):
        return f"{type(value).__name__} of shape {value.shape} and dtype {value.dtype}"  # type: ignore[attr-defined]
    if isinstance(value, list | tuple) and any(hasattr(v, "shape") for v in value):
        return f"[{', '.join(map(shown, value))}]"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({type(value).__name__})"


def like_array(value: object) -> bool:
    """Whether a value has a shape and an element type. A module of functions has them by name only."""
    return isinstance(getattr(value, "shape", None), Iterable) and hasattr(value, "dtype")


def function_of(what: str, value: Any, takes: Sequence[str]) -> None:
    """Raises InputError unless the value is a function that can be called with so many arguments.

    Some of C say nothing of their arguments, and are taken; classes that say nothing are not.
    """
    try:
        inspect.signature(value).bind(*takes)
    except ValueError:
        fits = not isinstance(value, type)
    except TypeError:
        fits = False
    else:
        fits = True
    if not fits:
        raise InputError(f"{what} {shown(value)}: expected a function of {' and '.join(takes)}")


def instance(what: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    """Raises InputError unless the value is an instance of `kind`."""
    if not isinstance(value, kind):
        raise InputError(f"{what} takes {expected}, got {shown(value)}")


def integer(value: Any) -> int | None:
    """The value as an int if it is a whole number, Python's or NumPy's; None for all else, such as True and 1.0."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        return None
    try:
        return index(value)
    except TypeError:  # an array of several elements, or NumPy's True
        return None


def real(value: Any) -> float | None:
    """The value as a float if it is a real number, Python's or NumPy's; None for all else: True, and 10**400."""
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None
    except OverflowError:
        return None


def flag(what: str, value: Any) -> bool:
    """The value as a bool; only Python's and NumPy's are taken."""
    import numpy as np  # not at the top: a worker is started before anything large is loaded

    instance(what, value, (bool, np.bool_), "True or False")
    return bool(value)


def no_subclass(what: str, value: Any) -> None:
    """Raises InputError for arrays of NumPy that compute in another way than programs do, which would be silent."""
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{what} is a masked array, and its mask would be lost: fill it first, as x.filled(0) does")
    if isinstance(value, np.matrix):
        raise InputError(f"{what} is a numpy.matrix, and its * would be elementwise: use np.asarray(x)")


def whole(what: str, value: Any, least: int) -> int:
    """The value as a whole number of at least `least`; True and 1.0 are rejected."""
    number = integer(value)
    if number is None or number < least:
        raise InputError(f"{what} {shown(value)}: expected a whole number, at least {least}")
    return number


def seconds(what: str, value: Any) -> float:
    """A number of seconds, at least 0; of those beyond `LONGEST`, that one."""
    number = real(value) if integer(value) is None else integer(value)
    if number is None or not number >= 0:
        raise InputError(f"{what} {shown(value)}: expected seconds, at least 0")
    return float(min(number, LONGEST))


def text(what: str, value: Any, *, empty: bool = False) -> None:
    """Raises InputError unless the value is a text that can be written: without half characters (lone surrogates)."""
    instance(what, value, str, "a text")
    if not (value or empty) or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"{what} {shown(value)}: expected a text {'' if empty else 'that is not empty, '}in Unicode")


def shape(what: str, value: Any, least: int = 0) -> tuple[int, ...]:
    """The value as a shape: one dim or a sequence of dims, each a whole number of at least `least`."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return tuple(whole(f"{what}: a dim of {shown(value)}:", n, least) for n in value)
    return (whole(what, value, least),)


def choice(what: str, value: Any, valid: Iterable[str]) -> None:
    """Raises InputError unless the value is one of the valid words."""
    words = list(valid)
    if not isinstance(value, str) or value not in words:
        raise InputError(f"{what} {shown(value)} is none of {', '.join(words)}")


def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a NumPy-style function: wrong arguments raise InputError, or TypeError if they do not fit its signature.

    Only for functions that build terms and do nothing else, so that any exception is due to the arguments.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except EqsatError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            given = ", ".join([*map(shown, args), *(f"{key}={shown(value)}" for key, value in kwargs.items())])
            kind = TypeError if isinstance(error, TypeError) else InputError
            said = " ".join(str(error).split())
            raise kind(one_line(f"{name}{_parameters(function)} does not take ({given}): {said}")) from error

    return call


def _parameters(function: Callable[..., Any]) -> str:
    """The parameters of a function without their types."""
    parameters = [p.replace(annotation=p.empty) for p in inspect.signature(function).parameters.values()]
    return str(inspect.Signature(parameters))
