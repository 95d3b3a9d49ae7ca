"""How many waves of a product's kernel a SIMD holds, as the compilers count it for every tile and target.

`python -m eqsat.gpu.measured_occupancy` measures the table, a test keeps it current, and `papers/kernels.md` shows it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

Table = dict[str, dict[str, dict[str, list[int]]]]
"""arch -> dtype -> kernel -> [vector registers, bytes of LDS, waves, most waves]."""

TABLE = Path(__file__).resolve().with_name("occupancy.json")

LONE_WAVE = 0.8
"""The share of its rate that a product keeps whose SIMDs hold one wave each: while it waits at a barrier or for its
operands, nothing else runs. (An assumption: with two waves or more their phases overlap.)"""


@cache
def table() -> Table:
    """The whole table."""
    return json.loads(TABLE.read_text())


@cache
def waves(arch: str, dtype: str, rows: int, columns: int) -> int | None:
    """Waves of a SIMD that runs products in tiles of rows x columns; None for what is not in the table."""
    by_dtype = table().get(arch, {})
    for entries in (by_dtype.get(dtype, {}), by_dtype.get("float32", {})):
        for unit in ("matrix", "vector"):  # the order in which a kernel's tile is chosen
            found = [e[2] for name, e in entries.items() if name.startswith(f"contraction {unit}_{rows}x{columns}x")]
            if found:
                return max(found)
    return None


def rate_share(arch: str, dtype: str, rows: int, columns: int) -> float:
    """The share of its rate that a product reaches with this tile, for the waves that its registers and LDS leave."""
    return LONE_WAVE if waves(arch, dtype, rows, columns) == 1 else 1.0
