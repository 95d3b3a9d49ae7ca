"""Operand tiles: from global memory, through any expression and layout, into LDS."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from eqsat.base.numerics import itemsize
from eqsat.gpu.code.c_writer import Region
from eqsat.gpu.code.index import Index, Var
from eqsat.gpu.code.scalar import ACCESS_BYTES, COMPUTE, STORAGE, Lanes, Lowering, Traffic, stored
from eqsat.gpu.families.base import Job
from eqsat.gpu.table.tiles import Tile
from eqsat.program.core import Node

_WIDTHS = (8, 4, 2, 1)
_TURNED = (4, 2, 1)
"""k that a thread may take of an operand that it reads along rows, to turn them around in registers."""

Side = Literal["a", "b"]
"""Of an operand of a product: left or right."""


def element_of(tile: Tile, dtype: str) -> str:
    """C type of operands in LDS: what the matrix unit takes, or what is computed with."""
    return STORAGE[dtype] if tile.unit == "matrix" else COMPUTE[dtype]


InLds = dict[str, int | bool]
"""How LDS holds an operand tile: elements from one line to the next (`ld`) and from one row to the next (`row`), the
`size` of the tile, and whether matrix units find it `turned`."""


def in_lds(tile: Tile, edge: int, dtype: str) -> InLds:
    """An operand tile [edge][depth] for matrix units, [depth][edge] for the vector path."""
    ld = (tile.depth if tile.unit == "matrix" else edge) + tile.padding(dtype)
    row = ld if tile.unit == "matrix" else 1
    return {"ld": ld, "row": row, "size": tile.lds_elements(edge, dtype), "turned": False}


@dataclass(frozen=True)
class Operand:
    """How the block brings one operand tile [edge][depth] into LDS.

    Attributes:
        name: in the kernel's text.
        run_rows, run_depth: the elements that a thread moves at a time; one of the two is read as a vector.
        loads: such moves of a thread a tile; `chunks` of the whole block.
        body: statements that fill `run.v` with rows `run_rows * rq ...` and k `run_depth * kq ...`, batch `b`.
        guard: the C condition under which these lie inside the operand, '' where they always do.
    """

    name: str
    node: Node
    edge: int
    run_rows: int
    run_depth: int
    loads: int
    chunks: int
    body: str
    guard: str


def operand(
    side: Side, job: Job, node: Node, dims: tuple[int, int, int], tile: Tile, threads: int, name: str | None = None
) -> Operand:
    """The cheapest way to bring a tile of `node`, which holds [batch, rows, depth] (side 'a') or [batch, depth, rows].

    It is called by its side, or by `name`.

    Every vector width that divides is tried, along rows and along k. The fewest accesses for each thread win.
    """
    edge = tile.rows if side == "a" else tile.columns
    candidates = []
    for rows, depth in _runs(dims, tile, edge, node):
        body, traffic = _body(side, job, node, dims, tile, rows, depth)
        chunks = (edge // rows) * (tile.depth // depth)
        accesses = traffic.loads + _lds_writes(tile, rows, depth, tile.element_bytes(node.dtype))
        candidates.append((-(-chunks // threads) * accesses, -rows * depth, rows, depth, chunks, body))
    _, _, rows, depth, chunks, body = min(candidates)
    tests = []
    if dims[1] % edge:
        tests.append(f"rq < {dims[1] // rows}")
    if dims[2] % tile.depth:
        tests.append(f"kq < {dims[2] // depth}")
    if chunks % threads:
        tests.insert(0, f"chunk < {chunks}")
    return Operand(name or side, node, edge, rows, depth, -(-chunks // threads), chunks, body, " && ".join(tests))


def _runs(dims: tuple[int, int, int], tile: Tile, edge: int, node: Node) -> list[tuple[int, int]]:
    """(rows, depth) of a move: a vector along k, or one along the rows for a few k."""
    _, rows, depth = dims
    widest = max(1, ACCESS_BYTES // itemsize(node.dtype))
    found = [(1, w) for w in _WIDTHS if w <= min(widest, tile.depth) and depth % w == 0]
    turned = [d for d in _TURNED if depth % d == 0]
    found += [(w, d) for w in _WIDTHS for d in turned if 1 < w <= min(widest, edge) and rows % w == 0]
    return found


def _lds_writes(tile: Tile, rows: int, depth: int, size: int) -> int:
    """LDS writes of one move: along k for matrix units, along rows for the vector path."""
    lines, run = (rows, depth) if tile.unit == "matrix" else (depth, rows)
    return lines * ceil(run * size / ACCESS_BYTES)


def _body(
    side: Side, job: Job, node: Node, dims: tuple[int, int, int], tile: Tile, run_rows: int, run_depth: int
) -> tuple[str, Traffic]:
    batch, rows, depth = dims
    b, rq, kq = Var("b", batch), Var("rq", rows // run_rows), Var("kq", depth // run_depth)
    outer = Var("j", run_depth if run_rows > 1 else run_rows)
    lane = Var("u", run_rows if run_rows > 1 else run_depth)
    region = Region([b, rq, kq], job.index_type)
    along_rows = run_rows > 1
    row = Index.of(rq) * run_rows + (Index.of(lane) if along_rows else 0)
    k = Index.of(kq) * run_depth + (Index.of(outer) if along_rows else Index.of(lane))
    inner = row * depth + k if side == "a" else k * rows + row
    index = Index.of(b) * (rows * depth) + inner
    traffic = Traffic()
    with region.unrolled(outer), region.unrolled(lane):
        lowering = Lowering(region, job.leaves, Lanes(lane), traffic=traffic)
        value = lowering.value(node, index).text
        place = f"u * {run_depth} + j" if along_rows else "u"
        text = stored(value, node.dtype) if tile.unit == "matrix" else value
        region.statement(f"run.v[{place}] = {text};")
    traffic.loads *= run_depth if along_rows else 1
    return region.text, traffic
