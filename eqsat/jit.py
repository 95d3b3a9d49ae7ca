"""A decorator that traces, optimises and compiles a function, and caches the result by shapes and dtypes."""

from __future__ import annotations

import functools
import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from eqsat.base.arguments import PLACES, choice, instance, shown, text, whole
from eqsat.errors import InputError
from eqsat.program.ir import Program
from eqsat.tracing.trace import Results, Spec, bind, record, replace_arguments, spec_of, trace

if TYPE_CHECKING:
    from eqsat.dynamic.result import Dynamic

Axes = Mapping[str, Sequence[str | None]]
"""For arguments a name for each axis whose size varies, None for others."""

Ranges = Mapping[str, tuple[int, int]]

DEFAULT_RANGE = (1, 64)
"""As for `optimize_dynamic`, whose module loads ONNX."""


class Jitted:
    """A function that is traced, optimised and compiled for each new combination of shapes and dtypes.

    Arguments without a shape and dtype become constants of the program and must be hashable. The instance of a method
    is one: its attributes are read when the method is compiled, and later changes are not seen.
    """

    __name__: str

    def __init__(
        self, function: Callable[..., Any], on: str, dynamic: Axes, ranges: Ranges, options: dict[str, Any]
    ) -> None:
        if not callable(function):
            raise InputError(f"jit takes a function, got {shown(function)}")
        self._function = function
        self._on = on
        self._axes, self._ranges = dict(dynamic), dict(ranges)
        self._dynamic: dict[Any, Dynamic] = {}
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
            key.append((name, like if like is not None else _key(value)))
            return value if like is None else like

        replace_arguments(bound, place)
        cached = self._compiled.get(tuple(key))
        if cached is None:
            sizes, open_key = self._named(key)
            compile_ = self._compile if self._outside(sizes) else lambda b: self._instance(b, sizes, open_key)
            cached = self._compiled[tuple(key)] = compile_(bound)
        compiled, results = cached
        returned = compiled(*arrays)
        return results.rebuild(returned if isinstance(returned, tuple) else (returned,))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As an attribute of a class: a method, as a function would be."""
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By name, as a function, where its module has it under that name. Compiled programs stay behind."""
        name = getattr(self, "__qualname__", "")
        try:
            named = attrgetter(name)(sys.modules[self.__module__])
        except (AttributeError, KeyError):
            named = None
        return name if named is self else (Jitted, (self._function, self._on, self._axes, self._ranges, self._options))

    def _compile(self, bound: inspect.BoundArguments) -> tuple[Callable[..., Any], Results]:
        from eqsat.pipeline.optimize import optimize

        program, results = record(self._function, bound)
        return optimize(program, **self._options).compile(on=self._on), results

    def _named(self, key: Sequence[tuple[str, Any]]) -> tuple[dict[str, int], Any]:
        """The sizes of the named dims of arguments, and the key of a call without them.

        Raises:
            InputError: an argument has not one name for each axis, or a dim has two sizes.
        """
        sizes: dict[str, int] = {}
        open_key: list[Any] = []
        for argument, like in key:
            names = self._axes.get(argument)
            if names is None or not isinstance(like, Spec):
                open_key.append((argument, like))
                continue
            if len(names) != len(like.shape):
                raise InputError(f"dynamic: {argument} has {len(like.shape)} axes, but {len(names)} names: {names}")
            for name, size in zip(names, like.shape, strict=True):
                if name is not None and sizes.setdefault(name, size) != size:
                    raise InputError(f"dynamic: '{name}' is {sizes[name]} on one axis and {size} on one of {argument}")
            fixed = tuple(name or size for name, size in zip(names, like.shape, strict=True))
            open_key.append((argument, fixed, like.dtype))
        return sizes, tuple(open_key)

    def _outside(self, sizes: Mapping[str, int]) -> bool:
        """Whether no dim has several sizes, or a size is outside of its range."""
        ranges = {name: self._ranges.get(name, DEFAULT_RANGE) for name in sizes}
        inside = all(low <= sizes[name] <= high for name, (low, high) in ranges.items())
        return not inside or all(low == high for low, high in ranges.values())

    def _instance(
        self, bound: inspect.BoundArguments, sizes: dict[str, int], key: Any
    ) -> tuple[Callable[..., Any], Results]:
        """The function compiled for these sizes, by the one search for all sizes."""
        from eqsat.dynamic.optimize import optimize_dynamic
        from eqsat.pipeline.optimize import optimize

        if key not in self._dynamic:
            ranges = {name: self._ranges.get(name, DEFAULT_RANGE) for name in sizes}
            options = {name: value for name, value in self._options.items() if name != "measure"}
            self._dynamic[key] = optimize_dynamic(lambda point: self._traced(bound, point)[0], ranges, **options)
        program = self._dynamic[key].at(sizes)
        device = {name: value for name, value in self._options.items() if name in ("device", "numerics")}
        kernels = optimize(program, rules=[], measure=False, explain_time=0.0, **device)
        return kernels.compile(on=self._on), self._traced(bound, sizes)[1]

    def _traced(self, bound: inspect.BoundArguments, sizes: Mapping[str, int]) -> tuple[Program, Results]:
        """The program at these sizes of its dims."""
        again = inspect.BoundArguments(bound.signature, OrderedDict(bound.arguments))

        def resized(name: str, value: Any) -> Any:
            like, names = spec_of(value), self._axes.get(name)
            if like is None or names is None:
                return value
            shape = tuple(sizes[n] if n else size for n, size in zip(names, like.shape, strict=True))
            return replace(like, shape=shape)

        replace_arguments(again, resized)
        return record(self._function, again)

    def trace(self, *args: Any, **kwargs: Any) -> Program:
        """The traced program for arguments like these, not optimised."""
        return trace(self._function, *args, **kwargs)


@overload
def jit(
    function: Callable[..., Any], *, on: str = "numpy", dynamic: Axes = ..., ranges: Ranges = ..., **options: Any
) -> Jitted: ...
@overload
def jit(
    function: None = None, *, on: str = "numpy", dynamic: Axes = ..., ranges: Ranges = ..., **options: Any
) -> Callable[[Callable[..., Any]], Jitted]: ...
def jit(
    function: Callable[..., Any] | None = None,
    *,
    on: str = "numpy",
    dynamic: Axes = MappingProxyType({}),
    ranges: Ranges = MappingProxyType({}),
    **options: Any,
) -> Any:
    """A decorator: trace, optimise and compile at the first call, and again for new shapes or dtypes.

        @eqsat.jit
        def mlp(x, w, b):
            return eqsat.relu(x @ w + b)

        @eqsat.jit(on="gpu", device="mi300x", time_limit=5)
        def attention(q, k, v): ...

        @eqsat.jit(dynamic={"x": ("rows", None)}, ranges={"rows": (1, 512)})
        def layer(x): ...                 # one search for all numbers of rows

    Args:
        on: where it runs, as for `Result.compile`.
        dynamic: for arguments, a name for each axis whose size varies, None for others. One search serves all sizes in
            the ranges; a new size only has its kernels built. Other sizes are compiled for themselves.
        ranges: (least, largest) by name; by default 1 to 64.
        options: as for `eqsat.optimize`.

    Raises:
        InputError: an argument of this function or of `eqsat.optimize` is not as above. The function itself is traced
            at its first call.
    """
    choice("jit: on", on, PLACES)
    _check_axes(dynamic, ranges)
    if function is None:
        return lambda f: Jitted(f, on, dynamic, ranges, options)
    return Jitted(function, on, dynamic, ranges, options)


def _key(value: Any) -> Any:
    """A key under which constants are equal only if they are the same to a program: 1, 1.0 and True differ, and so do
    0.0 and -0.0; NaN equals itself. Types that are not numbers or sets of them have their own equality.

    Raises:
        TypeError: a value that may change (a list, a set, `array.array`), or holds one, and so has no hash.
    """
    kind = type(value)
    if isinstance(value, tuple):
        return kind, tuple(map(_key, value))
    if isinstance(value, frozenset):
        return kind, frozenset(map(_key, value))
    if isinstance(value, float | complex | np.generic):
        array = np.asarray(value)
        return kind, array.dtype, array.tobytes()
    try:
        hash(value)
    except TypeError:
        said = f"jit: an argument holds a {kind.__name__}, which may change: give a NumPy array or a tuple"
        raise TypeError(said) from None
    return kind, value


def _check_axes(dynamic: Any, ranges: Any) -> None:
    instance("jit: dynamic", dynamic, Mapping, 'a mapping such as {"x": ("rows", None)}')
    instance("jit: ranges", ranges, Mapping, 'a mapping such as {"rows": (1, 512)}')
    named: set[str] = set()
    for argument, names in dynamic.items():
        instance(f"jit: dynamic: {argument}", names, (tuple, list), "a name or None for each axis")
        for name in names:
            if name is not None:
                text(f"jit: dynamic: {argument}", name)
                named.add(name)
    for name, ends in ranges.items():
        if name not in named:
            raise InputError(f"jit: ranges: no axis in dynamic is called {shown(name)}")
        instance(f"jit: ranges: {name}", ends, (tuple, list), "(least, largest)")
        if len(ends) != 2 or whole(f"jit: ranges: {name}", ends[0], 1) > whole(f"jit: ranges: {name}", ends[1], 1):
            raise InputError(f"jit: ranges: {name} takes (least, largest), got {shown(ends)}")
