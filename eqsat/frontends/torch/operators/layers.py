"""ATen operators that sum over products and windows: products, convolutions, pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsat.frontends.torch.operators.row import Declined, Row
from eqsat.program import composites, ops
from eqsat.program.term import Shape, Term

# Products


def _product(self: Term, mat2: Term) -> Term:
    return composites.matmul(self, mat2)


def _times(self: Term, vec: Term) -> Term:
    return composites.matmul(self, vec)


def _dot(self: Term, tensor: Term) -> Term:
    return composites.matmul(self, tensor)


def _added_product(self: Term, first: Term, second: Term, beta: float, alpha: float) -> Term:
    """beta self + alpha first @ second; with beta 0 `self` counts for nothing, whatever it holds."""
    product = composites.matmul(first, second)
    product = product if alpha == 1 else composites.scaled(product, alpha)
    if beta == 0:
        return product
    return composites.add(product, self if beta == 1 else composites.scaled(self, beta))


def _addmm(self: Term, mat1: Term, mat2: Term, beta: float, alpha: float) -> Term:
    return _added_product(self, mat1, mat2, beta, alpha)


def _baddbmm(self: Term, batch1: Term, batch2: Term, beta: float, alpha: float) -> Term:
    return _added_product(self, batch1, batch2, beta, alpha)


# Windows


def _spread(value: Sequence[int], rank: int) -> Shape:
    """One number for each of the axes; torch lists a single one for all."""
    return tuple(value) * rank if len(value) == 1 else tuple(value)


def _convolution(
    input: Term,
    weight: Term,
    bias: Term | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Term:
    rank = weight.ndim - 2
    if transposed or input.ndim != weight.ndim:
        raise Declined("a transposed convolution, or one without a batch")
    steps, pads, apart = (_spread(dims, rank) for dims in (stride, padding, dilation))
    out = ops.conv(input, weight, steps, pads, pads, apart, groups)
    return out if bias is None else composites.add(out, ops.reshape(bias, (-1,) + (1,) * rank))


def _windows(x: Term, rank: int, kernel: Shape, steps: Shape, pads: Shape, apart: Shape, ceil_mode: bool) -> Shape:
    """The padding behind each axis: with `ceil_mode`, one window more that begins within the padded tensor may jut
    out."""
    behind = list(pads)
    for i, (n, k, s, p, d) in enumerate(zip(x.shape[-rank:], kernel, steps, pads, apart, strict=True)):
        free = n + 2 * p - d * (k - 1) - 1
        last = -(-free // s) * s  # where the last window would begin
        if ceil_mode and free % s and last < n + p:
            behind[i] += last - free
    return tuple(behind)


def _laid(x: Term, rank: int, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> list[Shape]:
    """Kernel, strides and padding for each axis. The batch may be missing, which no operator here understands."""
    if x.ndim != rank + 2:
        raise Declined("a pool without a batch")
    return [_spread(dims, rank) for dims in (kernel, stride or kernel, padding)]


def _max_pool(
    rank: int,
    self: Term,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Term:
    kernel, steps, pads = _laid(self, rank, kernel_size, stride, padding)
    apart = _spread(dilation, rank)
    behind = _windows(self, rank, kernel, steps, pads, apart, ceil_mode)
    return composites.max_pool(self, kernel, steps, pads, behind, apart)


def _max_pool_with_indices(rank: int) -> Callable[..., tuple[Term | None, ...]]:
    def build(
        self: Term,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
    ) -> tuple[Term | None, ...]:
        return _max_pool(rank, self, kernel_size, stride, padding, dilation, ceil_mode), None

    return build


def _avg_pool(rank: int) -> Callable[..., Term]:
    def build(
        self: Term, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], count_include_pad: bool
    ) -> Term:
        kernel, steps, pads = _laid(self, rank, kernel_size, stride, padding)
        counted = pads if count_include_pad else None
        return composites.avg_pool(self, kernel, steps, pads, pads, None, counted, counted)

    return build


def _adaptive_avg_pool(self: Term, output_size: Sequence[int]) -> Term:
    """Windows of equal size, where they tile the tensor."""
    sizes = self.shape[-len(output_size) :]
    if self.ndim != len(output_size) + 2 or any(n % k for n, k in zip(sizes, output_size, strict=True)):
        raise Declined("windows of unequal size")
    kernel = tuple(n // k for n, k in zip(sizes, output_size, strict=True))
    return composites.avg_pool(self, kernel, kernel)


LAYERS: dict[str, Row] = {
    "mm.default": Row(_product),
    "bmm.default": Row(_product),
    "mv.default": Row(_times),
    "dot.default": Row(_dot),
    "addmm.default": Row(_addmm),
    "baddbmm.default": Row(_baddbmm),
    "convolution.default": Row(_convolution),
    "max_pool2d_with_indices.default": Row(_max_pool_with_indices(2)),
    "max_pool3d_with_indices.default": Row(_max_pool_with_indices(3)),
    "avg_pool1d.default": Row(_avg_pool(1)),
    "avg_pool2d.default": Row(_avg_pool(2)),
    "avg_pool3d.default": Row(_avg_pool(3)),
    "_adaptive_avg_pool2d.default": Row(_adaptive_avg_pool),
    "_adaptive_avg_pool3d.default": Row(_adaptive_avg_pool),
}
