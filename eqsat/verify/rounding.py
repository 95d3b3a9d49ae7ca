"""How far two constants may be apart, one of which was computed ahead of time and rounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import Array, is_float
from eqsat.errors import CheckFailed
from eqsat.program.core import Node, evaluate
from eqsat.verify.conditioning import shaken

ROUNDING = 16.0
"""Units in the last place by which a folded constant may miss its computation."""

LAST_PLACE: Mapping[str, float] = {"float64": 2**-52, "float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}
"""A unit in the last place of 1. Types that are not listed do not round."""

_SHAKEN, _MOST_SHAKEN = 2.0**-48, 2.0**13
"""How far results of float64 are moved at least, and how many units in its last place constants of it may move then."""

_MOVES = frozenset({"V", "Cat", "Where", "Gather"})


def rounding(left: Node, right: Node, meanings: Mapping[Node, Array], constants: Mapping[str, Array]) -> float:
    """How far apart two constants are, in units in the last place: of the element, or of the largest one where sums are
    on the way to them.

    They are computed in float64, not in their own types as a runtime folds them. There, what a narrow type loses on the
    way is no unit apart, and then the laws, which know of no types, take it for nothing: a tenth that float16 has held
    would be 0.0999755859375, and 4.1 + 1e8 - 1e8 in float32 be 8.

    Args:
        meanings: what numbers and stored constants stand for where it is not their bits (`eqsat.verify.meaning`).
        constants: digest to stored values.

    Raises:
        CheckFailed: they are further apart than `ROUNDING` allows, or an element that is computed is not finite.
    """
    found, want = evaluate([left, right], {}, constants, precision="float64", known=meanings)
    if not np.isfinite(found).all() and not (only_moves(left) and only_moves(right)):
        raise CheckFailed("a constant that is computed is not finite")
    units = units_apart(found, want, LAST_PLACE.get(left.dtype, 0.0), adds_up([left, right]))
    if not units <= ROUNDING:
        raise CheckFailed(f"both are {units:.3g} units apart, where {ROUNDING:g} are allowed")
    _see_sound(left, right, meanings, constants)
    return units


def _see_sound(left: Node, right: Node, meanings: Mapping[Node, Array], constants: Mapping[str, Array]) -> None:
    """See that two constants are not close by rounding alone (`eqsat.verify.conditioning`), as far as float64 tells:
    for constants of this type itself, to 2**-39. Raises CheckFailed where they are."""
    unit = LAST_PLACE.get(left.dtype, 0.0)
    wide = left.dtype == "float64"
    for _ in range(4 if wide else 2):
        found, want = shaken([left, right], meanings, constants, max(_SHAKEN, unit / (1 << 17)))
        if not units_apart(found, want, unit, adds_up([left, right])) <= (_MOST_SHAKEN if wide else ROUNDING):
            raise CheckFailed("both are close by rounding alone")


def only_moves(constant: Node) -> bool:
    """Whether a constant holds stored elements and numbers as they are. The way to integers and truth values, which say
    where they come from, does not count."""
    return all(n.op in _MOVES for n in operands_first([constant]) if n.args and is_float(n.dtype))


def adds_up(nodes: Iterable[Node]) -> bool:
    """Whether sums are on the way to one of some constants, or nothing is known of the way.

    What cancels in a sum leaves the rounding of its addends.
    """
    order = operands_first(list(nodes))
    return all(not n.args for n in order) or any(
        n.op in ("MM", "Red") or (n.op == "Bin" and n.attrs[0] in ("add", "sub")) for n in order
    )


def units_apart(a: Array, b: Array, unit: float, largest: bool) -> float:
    """The largest difference of two arrays, in units (of the last place of 1) of the element, or of the largest one."""
    same = (a == b) | ((a != a) & (b != b))
    if same.all():
        return 0.0
    with np.errstate(all="ignore"):
        a, b = a.astype(np.float64), b.astype(np.float64)
        gap = np.abs(np.where(same, 0.0, a - b))
        scale = np.maximum(np.abs(a), np.abs(b))
        if largest:
            scale = np.where(np.isfinite(scale), scale, 0.0).max(initial=0.0)
        return float(np.where(same, 0.0, gap / (unit * scale)).max())
