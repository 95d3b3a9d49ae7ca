"""Pointwise kernels: every output element from elements of the inputs, at indices that views, concatenations and
gathers choose.

    out_j[i] = f_j(in_0[L_0(i)], in_1[L_1(i)], ...)

Outputs of one size share a loop. Each thread takes `width` adjacent elements, so that it reads and writes up to 16
bytes at a time. Copies, changes of layout, concatenations and gathers are pointwise kernels with f(x) = x. Transposed
operands go through LDS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.base.numerics import itemsize
from eqsat.gpu.code.c_writer import Region
from eqsat.gpu.code.index import Index, Var
from eqsat.gpu.code.scalar import ACCESS_BYTES, STORAGE, Lanes, Lowering, Traffic, stored
from eqsat.gpu.families.base import Choice, Family, Job, Kernel, finished, part_of
from eqsat.gpu.families.pointwise.examples import examples
from eqsat.gpu.families.pointwise.turned import Square, fields, square_of
from eqsat.gpu.table.limits import THREADS
from eqsat.gpu.table.targets import Target
from eqsat.program.core import Node

WIDTHS = (8, 4, 2, 1)
"""Legal numbers of neighbouring elements a thread; 16 bytes are one access."""

_CHUNKS_A_UNIT = 512
"""Threads that a compute unit should have before elements are joined: two waves on each of four SIMDs."""


def generate(job: Job, target: Target) -> Kernel:
    """The kernel of a job whose every node is pointwise, a view, a concatenation or a gather.

    Raises:
        InputError: an operator has no GPU form.
    """
    square = square_of(job) if job.choice.width is None else None
    if square is not None:
        return _turned(job, square)
    sizes = dict.fromkeys(node.size for node in job.outputs)
    parts: list[dict[str, Any]] = [
        _part(job, [(i, n) for i, n in enumerate(job.outputs) if n.size == size]) for size in sizes
    ]
    part = part_of(job, "Pointwise", "pointwise/body.jinja", threads=THREADS, parts=parts)
    entry, source = finished(FAMILY.name, THREADS, part)
    chunks = max(part["chunks"] for part in parts)
    return Kernel(
        entry=entry,
        family=FAMILY.name,
        variant=f"width{parts[0]['width']}",
        source=source,
        blocks=-(-chunks // THREADS),
        threads=THREADS,
        arguments=(*job.inputs, *job.outputs),
        part=part,
    )


def _turned(job: Job, square: Square) -> Kernel:
    found = fields(job, square)
    part = part_of(job, "Pointwise, turned", "pointwise/turned.jinja", threads=THREADS, **found)
    entry, source = finished(FAMILY.name, THREADS, part)
    return Kernel(
        entry=entry,
        family=FAMILY.name,
        variant=f"turned{square.edge}",
        source=source,
        blocks=square.blocks,
        threads=THREADS,
        arguments=(*job.inputs, *job.outputs),
        part=part,
    )


def _part(job: Job, outputs: Sequence[tuple[int, Node]]) -> dict[str, Any]:
    """The loop over outputs of one size."""
    size = outputs[0][1].size
    widest = max(1, ACCESS_BYTES // min(itemsize(job.dtype(node)) for _, node in outputs))
    legal = [w for w in WIDTHS if w <= widest and size % w == 0]
    wanted = [w for w in legal if size // w >= job.units * _CHUNKS_A_UNIT] or legal[-1:]
    if job.choice.width in legal:
        wanted = [job.choice.width]
    bodies = {w: _body(job, outputs, w) for w in wanted}
    # Load instructions an element decide; the wider the better among equals.
    width = min(bodies, key=lambda w: (bodies[w][1].loads / w, -w))
    return {"chunks": size // width, "width": width, "body": bodies[width][0]}


def _body(job: Job, outputs: Sequence[tuple[int, Node]], width: int) -> tuple[str, Traffic]:
    size = outputs[0][1].size
    chunk, lane = Var("chunk", size // width), Var("u", width)
    region = Region([chunk], job.index_type)
    index = Index.of(chunk) * width + Index.of(lane)
    for i, node in outputs:
        region.statement(f"eq_run<{STORAGE[job.dtype(node)]}, {width}> run{i};")
    traffic = Traffic()
    with region.unrolled(lane):
        lowering = Lowering(region, job.leaves, Lanes(lane), traffic=traffic)
        for i, node in outputs:
            region.statement(f"run{i}.v[u] = {stored(lowering.value(node, index).text, job.dtype(node))};")
    for i, _ in outputs:
        region.statement(f"eq_write_run(out{i} + {region.index(Index.of(chunk) * width).text}, run{i});")
    return region.text, traffic


def _choices(_: Target, dtype: str) -> list[Choice]:
    return [Choice(), *(Choice(width=w) for w in WIDTHS if w * itemsize(dtype) <= ACCESS_BYTES)]


FAMILY = Family("pointwise", (__doc__ or "").strip(), _choices, examples)
