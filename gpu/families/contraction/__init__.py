"""Contractions: a batched product with any pointwise expression before and after it.

    product[b, m, n] = sum_k f(..)[b, m, k] * g(..)[b, k, n]
    out_j = h_j(product, ..), written at any bijective place

The operands f and g are read through any layout (strided, overlapping, masked), so convolution is this too. Tiles of
them go through LDS, double-buffered: through registers, or by copies that run ahead where the target has them.

Where few tiles would leave units idle, each of several blocks of a tile sums a slice of k and writes its sums. The last
of them to finish, as a counter tells, adds up all slices in their order and goes on (split-K in one launch).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from math import ceil
from typing import Literal, NamedTuple

from eqsat.base.numerics import HALVES, itemsize
from eqsat.gpu.code.errors import NotLowerable
from eqsat.gpu.code.scalar import COMPUTE
from eqsat.gpu.families.base import Choice, Family, Job, Kernel, finished, part_of
from eqsat.gpu.families.contraction.copies import Boxes, Pipeline, boxes, direct_load, pipeline
from eqsat.gpu.families.contraction.epilogue import Epilogue, Sums, epilogue
from eqsat.gpu.families.contraction.examples import examples, reductions
from eqsat.gpu.families.contraction.operands import InLds, Operand, Side, element_of, in_lds, operand
from eqsat.gpu.table.targets import Target
from eqsat.gpu.table.tiles import FRAGMENT, Tile, choose_tile, legal_tiles
from eqsat.program.core import Node, make

REDUCTIONS = """Contractions with a sum, max or min of the product along m or n; the product may be written beside it.

    product[b, m, n] = sum_k f(..)[b, m, k] * g(..)[b, k, n]
    out_j = h_j(product, ..)  or  reduce_n h_j(product, ..)  or  reduce_m h_j(product, ..)

Blocks combine what each has of a line of the product

    atomic   by one atomic a thread and line
    lds      by a tree in LDS, then one atomic a line and block
    wave     by DPP or shuffles in each group of 16 lanes, through LDS, then one atomic a line and block
    two-pass by storing partial results, [blocks of a line][lines], which a second kernel reduces: any type, one order

or not at all where one block holds whole lines.
"""
"""What the reducing contractions compute."""

_HELD_WORDS = 16
"""Registers of a thread for operands on their way, beside the sums of a warpgroup's tile: with all, it spills."""

Combine = Literal["atomic", "lds", "wave", "two-pass"]
COMBINES: tuple[Combine, ...] = ("atomic", "lds", "wave", "two-pass")

_TILE_ROWS_TOGETHER = 8
"""Rows of tiles that run through all columns together, so that the second cache level serves both operands."""

_IDENTITY = {"sum": 0, "max": float("-inf"), "min": float("inf")}


def core_of(job: Job) -> Node:
    """The product of a job.

    Raises:
        NotLowerable: there is not exactly one.
    """
    products = [node for node in job.nodes if node.op == "MM"]
    if len(products) != 1:
        raise NotLowerable(f"a contraction holds one product, got {len(products)}")
    return products[0]


def tile_of(job: Job, target: Target) -> Tile:
    """The tile of a job's product: what was chosen for it, else the cost model's."""
    core = core_of(job)
    return choose_tile(target, core.attrs, core.args[0].dtype, job.units, job.choice.tile, job.choice.slices or 1)


def generate(job: Job, target: Target, tile: Tile | None = None, combine: Combine = "wave") -> Kernel:
    """The kernel of a job that holds one product.

    With `combine` 'two-pass', a reduction that several blocks share is written as partial results, one line of the
    output for each block (`partial_lines`), in the type that is computed with.

    Raises:
        NotLowerable: the outputs are no pointwise function of the product, moved by bijective views.
    """
    core = core_of(job)
    batch, m, k, n = core.attrs
    dtype = core.args[0].dtype
    tile = tile or tile_of(job, target)
    threads = tile.threads(target)
    end = epilogue(job, Sums((core,)), tile, job.outputs)
    boxed = boxes(job, target, core, tile, threads)
    pipe = pipeline(job, target, core, tile, threads) if not boxed else None
    # Other operands go as in the tile without such copies, and by its name.
    tile = replace(tile, boxed=boxed is not None, deep=tile.deep and pipe is not None)
    sides: dict[Side, tuple[Node, tuple[int, int, int]]] = {
        "a": (core.args[0], (batch, m, k)),
        "b": (core.args[1], (batch, n, k)),
    }
    loads = [load for name, of in sides.items() if (load := direct_load(name, job, target, *of, tile, threads))]
    held = {load.name for load in loads} if not (pipe or boxed) else set(sides)
    operands = [operand(name, job, *of, tile, threads) for name, of in sides.items() if name not in held]
    size = tile.element_bytes(dtype)
    ahead = pipe or boxed
    tiles_bytes = ahead.lds_bytes(size) if ahead else tile.lds_bytes(dtype)
    tiles_m, tiles_n = ceil(m / tile.rows), ceil(n / tile.columns)
    lds_bytes = max(tiles_bytes, _strip_bytes(end, COMPUTE[dtype], threads))
    steps, buffers = ceil(k / tile.depth), ahead.stages if ahead else tile.buffers
    a_slice, slices = _sliced(steps, buffers, (job.choice.slices or 1) if not end.reductions else 1)
    tiles = batch * tiles_m * tiles_n
    joining = _Joining.of(core, tiles, slices * tile.rows * tile.columns) if slices > 1 else None
    part = part_of(
        job,
        f"Contraction, tile {tile.name}",
        "contraction/body.jinja",
        boxed.control(lds_bytes).end if boxed else lds_bytes,
        tile.unit == "matrix",
        tile=tile,
        threads=threads,
        batch=batch,
        slices=slices,
        steps_a_slice=a_slice,
        partials=f"out{len(job.outputs)}",
        arrived=f"out{len(job.outputs) + 1}",
        tiles_m=tiles_m,
        tiles_n=tiles_n,
        together=min(_TILE_ROWS_TOGETHER, tiles_m),
        steps=steps,
        element=element_of(tile, dtype),
        sum_type=COMPUTE[dtype],
        operands=operands,
        loads=loads,
        mixed=tile.mixed(dtype) if tile.permuted else None,
        group=_Group.of(tile, size) if tile.grouped else None,
        pipe=pipe,
        boxed=boxed,
        control=boxed.control(lds_bytes) if boxed else None,
        maps=f"out{len(job.outputs) + 2 * bool(joining)}",
        buffers=buffers,
        lds=_tiles_in_lds(tile, dtype, ahead),
        end=end,
        products=["sums_of"],
        spare="lds",
        combine=combine,
        lines=core.size // (n if end.major == "m" else m),
    )
    part = replace(part, lds_at_launch=tile.grouped or part.lds_bytes > target.lds_bytes, warpgroups=tile.grouped)
    held = joining or ()
    if boxed:
        held = (*held, make("In", (f"maps{core.uid}", tiles * slices * boxed.words + boxed.words, "int32")))
    part = replace(part, writes=(*part.writes, *(node.dtype for node in held)))
    entry, source = finished(FAMILY.name, threads, part)
    shared = [r for r in end.reductions if not r.final]
    return Kernel(
        entry=entry,
        family=REDUCING.name if end.reductions else FAMILY.name,
        variant=tile.name + (f"_{combine}" if end.reductions else "_sliced" if joining else ""),
        source=source,
        blocks=tiles * slices,
        threads=threads,
        arguments=(*job.inputs, *job.outputs, *held),
        fills={r.node: _IDENTITY[r.node.attrs[0]] for r in shared if combine != "two-pass"},
        counters=(joining.arrived,) if joining else (),
        claims=(
            *_claims(target, tile, end, combine),
            *["cp.async"] * bool(pipe),
            *["global_load_lds"] * bool(loads),
            *["cp.async.bulk.tensor", "mbarrier.try_wait"] * bool(boxed),
        ),
        part=part,
        tile=tile,
    )


class _Joining(NamedTuple):
    """Arrays by which the blocks of a tile join their slices: the `partials` of each tile, and how many `arrived`."""

    partials: Node
    arrived: Node

    @staticmethod
    def of(core: Node, tiles: int, of_a_tile: int) -> _Joining:
        dtype = "float32" if core.dtype in HALVES else core.dtype
        return _Joining(
            make("In", (f"partials{core.uid}", tiles * of_a_tile, dtype)),
            make("In", (f"arrived{core.uid}", tiles, "int32")),
        )


class _Group(NamedTuple):
    """How warpgroups find operands in tiles of 128-byte lines.

    Attributes:
        line: elements of a line, along k, or along the rows where the tile is turned; `block`, of as many lines.
        apart: bytes from one block of a turned tile to the next; `eight`, of eight lines.
        waves: of a group, which take 16 rows each.
    """

    line: int
    block: int
    apart: int
    eight: int
    waves: int = 4

    @staticmethod
    def chunks_at_once(op: Operand) -> int:
        """How many chunks a thread holds on their way to LDS, while products run on: a divisor of all of them."""
        words = max(1, op.run_rows * op.run_depth * itemsize(op.node.dtype) // 4)
        return next(n for n in range(op.loads, 0, -1) if op.loads % n == 0 and (n == 1 or n * words <= _HELD_WORDS))

    @staticmethod
    def of(tile: Tile, size: int) -> _Group:
        line = tile.depth
        return _Group(line, line * line, line * line * size, 8 * line * size)


def _sliced(steps: int, buffers: int, slices: int) -> tuple[int, int]:
    """(steps of a slice, slices, none of them empty). Each slice begins with the first buffer."""
    a_slice = ceil(ceil(steps / slices) / buffers) * buffers if slices > 1 else steps
    return a_slice, ceil(steps / a_slice)


def partial_lines(job: Job, target: Target, tile: Tile | None = None) -> int:
    """How many partial results of each reduced element the blocks write with `combine` 'two-pass'; 1 for none."""
    core = core_of(job)
    tile = tile or tile_of(job, target)
    end = epilogue(job, Sums((core,)), tile, job.outputs)
    if not end.reductions:
        return 1
    return ceil(end.minor_size / (tile.columns if end.major == "m" else tile.rows))


def _tiles_in_lds(tile: Tile, dtype: str, ahead: Pipeline | Boxes | None) -> dict[str, InLds]:
    """How LDS holds the tiles of both operands."""
    if ahead is not None:
        copies = {copy.name: copy for copy in ahead.copies}
        return {
            name: {"ld": c.ld, "row": 1 if c.turned else c.ld, "size": c.size, "turned": c.turned}
            for name, c in copies.items()
        }
    return {"a": in_lds(tile, tile.rows, dtype), "b": in_lds(tile, tile.columns, dtype)}


def _strip_bytes(end: Epilogue, sum_type: str, threads: int) -> int:
    size = 8 if sum_type in ("double", "long long") else 4
    return (end.strip_size + (threads if end.reductions else 0)) * size


def _claims(target: Target, tile: Tile, end: Epilogue, combine: Combine) -> tuple[str, ...]:
    claims = []
    if tile.grouped:
        claims.append("wgmma.mma_async")
    elif tile.unit == "matrix":
        claims.append(target.matrix_instruction + (f"_f32_{tile.fragment}x" if tile.fragment > FRAGMENT else ""))
    if end.reductions and combine == "wave" and end.lanes == 16 and target.maker == "amd":
        claims.append("row_ror")
    summed = any(r.node.attrs[0] == "sum" and r.ctype == "float" and not r.final for r in end.reductions)
    if summed and combine != "two-pass":
        claims.append("global_atomic_add_f32" if target.maker == "amd" else "atom.global.add.f32")
    return tuple(claims)


def _choices(target: Target, dtype: str) -> list[Choice]:
    # A variant's place decides which example it is compiled for: those of some targets alone come last.
    plain, *others = ([Choice(tile=t.name, slices=1) for t in tiles] for tiles in _kinds(legal_tiles(target, dtype)))
    return [*plain, Choice(slices=3), *chain.from_iterable(others)]


def _reducing_choices(target: Target, dtype: str) -> list[Choice]:
    plain, wide, direct, grouped, boxed, _ = _kinds(legal_tiles(target, dtype))
    matrix = [t for t in plain if t.unit == "matrix"]
    vector = [t for t in plain if t.unit == "vector"]
    shown = ((*matrix[:1], *matrix[-1:], *vector[3:8:2]), wide[-1:], direct[-1:], grouped[-1:], boxed[-1:])
    return [Choice(tile=t.name, combine=c) for tiles in shown for c in COMBINES for t in tiles]


def _kinds(tiles: Sequence[Tile]) -> tuple[list[Tile], ...]:
    """Tiles that every target has, those of wide fragments, those that are loaded directly, those of warpgroups, those
    of warpgroups that copy boxes, and those that copy far ahead."""
    wide = [t for t in tiles if t.fragment > FRAGMENT]
    return (
        [t for t in tiles if t.fragment == FRAGMENT and not t.at_launch],
        [t for t in wide if not t.direct],
        [t for t in wide if t.direct],
        [t for t in tiles if t.grouped and not t.boxed],
        [t for t in tiles if t.boxed],
        [t for t in tiles if t.deep],
    )


FAMILY = Family("contraction", (__doc__ or "").strip(), _choices, examples)
REDUCING = Family("contraction+reduction", REDUCTIONS.strip(), _reducing_choices, reductions)
