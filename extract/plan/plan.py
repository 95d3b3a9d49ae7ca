"""Plans: a chosen cover as kernels over core nodes, in launch order, with constants computed ahead of time.

A kernel is identified by the values it computes: its `outputs` are hash-consed core nodes, so an input of one kernel
*is* an output of another (or an In or Const node). Its `body` is written over `params`, one In node for each input, so
that kernels with equal bodies are equal, wherever they are in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eqsat.base.numerics import itemsize
from eqsat.egraph.snapshot import SOURCE, ENode, Snapshot
from eqsat.errors import CheckFailed
from eqsat.extract.cover import CoverResult
from eqsat.extract.kernels.bodies import Body
from eqsat.extract.kernels.candidates import Candidate, joint_family
from eqsat.extract.kernels.cuts import Cut, parts
from eqsat.extract.plan.naming import kernel_name, numpy_ops
from eqsat.extract.shared import CALL as SHARED_LAUNCH
from eqsat.extract.solver.problem import Problem
from eqsat.extract.solver.solve import solve
from eqsat.layout.arithmetic import Layout, compose, footprint, identity
from eqsat.program.constants import constant_node, view_node
from eqsat.program.core import CoreProgram, Node, evaluate, flops, fold, make, topological
from eqsat.program.node import MOVES, substitute
from eqsat.program.sizes import Budget
from eqsat.program.term import ConstArray

Array = np.ndarray[Any, Any]

FOLD_SEARCH_SECONDS = 0.5
"""Seconds for finding the cheapest way to compute the constants."""

LARGE_BYTES = 1 << 16
"""Size from which a reordered constant is kept as a view of the program's; it is copied only where needed."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a plan.

    Attributes:
        name: short and descriptive; different bodies have different names.
        family: pointwise, contraction, contraction+reduction, reduction, row, stream, library-gemm, copy or opaque.
        outputs: the values it computes, as core nodes of the whole program.
        inputs: the values it reads: In and Const nodes, and outputs of earlier kernels.
        params: an In node for each input, which represents it in `body`.
        body: the outputs over `params`; sums that each element computes by itself are written term by term.
        flops: 2 per multiply-add, 1 per element of other arithmetic; `bytes` counts reads and writes once each.
        predicted_us: microseconds predicted by the cost model.
        ops: the operators of the body by their NumPy names, in order.
        launches: number of launches on the device; `slices` is the number of parts that long sums are split into.
        beside: whether it is priced as part of the launch of the kernel before it.
    """

    name: str
    family: str
    outputs: tuple[Node, ...]
    inputs: tuple[Node, ...]
    params: tuple[Node, ...]
    body: tuple[Node, ...]
    flops: int
    bytes: int
    predicted_us: float
    ops: list[str] = field(default_factory=list)
    launches: int = 1
    slices: int = 1
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """An output of the program: `buffer` (an In or Const node or a kernel's output) read through `layout`."""

    buffer: Node
    layout: Layout


@dataclass(frozen=True, slots=True)
class Plan:
    """Kernels in launch order.

    Attributes:
        roots: the program's outputs as core nodes; `results` says where their values are after the kernels have run.
        constants: digest to values, for every Const node in `roots` and the kernels. They are in order, but large
            reordered constants may be views that are not flat: use `reshape(-1)`.
        origins: the computation of each computed constant, over the constants of the program.
        computed: where each class that the kernels compute lies, by its number in the e-graph covered: the node of a
            buffer, or a view of one.
        opaque: how to run opaque operators.
        exact: whether results keep the source's bits: constants folded in their own types, sums in a fixed order, no
            terms left out.
    """

    kernels: tuple[Kernel, ...]
    roots: tuple[Node, ...]
    results: tuple[Result, ...]
    constants: dict[str, Array]
    opaque: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[Node, Node] = field(default_factory=dict)
    computed: Mapping[int, Node] = field(default_factory=dict)
    exact: bool = False

    def launched(self) -> list[list[int]]:
        """The kernels by position, with those that are priced as one launch together."""
        found: list[list[int]] = []
        for i, kernel in enumerate(self.kernels):
            if kernel.beside:
                found[-1].append(i)
            else:
                found.append([i])
        return found

    def run_numpy(self, env: Mapping[str, Array]) -> list[Array]:
        """The flat values of the roots, kernel by kernel, given input name to flat array.

        Raises:
            InputError: an input is missing.
        """
        values: dict[Node, Array] = {}

        def value(node: Node) -> Array:
            if node not in values:
                (values[node],) = evaluate([node], env, self.constants, self.opaque)
            return values[node]

        for kernel in self.kernels:
            args = {p.attrs[0]: value(x) for p, x in zip(kernel.params, kernel.inputs, strict=True)}
            values.update(zip(kernel.outputs, evaluate(kernel.body, args, {}, self.opaque), strict=True))
        out = []
        for result in self.results:
            buffer = make("In", ("buffer", result.buffer.size, result.buffer.dtype))
            out += evaluate([make("V", (result.layout,), (buffer,))], {"buffer": value(result.buffer)}, {})
        return out


def build_plan(
    snapshot: Snapshot, result: CoverResult, program: CoreProgram, exact: bool = False, budget: Budget | None = None
) -> Plan:
    """The plan of a cover of `snapshot`, saturated from `program`; with `exact` as in `Plan`. All parts of a program
    share the `budget` of work ahead of time."""
    return _Builder(snapshot, result, program, exact, budget).plan()


class _Builder:
    def __init__(
        self, snapshot: Snapshot, result: CoverResult, program: CoreProgram, exact: bool, budget: Budget | None
    ) -> None:
        self.snapshot = snapshot
        self.budget = budget
        self.result = result
        self.program = program
        self.exact = exact
        self.chosen = {x.cls: x for x in result.chosen}
        self.free, self.constants, self.origins = self._free_nodes(_free_classes(snapshot, result))
        self.value: dict[int, Node] = {}
        """The node that represents each class in the rest of the program."""

    def plan(self) -> Plan:
        kernels: list[Kernel] = []
        for group in launches(self.result):
            if group[0].family == "alias":
                self._bind(group[0])
            elif share_a_launch(group):
                kernels += self._side_by_side(group)
            else:
                kernels.append(self._kernel(group, group[0].price))
        roots = self.snapshot.roots
        return Plan(
            kernels=tuple(_distinct_names(kernels)),
            roots=tuple(self._global(r) for r in roots),
            results=tuple(Result(*self._buffer(r)) for r in roots),
            constants=self.constants,
            opaque=self.program.opaque,
            origins=self.origins,
            computed={c: make("V", (layout,), (at,)) for c in self.value for at, layout in [self._buffer(c)]},
            exact=self.exact,
        )

    # --- where values lie ---------------------------------------------------------------------------------------

    def _free_nodes(self, classes: Sequence[int]) -> tuple[dict[int, Node], dict[str, Array], dict[Node, Node]]:
        """Inputs, and constants computed ahead of time: the node of each class, and the constants' values and
        origins."""
        snapshot = self.snapshot
        inputs = {c: make("In", n.attrs) for c in classes for n in snapshot.of_class(c) if n.op == "In"}
        constants = [c for c in classes if c not in inputs]
        nodes, written = _constant_nodes(snapshot, constants)
        folded = fold(nodes, self.program.constants, nodes if self.exact else written, budget=self.budget)
        known, origins = folded.constants, folded.origins
        laid_out = [_laid_out(node, known) for node in folded.roots]
        for node, moved in zip(folded.roots, laid_out, strict=True):
            if moved is not node and moved.op == "Const":
                (origins[moved],) = substitute([node], origins)
        used = [n for n in topological(laid_out) if n.op == "Const"]
        return (
            inputs | dict(zip(constants, laid_out, strict=True)),
            {n.attrs[0]: known[n.attrs[0]] for n in used},
            {n: origins[n] for n in used if n in origins},
        )

    def _buffer(self, c: int) -> tuple[Node, Layout]:
        """The buffer of a class, and the layout to read it through: aliases and folded views share another's buffer."""
        layout = identity(self.snapshot.size[c])
        while c in self.chosen and self.chosen[c].family == "alias":
            top = self.snapshot.nodes[self.chosen[c].cut.node]
            layout = _composed(top.attrs[0], layout)
            c = top.args[0]
        node = self.value[c] if c in self.chosen else self.free[c]
        if node.op == "V" and c not in self.chosen:
            return node.args[0], _composed(node.attrs[0], layout)
        return node, layout

    def _bind(self, alias: Candidate) -> None:
        top = self.snapshot.nodes[alias.cut.node]
        self.value[alias.cls] = make("V", top.attrs, (self._global(top.args[0]),))

    def _global(self, c: int) -> Node:
        return self.value[c] if c in self.value else self.free[c]

    # --- kernels ------------------------------------------------------------------------------------------------

    def _side_by_side(self, group: Sequence[Candidate]) -> list[Kernel]:
        """Kernels that share a launch, which the first of them pays."""
        apart = [x.cut.price for x in group]
        launch = (sum(apart) - group[0].price) // max(1, len(group) - 1)
        return [
            replace(self._kernel([x], price - launch * (i > 0)), beside=i > 0)
            for i, (x, price) in enumerate(zip(group, apart, strict=True))
        ]

    def _kernel(self, group: Sequence[Candidate], price: int) -> Kernel:
        """The kernel that computes these classes, for so many picoseconds."""
        reads = _Reads(self._buffer)
        cuts = [x.cut for x in group]
        body = Body(self.snapshot, reads.node)
        expressions = body.nodes(cuts)
        written_out = Body(self.snapshot, reads.node, written_out=True).nodes(cuts) if body.sums else expressions
        inputs = tuple(reads.params)
        params = tuple(reads.params.values())
        outputs = tuple(substitute(expressions, dict(zip(params, inputs, strict=True))))
        for x, output in zip(group, outputs, strict=True):
            self.value[x.cls] = output
        family = self._family(group)
        figures = _figures(family, expressions)
        return Kernel(
            name=figures.name,
            family=family,
            outputs=outputs,
            inputs=inputs,
            params=params,
            body=written_out,
            flops=figures.flops,
            bytes=figures.bytes,
            predicted_us=price * 1e-6,
            ops=list(figures.ops),
            launches=group[0].launches,
            slices=group[0].slices,
        )

    def _family(self, group: Sequence[Candidate]) -> str:
        """The family of a kernel. Where a cover computes some outputs of a joint kernel in another one, the rest may
        lack the rows that gave the kernel its family.
        """
        first = group[0]
        joint = first.call is not None and first.call[0] == first.family != "opaque"
        return joint_family(self.snapshot, [x.cut for x in group]) if joint else first.family


class _Figures(NamedTuple):
    """What the expressions of a kernel say of it, over its params: as in `Kernel`."""

    name: str
    flops: int
    bytes: int
    ops: tuple[str, ...]


@lru_cache(maxsize=1 << 10)
def _figures(family: str, expressions: tuple[Node, ...]) -> _Figures:
    """Layers repeat, and their kernels are equal over their params."""
    return _Figures(
        kernel_name(family, expressions),
        sum(flops(n) for n in topological(expressions)),
        _bytes_read(expressions) + sum(n.size * itemsize(n.dtype) for n in expressions),
        tuple(numpy_ops(expressions)),
    )


def launches(result: CoverResult) -> list[list[Candidate]]:
    """The chosen candidates, with aliases; candidates of one launch are grouped at the position of the first."""
    groups: dict[object, list[Candidate]] = {}
    for x in result.chosen:
        groups.setdefault(x.call or x.cls, []).append(x)
    return list(groups.values())


def share_a_launch(group: Sequence[Candidate]) -> bool:
    """Whether these candidates of one launch are kernels of their own."""
    call = group[0].call
    return call is not None and call[0] == SHARED_LAUNCH


def folding_flops(snapshot: Snapshot, result: CoverResult) -> int:
    """FLOPs for computing a cover's constants ahead of time."""
    return _cheapest_constants(snapshot, [c for c in _free_classes(snapshot, result) if snapshot.const[c]]).cost


def folding_bytes(snapshot: Snapshot, result: CoverResult) -> int:
    """Bytes of the constants that a cover reads and the program does not have, which are computed ahead of time."""
    made = [c for c in _free_classes(snapshot, result) if snapshot.const[c]]
    held = {node.cls for node in snapshot.nodes if node.op in ("Const", "Full")}
    return sum(snapshot.size[c] * itemsize(snapshot.dtype[c]) for c in made if c not in held)


def _free_classes(snapshot: Snapshot, result: CoverResult) -> list[int]:
    """The classes that a cover needs but does not compute: inputs and constants."""
    needed = {*snapshot.roots, *(c for x in result.chosen for c in _leaf_classes(x.cut))}
    return sorted(needed.difference(x.cls for x in result.chosen))


def _leaf_classes(cut: Cut) -> set[int]:
    """The leaf classes of a cut, including literals."""
    return {x.cls for x in parts((cut,)) if x.node < 0}


class _Reads:
    """What a kernel reads: params, which are created when buffers are first read."""

    def __init__(self, buffer: Callable[[int], tuple[Node, Layout]]) -> None:
        self.buffer = buffer
        self.params: dict[Node, Node] = {}

    def node(self, c: int) -> Node:
        """The value of a class, read from its buffer."""
        buffer, layout = self.buffer(c)
        if buffer.op == "Full":
            return buffer
        if buffer not in self.params:
            self.params[buffer] = make("In", (f"a{len(self.params)}", buffer.size, buffer.dtype))
        return make("V", (layout,), (self.params[buffer],))


@dataclass(frozen=True, slots=True)
class _Constants:
    """Constant classes, each with the node that computes it, and the FLOPs needed."""

    node: dict[int, ENode]
    cost: int


def _cheapest_constants(snapshot: Snapshot, classes: Sequence[int]) -> _Constants:
    """How to compute constant classes in few operations, sharing common parts.

    A value that the source has is computed as in the source, so that rewriting changes the rounding of new values only.
    """
    ways = _ways(snapshot, classes)
    reach = dict.fromkeys(_reached(classes, ways.__getitem__))
    usable = [n for c in reach for n in ways[c]]
    node_cost = [2 * prod(n.attrs) if n.op == "MM" else snapshot.size[n.cls] * bool(n.args) for n in usable]
    if all(len(ways[c]) == 1 for c in reach):  # as in a program as written
        return _Constants({n.cls: n for n in usable}, sum(node_cost))
    index = {c: k for k, c in enumerate(reach)}
    problem = Problem(
        node_class=[index[n.cls] for n in usable],
        node_cost=node_cost,
        children=[tuple(index[a] for a in dict.fromkeys(n.args)) for n in usable],
        n_classes=len(index),
        roots=tuple(index[c] for c in classes),
    )
    found = solve(problem, FOLD_SEARCH_SECONDS)
    return _Constants({c: usable[found.choice[k]] for c, k in index.items() if k in found.choice}, found.cost)


def _ways(snapshot: Snapshot, classes: Sequence[int]) -> dict[int, list[ENode]]:
    """The e-nodes that may compute each constant class: the source's own, where these compute it from constants alone
    (they may read the class itself, as in max(x, x) where x was found to be constant), otherwise all."""
    own = {c: _from_constants(snapshot, c) for c in _reached(classes, lambda c: _from_constants(snapshot, c))}
    written = [n for nodes in own.values() for n in nodes if n.rule == SOURCE]
    readers: dict[int, list[int]] = {}
    waiting = [len(set(n.args)) for n in written]
    for i, n in enumerate(written):
        for a in set(n.args):
            readers.setdefault(a, []).append(i)
    done = [i for i, count in enumerate(waiting) if not count]
    known: set[int] = set()
    for i in done:  # grows
        if written[i].cls not in known:
            known.add(written[i].cls)
            for reader in readers.get(written[i].cls, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    done.append(reader)
    computed: dict[int, list[ENode]] = {}
    for i in sorted(done):
        computed.setdefault(written[i].cls, []).append(written[i])
    return own | computed


def _from_constants(snapshot: Snapshot, c: int) -> list[ENode]:
    """The e-nodes of a class that read constants alone."""
    return [n for n in snapshot.of_class(c) if all(snapshot.const[a] for a in n.args)]


def _reached(classes: Iterable[int], ways: Callable[[int], Iterable[ENode]]) -> list[int]:
    """These classes, and all that the e-nodes of these read."""
    found = dict.fromkeys(classes)
    stack = list(found)
    while stack:
        below = {a: None for n in ways(stack.pop()) for a in n.args if a not in found}
        found |= below
        stack += below
    return list(found)


def _constant_nodes(snapshot: Snapshot, classes: Sequence[int]) -> tuple[list[Node], list[Node]]:
    """Core nodes that compute constant classes in few operations, and the nodes below them that the source has."""
    chosen = _cheapest_constants(snapshot, classes).node
    made: dict[int, Node] = {}
    written: list[Node] = []
    work = list(reversed(classes))
    while work:
        c = work[-1]
        n = chosen[c]
        wait = [a for a in n.args if a not in made]
        if c not in made and wait:
            work += wait
            continue
        work.pop()
        if c not in made:
            made[c] = make(n.op, n.attrs, tuple(made[a] for a in n.args))
            written += [made[c]] * (n.rule == SOURCE)
    return [made[c] for c in classes], written


def _laid_out(node: Node, constants: dict[str, Array]) -> Node:
    """A folded constant as kernels read it: stored in its own order, as it was priced. A constant that repeats a
    smaller array, or is part of one, stays a view of it."""
    if node.op != "V":
        return node
    (layout,), (base,) = node.attrs, node.args
    if base.op not in MOVES:  # too much work to do ahead of time
        return node
    if base.op == "Const" and not layout.masked:
        if layout.contiguous or layout.size > base.size:
            return node
        if layout.size * itemsize(node.dtype) >= LARGE_BYTES:
            return view_node(base, layout, constants)
    (value,) = evaluate([node], {}, constants)
    return constant_node(ConstArray(value), constants)


def _composed(first: Layout, then: Layout) -> Layout:
    """The composition of a contiguous slice, or a folded view, with a contiguous slice; it always exists."""
    layout = compose(first, then)
    if layout is None:
        raise CheckFailed(f"plan: {then!r} of {first!r} has no layout")
    return layout


def _bytes_read(body: Sequence[Node]) -> int:
    """Bytes of the params that are read, each counted once."""
    order = topological(body)
    needed = {n: n.size if n in body else 0 for n in order}
    for n in reversed(order):
        for a, elements in zip(n.args, _needed_below(n, needed[n]), strict=True):
            needed[a] = min(a.size, needed[a] + elements)
    return sum(needed[n] * itemsize(n.dtype) for n in order if n.op == "In")


def _needed_below(node: Node, elements: int) -> Sequence[int]:
    """At most how many elements of each operand are needed for so many elements of a node."""
    match node.op:
        case "V":
            return (min(elements, footprint(node.attrs[0])),)
        case "MM" | "Red" | "Opaque":
            return [a.size for a in node.args]
        case _:
            return [elements] * len(node.args)


def _distinct_names(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Add numbers to the names of kernels with the same name but different bodies."""
    bodies: dict[str, dict[tuple[Node, ...], int]] = {}
    out = []
    for kernel in kernels:
        numbers = bodies.setdefault(kernel.name, {})
        number = numbers.setdefault(kernel.body, len(numbers) + 1)
        out.append(kernel if number == 1 else replace(kernel, name=f"{kernel.name}_{number}"))
    return out
