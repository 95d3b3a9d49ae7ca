"""Plain reductions that run across rows: threads lie along rows, each walks down its columns."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.gpu.families.base import Job, Kernel, described, render
from eqsat.gpu.families.row.passes import Domain, anchored, reduced_type
from eqsat.gpu.index import Index, Var
from eqsat.gpu.region import Region, Value
from eqsat.gpu.scalar import ACCESS_BYTES, COMPUTE, Lanes, Lowering, Traffic, stored
from eqsat.numerics import itemsize

THREADS = 256
_WIDTHS = (8, 4, 2, 1)
_LINE = 64
"""Threads along the rows: they read neighbouring vectors of one column."""


@dataclass(frozen=True)
class Drafted:
    """A kernel and its load instructions for an element."""

    kernel: Kernel
    loads: float


def across(job: Job, domain: Domain) -> Drafted | None:
    """The cheapest kernel of this form; None where the job is no plain reduction: one pass, an element a row."""
    row_at = Index.of(Var("row", domain.rows))
    place = anchored(job, domain, row_at, row_at * domain.columns)
    plain = max(domain.level.values()) == 0 and all(place[n] == row_at for n in job.outputs)
    if not plain or any(n.attrs[0].startswith("arg") for n in domain.reductions):
        return None
    least = min(itemsize(job.dtype(n)) for n in job.inputs)
    widths = [w for w in _WIDTHS if domain.rows % w == 0 and w * least <= ACCESS_BYTES]
    drafts = [_draft(job, domain, w) for w in widths]
    return min(drafts, key=lambda d: d.loads)


def _draft(job: Job, domain: Domain, width: int) -> Drafted:
    body, traffic = _body(job, domain, width)
    line = _LINE
    while line > 1 and line // 2 * width >= domain.rows:
        line //= 2
    totals = [
        {
            "name": f"total{i}",
            "operator": f"eq_{n.attrs[0]}_of<{reduced_type(n.args[0].dtype)}>",
            "ctype": reduced_type(n.args[0].dtype),
            "result_ctype": COMPUTE[n.dtype],
            "test": " != 0" if n.dtype == "bool" else "",
        }
        for i, n in enumerate(domain.reductions)
    ]
    entry, source = render(
        "row/across.jinja",
        "reduction",
        description=described(job.outputs, job.inputs),
        parameters=job.parameters,
        index_type=job.index_type,
        threads=THREADS,
        line=line,
        slices=THREADS // line,
        width=width,
        domain=domain,
        totals=totals,
        body=body,
        row_body=_row_outputs(job, domain),
    )
    kernel = Kernel(
        entry=entry,
        family="row",
        variant=f"across{line}_width{width}",
        source=source,
        blocks=-(-domain.rows // (line * width)),
        threads=THREADS,
        arguments=(*job.inputs, *job.outputs),
    )
    return Drafted(kernel, traffic.loads / width)


def _body(job: Job, domain: Domain, width: int) -> tuple[str, Traffic]:
    rq, c, u = Var("rq", domain.rows // width), Var("c", domain.columns), Var("u", width)
    row = Index.of(rq) * width + Index.of(u)
    place = anchored(job, domain, row, row * domain.columns + Index.of(c))
    region = Region([rq, c], job.index_type)
    traffic = Traffic()
    with region.unrolled(u):
        lowering = Lowering(region, job.leaves, Lanes(u), {}, place, traffic)
        for i, node in enumerate(domain.reductions):
            value = lowering.value(node.args[0], place[node.args[0]])
            operator = f"eq_{node.attrs[0]}_of<{reduced_type(node.args[0].dtype)}>"
            region.statement(f"total{i}.v[u] = {operator}::apply(total{i}.v[u], {value.text});")
    return region.text, traffic


def _row_outputs(job: Job, domain: Domain) -> str:
    row = Var("row", domain.rows)
    at = Index.of(row)
    place = anchored(job, domain, at, at * domain.columns)
    region = Region([row], job.index_type)
    special = {n: (lambda _, i=i: Value(f"row_total{i}")) for i, n in enumerate(domain.reductions)}
    lowering = Lowering(region, job.leaves, None, special, place)
    for i, node in enumerate(job.outputs):
        value = stored(lowering.value(node, place[node]).text, job.dtype(node))
        region.statement(f"out{i}[{region.index(place[node]).text}] = {value};")
    return region.text
