"""Core programs with random constants and inputs."""

from __future__ import annotations

import numpy as np

from eqsat.program.core import CoreProgram, Node, topological


def program_of(roots: list[Node], constants: dict[str, np.ndarray] | None = None) -> CoreProgram:
    """A core program whose constants are drawn at random where they are not given."""
    order = topological(roots)
    rng = np.random.default_rng(0)
    drawn = {n.attrs[0]: (rng.normal(size=n.size) / 8).astype(n.dtype) for n in order if n.op == "Const"}
    return CoreProgram(
        roots=tuple(roots),
        root_names=tuple(f"y{i}" for i in range(len(roots))),
        root_shapes=tuple((r.size,) for r in roots),
        inputs=tuple(n for n in order if n.op == "In"),
        constants=drawn | (constants or {}),
    )


def random_env(program: CoreProgram) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {n.attrs[0]: rng.normal(size=n.size).astype(n.dtype) for n in program.inputs}
