"""Unrolls Loop and Scan with a known number of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eqsat.base.numerics import Array
from eqsat.frontends.onnx.file.load import attributes
from eqsat.frontends.terms.lookups import part
from eqsat.program import ops

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

UNROLLED = 1024
"""Most nodes of an unrolled loop; a longer loop is carried as an opaque term."""

Values = dict[str, Any]
Run = Callable[["GraphProto", Values], Values]
"""Maps a body and the values around it to all values in it."""


def unrolled_loop(node: NodeProto, env: Values, run: Run, constant: Callable[[Any], Array | None]) -> list[Any] | None:
    """The results of a Loop with constant trip count and conditions; None if they vary or the loop is too long."""
    body = attributes(node)["body"]
    given = [constant(env[name]) if name else None for name in [*node.input, "", ""][:2]]
    if given[0] is None or (node.input[1:2] != [""] and len(node.input) > 1 and given[1] is None):
        return None
    steps = 0 if given[1] is not None and not given[1].reshape(-1)[0] else max(int(given[0].reshape(-1)[0]), 0)
    states = [env[name] for name in node.input[2:]]
    if steps * len(body.node) > UNROLLED or (not steps and len(body.output) > 1 + len(states)):
        return None
    made: list[list[Any]] = [[] for _ in body.output[1 + len(states) :]]
    for i in range(steps):
        inner: dict[str, Any] = {**env, body.input[0].name: ops.full(i, (), "int64")}
        inner[body.input[1].name] = ops.full(True, (), "bool")
        inner.update(zip([value.name for value in body.input[2:]], states, strict=True))
        found = run(body, inner)
        go_on, *values = (found[value.name] for value in body.output)
        states = values[: len(states)]
        for rows, value in zip(made, values[len(states) :], strict=True):
            rows.append(value)
        still = constant(go_on)
        if still is None:
            return None
        if not still.reshape(-1)[0]:
            break
    return [*states, *map(ops.stack, made)]


def unrolled_scan(node: NodeProto, env: Values, run: Run) -> list[Any] | None:
    """The results of a Scan (since opset 9); None if it is too long."""
    given = attributes(node)
    body, count = given["body"], given["num_scan_inputs"]
    operands = [env[name] for name in node.input]
    states, scanned = operands[: len(operands) - count], operands[len(operands) - count :]
    out = len(body.output) - len(states)
    axes = [ops.axis_of(a, x.ndim) for a, x in zip(given.get("scan_input_axes", [0] * count), scanned, strict=True)]
    steps = scanned[0].shape[axes[0]]
    if not 0 < steps * len(body.node) <= UNROLLED:
        return None
    backward = given.get("scan_input_directions", [0] * count)
    made: list[list[Any]] = [[] for _ in range(out)]
    for i in range(steps):
        rows = [
            part(x, axis, steps - 1 - i if back else i) for x, axis, back in zip(scanned, axes, backward, strict=True)
        ]
        found = run(body, {**env, **dict(zip([value.name for value in body.input], [*states, *rows], strict=True))})
        values = [found[value.name] for value in body.output]
        states = values[: len(states)]
        for kept, value in zip(made, values[len(states) :], strict=True):
            kept.append(value)
    turned = given.get("scan_output_directions", [0] * out)
    places = given.get("scan_output_axes", [0] * out)
    ends = (rows[::-1] if back else rows for rows, back in zip(made, turned, strict=True))
    return [*states, *(ops.stack(rows, axis) for rows, axis in zip(ends, places, strict=True))]
