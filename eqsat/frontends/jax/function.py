"""Converts JAX functions to programs, in memory, by way of their jaxprs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from eqsat.base.arguments import shown
from eqsat.errors import EqsatError, InputError, one_line
from eqsat.frontends.jax.read import read, type_of
from eqsat.program import ops
from eqsat.program.ir import Program


def from_jax(function: Callable[..., Any], *examples: Any, **keywords: Any) -> Program:
    """The program that a JAX function computes, for inputs with the examples' shapes and dtypes.

    Args:
        function: a function that JAX can trace. Arrays that it holds, such as weights in a closure, become constants.
            Gradients are left out.
        examples, keywords: the arguments of a call. Arrays and `jax.ShapeDtypeStruct`, also within pytrees, become
            inputs, named after parameters and keys (`params.w`); numbers, strings and None are fixed.

    Returns:
        The program; its outputs are named after the keys of the result, or `output_0`, `output_1`, ...

    Raises:
        InputError: JAX is not installed, it cannot trace the function, or there is no operator for a primitive, which
            the message names.
    """
    jax = _import_jax()
    if not callable(function):
        raise InputError(f"from_jax takes a function and its arguments, got {shown(function)}")
    tree = jax.tree_util
    leaves, shape = tree.tree_flatten_with_path((examples, keywords))
    at = [i for i, (_, leaf) in enumerate(leaves) if _is_array(leaf)]
    names = _distinct([_input_name(function, path) for path, _ in (leaves[i] for i in at)])

    def on_arrays(*arrays: Any) -> Any:
        given = [leaf for _, leaf in leaves]
        for i, array in zip(at, arrays, strict=True):
            given[i] = array
        args, kwargs = tree.tree_unflatten(shape, given)
        return function(*args, **kwargs)

    try:
        closed, results = jax.make_jaxpr(on_arrays, return_shape=True)(*(leaves[i][1] for i in at))
    except EqsatError:
        raise
    except Exception as error:  # JAX raises errors of every type, also those of the function's own code
        called = getattr(function, "__name__", type(function).__name__)
        raise InputError(one_line(f"from_jax: JAX cannot trace {called}: {_first_line(error)}")) from error
    inputs = tuple(ops.input(name, *type_of(v.aval)) for name, v in zip(names, closed.jaxpr.invars, strict=True))
    outputs = read(closed.jaxpr, closed.consts, inputs)
    if not outputs:
        raise InputError("from_jax: the function returns no array")
    paths = [_name(tree.keystr(path), "output") for path, _ in tree.tree_leaves_with_path(results)]
    return Program(inputs, dict(zip(_distinct(paths), outputs, strict=True)))


def _import_jax() -> Any:
    try:
        return import_module("jax")
    except ImportError:
        raise InputError("jax is not installed; pip install 'eqsat[jax]'") from None


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, np.generic)


def _input_name(function: Callable[..., Any], path: Sequence[Any]) -> str:
    """`x` for an argument, `params.w.0` for a part of one; `input_1` where the function does not name it."""
    (kind, first, *rest) = path
    key = first.key if hasattr(first, "key") else first.idx
    if kind.idx == 0:
        positional = list(_parameters(function))
        key = positional[key] if key < len(positional) else f"input_{key}"
    return ".".join([str(key), *re.findall(r"\w+", "".join(map(str, rest)))])


def _parameters(function: Callable[..., Any]) -> list[str]:
    """The parameters that take arguments by place, up to `*args`."""
    try:
        found: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return []
    return [
        name
        for name, p in found.items()
        if p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]


def _name(path: str, what: str) -> str:
    """`hidden.0` for `['hidden'][0]`, `output_1` for the second of a tuple."""
    name = ".".join(re.findall(r"\w+", path))
    return name if name and not name[0].isdigit() else f"{what}_{name or 0}"


def _distinct(names: Sequence[str]) -> list[str]:
    """Names, a number behind those that came before."""
    found: list[str] = []
    for name in names:
        count = 1
        while (tried := name if count == 1 else f"{name}_{count}") in found:
            count += 1
        found.append(tried)
    return found


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
