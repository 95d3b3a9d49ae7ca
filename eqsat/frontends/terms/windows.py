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

    Kernels that do not overlap are a product, whose blocks are put in place; others a convolution with the mirrored
    kernel over x with zeros between its elements.

    Args:
        cuts: for each spatial axis the elements cut off at its start and at its end, and the size that is left.
    """
    if tuple(strides) == w.shape[2:] and set(dilations) == {1}:
        return _cut(_spread_blocks(x, w, groups), cuts)
    return _cut(_spread_windows(x, w, groups, strides, dilations), cuts)


def _cut(x: Term, cuts: Sequence[tuple[int, int, int]]) -> Term:
    """The spatial axes from `lo` on, `size` long, with zeros where that is beyond the end."""
    lacking = [max(lo + size - n, 0) for (lo, _, size), n in zip(cuts, x.shape[2:], strict=True)]
    x = ops.pad(x, [0] * x.ndim, [0, 0, *lacking])
    return ops.slice_(x, [lo for lo, _, _ in cuts], [lo + size for lo, _, size in cuts], list(range(2, x.ndim)))


def _spread_blocks(x: Term, w: Term, groups: int) -> Term:
    """Blocks side by side: x[n, g, c, s] times w[g, c, oc k], then every k beside its s."""
    n, c, spatial, kernel = x.shape[0], x.shape[1], x.shape[2:], w.shape[2:]
    rank, out = len(kernel), w.shape[1]
    left = ops.transpose(ops.reshape(x, (n, groups, c // groups, prod(spatial))), (1, 0, 3, 2))
    right = ops.reshape(w, (groups, c // groups, out * prod(kernel)))
    product = ops.matmul(ops.reshape(left, (groups, n * prod(spatial), c // groups)), right)
    apart = ops.reshape(product, (groups, n, *spatial, out, *kernel))
    beside = [axis for i in range(rank) for axis in (2 + i, 3 + rank + i)]
    joined = ops.transpose(apart, (1, 0, 2 + rank, *beside))
    return ops.reshape(joined, (n, groups * out, *(s * k for s, k in zip(spatial, kernel, strict=True))))


def _spread_windows(x: Term, w: Term, groups: int, strides: Sequence[int], dilations: Sequence[int]) -> Term:
    kernel, rank = w.shape[2:], x.ndim - 2
    stuffed = spread(x, (0, 0, *(s - 1 for s in strides)), 0)
    mirrored = ops.flip(w, list(range(2, w.ndim)))
    split = ops.reshape(mirrored, (groups, w.shape[0] // groups, *w.shape[1:]))
    turned = ops.reshape(
        ops.transpose(split, (0, 2, 1, *range(3, split.ndim))), (groups * w.shape[1], w.shape[0] // groups, *kernel)
    )
    reach = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
    return ops.conv(stuffed, turned, (1,) * rank, reach, reach, dilations, groups)
