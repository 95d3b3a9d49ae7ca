"""`eqsat devices`: the device rows that kernel prices depend on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eqsat.cli.shared.options import JsonFile


def devices(
    name: Annotated[str | None, typer.Argument(help="One device: every figure with its source.")] = None,
    json_file: JsonFile = None,
) -> None:
    """List the devices that programs can be optimised for, or one device's figures and where each comes from.

    Examples: `eqsat devices`, `eqsat devices mi300x`, `eqsat devices --json -`
    """
    from eqsat.cli.shared.output import answer, console, print_table
    from eqsat.extract.device.table import device
    from eqsat.extract.device.table import devices as every_device

    rows = [device(name)] if name else every_device()
    if not answer({"schema": 1, "devices": [_as_json(row) for row in rows]}, json_file):
        return
    if name:
        row = rows[0]
        figures = [(key, f"{figure.value:g}", figure.source) for key, figure in row.figures()]
        print_table(console(), f"{row.name}: {row.title}, {row.arch}", ("figure", "value", "source"), figures, words=3)
        return
    columns = ("name", "device", "target", "wave", "units", "GB/s", "f32 TFLOP/s", "f16 TFLOP/s", "launch us")
    cells = [
        (
            row.name,
            row.title,
            row.arch,
            str(row.wave),
            f"{row.units.value:g}",
            f"{row.bandwidth.value:g}",
            _rate(row, "float32"),
            _rate(row, "float16"),
            f"{row.launch_us.value:g}",
        )
        for row in rows
    ]
    print_table(console(), "Peak figures; `eqsat devices NAME` names their sources", columns, cells, words=3)


def _rate(row: Any, dtype: str) -> str:
    """Peak TFLOP/s of products of this dtype, on matrix units where the device has them for it."""
    figure = row.matrix.get(dtype) or row.vector.get(dtype) or row.vector["float32"]
    return f"{figure.value:g}"


def _as_json(row: Any) -> dict[str, Any]:
    figures = {key: {"value": figure.value, "source": figure.source} for key, figure in row.figures()}
    return {"name": row.name, "title": row.title, "arch": row.arch, "wave": row.wave, "figures": figures}
