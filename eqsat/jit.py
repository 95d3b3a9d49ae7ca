"""A decorator that traces, optimises and compiles a function, and caches the result by shapes and dtypes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, overload

from eqsat.program.ir import Program
from eqsat.tracing.trace import Results, bind, record, replace_arguments, spec_of, trace


class Jitted:
    """A function that is traced, optimised and compiled for each new combination of shapes and dtypes.

    Arguments without a shape and dtype become constants of the program and must be hashable.
    """

    __name__: str

    def __init__(self, function: Callable[..., Any], on: str, options: dict[str, Any]) -> None:
        self._function = function
        self._on = on
        self._options: dict[str, Any] = {"measure": False} | options  # a function runs its kernels, not a model
        self._compiled: dict[Any, tuple[Callable[..., Any], Results]] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = bind(self._function, args, kwargs)
        arrays: list[Any] = []
        key: list[Any] = []

        def place(name: str, value: Any) -> Any:
            like = spec_of(value)
            if like is not None:
                arrays.append(value)
            key.append((name, like if like is not None else (type(value), value)))
            return value if like is None else like

        replace_arguments(bound, place)
        cached = self._compiled.get(tuple(key))
        if cached is None:
            cached = self._compiled[tuple(key)] = self._compile(bound)
        compiled, results = cached
        returned = compiled(*arrays)
        return results.rebuild(returned if isinstance(returned, tuple) else (returned,))

    def _compile(self, bound: inspect.BoundArguments) -> tuple[Callable[..., Any], Results]:
        from eqsat.pipeline.optimize import optimize

        program, results = record(self._function, bound)
        return optimize(program, **self._options).compile(on=self._on), results

    def trace(self, *args: Any, **kwargs: Any) -> Program:
        """The traced program for arguments like these, not optimised."""
        return trace(self._function, *args, **kwargs)


@overload
def jit(function: Callable[..., Any], *, on: str = "numpy", **options: Any) -> Jitted: ...
@overload
def jit(function: None = None, *, on: str = "numpy", **options: Any) -> Callable[[Callable[..., Any]], Jitted]: ...
def jit(function: Callable[..., Any] | None = None, *, on: str = "numpy", **options: Any) -> Any:
    """A decorator: trace, optimise and compile at the first call, and again for new shapes or dtypes.

        @eqsat.jit
        def mlp(x, w, b):
            return eqsat.relu(x @ w + b)

        @eqsat.jit(on="gpu", device="mi300x", time_limit=5)
        def attention(q, k, v): ...

    Args:
        on: where it runs, as for `Result.compile`.
        options: as for `eqsat.optimize`.
    """
    if function is None:
        return lambda f: Jitted(f, on, options)
    return Jitted(function, on, options)
