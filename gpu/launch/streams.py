"""What a kernel that streams does, in words: its walks, its accumulators, and what a block keeps on chip."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from eqsat.extract.device.table import Device
from eqsat.extract.plan.plan import Kernel
from eqsat.gpu.code.errors import NotLowerable
from eqsat.gpu.families.base import Job
from eqsat.gpu.families.held import dtype_of, form_of
from eqsat.gpu.table.streams import StreamForm, StreamTile, ranked_streams
from eqsat.gpu.table.targets import target
from eqsat.program.core import Node
from eqsat.streams.shifts import in_fewest_passes
from eqsat.streams.stream import NotAStream

NO_STREAM = "no walk computes this kernel; it is launched in parts"
"""Begins the line on a kernel that was priced as a stream and is none."""

_FLOAT = 4


def described(kernel: Kernel, device: Device, exact: bool = False) -> list[str]:
    """Lines on a kernel that streams: each walk, its accumulators, and the bytes on chip; empty for other kernels.

    These are words of a report. A kernel that was priced as a stream and is none is launched in parts, so that the
    result is right: one line says why, and no error discards the result.
    """
    if kernel.family != "stream":
        return []
    try:
        return walks_of(kernel.body, kernel.params, device, exact)
    except (NotAStream, NotLowerable) as reason:
        return [f"{NO_STREAM}: {reason}"]


def walks_of(outputs: Sequence[Node], inputs: Sequence[Node], device: Device, exact: bool = False) -> list[str]:
    """The lines of `described` for a kernel that computes these outputs over these inputs.

    Raises:
        NotAStream: no walks compute them; the message says why.
        NotLowerable: operands of products are of several types, or totals are not floating.
    """
    return list(_walks_of(tuple(outputs), tuple(inputs), device.arch, int(device.units.value), exact))


def ask_template(outputs: Sequence[Node], inputs: Sequence[Node], device: Device, exact: bool = False) -> None:
    """Write the kernel of these outputs, which walks compute.

    Raises:
        NotLowerable: the template cannot; the message says why.
    """
    from eqsat.gpu.families import stream

    job = Job(tuple(outputs), tuple(inputs), units=int(device.units.value))
    stream.generate(stream.eased(job, exact), target(device.arch), exact)


@lru_cache(maxsize=1 << 10)
def _walks_of(
    outputs: tuple[Node, ...], inputs: tuple[Node, ...], arch: str, units: int, exact: bool
) -> tuple[str, ...]:
    """The same; the kernels of equal layers have equal nodes."""
    _, found = in_fewest_passes(outputs, inputs, corrected=not exact)
    form, dtype = form_of(found), dtype_of(found)
    tiles = ranked_streams(target(arch), form, dtype, units)
    lines = [line for walk in found for line in walk.why]
    return (*lines, _on_chip(tiles[0], form, dtype) if tiles else "no tile fits on chip")


def _on_chip(tile: StreamTile, form: StreamForm, dtype: str) -> str:
    sums = form.products * tile.rows * tile.columns * _FLOAT
    totals = form.totals * tile.rows * _FLOAT
    lds = max(x.end for x in tile.lds(form, dtype))
    return (
        f"a block keeps {tile.rows} rows by {tile.columns} columns of each product on chip: {sums:,} bytes of sums in "
        f"registers, {totals:,} of totals and {lds - totals:,} of tiles in LDS"
    )
