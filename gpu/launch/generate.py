"""From a plan's kernel to kernel texts: the family's template, and rewrites that split one kernel into several.

Most kernels are one launch. Three kinds take two: a stream of few blocks and a long axis, in slices of the axis; a
reduction of few long rows, in slices of the row; and a product reduced in a type without hardware atomics, by partial
results. Both launches are ordinary kernels over rewritten expressions. A kernel that no template can express is split
at its innermost products and reductions until templates can express the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil

from eqsat.base.numerics import HALVES, identity_of
from eqsat.gpu.code.errors import NotLowerable
from eqsat.gpu.families import contraction, group, pointwise, row, stream
from eqsat.gpu.families.base import Choice, Job, Kernel
from eqsat.gpu.families.row.passes import domain_of
from eqsat.gpu.families.stream.slices import Sliced, joined
from eqsat.gpu.table.limits import ATOMIC_DTYPES, K_SLICES, ROW_SLICES, THREADS
from eqsat.gpu.table.targets import Target
from eqsat.gpu.table.tiles import ranked_tiles
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node, make
from eqsat.program.node import substitute
from eqsat.streams.row_sums import is_row_sum, row_sum

_PADDABLE = ("sum", "prod", "max", "min")
"""Reductions that more elements may leave as they are: the others give a position."""


@dataclass(frozen=True)
class Chain:
    """The launches of one kernel of a plan.

    Attributes:
        kernels: in order; their arguments are the job's params and outputs, and temporaries.
        temporaries: arrays between the launches, with their element type in memory.
    """

    kernels: tuple[Kernel, ...]
    temporaries: Mapping[Node, str] = field(default_factory=dict)


@lru_cache(maxsize=4096)
def chain(
    family: str,
    body: tuple[Node, ...],
    params: tuple[Node, ...],
    target: Target,
    units: int,
    exact: bool = False,
    choice: Choice = Choice(),
) -> Chain:
    """The launches that compute `body` over `params`; equal bodies have equal launches.

    Args:
        units: compute units of the device.
        exact: the order of sums must not depend on which block comes first: no atomics.
        choice: tuning parameters.
    """
    job = Job(body, params, units=units, choice=choice)
    try:
        if family == stream.FAMILY.name:
            return _streamed(job, target, exact)
        return _lowered(job, target, exact)
    except NotLowerable:
        return _split(job, target, exact)


def _lowered(job: Job, target: Target, exact: bool) -> Chain:
    kinds = {node.op for node in job.nodes}
    around = next((lower for op, lower in AROUND.items() if op in kinds), None)
    return around(job, target, exact) if around else Chain((pointwise.generate(job, target),))


# --- products ---------------------------------------------------------------------------------------------------


def _products(job: Job, target: Target, exact: bool) -> Chain:
    """Products with reductions or with each other: of outputs of their own, of a product's edge, or along one axis."""
    kinds = [node.op for node in job.nodes]
    if kinds.count("MM") == 1 and "Red" not in kinds:
        return _product(job, target)
    for made in (_several_products, _reduced_product):
        try:
            return made(job, target, exact)
        except NotLowerable:
            continue
    return _streamed(job, target, exact)


def _streamed(job: Job, target: Target, exact: bool) -> Chain:
    """One walk, or one for each slice of the axis and a launch that joins them."""
    eased = stream.eased(job, exact)
    made = _walked(eased, target, exact)
    names = dict(zip(eased.outputs, job.outputs, strict=True))
    return Chain(tuple(_renamed(k, names) for k in made.kernels), made.temporaries)


def _walked(job: Job, target: Target, exact: bool) -> Chain:
    sliced = None if exact else stream.sliced(job, target)
    if sliced is not None:
        with suppress(NotLowerable):  # the joining launch has each total at its own row only
            return _joined_slices(job, sliced, target)
    return Chain((stream.generate(job, target, exact),))


def _joined_slices(job: Job, sliced: Sliced, target: Target) -> Chain:
    held = {n: make("In", (f"part{n.uid}", sliced.slices * n.size, n.dtype)) for n in sliced.parts}
    storage = dict.fromkeys(held.values(), "float32")
    rest = joined(job, sliced, held)
    second = row.generate(_used(Job(rest, (*job.inputs, *held.values()), storage, job.units)), target)
    return _joined([sliced.kernel, second], held, dict(zip(rest, job.outputs, strict=True)), storage)


def _product(job: Job, target: Target) -> Chain:
    core = contraction.core_of(job)
    if is_row_sum(core.attrs):
        total = row_sum(core.attrs, core.args)
        sums = replace(job, outputs=tuple(substitute(job.outputs, {core: total})))
        made = _rows(sums, target)
        names = dict(zip(sums.outputs, job.outputs, strict=True))
        return Chain(tuple(_renamed(k, names) for k in made.kernels), made.temporaries)
    slices = job.choice.slices or _slices_of_k(job, core, target)
    kernel = contraction.generate(replace(job, choice=replace(job.choice, slices=slices)), target)
    return Chain((kernel,), _own_arrays(kernel, job))


def _own_arrays(kernel: Kernel, job: Job) -> dict[Node, str]:
    """What a job's kernel writes beside its outputs and counters, with element types."""
    known = {*job.inputs, *job.outputs, *kernel.counters}
    return {node: node.dtype for node in kernel.arguments if node not in known}


def _several_products(job: Job, target: Target, _exact: bool) -> Chain:
    """Independent products, each with outputs of its own, as one launch.

    Raises:
        NotLowerable: an output needs two products, or a reduction.
    """
    outputs: dict[Node, list[Node]] = {}
    for output in job.outputs:
        (product, *others) = [n for n in replace(job, outputs=(output,)).nodes if n.op in AROUND] or [output]
        if product.op != "MM" or others:
            raise NotLowerable(f"{output!r} is no pointwise function of one product")
        outputs.setdefault(product, []).append(output)
    members = []
    for product, own in outputs.items():
        part = _used(replace(job, outputs=tuple(own), choice=member_choice(product, target, job.units)))
        members.append(contraction.generate(part, target))
    return Chain((group.grouped(group.side_by_side(members, members)),))


def streaming_member(body: tuple[Node, ...], params: tuple[Node, ...], target: Target, units: int) -> Choice | None:
    """The tuning parameters of a stream as a member of a group; None where no tile has the threads of the others."""
    tiles = stream.tiles_of(Job(body, params, units=units), target)
    return next((Choice(tile=t.name, slices=1) for t in tiles if t.threads(target) == THREADS), None)


def member_choice(product: Node, target: Target, units: int) -> Choice:
    """The tuning parameters of a member of a group: the best tile with as many threads as the others have."""
    ranked = ranked_tiles(target, product.attrs, product.args[0].dtype, units)
    return Choice(tile=next(t.name for t in ranked if not t.grouped and t.threads(target) == THREADS), slices=1)


def _slices_of_k(job: Job, core: Node, target: Target) -> int:
    """Into how many slices of k a product is cut so that every compute unit has a block."""
    batch, m, k, n = core.attrs
    tile = contraction.tile_of(job, target)
    blocks = batch * ceil(m / tile.rows) * ceil(n / tile.columns)
    return K_SLICES.slices(job.units, blocks, k)


def _reduced_product(job: Job, target: Target, exact: bool) -> Chain:
    """A product reduced along an edge: by atomics, or by partial results where the type or the order forbids them."""
    outputs = [node for node in job.outputs if node.op == "Red"]
    if not outputs:
        raise NotLowerable("no output is a reduction of a product")
    lines = contraction.partial_lines(job, target)
    combine = job.choice.combine or "wave"
    atomic = not exact and combine != "two-pass" and all(n.dtype in ATOMIC_DTYPES for n in outputs)
    if lines == 1 or atomic:
        kernel = contraction.generate(job, target, combine=combine)
        return Chain((kernel,), _own_arrays(kernel, job))
    storage = {n: _wide(n.dtype) for n in outputs}
    first = contraction.generate(replace(job, storage=storage), target, combine="two-pass")
    kernels, held = [first], {}
    for node in outputs:
        partial = make("In", (f"partial{node.uid}", lines * node.size, node.dtype))
        held[node] = partial
        by_line = make("V", (lay.strided(0, ((node.size, 1), (lines, node.size))),), (partial,))
        total = make("Red", (node.attrs[0], lines), (by_line,))
        job_of_total = Job((total,), (partial,), {partial: storage[node]}, job.units)
        second = row.generate(job_of_total, target)
        kernels.append(_renamed(second, {total: node}))
    kernels[0] = _renamed(first, held)
    return Chain(tuple(kernels), _own_arrays(first, job) | {held[n]: storage[n] for n in outputs})


# --- rows -------------------------------------------------------------------------------------------------------


def _rows(job: Job, target: Target) -> Chain:
    domain = domain_of(job)
    slices = job.choice.slices or ROW_SLICES.slices(job.units, domain.rows, domain.columns)
    plain = max(domain.level.values()) == 0 and all(n.attrs[0] in _PADDABLE for n in domain.reductions)
    one_a_row = all(node.size == domain.rows for node in job.outputs if node in domain.above)
    if any(node not in domain.above for node in job.outputs):  # written on the way, so that no slice may be padded
        slices = next(s for s in range(slices, 0, -1) if domain.columns % s == 0)
    if slices == 1 or not plain or not one_a_row:
        return Chain((row.generate(job, target),))
    return _sliced_rows(job, slices, target)


def _sliced_rows(job: Job, slices: int, target: Target) -> Chain:
    """Each slice of each row reduced, then the slices; slices are outermost, so that rows stay neighbours.

    Outputs that depend on no reduction are written by the first launch.
    """
    domain = domain_of(job)
    rows, columns = domain.rows, domain.columns
    length = ceil(columns / slices)
    slices = ceil(columns / length)
    partials, totals, held, storage = {}, {}, {}, {}
    for node in domain.reductions:
        kind, (x,) = node.attrs[0], node.args
        if slices * length != columns:
            fill = identity_of(kind, x.dtype)
            x = make("V", (lay.of_pad((rows, columns), (0, 0), (0, slices * length - columns), fill),), (x,))
        sliced = make("V", (lay.strided(0, ((slices, length), (rows, slices * length), (length, 1))),), (x,))
        partial = make("Red", (kind, length), (sliced,))
        partials[node] = partial
        held[partial] = _temporary("partial", partial)
        storage[held[partial]] = _wide(node.dtype)
        by_slice = make("V", (lay.strided(0, ((rows, 1), (slices, rows))),), (held[partial],))
        totals[node] = make("Red", (kind, slices), (by_slice,))
    outputs = tuple(dict.fromkeys(partials.values()))
    wide = {p: storage[held[p]] for p in outputs}
    on_the_way = tuple(n for n in job.outputs if n not in domain.above)
    first = row.generate(_used(Job((*outputs, *on_the_way), job.inputs, wide, job.units)), target)
    last = [n for n in job.outputs if n in domain.above]
    rest = tuple(substitute(last, totals))
    params = (*job.inputs, *dict.fromkeys(held.values()))
    second = row.generate(_used(Job(rest, params, storage, job.units)), target)
    return _joined([first, second], held, dict(zip(rest, last, strict=True)), storage)


# --- what no template holds -------------------------------------------------------------------------------------


def _split(job: Job, target: Target, exact: bool) -> Chain:
    """Every output by a kernel of its own; what these share, or no template holds, by kernels before them.

    Raises:
        NotLowerable: a part has no kernel of its own.
    """
    parts = _Parts(job, target, exact)
    for node in job.nodes:
        if node in job.outputs or node in parts.shared:
            parts.compute(node)
    names = {parts.held[n]: n for n in job.outputs}
    own = {h: n.dtype for n, h in parts.held.items() if h not in names}
    return Chain(tuple(_renamed(k, names) for k in parts.kernels), {**own, **parts.temporaries})


class _Parts:
    """A job in pieces: `held` says in which array each piece lies once the `kernels` so far have run."""

    def __init__(self, job: Job, target: Target, exact: bool) -> None:
        self.job, self.target, self.exact = job, target, exact
        self.held: dict[Node, Node] = {}
        self.kernels: list[Kernel] = []
        self.temporaries: dict[Node, str] = {}
        inside = [self._heavy(o, [n for n in job.outputs if n is not o]) for o in job.outputs]
        self.shared = {n for i, found in enumerate(inside) for n in found if any(n in g for g in inside[:i])}

    def compute(self, node: Node) -> None:
        """Add the kernels that leave `node` in an array."""
        while (made := self._attempt(node)) is None:
            self.compute(self._cut(node))
        chained, body = made
        self.held[node] = _temporary("value", node)
        self.kernels += [_renamed(k, {body: self.held[node]}) for k in chained.kernels]
        self.temporaries.update(chained.temporaries)

    def _attempt(self, node: Node) -> tuple[Chain, Node] | None:
        """The launches that compute a node from the arrays so far; None where it must be taken apart further."""
        (body,) = substitute((node,), self.held)
        part = _used(Job((body,), (*self.job.inputs, *self.held.values()), units=self.job.units))
        try:
            return _lowered(part, self.target, self.exact), body
        except NotLowerable:
            if not self._heavy(node, self.held):
                raise
            return None

    def _cut(self, node: Node) -> Node:
        """Where to take a node apart: at a product's operand that is more than pointwise, else as far in as can be."""
        for product in [n for n in self._inside(node, self.held) if n.op == "MM"]:
            for operand in product.args:
                while operand.op == "V" and operand not in self.held:
                    (operand,) = operand.args
                if any(n.op in AROUND for n in self._inside(operand, self.held)):
                    return operand
        return self._heavy(node, self.held)[0]

    def _heavy(self, node: Node, known: Iterable[Node]) -> list[Node]:
        """The products and reductions that `node` needs beside arrays that are `known`, innermost first."""
        return [n for n in self._inside(node, known) if n.op in AROUND and n is not node]

    def _inside(self, node: Node, known: Iterable[Node]) -> list[Node]:
        return Job((node,), (*self.job.inputs, *known)).nodes


# --- small parts ------------------------------------------------------------------------------------------------


def _wide(dtype: str) -> str:
    """The type in which partial results are stored: halves are only rounded at the end."""
    return "float32" if dtype in HALVES else dtype


def _temporary(name: str, node: Node) -> Node:
    """An array of the node's size and type that is handed from one launch to the next."""
    return make("In", (f"{name}{node.uid}", node.size, node.dtype))


def _used(job: Job) -> Job:
    """The job without the inputs that it does not read."""
    read = {a for node in job.nodes for a in node.args}
    return replace(job, inputs=tuple(n for n in job.inputs if n in read or n in job.outputs))


def _renamed(kernel: Kernel, names: Mapping[Node, Node]) -> Kernel:
    """The kernel with other arrays for its arguments."""
    return replace(
        kernel,
        arguments=tuple(names.get(n, n) for n in kernel.arguments),
        fills={names.get(n, n): v for n, v in kernel.fills.items()},
    )


def _joined(
    kernels: Sequence[Kernel], held: Mapping[Node, Node], outputs: Mapping[Node, Node], storage: Mapping[Node, str]
) -> Chain:
    names = {**held, **outputs}
    return Chain(tuple(_renamed(k, names) for k in kernels), dict(storage))


AROUND: dict[str, Callable[[Job, Target, bool], Chain]] = {
    "MM": _products,
    "Red": lambda job, target, exact: _rows(job, target),
}
"""How to lower a kernel that is built around an operator; the first that it holds decides. All other operators are
computed element by element."""
