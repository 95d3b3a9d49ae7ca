"""Row kernels: any pointwise operators and reductions over rows of one length.

    domain[r, c], 0 <= r < R, 0 <= c < C
    total_1[r] = reduce_c f_1(in.., r, c);  total_2[r] = reduce_c f_2(in.., total_1[r], r, c);  ...
    out_j[r, c] = g_j(in.., totals, r, c)  or  out_j[r] = h_j(in.., totals, r), written at any bijective place

Softmax, layernorm, rmsnorm, argmax and plain reductions have this form. A group of `threads_a_row` threads takes each
row. Totals are combined by DPP or shuffles in a wave, and through LDS between waves. Values that several passes over
the row need stay in registers if they fit. Otherwise they are computed again from memory.

In a norm over the leading axis, adjacent rows, not columns, are adjacent in memory. The threads of a block then lie
across the rows: `across.jinja`.
"""

from __future__ import annotations

from eqsat.base.numerics import itemsize
from eqsat.gpu.code.scalar import ACCESS_BYTES
from eqsat.gpu.families.base import Choice, Family, Job, Kernel, finished, part_of
from eqsat.gpu.families.row.across import across
from eqsat.gpu.families.row.examples import examples
from eqsat.gpu.families.row.passes import WIDTHS, Domain, Pass, Walk, domain_of, passes
from eqsat.gpu.table.limits import THREADS
from eqsat.gpu.table.targets import Target

ELEMENTS_A_THREAD = 16
"""Elements of a row that a thread holds in registers before the row gets more threads."""

_THREADS_A_UNIT = 1024
"""Threads that a compute unit should have before rows are given fewer threads."""


def generate(job: Job, target: Target) -> Kernel:
    """The kernel of a job of pointwise operators and reductions over rows.

    Raises:
        NotLowerable: the reductions are not over rows of one domain, or an element needs other rows than its own.
    """
    domain = domain_of(job)
    rows = _along(job, domain, target)
    if job.choice.per_row is not None:
        return rows.kernel
    columns = across(job, domain, target)
    return columns.kernel if columns is not None and columns.loads < rows.loads else rows.kernel


def _threads_a_row(domain: Domain, width: int, units: int, limit: int) -> int:
    """The fewest threads that hold a row, more where rows alone do not fill the device."""
    chunks = -(-domain.columns // width)
    fewest = _power_above(domain.columns / ELEMENTS_A_THREAD)
    most = _power_above(chunks)
    threads = min(fewest, limit)
    while threads < min(most, limit) and domain.rows * threads < units * _THREADS_A_UNIT:
        threads *= 2
    return threads


def _power_above(x: float) -> int:
    power = 1
    while power < x:
        power *= 2
    return power


class _Drafted:
    def __init__(self, kernel: Kernel, loads: float) -> None:
        self.kernel, self.loads = kernel, loads


def _along(job: Job, domain: Domain, target: Target) -> _Drafted:
    drafts = []
    legal = domain.widths(job)
    for width in [w for w in legal if w == job.choice.width] or legal:
        per_row = job.choice.per_row or _threads_a_row(domain, width, job.units, target.max_threads)
        made = passes(job, Walk(domain, width, per_row))
        drafts.append((made.loads, -width, per_row, made))
    loads, width, per_row, made = min(drafts, key=lambda d: d[:2])
    walk = Walk(domain, -width, per_row)
    threads = max(per_row, THREADS)
    rows_a_block = threads // per_row
    across_waves = per_row > target.wave
    part = part_of(
        job,
        f"Rows, {per_row} threads each",
        "row/body.jinja",
        16 * threads // target.wave if across_waves else 0,
        threads=threads,
        per_row=per_row,
        rows_a_block=rows_a_block,
        walk=walk,
        made=made,
        across_waves=across_waves,
    )
    entry, source = finished(FAMILY.name, threads, part)
    kernel = Kernel(
        entry=entry,
        family=FAMILY.name,
        variant=f"threads{per_row}_width{-width}",
        source=source,
        blocks=-(-domain.rows // rows_a_block),
        threads=threads,
        arguments=(*job.inputs, *job.outputs),
        claims=("row_ror",) if target.maker == "amd" and per_row >= 16 and _has_totals(made.passes) else (),
        part=part,
    )
    return _Drafted(kernel, loads)


def _has_totals(found: list[Pass]) -> bool:
    return any(p.totals for p in found)


def _choices(target: Target, dtype: str) -> list[Choice]:
    threads = [2**i for i in range(target.max_threads.bit_length())]
    widths = [w for w in WIDTHS if w * itemsize(dtype) <= ACCESS_BYTES]
    return [*(Choice(per_row=t) for t in threads), *(Choice(width=w) for w in widths), Choice(slices=3)]


_SIZES = ((1, 1024, 1024, 1), (1, 1024, 64, 1), (1, 64, 16384, 1), (1, 61, 65537, 1))
"""Rows of a block's registers, of one wave, and of several passes over memory."""

FAMILY = Family("row", (__doc__ or "").strip(), _choices, examples, _SIZES)
