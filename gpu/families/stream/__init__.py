"""Streams: a walk along one axis for a block of rows, with sums of products and totals of the rows on chip.

    S[b, m, k] = sum_d q[b, m, d] * K[b, d, k]                      inner products, made on the way
    r[b, m], c[b, k] = reduce_d f(in.., b, m or k, d)               statistics, along axes of their own
    total[b, m] = reduce_k f(in.., S, r, c, earlier totals, b, m, k)
    product_j[b, m, n] = sum_k P_j(in.., S, r, c, totals, b, m, k) * V_j[b, k, n]
    out_i = h_i(products, totals, ..) or P_j, written at any bijective place; or one element a row

Attention, norms before a product, gated and chained products have this form. `eqsat.streams` decides what has it, and
how many walks it takes: one for each length of axis. A block owns some rows and columns of all products. For each tile
of an axis, it first makes the inner products. Then the threads of each row compute elements and totals. Last, it
multiplies the left operands, which lie in LDS, by the tile of V. When a running maximum grows, the sums so far are
rescaled to the new maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from eqsat.gpu.code.errors import NotLowerable
from eqsat.gpu.families.base import Choice, Family, Job, Kernel, finished, part_of
from eqsat.gpu.families.contraction.epilogue import Epilogue, Sums, epilogue
from eqsat.gpu.families.contraction.operands import Operand, element_of, in_lds, operand
from eqsat.gpu.families.held import dtype_of, elements_of, form_of
from eqsat.gpu.families.stream.examples import examples
from eqsat.gpu.families.stream.slices import Sliced, may_be_sliced, parts_of, unscaled
from eqsat.gpu.families.stream.walk import of_products, walk
from eqsat.gpu.table.streams import StreamLds, StreamTile, legal_streams, ranked_streams
from eqsat.gpu.table.targets import Target
from eqsat.streams.shifts import in_fewest_passes
from eqsat.streams.stream import NotAStream, Stream, walks

_TILE_ROWS_TOGETHER = 8
"""Rows of tiles that run through all columns together, so that the second cache level serves both operands."""


def generate(job: Job, target: Target, exact: bool = False) -> Kernel:
    """The kernel of a job that streams.

    With `exact` everything is computed as it is written: no sum is corrected, and walks are taken again instead.

    Raises:
        NotLowerable: no walks compute the outputs, or no tile holds what they keep.
    """
    found = _analysed(job, exact)
    for tile in sorted(_ranked(job, found, target), key=lambda t: t.name != job.choice.tile):
        made = _generated(job, found, tile, target)
        if made is not None:
            return made
    raise NotLowerable(f"no tile holds {form_of(found)}")


def tiles_of(job: Job, target: Target, exact: bool = False) -> list[StreamTile]:
    """The tiles that a job's kernel may have, the cost model's own first.

    Raises:
        NotLowerable: no walks compute the outputs.
    """
    return _ranked(job, _analysed(eased(job, exact), exact), target)


def eased(job: Job, exact: bool) -> Job:
    """The same job in the fewest passes; its outputs are other nodes.

    Raises:
        NotLowerable: no walks compute the outputs.
    """
    try:
        outputs, _ = in_fewest_passes(job.outputs, job.inputs, corrected=not exact)
    except NotAStream as reason:
        raise NotLowerable(str(reason)) from reason
    stored = {new: job.storage[old] for old, new in zip(job.outputs, outputs, strict=True) if old in job.storage}
    return replace(job, outputs=outputs, storage={**job.storage, **stored})


def _analysed(job: Job, exact: bool) -> tuple[Stream, ...]:
    try:
        found = walks(job.outputs, job.inputs, corrected=not exact)
    except NotAStream as reason:
        raise NotLowerable(str(reason)) from reason
    if len(found) > 1 and of_products(job, found) != list(job.outputs):
        raise NotLowerable("an output beside the products of several walks")
    return found


def _ranked(job: Job, found: Sequence[Stream], target: Target) -> list[StreamTile]:
    return ranked_streams(target, form_of(found), dtype_of(found), job.units)


def sliced(job: Job, target: Target) -> Sliced | None:
    """A job of few blocks and a long axis as two: parts of the sums for each slice of the axis, and what joins them.

    None where one launch is better, or the only one.

    Raises:
        NotLowerable: no walks compute the outputs.
    """
    stream, *others = found = _analysed(job, exact=False)
    ranked = _ranked(job, found, target)
    if not ranked or others or not may_be_sliced(job, stream):
        return None
    tile = next((t for t in ranked if t.name == job.choice.tile), ranked[0])
    slices = tile.slices(form_of(found), job.units, job.choice.slices)
    if slices == 1:
        return None
    parts = parts_of(stream)
    storage = dict.fromkeys(parts, "float32")
    kernel = _generated(replace(job, outputs=parts, storage=storage), [unscaled(stream)], tile, target, slices)
    return Sliced(kernel, parts, slices, stream) if kernel else None


def _generated(job: Job, found: Sequence[Stream], tile: StreamTile, target: Target, slices: int = 1) -> Kernel | None:
    """The kernel with a tile; None where its epilogue does not fit into LDS."""
    form, dtype = form_of(found), dtype_of(found)
    threads = tile.threads(target)
    lds = tile.lds(form, dtype)
    end = _epilogue(job, found, tile)
    spare = lds[0].factors
    size = max(*(x.end for x in lds), spare + end.products * end.strip_size * 4)
    if size > target.lds_bytes:
        return None
    batch, rows, width = form.dims
    tiles_m, tiles_n = ceil(rows / tile.rows), ceil(width / tile.columns)
    at = [sum(x.totals for x in form.walks[:i]) for i in range(len(found))]
    part = part_of(
        job,
        f"Stream, tile {tile.name}",
        "stream/body.jinja",
        size,
        tile.sums.unit == "matrix",
        batch=batch,
        rows=rows,
        walks=[_text(job, *x, tile, threads, slices) for x in zip(found, lds, at, strict=True)],
        totals=form.totals,
        tile=tile.sums,
        scores_tile=tile.scores,
        scored=any(x.depths for x in form.walks),
        scores_ld=tile.scores_ld,
        threads=threads,
        lanes=tile.lanes(target),
        lanes_of_step=tile.lanes_of_step(target),
        tiles_m=tiles_m,
        tiles_n=tiles_n,
        together=min(_TILE_ROWS_TOGETHER, tiles_m),
        slices=slices,
        sizes=[node.size for node in job.outputs],
        element=element_of(tile.sums, dtype),
        left=in_lds(tile.sums, tile.rows, dtype),
        right=in_lds(tile.sums, tile.columns, dtype),
        queries=in_lds(tile.scores, tile.rows, dtype),
        keys=in_lds(tile.scores, tile.step, dtype),
        end=end,
        products=[f"sums{i}[{j}]" for i, x in enumerate(found) for j in range(len(x.products))],
        spare=f"((char *)lds + {spare})",
        combine="",
        lines=0,
    )
    part = replace(part, many_registers=True)
    entry, source = finished(FAMILY.name, threads, part)
    return Kernel(
        entry=entry,
        family=FAMILY.name,
        variant=tile.name + ("_sliced" if slices > 1 else ""),
        source=source,
        blocks=tile.blocks(form) * slices,
        threads=threads,
        arguments=(*job.inputs, *job.outputs),
        claims=(target.matrix_instruction,) if tile.sums.unit == "matrix" else (),
        part=part,
    )


def _text(
    job: Job, stream: Stream, lds: StreamLds, at: int, tile: StreamTile, threads: int, slices: int
) -> dict[str, Any]:
    """What the template of a walk needs; `at` is how many totals earlier walks have."""
    steps = ceil(stream.length / tile.step)
    return {
        "stream": stream,
        "walk": walk(job, stream, tile, threads // tile.rows),
        "lds": lds,
        "first_total": at,
        "tiles_k": steps,
        "tiles_a_slice": ceil(steps / slices),
        "values": [_value(job, stream, tile, threads, j) for j in range(len(stream.products))],
        "scores": [_score(job, stream, tile, threads, j) for j in range(len(stream.inner))],
        "element_of": [elements_of(stream).index((x.element, x.corrections)) for x in stream.products],
    }


def _epilogue(job: Job, found: Sequence[Stream], tile: StreamTile) -> Epilogue:
    products = [x for stream in found for x in stream.products]
    sums = Sums(
        products=tuple(x.node for x in products),
        totals=tuple(x.node for stream in found for x in stream.totals),
        scales={x.node: x.scale for x in products if x.scale is not None},
        guarded=frozenset(x.node for x in products if x.guarded),
    )
    return epilogue(job, sums, tile.sums, of_products(job, found))


def _value(job: Job, stream: Stream, tile: StreamTile, threads: int, j: int) -> Operand:
    """How tiles of a product's right operand are read."""
    node = stream.products[j].node.args[1]
    dims = (stream.batch, stream.width, stream.length)
    return operand("b", job, node, dims, tile.sums, threads, f"v{j}")


def _score(job: Job, stream: Stream, tile: StreamTile, threads: int, j: int) -> tuple[int, Operand, Operand]:
    """The steps along the depth of an inner product, and how tiles of its operands are read."""
    node = stream.inner[j]
    depth = node.attrs[2]
    left = operand("a", job, node.args[0], (stream.batch, stream.rows, depth), tile.scores, threads, f"q{j}")
    right = operand("b", job, node.args[1], (stream.batch, stream.length, depth), tile.scores, threads, f"k{j}")
    return ceil(depth / tile.scores.depth), left, right


def _choices(target: Target, dtype: str) -> list[Choice]:
    return [*(Choice(tile=t.name) for t in legal_streams(target, dtype)), Choice(slices=3)]


_SIZES = ((8, 1024, 1024, 1024), (1, 1021, 1021, 1021), (8, 1021, 1021, 1021))
"""So many blocks that nothing is sliced, and so few that all is; and many at sizes that no vector divides."""

FAMILY = Family("stream", (__doc__ or "").strip(), _choices, examples, _SIZES)
