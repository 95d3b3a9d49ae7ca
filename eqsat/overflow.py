"""float16 and bfloat16: results that overflow where their source does not.

Rewriting moves the point at which a short float overflows: two constant factors, each moderate, may have a product that
is infinite in float16, and a sum in another order may pass through a value that no float16 holds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eqsat.check import random_inputs
from eqsat.ir import Program
from eqsat.numerics import HALVES, dtype_name, is_float

Array = np.ndarray

_POINTS = 2


def folds_to_infinity(constants: Mapping[str, Array], source: Mapping[str, Array]) -> bool:
    """Whether constants computed ahead of time hold an infinity or NaN that no constant of the source holds.

    Args:
        constants, source: digest to values.
    """
    return any(
        not np.isfinite(values.astype(np.float64)).all()
        for digest, values in constants.items()
        if digest not in source and is_float(dtype_name(values.dtype))
    )


def overflows(source: Program, result: Program, inputs: Mapping[str, Array] | None = None) -> bool:
    """Whether a result at its own precision is infinite or NaN where its source is finite.

    Programs without short floats are not run: their range leaves room for any order.

    Args:
        inputs: by name; random ones where there are none.
    """
    if not any(t.dtype in HALVES for t in source.terms()):
        return False
    for point in random_inputs(source, _POINTS, seed=0) if inputs is None else (inputs,):
        wanted, found = source.run(point, "native"), result.run(point, "native")
        for name, values in wanted.items():
            if is_float(dtype_name(values.dtype)) and np.any(_finite(values) & ~_finite(found[name])):
                return True
    return False


def _finite(values: Array) -> Array:
    return np.isfinite(values.astype(np.float64))
