"""The core of a program: nodes over flat arrays (`eqsat.program.node`), and what running and lifting them needs.

>>> from eqsat.program import ops
>>> x = ops.input("x", (2, 3), "float32")
>>> print(lower(Program((x,), {"y": ops.exp(ops.transpose(x))})))
%0: In(x, 6, float32) float32[6]
%1: V(0|3,1;2,3) float32[6] %0
%2: Un(exp) float32[6] %1
return y=%2
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from eqsat.base.numerics import Array, Precision, np_dtype
from eqsat.layout import arithmetic as lay
from eqsat.layout.bands import banded
from eqsat.program.constants import constant_node, fold, without_repeats
from eqsat.program.core_table import CAST, result_dtype
from eqsat.program.evaluation import OpaqueCall, evaluate
from eqsat.program.ir import Program
from eqsat.program.node import Node, flat, flops, infer, is_view, make, measure, substitute, topological, unflat
from eqsat.program.term import ConstArray, Shape, Term, row
from eqsat.program.term import flat as flat_terms
from eqsat.program.term import topological as topological_terms
from eqsat.program.term import unflat as unflat_terms

__all__ = [
    "CAST",
    "CoreProgram",
    "Node",
    "OpaqueCall",
    "evaluate",
    "flops",
    "fold",
    "infer",
    "is_view",
    "lower",
    "make",
    "measure",
    "result_dtype",
    "topological",
]


@dataclass(frozen=True)
class CoreProgram:
    """A program over the core.

    Attributes:
        roots: the outputs, flat.
        root_names, root_shapes: of the outputs, in the same order.
        inputs: the In nodes, in calling order, including those that nothing reads.
        constants: digest to flat values.
        opaque: key of an Opaque node to how it runs.
        source_term: a term of the source for a node, with its shape; a term that computes rather than views, where
            both flatten to the node.
    """

    roots: tuple[Node, ...]
    root_names: tuple[str, ...]
    root_shapes: tuple[Shape, ...]
    inputs: tuple[Node, ...]
    constants: dict[str, Array]
    opaque: dict[str, OpaqueCall] = field(default_factory=dict)
    source_term: dict[Node, Term] = field(default_factory=dict)

    def run(self, inputs: Mapping[str, Array], precision: Precision = "native") -> dict[str, Array]:
        """As `Program.run`, over the core; inputs are taken as they are, in any shape."""
        flat = {node.attrs[0]: np.asarray(inputs[node.attrs[0]]).reshape(-1) for node in self.inputs}
        results = evaluate(self.roots, flat, self.constants, self.opaque, precision)
        shaped = zip(self.root_names, results, self.root_shapes, strict=True)
        return {name: array.reshape(shape) for name, array, shape in shaped}

    def with_inputs(self, names: Mapping[str, str]) -> CoreProgram:
        """The same program with other names of its inputs: `names` says the new one of each."""
        own = [node for node in self.inputs if names[node.attrs[0]] != node.attrs[0]]
        renamed = {node: make("In", (names[node.attrs[0]], *node.attrs[1:])) for node in own}
        if not renamed:
            return self
        count = len(self.roots)
        nodes = substitute([*self.roots, *self.inputs, *self.source_term], renamed)
        inputs, sources = nodes[count : count + len(self.inputs)], nodes[count + len(self.inputs) :]
        terms = dict(zip(sources, self.source_term.values(), strict=True))
        return replace(self, roots=tuple(nodes[:count]), inputs=tuple(inputs), source_term=terms)

    def __reduce__(self) -> tuple[Callable[..., CoreProgram], tuple[Any, ...]]:
        # Nodes and terms once, in flat lists: each alone would be written with all that is below it.
        nodes = topological([*self.roots, *self.inputs, *self.source_term])
        called = [term for call in self.opaque.values() for term in (call.term, *call.results.values())]
        terms = topological_terms([*self.source_term.values(), *called])
        node = {each: i for i, each in enumerate(nodes)}
        term = {each: i for i, each in enumerate(terms)}
        parts = {
            "roots": [node[root] for root in self.roots],
            "root_names": self.root_names,
            "root_shapes": self.root_shapes,
            "inputs": [node[each] for each in self.inputs],
            "constants": self.constants,
            "opaque": {
                key: (term[call.term], {at: term[result] for at, result in call.results.items()})
                for key, call in self.opaque.items()
            },
            "source_term": {node[of]: term[source] for of, source in self.source_term.items()},
        }
        return _unflattened, (flat(nodes), flat_terms(terms), parts)

    def __str__(self) -> str:
        order = topological(self.roots)
        names = {node: f"%{i}" for i, node in enumerate(order)}
        lines = [f"{names[n]}: {repr(n)[1:-1]} {' '.join(names[a] for a in n.args)}".rstrip() for n in order]
        results = ", ".join(f"{name}={names[root]}" for name, root in zip(self.root_names, self.roots, strict=True))
        return "\n".join([*lines, f"return {results}"])


def _unflattened(nodes: list[Any], terms: list[Any], parts: dict[str, Any]) -> CoreProgram:
    """A program from flat lists, and from parts that hold places in them."""
    node, term = unflat(nodes), unflat_terms(terms)
    calls = {
        key: OpaqueCall(term[i], {at: term[j] for at, j in results.items()})
        for key, (i, results) in parts["opaque"].items()
    }
    return CoreProgram(
        roots=tuple(node[i] for i in parts["roots"]),
        root_names=parts["root_names"],
        root_shapes=parts["root_shapes"],
        inputs=tuple(node[i] for i in parts["inputs"]),
        constants=parts["constants"],
        opaque=calls,
        source_term={node[i]: term[j] for i, j in parts["source_term"].items()},
    )


_LINE = 1 << 20
"""Elements of a ramp that is a constant: 8 MiB in int64."""


def lower(program: Program) -> CoreProgram:
    """The program over flat arrays: equal values, one node per distinct computation.

    Raises:
        InputError: a constant gather index is out of range.
    """
    return lower_terms(program)[0]


def lower_terms(program: Program) -> tuple[CoreProgram, Mapping[Term, Node]]:
    """As `lower`, and the node of every term."""
    lowering = _Lowering(program)
    return lowering.result(), lowering.nodes


class _Lowering:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes: dict[Term, Node] = {}
        self.constants: dict[str, Array] = {}
        self.opaque: dict[str, OpaqueCall] = {}
        self.source_term: dict[Node, Term] = {}

    def result(self) -> CoreProgram:
        program = self.program
        for term in [*program.inputs, *program.terms()]:
            if term not in self.nodes:
                self.nodes[term] = self.node(term)
                self.remember(term)
        outputs = program.outputs
        return CoreProgram(
            roots=tuple(self.nodes[term] for term in outputs.values()),
            root_names=tuple(outputs),
            root_shapes=tuple(term.shape for term in outputs.values()),
            inputs=tuple(self.nodes[term] for term in program.inputs),
            constants=self.constants,
            opaque=self.opaque,
            source_term=self.source_term,
        )

    def node(self, term: Term) -> Node:
        if term.op == "input":
            return make("In", (term.attr("name"), term.size, term.dtype))
        if term.size == 0:
            return make("Full", (0, 0, term.dtype))
        if term.op == "constant":
            return self.constant(term)
        if term.op == "iota":
            return self.ramp(term)
        args = [self.nodes[a] for a in term.args]
        if term.op == "opaque":
            return self.opaque_node(term, args)
        lowering = row(term.op).lower
        assert lowering is not None, f"{term.op} has no lowering"
        return lowering(term, args)

    def constant(self, term: Term) -> Node:
        value = term.attr("value")
        if (band := banded(value.array)) is not None:
            layout, number = band
            return make("V", (layout,), (make("Full", (number, 1, term.dtype)),))
        once = without_repeats(value.array)
        if once is value.array:
            return constant_node(value, self.constants)
        layout = lay.of_broadcast(once.shape, term.shape)
        return make("V", (layout,), (constant_node(ConstArray(once), self.constants),))

    def ramp(self, term: Term) -> Node:
        axis = term.attr("axis")
        n, inner = term.shape[axis], prod(term.shape[axis + 1 :])
        line = self.line(n, term.dtype)
        return make("V", (lay.strided(0, ((prod(term.shape[:axis]), 0), (n, 1), (inner, 0))),), (line,))

    def line(self, n: int, dtype: str) -> Node:
        """0, 1, ..., n - 1. A long line is computed of short ones, digit by digit, as its values would fill memory."""
        if n <= _LINE:
            return constant_node(ConstArray(np.arange(n).astype(np_dtype(dtype))), self.constants)
        if dtype != "int64":  # exact while it is added up
            return make("Un", (CAST + dtype,), (self.line(n, "int64"),))
        rows, rest = divmod(n, _LINE)
        short = self.line(_LINE, dtype)
        first = constant_node(ConstArray(np.arange(0, rows * _LINE, _LINE)), self.constants)
        starts = make("V", (lay.strided(0, ((rows, 1), (_LINE, 0))),), (first,))
        steps = make("V", (lay.strided(0, ((rows, 0), (_LINE, 1))),), (short,))
        parts = [make("Bin", ("add",), (starts, steps))]
        if rest:
            last = make("V", (lay.strided(0, ((rest, 1),)),), (short,))
            parts.append(make("Bin", ("add",), (last, make("Full", (rows * _LINE, rest, dtype)))))
        return make("Cat", (), parts) if rest else parts[0]

    def opaque_node(self, term: Term, args: list[Node]) -> Node:
        described = (term.attr("name"), term.attr("spec"), [(a.shape, a.dtype) for a in term.args])
        key = hashlib.blake2b(repr(described).encode(), digest_size=16).hexdigest()
        self.opaque.setdefault(key, OpaqueCall(term)).results.setdefault(term.attr("index"), term)
        return make("Opaque", (key, term.attr("index"), term.size, term.dtype), args)

    def remember(self, term: Term) -> None:
        known = self.source_term.setdefault(self.nodes[term], term)
        if row(known.op).view and not row(term.op).view:
            self.source_term[self.nodes[term]] = term
