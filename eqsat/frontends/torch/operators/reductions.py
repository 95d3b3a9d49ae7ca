"""ATen operators that reduce along axes, and the norms made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any

from eqsat.base.numerics import HALVES, is_float
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.torch.operators.row import Row, converted
from eqsat.program import composites, ops
from eqsat.program.term import Shape, Term

Dims = int | Sequence[int] | None


def _axes(dim: Dims, rank: int) -> Shape:
    """torch's axes: none listed means all, and a tensor of no dims has one axis."""
    if dim is None or dim == []:
        return tuple(range(rank))
    return ops.axes_of(dim, rank) if rank else ()


def _summed(kind: str) -> Callable[..., Term]:
    def build(self: Term, dtype: Any, dim: Dims = None, keepdim: bool = False) -> Term:
        return ops.reduce(kind, converted(self, dtype), _axes(dim, self.ndim), keepdim)

    return build


def _mean(self: Term, dtype: Any, dim: Dims = None, keepdim: bool = False) -> Term:
    x = converted(self, dtype)
    if not is_float(x.dtype):
        raise Declined("a mean of integers")
    return composites.mean(x, _axes(dim, x.ndim), keepdim)


def _extreme(kind: str) -> Callable[..., Term]:
    return lambda self, dim=None, keepdim=False: ops.reduce(kind, self, _axes(dim, self.ndim), keepdim)


def _extreme_place(kind: str) -> Callable[..., Term]:
    def build(self: Term, dim: int | None, keepdim: bool) -> Term:
        if not self.ndim or (dim is None and keepdim):
            raise Declined("a place in a tensor of no dims, or in all of them with dims kept")
        flat = ops.reshape(self, (-1,)) if dim is None else self
        return ops.reduce(kind, flat, 0 if dim is None else dim, keepdim)

    return build


def _extreme_with_place(kind: str) -> Callable[..., tuple[Term | None, ...]]:
    """The place is left out: torch does not say which one of equal elements it is."""
    extreme = _extreme(kind)
    return lambda self, dim, keepdim: (extreme(self, dim, keepdim), None)


def _any(kind: str) -> Callable[..., Term]:
    extreme = _extreme(kind)
    return lambda self, dim=None, keepdim=False: extreme(ops.cast(self, "bool"), dim, keepdim)


def _var(self: Term, dim: Dims, correction: float | None, keepdim: bool) -> Term:
    """The sum of squared distances from the mean over n - correction; by default the correction is 1."""
    axes = _axes(dim, self.ndim)
    count = prod(self.shape[i] for i in axes)
    free = count - (1 if correction is None else correction)
    if free <= 0:
        raise Declined("a variance of too few elements")
    return composites.scaled(composites.var(self, axes, keepdim), count / free)


def _var_mean(self: Term, dim: Dims, correction: float | None, keepdim: bool) -> tuple[Term, ...]:
    return _var(self, dim, correction, keepdim), composites.mean(self, _axes(dim, self.ndim), keepdim)


def _top(self: Term, k: int, dim: int, largest: bool, sorted: bool) -> tuple[Term | None, ...]:
    """The one largest or smallest element; which place of equal ones torch gives it does not say."""
    if k != 1 or not self.ndim:
        raise Declined("several elements")
    return ops.reduce("max" if largest else "min", self, dim, True), None


def _vector_norm(self: Term, ord: float, dim: Dims, keepdim: bool, dtype: Any) -> Term:
    x = converted(self, dtype)
    axes = _axes(dim, x.ndim)
    if ord == 2:
        return composites.norm2(x, axes, keepdim)
    if ord == 1:
        return ops.sum_(ops.abs_(x), axes, keepdim)
    if ord == inf:
        return ops.reduce("max", ops.abs_(x), axes, keepdim)
    raise Declined(f"a norm of order {ord}")


# Norms


def _softmax(build: Callable[..., Term]) -> Callable[..., Term]:
    """Halves are computed in float32 throughout and rounded once; so is the result with `half_to_float`."""

    def built(self: Term, dim: int, half_to_float: bool) -> Term:
        if not self.ndim:
            raise Declined("a tensor of no dims")
        wide = ops.cast(self, "float32") if self.dtype in HALVES else self
        found = build(wide, dim)
        return found if half_to_float else ops.cast(found, self.dtype)

    return built


def _layer_norm(
    input: Term, normalized_shape: Sequence[int], weight: Term | None, bias: Term | None, eps: float
) -> tuple[Term | None, ...]:
    return composites.layernorm(input, weight, bias, -len(normalized_shape), eps), None, None


def _group_norm(
    input: Term, weight: Term | None, bias: Term | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Term | None, ...]:
    """Of C / group channels together."""
    unit = composites.layernorm(ops.reshape(input, (N, group, -1)), None, None, -1, eps)
    out = ops.reshape(unit, input.shape)
    channel = (-1,) + (1,) * (input.ndim - 2)
    out = out if weight is None else composites.mul(out, ops.reshape(weight, channel))
    return (out if bias is None else composites.add(out, ops.reshape(bias, channel))), None, None


def _batch_norm(
    input: Term,
    weight: Term | None,
    bias: Term | None,
    running_mean: Term | None,
    running_var: Term | None,
    momentum: float,
    eps: float,
    training: bool = False,
) -> tuple[Term | None, ...]:
    """At inference, where the momentum of the running statistics does not matter."""
    if training or running_mean is None or running_var is None:
        raise Declined("statistics of the batch")
    scale = ops.full_like(1, running_mean) if weight is None else weight
    offset = ops.full_like(0, running_mean) if bias is None else bias
    return composites.batchnorm(input, scale, offset, running_mean, running_var, eps), None, None


REDUCTIONS: dict[str, Row] = {
    **{f"sum.{how}": Row(_summed("sum")) for how in ("default", "dim_IntList")},
    **{f"prod.{how}": Row(_summed("prod")) for how in ("default", "dim_int")},
    **{f"mean.{how}": Row(_mean) for how in ("default", "dim")},
    **{f"{of}{kind}.default": Row(_extreme(kind)) for kind in ("max", "min") for of in ("", "a")},
    **{f"{kind}.dim": Row(_extreme_with_place(kind)) for kind in ("max", "min")},
    **{f"{kind}.default": Row(_extreme_place(kind)) for kind in ("argmax", "argmin")},
    **{f"{name}.{how}": Row(_any(kind))
       for name, kind in (("any", "max"), ("all", "min")) for how in ("default", "dim", "dims")},
    "var.correction": Row(_var),
    "var_mean.correction": Row(_var_mean),
    "topk.default": Row(_top, whole=True),
    "linalg_vector_norm.default": Row(_vector_norm),
    "_softmax.default": Row(_softmax(composites.softmax)),
    "_log_softmax.default": Row(_softmax(composites.log_softmax)),
    "native_layer_norm.default": Row(_layer_norm),
    "native_group_norm.default": Row(_group_norm),
    "_native_batch_norm_legit_no_training.default": Row(_batch_norm),
    "native_batch_norm.default": Row(_batch_norm),
}  # fmt: skip
