"""Reductions over windows that end at each element, and convolutions that spread a kernel from each element."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from eqsat.frontends.terms.declined import Declined
from eqsat.program import composites, ops
from eqsat.program.term import Term

_SUMMED = 1 << 22
"""Most additions of a running sum, which is a sum over a window for each element."""


def running(kind: str, x: Term, axis: int, reverse: bool = False) -> Term:
    """A running sum, maximum or minimum: that over a window which ends (reversed: begins) at each place.

    Raises:
        Declined: there are too many additions.
    """
    n = x.shape[axis]
    if n * x.size > _SUMMED:
        raise Declined(f"more than {_SUMMED} additions")
    if n <= 1 or not x.size:
        return x
    image = ops.reshape(x, (1, prod(x.shape[:axis]), n, prod(x.shape[axis + 1 :])))
    pads = ((0, 0), (n - 1, 0)) if reverse else ((n - 1, 0), (0, 0))
    return ops.reshape(ops.pool(kind, image, (n, 1), None, *pads), x.shape)


def spread(x: Term, between: Sequence[int], value: float) -> Term:
    """So many elements of this value between any two neighbours of each axis."""
    for axis, count in enumerate(between):
        if count and x.shape[axis] > 1:
            apart = ops.unsqueeze(x, axis + 1)
            behind = [count if i == axis + 1 else 0 for i in range(apart.ndim)]
            filled = ops.pad(apart, [0] * apart.ndim, behind, value)
            shape = (*x.shape[:axis], x.shape[axis] * (count + 1), *x.shape[axis + 1 :])
            x = ops.slice_(ops.reshape(filled, shape), [None], [-count], [axis])
    return x


def with_bias(x: Term, bias: Term | None) -> Term:
    """x[n, c, *s] + bias[c]; `x` itself where there is no bias."""
    return x if bias is None else composites.add(x, ops.reshape(bias, (-1,) + (1,) * (x.ndim - 2)))


def transposed_conv(
    x: Term,
    w: Term,
    groups: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    cuts: Sequence[tuple[int, int, int]],
) -> Term:
    """x[n, c, *s], w[c, oc/g, *k]: every element spreads the kernel over the output.

    An output at stride * q + r reads only every stride-th element of the kernel: the elements r, stride + r, ... So it
    is a convolution of x itself, whose channels are the remainders r, which are then put beside each other. An axis
    whose dilation is too wide for that gets zeros between its elements instead.

    Args:
        cuts: for each spatial axis the elements cut off at its start and at its end, and the size that is left.
    """
    strides, dilations, stuffed = list(strides), list(dilations), [0] * len(strides)
    for i, (n, k) in enumerate(zip(x.shape[2:], w.shape[2:], strict=True)):
        extent = (k - 1) * dilations[i] + 1
        if n == 1:
            strides[i] = extent  # nothing overlaps
        if -(-extent // strides[i]) > k:
            stuffed[i], strides[i] = strides[i] - 1, 1
    x = spread(x, (0, 0, *stuffed), 0)
    apart = [d if s == 1 else 1 for s, d in zip(strides, dilations, strict=True)]
    w = spread(w, (0, 0, *(d // a - 1 for d, a in zip(dilations, apart, strict=True))), 0)
    return _cut(_by_remainder(x, w, groups, strides, apart), cuts)


def _cut(x: Term, cuts: Sequence[tuple[int, int, int]]) -> Term:
    """The spatial axes from `lo` on, `size` long, with zeros where that is beyond the end."""
    lacking = [max(lo + size - n, 0) for (lo, _, size), n in zip(cuts, x.shape[2:], strict=True)]
    x = ops.pad(x, [0] * x.ndim, [0, 0, *lacking])
    return ops.slice_(x, [lo for lo, _, _ in cuts], [lo + size for lo, _, size in cuts], list(range(2, x.ndim)))


def _by_remainder(x: Term, w: Term, groups: int, strides: Sequence[int], dilations: Sequence[int]) -> Term:
    """One convolution whose channels are those of the output and the remainders of its places by the strides; then
    every remainder beside its quotient."""
    n, rank, channels = x.shape[0], x.ndim - 2, w.shape[1]
    counts = [-(-k // s) for k, s in zip(w.shape[2:], strides, strict=True)]
    lacking = [c * s - k for c, s, k in zip(counts, strides, w.shape[2:], strict=True)]
    whole = ops.pad(w, [0] * w.ndim, [0, 0, *lacking])
    split = ops.reshape(
        whole, (groups, w.shape[0] // groups, channels, *(d for cs in zip(counts, strides, strict=True) for d in cs))
    )
    taps, remainders = range(3, split.ndim, 2), range(4, split.ndim, 2)
    mirrored = ops.flip(split, list(taps))
    turned = ops.transpose(mirrored, (0, 2, *remainders, 1, *taps))
    kernel = ops.reshape(turned, (groups * channels * prod(strides), w.shape[0] // groups, *counts))
    reach = [d * (c - 1) for d, c in zip(dilations, counts, strict=True)]
    found = ops.conv(x, kernel, (1,) * rank, reach, reach, dilations, groups)
    sizes = found.shape[2:]
    apart = ops.reshape(found, (n, groups * channels, *strides, *sizes))
    beside = [axis for i in range(rank) for axis in (2 + rank + i, 2 + i)]
    joined = ops.transpose(apart, (0, 1, *beside))
    return ops.reshape(joined, (n, groups * channels, *(q * s for q, s in zip(sizes, strides, strict=True))))
