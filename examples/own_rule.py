"""Pass a rule of your own: a row with two sides, what must be proved, and how exact it is."""

from __future__ import annotations

import eqsat
from eqsat.rule import rule
from eqsat.rules import ALL

log_of_exp = rule(
    "log-of-exp",
    "log(exp(a)) => a",
    numerics="range-changing",  # exp may overflow where its logarithm would not
    source="textbook",
    why="two operators become none",
)

program = eqsat.trace(lambda x: eqsat.log(eqsat.exp(x)) + 1.0, eqsat.spec((1024,)))
for numerics in ("reassociate", "fast"):
    best = eqsat.optimize(program, rules=[*ALL, log_of_exp], numerics=numerics)
    print(f"--- numerics={numerics}\n{best.program}")
