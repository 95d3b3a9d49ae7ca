"""Reductions that run across rows: threads lie along rows, and each walks down its columns, once for each pass.

The columns are shared among slices of the block, whose totals meet in LDS between the passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.base.numerics import itemsize
from eqsat.gpu.code.scalar import ACCESS_BYTES
from eqsat.gpu.families.base import Job, Kernel, finished, part_of
from eqsat.gpu.families.row.passes import WIDTHS, Domain, Pass, Walk, passes
from eqsat.gpu.table.limits import KEPT_REGISTERS, THREADS
from eqsat.gpu.table.targets import Target

_LINE = 64
"""Most threads along the rows: they read neighbouring vectors of one column."""

_LARGEST = 8
"""Bytes of the largest element."""

_SECTOR = 64
"""Bytes that they read together at least: memory moves no less. With fewer threads along few rows, more blocks share
the columns: 1000 rows of 2048 took an NVIDIA H200 47 us in four blocks, for 8 MB."""


@dataclass(frozen=True)
class Drafted:
    """A kernel and its load and store instructions for an element."""

    kernel: Kernel
    loads: float


def across(job: Job, domain: Domain, target: Target) -> Drafted | None:
    """The cheapest kernel of this form; None where a block's totals do not fit on chip."""
    arrays = [n for n in (*job.inputs, *job.outputs) if n.size >= domain.rows]
    least = min((itemsize(job.dtype(n)) for n in arrays), default=ACCESS_BYTES)
    widths = [w for w in WIDTHS if domain.rows % w == 0 and w * least <= ACCESS_BYTES] or [1]
    drafts = [x for x in (_draft(job, domain, target, w) for w in widths) if x is not None]
    return min(drafts, key=lambda d: d.loads, default=None)


def _draft(job: Job, domain: Domain, target: Target, width: int) -> Drafted | None:
    line = _line(job, domain, width)
    threads = THREADS
    made = passes(job, walk := Walk(domain, width, threads // line, across=True))
    if len(made.passes) > 1:
        threads = _threads(domain, line * width, target.max_threads)
        made = passes(job, walk := Walk(domain, width, threads // line, across=True))
    places, lds_bytes = _places(made.passes, line * width, walk.threads)
    if lds_bytes > target.lds_bytes:
        return None
    part = part_of(
        job,
        f"Rows, {line} threads along them, {walk.threads} slices of the columns",
        "row/across.jinja",
        lds_bytes,
        threads=threads,
        line=line,
        walk=walk,
        made=made,
        places=places,
    )
    entry, source = finished("reduction", threads, part)
    kernel = Kernel(
        entry=entry,
        family="row",
        variant=f"across{line}_width{width}" + (f"_threads{threads}" if threads > THREADS else ""),
        source=source,
        blocks=-(-domain.rows // (line * width)),
        threads=threads,
        arguments=(*job.inputs, *job.outputs),
        part=part,
    )
    return Drafted(kernel, made.loads)


def _places(made: Sequence[Pass], rows: int, slices: int) -> tuple[dict[str, tuple[int, int]], int]:
    """By its name, where in LDS each total's rows lie and, before they are joined, its slices; and the bytes of all.

    Rows stay until the end. The slices of a pass are written over by the next pass.
    """
    totals = [total for p in made for total in p.totals]
    kept = len(totals) * rows * _LARGEST
    places, most = {}, kept
    for p in made:
        end = kept
        for total in sorted(p.totals, key=lambda x: -x.bytes):
            places[total.name] = totals.index(total) * rows * _LARGEST, end
            end += total.bytes * rows * slices
        most = max(most, end)
    return places, most


def _threads(domain: Domain, rows: int, most: int) -> int:
    """Threads of a block that walks several times: as many as hold the columns of its rows in registers, if any do."""
    threads = THREADS
    while threads < most and rows * domain.columns > threads * KEPT_REGISTERS:
        threads *= 2
    return threads if rows * domain.columns <= threads * KEPT_REGISTERS else THREADS


def _line(job: Job, domain: Domain, width: int) -> int:
    """Threads along the rows: as few as all rows need, or as leave no compute unit without a block."""
    least = min((itemsize(job.dtype(n)) for n in job.inputs), default=4)
    line = _LINE
    while line > 1 and (
        line // 2 * width >= domain.rows
        or (domain.rows < job.units * line * width and line // 2 * width * least >= _SECTOR)
    ):
        line //= 2
    return line
