"""Draw docs/before-after.svg: the kernels of a demo program before and after, each as high as it is long.

python docs/draw_before_after.py
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import eqsat
from eqsat.suite.motivating import PROGRAMS

PROGRAM = "gemm-chain"
TARGET = Path(__file__).with_name("before-after.svg")
WIDTH, GAP, TOP, PIXELS_PER_US = 400, 40, 70, 14
FILL = {"contraction": "#dbe9f6", "library-gemm": "#dbe9f6"}


def text(x: float, y: float, words: str, size: int = 14, weight: str = "normal") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}">{escape(words)}</text>'


def column(x: float, title: str, figures: dict[str, Any], kernels: list[dict[str, Any]]) -> list[str]:
    """One side: a heading, and a box a kernel, with what it reads, computes and writes."""
    below = f"{figures['matmul_flops'] / 1e6:.0f} MFLOP of matmul, {figures['predicted_us']:.1f} us predicted"
    parts = [text(x, 26, f"{title}: {figures['kernels']} kernels", 17, "bold"), text(x, 48, below)]
    y = float(TOP)
    for kernel in kernels:
        height = kernel["predicted_us"] * PIXELS_PER_US
        fill = FILL.get(kernel["family"], "#eeeeee")
        parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{height - 4:g}" rx="6" fill="{fill}" stroke="#456"/>'
        )
        parts.append(text(x + 12, y + 22, f"{kernel['name']}  {kernel['predicted_us']:.1f} us", 14, "bold"))
        parts.append(text(x + 12, y + 40, ", ".join(kernel["ops"]), 12))
        parts.append(text(x + 12, y + 56, f"{', '.join(kernel['inputs'])} -> {', '.join(kernel['outputs'])}", 12))
        y += height
    return parts


def main() -> None:
    program = PROGRAMS[PROGRAM].build()
    written = eqsat.optimize(program, rules=[]).report
    found = eqsat.optimize(program).report
    height = TOP + written["source"]["predicted_us"] * PIXELS_PER_US + 10
    width = 2 * WIDTH + GAP + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height:g}" fill="white"/>',
        *column(10, "as written, fused", written["result"], written["kernels"]),
        *column(10 + WIDTH + GAP, "optimised", found["result"], found["kernels"]),
        "</svg>",
    ]
    TARGET.write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
