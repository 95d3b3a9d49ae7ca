"""Deep recursion without Python's call stack, which is limited to a thousand calls.

Recursive functions are written as generators that yield the calls they wait for:

>>> def depth(tree):
...     deepest = 0
...     for part in tree:
...         deepest = max(deepest, (yield depth(part)))
...     return 1 + deepest
>>> nested = []
>>> for _ in range(10_000):
...     nested = [nested]
>>> run(depth(nested))
10001
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")

Call = Generator["Call[Any]", Any, T]
"""A running function: it yields calls, is sent their results, and returns its own."""


def run(call: Call[T]) -> T:
    """The result of a call. An exception in a nested call is raised in its caller, at the yield."""
    stack: list[Call[Any]] = [call]
    result: Any = None
    error: Exception | None = None
    while stack:
        try:
            stack.append(stack[-1].send(result) if error is None else stack[-1].throw(error))
            result = error = None
        except StopIteration as end:
            stack.pop()
            result, error = end.value, None
        except Exception as raised:  # noqa: BLE001 raised in the caller, as in a normal call
            stack.pop()
            result, error = None, raised
    try:
        if error is not None:
            raise error
    finally:
        del error  # its traceback holds this frame: a cycle that would keep all of the caller's data
    return result
