"""How the rows of the tables are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

import eqsat
from eqsat.program.ir import Program

Row = tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]

cat, conv, relu, where, stretch = eqsat.concat, eqsat.conv, eqsat.relu, eqsat.where, eqsat.broadcast_to


def build(fn: Callable[..., Any], inputs: Sequence[Any]) -> Program:
    """The program of one side of a row."""
    return eqsat.trace(fn, *[eqsat.spec(*s) if isinstance(s[-1], str) else eqsat.spec(s) for s in inputs])


def lit(*shape: int, seed: int = 0) -> np.ndarray:
    """A random constant: equal shapes and seeds are equal constants."""
    values = np.random.default_rng([seed, *shape]).uniform(-1, 1, shape)
    return (values / np.sqrt(max(prod(shape[1:]), 1))).astype(np.float32)


def along(v: Any, axis: int, shape: Sequence[int]) -> Any:
    """The vector v laid along one axis and repeated along the others."""
    return stretch(v.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


ONE = ((1,), "int32")
TWO = np.array([1, 2], np.int32)


def add_relu(x: Any, y: Any, shape: Sequence[int]) -> tuple[Any, Any]:
    return relu(x + along(ints(1), 1, shape)), relu(y + along(ints(2), 1, shape))
