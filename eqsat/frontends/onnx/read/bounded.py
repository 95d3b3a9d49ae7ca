"""onnx's reference operators with limits: a few numbers in a file could make them run forever or fill the memory.

They replace onnx's own operators in its reference evaluator, inside bodies too. Work is counted per run of an opaque
operator, including everything nested in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import ceil, prod
from typing import Any

import numpy as np

from eqsat.errors import InputError
from eqsat.program.sizes import FOLDED

STEPS = 20_000
"""Nodes that the loops of one operator may run in total; this many take seconds."""

MADE = 1 << 30
"""Elements that these loops may compute in total; this many take seconds."""


@dataclass
class _Work:
    steps: int = 0
    kept: int = 0  # elements that the loops have collected
    made: int = 0  # elements of all values from one trip to the next

    def add(self, steps: int, state: int, collected: int) -> None:
        self.steps += steps
        self.kept += collected
        self.made += state + collected
        if self.steps > STEPS or self.made > MADE:
            raise InputError(f"a loop runs more than {STEPS} nodes, or makes more than {MADE} elements on the way")
        if self.kept + state > FOLDED:
            raise InputError(f"a loop makes more than {FOLDED} elements")


_work: ContextVar[_Work | None] = ContextVar("work of loops", default=None)


@contextmanager
def counting() -> Iterator[None]:
    """A run of one operator, whose loops are counted together."""
    token = _work.set(_Work())
    try:
        yield
    finally:
        _work.reset(token)


def _tile_size(x: Any, repeats: Any) -> float:
    return x.size * prod(float(n) for n in np.asarray(repeats).reshape(-1))


def _range_size(start: Any, limit: Any, delta: Any, **_: Any) -> float:
    span = (float(limit) - float(start)) / float(delta)
    return ceil(span) if np.isfinite(span) else span


_SIZES: dict[str, Callable[..., float]] = {
    "ConstantOfShape": lambda shape, **_: prod(float(n) for n in np.asarray(shape).reshape(-1)),
    "Expand": lambda x, shape: prod(float(n) for n in np.broadcast_shapes(x.shape, tuple(map(int, shape)))),
    "Range": _range_size,
    "Tile": _tile_size,
}
"""Number of elements that an operator computes from its operands."""


@cache
def bounded_operators() -> list[Any]:
    """Classes for `ReferenceEvaluator(new_ops=...)`."""
    sized = [_sized(name, size) for name, size in _SIZES.items()]
    return [*sized, _loop()]


def _original(module: str, name: str) -> Any:
    return getattr(import_module(f"onnx.reference.ops.{module}"), name)


_MODULES = {"ConstantOfShape": "op_constant_of_shape", "Expand": "op_expand", "Range": "op_range", "Tile": "op_tile"}


def _sized(name: str, size: Callable[..., float]) -> Any:
    original = _original(_MODULES[name], name)

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = size(*args)
        if not asked <= FOLDED:
            raise InputError(f"{name} makes {asked:.0f} elements; at most {FOLDED} are made here")
        return original._run(self, *args, **kwargs)

    return type(name, (original,), {"op_domain": "", "_run": run})


def _loop() -> Any:
    original = _original("op_loop", "Loop")

    def begin(self: Any, *args: Any) -> None:
        original.__init__(self, *args)
        run_body, nodes = self._run_body, len(self.body.rt_nodes_) + 1

        def counted(inputs: Any, **kwargs: Any) -> Any:
            outputs = run_body(inputs, **kwargs)
            work = _work.get()
            if work is not None:
                sizes = [np.size(out) for out in outputs]
                work.add(nodes, sum(sizes[: 1 + self.N]), sum(sizes[1 + self.N :]))
            return outputs

        self._run_body = counted

    return type("Loop", (original,), {"op_domain": "", "__init__": begin})
