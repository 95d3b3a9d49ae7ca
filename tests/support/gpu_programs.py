"""Programs and plans for kernels, with their inputs, and the check of their results."""

from __future__ import annotations

from typing import Any

import numpy as np

import eqsat
from eqsat.base.numerics import random_array
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.cover import cover, source_cover
from eqsat.extract.plan.plan import Kernel, Plan, Result, build_plan
from eqsat.layout import arithmetic as lay
from eqsat.program import ops
from eqsat.program.core import CoreProgram, Node, lower, make, topological
from eqsat.program.ir import Program
from support.gpu_support import (
    assert_close,
)


def mlp(x: Any, w: Any, b: Any, v: Any) -> Any:
    hidden = eqsat.relu(x @ w + b)
    scores = hidden @ v
    return {"probabilities": eqsat.softmax(scores, axis=-1), "hidden": hidden.T}


def tower(x: Any, w1: Any, w2: Any) -> Any:
    return eqsat.concat([x[:, :8] @ w1, x[:, 8:] @ w2], axis=0).sum(axis=0)


def stats(x: Any) -> Any:
    return {"mean": x.mean(axis=1), "top": x.max(axis=0), "best": eqsat.argmax(x, axis=1)}


def look_ups(words: Any, kinds: Any, ids: Any, kind: Any, slots: Any) -> Any:
    rows = eqsat.take(words, ids, 0)
    embedded = eqsat.layernorm(rows + eqsat.take(kinds, kind, 0))
    scores = embedded @ eqsat.take(words, slots[0], 0).T
    columns = eqsat.take(words, slots[:, 0], 1).T
    return {"scores": scores, "beside": eqsat.concat([embedded, rows], 1), "columns": columns * 2.0}


PROGRAMS = {
    "mlp": eqsat.trace(mlp, *(eqsat.spec(shape) for shape in ((10, 12), (12, 20), (20,), (20, 7)))),
    "mlp in half": eqsat.trace(mlp, *(eqsat.spec(shape, "float16") for shape in ((10, 12), (12, 20), (20,), (20, 7)))),
    "towers": eqsat.trace(tower, eqsat.spec((6, 16)), eqsat.spec((8, 4)), eqsat.spec((8, 4))),
    "look-ups": eqsat.trace(
        look_ups,
        *(eqsat.spec(shape) for shape in ((11, 16), (5, 16))),
        *(eqsat.spec(shape, dtype) for shape, dtype in (((9,), "int64"), ((9,), "int32"), ((3, 7), "int64"))),
    ),
    "statistics": eqsat.trace(stats, eqsat.spec((9, 33))),
}


def plan_of(program: Program, device: str = "mi300x") -> Plan:
    core = lower(program)
    return build_plan(Snapshot.from_core(core.roots), source_cover(core, device), core)


def inputs_of(program: Program, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {t.attr("name"): random_array(t.shape, t.dtype, rng) for t in program.inputs}


def assert_program_results(got: list[np.ndarray[Any, Any]], program: Program, inputs: dict[str, Any]) -> None:
    expected = program.run(inputs, precision="float64")
    for (name, term), values in zip(program.outputs.items(), got, strict=True):
        assert_close(values.reshape(term.shape), expected[name], term.dtype, name)


def opaque_program() -> Program:
    """relu(x), then an operator with two results that nobody knows, then a use of each."""
    x = ops.input("x", (3, 8), "float32")
    low, high = ops.opaque(
        "Split", [ops.relu(ops.transpose(x, (1, 0)))], [((4, 3), "float32")] * 2, "half", lambda a: np.split(a, 2)
    )
    return Program((x,), {"sum": ops.add(low, high), "high": high})


def core_plan(*roots: Node) -> Plan:
    program = CoreProgram(
        roots=roots,
        root_names=tuple(f"y{i}" for i in range(len(roots))),
        root_shapes=tuple((r.size,) for r in roots),
        inputs=tuple(n for n in topological(roots) if n.op == "In"),
        constants={},
    )
    snapshot = Snapshot.from_core(roots)
    return build_plan(snapshot, cover(snapshot, "mi300x", 2.0), program)


def one_kernel_each(*steps: tuple[str, Node], roots: tuple[Node, ...]) -> Plan:
    """A plan of one kernel for each of these nodes; each reads those before it and inputs."""
    made: list[Node] = []
    kernels = []
    for family, node in steps:
        leaves = [n for n in topological([node]) if n.op == "In"]
        reads = [n for n in made if n in topological([node])]
        reads = [n for n in reads if not any(n in topological([m]) for m in reads if m is not n)] + [
            n for n in leaves if not any(n in topological([m]) for m in reads)
        ]
        params = tuple(make("In", (f"a{i}", n.size, n.dtype)) for i, n in enumerate(reads))
        body = _rebuilt(node, dict(zip(reads, params, strict=True)))
        kernels.append(Kernel(f"k{len(kernels)}", family, (node,), tuple(reads), params, (body,), 0, 0, 0.0))
        made.append(node)
    results = tuple(Result(root, lay.identity(root.size)) for root in roots)
    return Plan(tuple(kernels), roots, results, {})


def _rebuilt(node: Node, known: dict[Node, Node]) -> Node:
    return known[node] if node in known else make(node.op, node.attrs, [_rebuilt(a, known) for a in node.args])


def env_of(plan: Plan) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return {n.attrs[0]: random_array((n.size,), n.dtype, rng) for n in topological(plan.roots) if n.op == "In"}
