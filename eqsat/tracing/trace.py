"""From Python functions to programs.

>>> import eqsat
>>> def mlp(x, w, b):
...     return eqsat.relu(x @ w + b)
>>> print(trace(mlp, spec((8, 4)), spec((4, 2)), spec((2,))))
%0: f32[8,4] = input("x")
%1: f32[4,2] = input("w")
%2: f32[2] = input("b")
%3: f32[8,2] = matmul(%0, %1)
%4: f32[8,2] = broadcast(%2, shape=(8, 2))
%5: f32[8,2] = add(%3, %4)
%6: f32[8,2] = relu(%5)
return out=%6
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import eqsat.tracing.functions  # noqa: F401  (registers the functions of traced values)
from eqsat.base import arguments
from eqsat.base.arguments import instance, like_array, no_subclass, shown
from eqsat.base.numerics import dtype_name
from eqsat.errors import InputError
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Shape, Term
from eqsat.tracing.tracer import Tracer, Value, array, term_of


@dataclass(frozen=True, slots=True)
class Spec:
    """The type of an input: its shape and element type, and its name unless it is the parameter's."""

    shape: Shape
    dtype: str
    name: str | None = None


def spec(shape: int | Sequence[int], dtype: Any = "float32", name: str | None = None) -> Spec:
    """The type of an input: `spec((348, 768))`, `spec((4,), "int64")`. Raises DtypeError for an unknown dtype."""
    if name is not None:
        instance("spec: name", name, str, "a text or None")
    return Spec(arguments.shape("spec: shape", shape), dtype_name(dtype), name)


def trace(function: Callable[..., Any], *specs: Any, **named_specs: Any) -> Program:
    """The program that `function` computes for inputs of these types.

    Args:
        function: takes one traced value per spec and returns one value, or a tuple, list or dict of them.
        specs, named_specs: `spec(...)` per parameter, or an example array. Anything else (a number, a string,
            None) is passed to the function as it is.

    Returns:
        A program whose inputs are named like the parameters. Its outputs are named "out", or "out0", "out1", ... for a
        tuple, or by the keys of a dict.

    Raises:
        InputError: the function does something with a traced value that cannot be recorded.
    """
    program, _ = record(function, bind(function, specs, named_specs))
    return Program(program.inputs, program.outputs, _variables(function, program))


def _variables(function: Callable[..., Any], program: Program) -> dict[Term, str]:
    """The names of the program's constants that are arrays bound to variables of the function."""
    try:
        known = inspect.getclosurevars(inspect.unwrap(function))
    except TypeError:  # not a Python function
        return {}
    arrays = {n: a for n, a in {**known.globals, **known.nonlocals}.items() if isinstance(a, np.ndarray)}
    names: dict[Term, str] = {}
    for term in program.terms() if arrays else ():
        if term.op == "constant" and term.size > 1:
            own = term.attr("value").array
            same = (n for n, a in arrays.items() if a.shape == own.shape and np.array_equal(a.astype(own.dtype), own))
            name = next(same, None)
            if name is not None:
                names[term] = name
    return names


def bind(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    if not callable(function):
        raise InputError(f"a function is traced, got {shown(function)}")
    try:
        inspect.signature(function)
    except ValueError:
        raise InputError(f"{shown(function)} has no signature to trace it by: wrap it in a function") from None
    try:
        return inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        name = getattr(function, "__name__", "the function")
        raise InputError(f"{name} {inspect.signature(function)}: {error}") from None


def record(function: Callable[..., Any], bound: inspect.BoundArguments) -> tuple[Program, Results]:
    inputs: list[Term] = []

    def place(name: str, value: Any) -> Any:
        like = spec_of(value)
        if like is None:
            return value
        inputs.append(ops.input(like.name or name, like.shape, like.dtype))
        return Tracer(inputs[-1]) if isinstance(value, np.generic) else array(inputs[-1])

    replace_arguments(bound, place)
    results = Results.of(function(*bound.args, **bound.kwargs))
    return Program(tuple(inputs), results.terms()), results


def replace_arguments(bound: inspect.BoundArguments, place: Callable[[str, Any], Any]) -> None:
    """Replace each argument by `place(name, argument)`, in calling order.

    Parameters of their own keep their names: what `*args` and `**kwargs` hold gets others, where these are taken.
    """
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    taken = {name for name, parameter in bound.signature.parameters.items() if parameter.kind not in several}

    def free(name: str) -> str:
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    for name, parameter in bound.signature.parameters.items():
        if name not in bound.arguments:
            continue
        value = bound.arguments[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            bound.arguments[name] = tuple(place(free(f"{name}{i}"), v) for i, v in enumerate(value))
        elif parameter.kind is parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: place(free(key), v) for key, v in value.items()}
        else:
            bound.arguments[name] = place(name, value)


def spec_of(value: Any) -> Spec | None:
    """The spec of an argument that is an array or a spec; None for anything else."""
    if isinstance(value, Spec):
        return value
    no_subclass("an argument", value)
    if like_array(value):
        return Spec(tuple(value.shape), dtype_name(str(value.dtype).removeprefix("torch.")))
    return None


def _by_text(returned: dict[Any, Value]) -> dict[str, Value]:
    """Outputs by name. Raises InputError if two keys give one name."""
    named = {str(key): value for key, value in returned.items()}
    if len(named) < len(returned):
        raise InputError(f"two outputs have one name: the function returns the keys {shown(list(returned))}")
    return named


@dataclass(frozen=True)
class Results:
    """The results of a traced function: named values, and how to return arrays in the same structure."""

    named: dict[str, Value]
    rebuild: Callable[[Sequence[Any]], Any]

    @staticmethod
    def of(returned: Any) -> Results:
        if isinstance(returned, dict):
            keys = list(returned)
            return Results(_by_text(returned), lambda xs: dict(zip(keys, xs, strict=True)))
        if isinstance(returned, list | tuple):
            made = getattr(type(returned), "_make", type(returned))  # a namedtuple takes its elements one by one
            return Results({f"out{i}": v for i, v in enumerate(returned)}, made)
        return Results({"out": returned}, lambda xs: xs[0])

    def terms(self) -> dict[str, Term]:
        for name, value in self.named.items():
            if value is None:
                raise InputError(f"the traced function returned None for {name}: return a value")
        return {name: term_of(value) for name, value in self.named.items()}
