"""Templates of HTML: results, programs, proofs and steps as notebooks show them.

A fragment is one element with its own style and no script. It takes its colours from the page around it, so it reads
on light and on dark ones. Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.errors import escaped

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent


def fragment(name: str, **values: Any) -> str:
    """The fragment of this name, with these values in it."""
    return environment(_HERE).get_template(f"{name}.html.j2").render(values)


def environment(folder: Path) -> Environment:
    """The templates in a folder, which may import `pieces.html.j2`. A name without a value is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    options: dict[str, Any] = {"finalize": lambda value: value if hasattr(value, "__html__") else escaped(value)}
    return Environment(
        **options,
        loader=FileSystemLoader([folder, _HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def costs(report: Mapping[str, Any]) -> list[Sequence[str]]:
    """The cost table of a report: title, before, after, the ratio, and the result as a percentage of the source."""
    figures = (
        ("kernels", "kernels", 1.0, "{:.0f}"),
        ("MFLOP", "flops", 1e6, "{:.3f}"),
        ("matmul MFLOP", "matmul_flops", 1e6, "{:.3f}"),
        ("MB moved", "bytes", 1e6, "{:.3f}"),
        ("predicted µs", "predicted_us", 1.0, "{:.3f}"),
    )
    rows = []
    for title, key, unit, form in figures:
        before, after = report["source"][key], report["result"][key]
        less = f"{before / after:.2f}×" if after else "–"
        share = f"{min(100.0, 100 * after / before):.0f}" if before else "0"
        rows.append((title, form.format(before / unit), form.format(after / unit), less, share))
    return rows
