"""Three small towers over slices of one input, which `optimize` joins: a program with many steps to explain."""

from __future__ import annotations

import eqsat
from support.programs import weight


def towers(x: eqsat.Tracer) -> tuple[eqsat.Tracer, ...]:
    outs = []
    for t in range(3):
        h = eqsat.relu(x[:, 64 * t : 64 * t + 64] @ weight(64, 32) + weight(32) + t)
        outs.append(h @ (weight(32, 16) + t))
    return tuple(outs)
