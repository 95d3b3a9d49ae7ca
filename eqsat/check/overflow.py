"""Finds float16 and bfloat16 results that overflow where their source does not.

Rewriting can move the point at which a short float overflows: two moderate constant factors may have a product that is
infinite in float16, and a sum in another order may have a partial sum that is too large for float16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from eqsat.base.numerics import HALVES, Array, dtype_name, is_float
from eqsat.check.demand import Demanded
from eqsat.check.inputs import random_inputs
from eqsat.check.wanted import everything
from eqsat.program.constants import viewed
from eqsat.program.ir import Program
from eqsat.program.term import Term

_POINTS = 2
_BLOCK = 1 << 22
_DEAR = 10_000_000_000  # operations from which only one point is evaluated


def folds_to_infinity(constants: Mapping[str, Array], source: Mapping[str, Array]) -> bool:
    """Whether a constant computed ahead of time holds an infinity or NaN while no constant of the source does.

    Args:
        constants, source: digest to values.
    """
    return any(
        not all(np.isfinite(part).all() for part in _blocks(values))
        for digest, values in constants.items()
        if viewed(digest) not in source and is_float(dtype_name(values.dtype))
    )


def _blocks(values: Array) -> Iterator[Array]:
    flat = values.reshape(-1)
    return (flat[i : i + _BLOCK] for i in range(0, flat.size, _BLOCK))


def overflows(
    source: Program, result: Program, inputs: Mapping[str, Array] | None = None, memory: int | None = None
) -> bool:
    """Whether a result at its own precision is infinite or NaN where its source is finite.

    Programs without short floats are not run: their range is large enough for any order.

    Args:
        inputs: arrays by name; random inputs if there are none.
        memory: bytes that may be used; a result that cannot be evaluated within them counts as overflowing.
    """
    if not any(t.dtype in HALVES for t in source.terms()):
        return False
    names = [name for name, term in source.outputs.items() if is_float(term.dtype)]
    before, after = ([p.outputs[name] for name in names] for p in (source, result))
    written, rewritten = (Demanded({term: everything(term) for term in terms}) for terms in (before, after))
    if memory is not None and max(written.peak_bytes(), rewritten.peak_bytes()) > memory:
        return True
    points = 1 if written.flops + rewritten.flops > _DEAR else _POINTS
    for point in random_inputs(source, points, seed=0) if inputs is None else (inputs,):
        bound = {term.attr("name"): array for term, array in source.bind_inputs(point).items()}
        found = _finite(rewritten, bound)
        if all(found[term].all() for term in after):
            continue  # the source does not matter then, and need not run
        wanted = _finite(written, bound)
        if any(np.any(wanted[s] & ~found[r]) for s, r in zip(before, after, strict=True)):
            return True
    return False


def _finite(demanded: Demanded, inputs: Mapping[str, Array]) -> dict[Term, Array]:
    """For each output, where it is finite at its own precision."""
    return dict(zip(demanded.wanted, map(np.isfinite, demanded.run(inputs, "native")), strict=True))
