"""Two products with constant weights become one: trace a NumPy-style function, optimise it, run the result."""

from __future__ import annotations

import numpy as np

import eqsat

rng = np.random.default_rng(0)
A = rng.standard_normal((768, 768), dtype=np.float32)
C = rng.standard_normal((768, 768), dtype=np.float32)

program = eqsat.trace(lambda x: x @ A @ C, eqsat.spec((348, 768)))
best = eqsat.optimize(program, device="mi300x")
print(best)
print(best.explain())

x = rng.standard_normal((348, 768), dtype=np.float32)
(y,) = best.compile(on="numpy")({"x": x}).values()
error = np.abs(y - x @ A @ C).max() / np.abs(y).max()
print(f"largest difference to NumPy: {error:.1e} of the scale")
