"""Plain reductions that run across rows: threads lie along rows, and each walks down its columns.

The reduced values, and pointwise functions of them, may be written on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.base.numerics import itemsize
from eqsat.gpu.code.c_writer import Region, Value
from eqsat.gpu.code.index import Index, Var
from eqsat.gpu.code.scalar import ACCESS_BYTES, COMPUTE, Lanes, Lowering, Traffic, stored
from eqsat.gpu.families.base import Job, Kernel, finished, part_of
from eqsat.gpu.families.row.passes import Domain, Writes, anchored, reduced_type
from eqsat.gpu.table.limits import THREADS
from eqsat.program.core import Node

_WIDTHS = (8, 4, 2, 1)
_LINE = 64
"""Most threads along the rows: they read neighbouring vectors of one column."""

_SECTOR = 64
"""Bytes that they read together at least: memory moves no less. With fewer threads along few rows, more blocks share
the columns: 1000 rows of 2048 took an NVIDIA H200 47 us in four blocks, for 8 MB."""


@dataclass(frozen=True)
class Drafted:
    """A kernel and its load instructions for an element."""

    kernel: Kernel
    loads: float


def across(job: Job, domain: Domain) -> Drafted | None:
    """The cheapest kernel of this form; None where the job takes several passes over a row."""
    on_the_way = [n for n in job.outputs if n not in _of_rows(job, domain)]
    several = max(domain.level.values()) > 0 or any(n in domain.above for n in on_the_way)
    if several or any(n.attrs[0].startswith("arg") for n in domain.reductions):
        return None
    least = min(itemsize(job.dtype(n)) for n in (*job.inputs, *on_the_way))
    widths = [w for w in _WIDTHS if domain.rows % w == 0 and w * least <= ACCESS_BYTES]
    drafts = [_draft(job, domain, w, on_the_way) for w in widths]
    return min(drafts, key=lambda d: d.loads)


def _of_rows(job: Job, domain: Domain) -> list[Node]:
    """The outputs that hold one element a row, in the order of the rows."""
    row, c = Index.of(Var("row", domain.rows)), Index.of(Var("c", domain.columns))
    place = anchored(job, domain, row, row * domain.columns + c)
    return [n for n in job.outputs if place[n] == row]


def _draft(job: Job, domain: Domain, width: int, on_the_way: Sequence[Node]) -> Drafted:
    body, accesses = _body(job, domain, width, on_the_way)
    line = _line(job, domain, width)
    totals, lds_bytes = [], 0
    for i, n in enumerate(domain.reductions):
        ctype = reduced_type(n.args[0].dtype)
        totals.append(
            {
                "name": f"total{i}",
                "operator": f"eq_{n.attrs[0]}_of<{ctype}>",
                "ctype": ctype,
                "result_ctype": COMPUTE[n.dtype],
                "test": " != 0" if n.dtype == "bool" else "",
                "lds": lds_bytes,
            }
        )
        lds_bytes += THREADS * width * (8 if ctype in ("double", "long long") else 4)
    part = part_of(
        job,
        f"Reduction across rows, {line} threads along them, {THREADS // line} slices of the columns",
        "row/across.jinja",
        lds_bytes,
        threads=THREADS,
        line=line,
        slices=THREADS // line,
        width=width,
        domain=domain,
        totals=totals,
        body=body,
        row_body=_row_outputs(job, domain),
    )
    entry, source = finished("reduction", THREADS, part)
    kernel = Kernel(
        entry=entry,
        family="row",
        variant=f"across{line}_width{width}",
        source=source,
        blocks=-(-domain.rows // (line * width)),
        threads=THREADS,
        arguments=(*job.inputs, *job.outputs),
        part=part,
    )
    return Drafted(kernel, accesses)


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


def _body(job: Job, domain: Domain, width: int, on_the_way: Sequence[Node]) -> tuple[str, float]:
    """The statements for `width` rows at one column, and their loads and stores for each element."""
    rq, c, u = Var("rq", domain.rows // width), Var("c", domain.columns), Var("u", width)
    row = Index.of(rq) * width + Index.of(u)
    place = anchored(job, domain, row, row * domain.columns + Index.of(c))
    region = Region([rq, c], job.index_type)
    traffic = Traffic()
    writes = Writes(region, job, place, on_the_way, Lanes(u))
    with region.unrolled(u):
        lowering = Lowering(region, job.leaves, Lanes(u), {}, domain.fixed(place), traffic)
        for i, node in enumerate(domain.reductions):
            value = lowering.value(node.args[0], place[node.args[0]])
            operator = f"eq_{node.attrs[0]}_of<{reduced_type(node.args[0].dtype)}>"
            region.statement(f"total{i}.v[u] = {operator}::apply(total{i}.v[u], {value.text});")
        writes.each(lowering)
    writes.whole()
    return region.text, traffic.loads / width + writes.stores


def _row_outputs(job: Job, domain: Domain) -> str:
    row = Var("row", domain.rows)
    at = Index.of(row)
    place = anchored(job, domain, at, at * domain.columns + Index.of(Var("c", domain.columns)))
    region = Region([row], job.index_type)
    special = {n: (lambda _, i=i: Value(f"row_total{i}")) for i, n in enumerate(domain.reductions)}
    lowering = Lowering(region, job.leaves, None, special, domain.fixed(place))
    for i, node in enumerate(job.outputs):
        if place[node] != at:
            continue
        value = stored(lowering.value(node, place[node]).text, job.dtype(node))
        region.statement(f"out{i}[{region.index(place[node]).text}] = {value};")
    return region.text
