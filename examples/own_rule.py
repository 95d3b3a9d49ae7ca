"""Pass a rule of your own: a row with two sides, what must be proved, and how exact it is."""

from __future__ import annotations

import eqsat
from eqsat.rule import rule
from eqsat.rules import ALL

divide_back = rule(
    "multiply-and-divide-back",
    "a * b / b == a",
    when="floating(dtype(a))",  # integers by 0 give no NaN
    numerics="range-changing",  # where b is 0 the left side is NaN, and the right side is not
    source="a normalisation that our exporter writes twice",
    why="b need not be read",
)

program = eqsat.trace(lambda x, scale: eqsat.tanh(x * scale / scale), *[eqsat.spec((1024, 1024))] * 2)
for numerics in ("reassociate", "fast"):
    best = eqsat.optimize(program, rules=[*ALL, divide_back], numerics=numerics)
    print(f"--- numerics={numerics}: {best.report['result']['bytes'] / 1e6:.1f} MB\n{best.program}")
