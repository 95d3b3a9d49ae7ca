"""How the kernels of a plan become launches: independent small products share one.

Towers of unequal widths hold such products. They cannot be batched, and each alone leaves most of a device idle.
Kernels that a plan prices as one launch (`Kernel.beside`) stay together. Others join them where they fit, which saves
further launches.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.base.numerics import itemsize
from eqsat.extract.plan.plan import Kernel, Plan
from eqsat.gpu.table.sharing import FAMILIES, Member, launches, tiles
from eqsat.program.core import Node, topological

ACCESS_ALIGNMENT = 16
"""Bytes: kernels read and write whole vectors, so an array inside another must start at a multiple of this."""


def groups(plan: Plan) -> list[list[int]]:
    """The plan's kernels as launches in order, by their position: those of a group share one.

    Kernels that the plan prices as one launch stay together.
    """
    units = plan.launched()
    members = [_member([plan.kernels[i] for i in unit]) for unit in units]
    return [[i for at in launch for i in units[at]] for launch in launches(members)]


def _member(kernels: Sequence[Kernel]) -> Member:
    """Kernels that are one launch."""
    sizes = [_tiles(kernel) for kernel in kernels]
    reads = [node for kernel in kernels for node in kernel.inputs]
    writes = [node for kernel in kernels for node in kernel.outputs]
    return Member(sum(sizes) if all(sizes) else 0, reads, writes)


def _tiles(kernel: Kernel) -> int:
    """The tiles of a kernel that may share a launch; 0 for any other."""
    if kernel.family not in FAMILIES or kernel.launches != 1 or kernel.slices != 1:
        return 0
    batch, m, _, n = product_of(kernel).attrs
    return tiles(batch, m, n)


def product_of(kernel: Kernel) -> Node:
    """The product that a contraction or a stream is built around: no other one of the kernel needs it."""
    return next(node for node in reversed(topological(kernel.body)) if node.op == "MM")


def launch_counts(plan: Plan) -> tuple[list[int], int]:
    """(launches of each kernel, copies) once a plan is lowered.

    A concatenation whose parts are written in place takes no launch, and neither do the later members of a group. If
    each output must be an array of its own, copies move results out of other arrays.
    """
    inside = placed_in_place(plan)
    wholes = {whole for whole, _ in inside.values()}
    counts = [0 if kernel.outputs[0] in wholes else kernel.launches for kernel in plan.kernels]
    for group in groups(plan):
        for i in group[1:]:
            counts[i] = 0
    own = {node for kernel in plan.kernels for node in kernel.outputs if node not in inside}
    copies = 0
    for result in plan.results:
        node = result.buffer
        if node in own and result.layout.is_identity(node.size):
            own.remove(node)
        elif node.op != "Full" and result.layout.size:
            copies += 1
    return counts, copies


def placed_in_place(plan: Plan) -> dict[Node, tuple[Node, int]]:
    """Arrays that are written where a concatenation wants them: node to (concatenation, offset).

    A concatenation of whole arrays, each made by an earlier kernel for this one place, needs no kernel of its own.
    """
    producer = {n: k for k in plan.kernels for n in k.outputs if k.family != "opaque"}
    results = {r.buffer for r in plan.results}
    found: dict[Node, tuple[Node, int]] = {}
    for kernel in plan.kernels:
        body = kernel.body[0]
        if len(kernel.body) != 1 or body.op != "Cat" or set(body.args) != set(kernel.params):
            continue
        members = dict(zip(kernel.params, kernel.inputs, strict=True))
        offsets, offset = {}, 0
        for arg in body.args:
            offsets[members[arg]] = offset
            offset += arg.size
        aligned = all(at * itemsize(n.dtype) % ACCESS_ALIGNMENT == 0 for n, at in offsets.items())
        free = all(n in producer and n not in found and n not in results for n in offsets)
        whole = len(offsets) == len(body.args)
        if aligned and free and whole and not any(_needs_fill(producer[n]) for n in offsets):
            found.update((n, (kernel.outputs[0], at)) for n, at in offsets.items())
    return found


def _needs_fill(kernel: Kernel) -> bool:
    """Whether the kernel may gather its result by atomics, and so needs a buffer to fill."""
    return kernel.family == "contraction+reduction"
