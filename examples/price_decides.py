"""The same rewrite is right for one shape and wrong for another: rules only say what is equal, prices decide."""

from __future__ import annotations

import numpy as np

import eqsat

rng = np.random.default_rng(0)

for inner in (768, 64):
    a = rng.standard_normal((768, inner), dtype=np.float32)
    c = rng.standard_normal((inner, 768), dtype=np.float32)
    program = eqsat.trace(lambda x, a=a, c=c: x @ a @ c, eqsat.spec((348, 768)))
    report = eqsat.optimize(program, device="mi300x").report
    before, after = report["source"]["matmul_flops"], report["result"]["matmul_flops"]
    print(f"x @ [768, {inner}] @ [{inner}, 768]: {before / 1e6:.1f} -> {after / 1e6:.1f} MFLOP")
