"""Programs that differ in one value: which, and that all else is equal.

Constants that were computed ahead of time are rounded. In a deep program this may hide a small difference, such as an
epsilon that is added twice. So a value of the second program is sought that one of the first comes near. Both are
replaced by one unknown. If a sweep then proves the programs equal, whatever the unknown is, the second is the first
with this value exchanged. What that makes can be seen: both sides have the same constants elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from eqsat.base.numerics import Array
from eqsat.language.rule import AnyRule
from eqsat.program.core import Node, OpaqueCall, evaluate, make, topological
from eqsat.program.node import is_leaf, substitute
from eqsat.proof.sweep import QUICK, sample, sweep
from eqsat.proof.values.ahead import Ahead

_NEAR = 0.1
"""How far two values may be apart that are exchanged: a share of their scale."""

_MOST_TRIED = 8
"""Values of the second program that are tried, from the inputs on."""

_ELSEWHERE = 0.1
"""The share of a difference that may be left where both values are one: what constants round is less."""

_UNKNOWN = "the value exchanged"


def exchanged(
    left: Sequence[Node],
    right: Sequence[Node],
    constants: Ahead,
    opaque: Mapping[str, OpaqueCall],
    point: Mapping[str, Array],
    rules: Sequence[AnyRule],
    deadline: float,
) -> list[Node] | None:
    """The outputs `left` with one of their values replaced by one of `right`, which proves them equal to `right`.

    None where no such value was found. Constants agree up to their rounding.

    Args: as `eqsat.proof.sweep.sweep`, and
        point: an input, flat, by name.

    Raises:
        InputError: an index is out of range.
        OutOfTime: the deadline has passed.
    """
    seen = sample(left, right, constants, opaque, [point], deadline)
    gap = _apart(*seen.outputs)
    known = dict.fromkeys(topological(left))
    first = [n for n in known if not constants.is_fixed(n)]
    own = [n for n in topological(right) if n not in known and not is_leaf(n.op) and not constants.is_fixed(n)]
    for theirs in own[:_MOST_TRIED]:
        wanted = seen.signatures[theirs]
        near = {n: seen.signatures[n].distance(wanted) for n in first}
        ours = min(near, key=near.__getitem__, default=theirs)
        if near.get(ours, 1.0) > _NEAR:
            continue
        unknown = make("In", (_UNKNOWN, ours.size, ours.dtype))
        one, other = substitute(left, {ours: unknown}), substitute(right, {theirs: unknown})
        [value] = evaluate([ours], point, constants.values, opaque, "float64")
        alike = sample(one, other, constants, opaque, [{**point, _UNKNOWN: value}], deadline)
        if _apart(*alike.outputs) > _ELSEWHERE * gap:
            continue
        if sweep(one, other, constants, alike, rules, deadline, efforts=QUICK).equal:
            return substitute(left, {ours: theirs})
    return None


def _apart(left: Sequence[Array], right: Sequence[Array]) -> float:
    """The largest difference of outputs, as a share of their scale."""
    worst = 0.0
    for a, b in zip(left, right, strict=True):
        one, other = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(invalid="ignore"):
            gaps, sizes = np.abs(one - other), np.abs(one)
        scale = float(sizes[np.isfinite(sizes)].max(initial=0.0))
        worst = max(worst, float(gaps[np.isfinite(gaps)].max(initial=0.0)) / (scale or 1.0))
    return worst
