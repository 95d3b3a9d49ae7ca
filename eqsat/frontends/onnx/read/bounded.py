"""onnx's reference operators with limits: a few numbers in a file could make them run forever or fill the memory.

They replace onnx's own operators in its reference evaluator, inside bodies too. Work is counted per run of an opaque
operator, including everything nested in it. Operators that onnx (1.23) computes otherwise than it says are here, too;
inside bodies onnxruntime computes some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import ceil, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.base.numerics import Array, np_dtype
from eqsat.errors import InputError, refusing
from eqsat.frontends.onnx.file.load import DTYPE_OF_CODE, schema_of
from eqsat.frontends.onnx.file.types import declared
from eqsat.frontends.onnx.read.runtime import WRONG_INSIDE, session
from eqsat.program.sizes import ELEMENT_WORK, FOLDED, Budget

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

STEPS = 20_000
"""Nodes that the loops of one operator may run in total; this many take seconds."""

STEP_WORK = 2_000_000
"""FLOPs of a product in the time that one node of a body takes: some tens of microseconds."""

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
        _spend(steps, state + collected)
        if self.steps > STEPS or self.made > MADE:
            raise InputError(f"a loop runs more than {STEPS} nodes, or makes more than {MADE} elements on the way")
        if self.kept + state > FOLDED:
            raise InputError(f"a loop makes more than {FOLDED} elements")


_work: ContextVar[_Work | None] = ContextVar("work of loops", default=None)


_budget: ContextVar[Budget | None] = ContextVar("work that may still be done ahead of time", default=None)


@contextmanager
def spending(budget: Budget) -> Iterator[None]:
    """Runs whose loops take their work from a budget, all together."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


def _spend(steps: int, elements: int) -> None:
    """Raises InputError where there is a budget, and it is spent."""
    budget = _budget.get()
    if budget is not None and not budget.spend(steps * STEP_WORK + elements * ELEMENT_WORK):
        raise InputError("a loop of constants takes more work than is done ahead of time")


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
def bounded_operators(opset: int | None = None, strict: bool = False) -> list[Any]:
    """Classes for `ReferenceEvaluator(new_ops=...)`.

    Args:
        opset: that of bodies, in which onnxruntime computes the operators whose reference is wrong.
        strict: fail where it does not, instead of asking the reference.
    """
    sized = [_sized(name, size) for name, size in _SIZES.items()]
    mended = [*sized, _loop(), _scan(), _unique(), _unsqueeze()]
    return mended if opset is None else [*mended, *_by_runtime(opset, strict)]


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
    """A loop whose work is counted. Its collected values are stacked: onnx's (1.23) lays them end to end along their
    first axis, and fails where no turn is taken."""
    original = _original("op_loop", "Loop")

    def run(self: Any, trips: Any, condition: Any, *states: Any, context: Any = None, body: Any = None, **given: Any):
        turn, going, *taken = self.body.input_names
        collected: list[list[Any]] = [[] for _ in range(self.K)]
        step = 0
        while condition and (trips is None or step < trips):
            inputs = {**(context or {}), turn: np.array(step), going: condition}
            condition, *outputs = self._run_body(inputs | dict(zip(taken, states, strict=True)), **given)
            states = tuple(outputs[: self.N])
            for values, value in zip(collected, outputs[self.N :], strict=True):
                values.append(value)
            step += 1
            work = _work.get()
            if work is not None:
                sizes = [np.size(out) for out in outputs]
                work.add(len(self.body.rt_nodes_) + 1, 1 + sum(sizes[: self.N]), sum(sizes[self.N :]))
        ends = self.body.onnx_graph_.output[1 + self.N :]
        rows = [np.stack(values) if values else _no_rows(end) for values, end in zip(collected, ends, strict=True)]
        return self._check_and_fix_outputs((*states, *rows))

    return type("Loop", (original,), {"op_domain": "", "_run": run})


def _scan() -> Any:
    """A scan along any axes in both directions, as onnx's (1.23) is not. Its operands bound its work."""
    original = _original("op_scan", "Scan")

    def begin(self: Any, *args: Any) -> None:
        import_module("onnx.reference.op_run").OpRun.__init__(self, *args)  # onnx's own refuses axes and directions

    def run(self: Any, *args: Any, context: Any = None, bindings: Any = None, **_: Any):
        names, first = self.body.input_names, len(args) - self.num_scan_inputs
        states: Sequence[Any] = args[:first]
        scanned = _turned(args[first:], self.scan_input_axes, self.scan_input_directions, back=False)
        ends = self.body.onnx_graph_.output[first:]
        collected: list[list[Any]] = [[] for _ in ends]
        for rows in zip(*scanned, strict=True):
            given = dict(zip(names, [*states, *rows], strict=True))
            outputs = self._run_body({**(context or {}), **given}, bindings=bindings)
            states = outputs[:first]
            for values, value in zip(collected, outputs[first:], strict=True):
                values.append(value)
            _spend(len(self.body.rt_nodes_) + 1, sum(map(np.size, outputs)))
        made = [np.stack(values) if values else _no_rows(end) for values, end in zip(collected, ends, strict=True)]
        results = _turned(made, self.scan_output_axes, self.scan_output_directions, back=True)
        return self._check_and_fix_outputs((*states, *results))

    return type("Scan", (original,), {"op_domain": "", "__init__": begin, "_run": run})


def _turned(arrays: Sequence[Array], axes: Sequence[int], backward: Sequence[int], back: bool) -> list[Array]:
    """Arrays with the axis of their steps first and in the order of the steps, or back from that."""
    found = []
    for i, array in enumerate(arrays):
        axis = axes[i] if axes else 0
        moved = np.moveaxis(array, 0, axis) if back else np.moveaxis(array, axis, 0)
        found.append(np.flip(moved, axis if back else 0) if backward and backward[i] else moved)
    return found


def _no_rows(value: ValueInfoProto) -> Array:
    """What a loop collects of a value of its body in no turn."""
    known = declared(value)
    if known is None or known.static is None or known.code not in DTYPE_OF_CODE:
        raise InputError(f"a loop takes no turn, and its body declares no type and shape of {value.name!r}")
    return np.empty((0, *known.static), np_dtype(DTYPE_OF_CODE[known.code]))


def _unique() -> Any:
    """Onnx's sorts what is asked for in the order of its first places, if no places are asked for, and takes rows of
    the operand in place of its elements, if they are."""

    def run(self: Any, x: Array, axis: int | None = None, sorted: int | None = None) -> tuple[Array, ...]:
        along, values = (0, x.reshape(-1)) if axis is None else (axis, x)
        y, first, inverse, counts = np.unique(values, True, True, True, axis=along)
        order = np.arange(first.size) if sorted else np.argsort(first)
        rank = np.argsort(order)
        places = (found.astype(np.int64) for found in (first[order], rank[inverse.reshape(-1)], counts[order]))
        return (np.take(y, order, along), *places)[: len(self.onnx_node.output)]

    return type("Unique", (_original("op_unique", "Unique"),), {"op_domain": "", "_run": run})


def _unsqueeze() -> Any:
    """Until opset 13 onnx's inserts one axis after the other, as their places are not meant."""

    def run(self: Any, x: Array, axes: Sequence[int]) -> tuple[Array]:
        return (np.expand_dims(x, tuple(np.asarray(axes).reshape(-1).tolist())),)

    return type("Unsqueeze", (_original("op_unsqueeze", "Unsqueeze_13"),), {"op_domain": "", "_run": run})


def _by_runtime(opset: int, strict: bool) -> Iterator[Any]:
    """The operators whose reference is wrong at an opset, as onnxruntime computes them."""
    for name, right in WRONG_INSIDE.items():
        schema = schema_of(name, opset)
        if schema is not None and schema.since_version < right:
            with suppress(RuntimeError):  # the reference has no operator of this opset
                yield _asking_runtime(import_module("onnx.reference.ops").load_op("", name, opset), name, strict)


def _asking_runtime(original: Any, name: str, strict: bool) -> Any:
    def run(self: Any, *args: Any, **given: Any) -> Any:
        try:
            return _run_alone(self, args)
        except InputError:
            if strict:
                raise
            return original._run(self, *args, **given)

    return type(name, (original,), {"op_domain": "", "_run": run})


def _run_alone(running: Any, args: Sequence[Any]) -> tuple[Array, ...]:
    """What onnxruntime makes of a node of a body; it keeps one session for each list of types of its operands."""
    node, given = running.onnx_node, [arg for arg in args if arg is not None]
    types = tuple(np.asarray(arg).dtype for arg in given)
    sessions = running.__dict__.setdefault("sessions", {})
    with refusing(lambda: f"operator {node.op_type}"):
        if types not in sessions:
            sessions[types] = session(_alone(running, types), node.op_type)
        return tuple(sessions[types].run(None, {f"x{i}": np.asarray(arg) for i, arg in enumerate(given)}))


def _alone(running: Any, types: Sequence[np.dtype[Any]]) -> ModelProto:
    """A node of a body as a model, whose inputs are those it has, and whose outputs all have names."""
    from onnx import helper

    node = deepcopy(running.onnx_node)
    names = iter([f"x{i}" for i in range(len(types))])
    node.input[:] = [next(names) if name else "" for name in node.input]
    node.output[:] = [f"y{i}" for i in range(len(node.output))]
    codes = [helper.np_dtype_to_tensor_dtype(type_) for type_ in types]
    inputs = [helper.make_tensor_value_info(f"x{i}", code, None) for i, code in enumerate(codes)]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    imports = [helper.make_opsetid("", running.run_params["opsets"][""])]
    graph = helper.make_graph([node], node.op_type, inputs, outputs)
    ir_version = helper.find_min_ir_version_for(imports, ignore_unknown=True)
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
