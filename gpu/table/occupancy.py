"""How many waves a SIMD holds of each kernel variant, as the compilers count registers and LDS for every target.

`python benchmarks/occupancy.py` measures the table, a test keeps it current, and `papers/kernels.md` shows it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from eqsat.base.numerics import HALVES
from eqsat.gpu.table.tiles import Tile

Table = dict[str, dict[str, dict[str, list[int]]]]
"""arch -> dtype -> kernel (`Kernel.name`) -> [vector registers, bytes of LDS, waves, most waves]."""

TABLE = Path(__file__).resolve().with_name("occupancy.json")

MEASURED = ("float32", "float16")
"""Element types of the table: bfloat16 moves and multiplies like float16."""


@cache
def table() -> Table:
    """The whole table."""
    return json.loads(TABLE.read_text())


def measured_as(tile: Tile, dtype: str) -> str:
    """The type under which a tile for operands of a type is measured: the vector units compute halves in float."""
    return "float16" if tile.unit == "matrix" and dtype in HALVES else "float32"


@cache
def waves(arch: str, tile: Tile, dtype: str) -> int | None:
    """Waves of a SIMD that runs products in tiles like this; None for what is not in the table."""
    entry = table().get(arch, {}).get(measured_as(tile, dtype), {}).get(f"contraction {tile.name}")
    return entry[2] if entry else None
