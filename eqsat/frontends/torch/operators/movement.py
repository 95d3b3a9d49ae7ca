"""ATen operators that move elements, or make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from eqsat.base.numerics import is_float
from eqsat.frontends.terms.lookups import part
from eqsat.frontends.torch.operators.row import Row, as_term, common_dtype
from eqsat.frontends.torch.operators.tensors import import_torch, name_of
from eqsat.program import composites, ops
from eqsat.program.term import Term


def _swap(self: Term, dim0: int, dim1: int) -> Term:
    order = list(range(self.ndim))
    if order:
        a, b = ops.axis_of(dim0, self.ndim), ops.axis_of(dim1, self.ndim)
        order[a], order[b] = order[b], order[a]
    return ops.transpose(self, order)


def _expand(self: Term, size: Sequence[int]) -> Term:
    """-1 keeps a dim."""
    known = (-1,) * (len(size) - self.ndim) + self.shape
    return ops.broadcast(self, [n if s == -1 else s for s, n in zip(size, known, strict=True)])


def _squeeze(self: Term, dim: int | Sequence[int] | None = None) -> Term:
    """Dims of another size than 1 stay."""
    return ops.squeeze(self, [i for i in ops.axes_of(dim, self.ndim) if self.shape[i] == 1]) if self.ndim else self


def _select(self: Term, dim: int, index: int) -> Term:
    axis = ops.axis_of(dim, self.ndim)
    return part(self, axis, index % self.shape[axis])


def _split_equal(self: Term, split_size: int, dim: int) -> tuple[Term, ...]:
    n = self.shape[ops.axis_of(dim, self.ndim)]
    sizes = [min(split_size, n - at) for at in range(0, n, split_size)] if split_size else []
    return tuple(ops.split(self, sizes or [n], dim))


def _unbind(self: Term, dim: int) -> tuple[Term, ...]:
    return tuple(_select(self, dim, i) for i in range(self.shape[ops.axis_of(dim, self.ndim)]))


def _cat(tensors: Sequence[Term], dim: int) -> Term:
    """Old programs join tensors of shape (0,) to any others: they add nothing."""
    rank = max(x.ndim for x in tensors)
    joined = [x for x in tensors if x.ndim == rank or x.shape != (0,)]
    dtype = common_dtype(tensors)
    return ops.concat([ops.cast(x, dtype) for x in joined], dim)


def _stack(tensors: Sequence[Term], dim: int) -> Term:
    dtype = common_dtype(tensors)
    return ops.stack([ops.cast(x, dtype) for x in tensors], dim)


def _pad(self: Term, pad: Sequence[int], value: float) -> Term:
    """`pad` lists (before, after) from the last axis on."""
    before = (0,) * (self.ndim - len(pad) // 2)
    return ops.pad(self, before + tuple(pad[::2])[::-1], before + tuple(pad[1::2])[::-1], value)


# Tensors without operands


def _arange(end: float, dtype: Any, start: float = 0, step: float = 1) -> Term:
    if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        count, default = len(range(start, end, step)), "int64"
    else:
        count, default = ceil((end - start) / step), None
    name = _dtype(dtype, default)
    ramp = ops.iota((count,), 0, name if is_float(name) else "int64")
    return ops.cast(composites.add(composites.mul(ramp, as_term(step, ramp.dtype)), as_term(start, ramp.dtype)), name)


def _full(size: Sequence[int], fill_value: float, dtype: Any) -> Term:
    kinds = {bool: "bool", int: "int64"}
    return ops.full(fill_value, size, _dtype(dtype, kinds.get(type(fill_value))))


def _filled(value: float) -> Callable[..., Term]:
    return lambda size, dtype: ops.full(value, size, _dtype(dtype))


def _full_like(self: Term, fill_value: float, dtype: Any) -> Term:
    return ops.full(fill_value, self.shape, _dtype(dtype, self.dtype))


def _filled_like(value: float) -> Callable[..., Term]:
    return lambda self, dtype: _full_like(self, value, dtype)


def _dtype(given: Any, default: str | None = None) -> str:
    """The element type asked for, else the default; torch's own default is that of floats."""
    if given is not None:
        return name_of(given)
    return default or name_of(import_torch().get_default_dtype())


MOVEMENT: dict[str, Row] = {
    "permute.default": Row(lambda self, dims: ops.transpose(self, [ops.axis_of(d, self.ndim) for d in dims])),
    "transpose.int": Row(_swap),
    "t.default": Row(lambda self: ops.transpose(self)),
    **{f"{name}.default": Row(lambda self, size: ops.reshape(self, size)) for name in ("view", "_unsafe_view")},
    "reshape.default": Row(lambda self, shape: ops.reshape(self, shape)),
    "expand.default": Row(_expand),
    "repeat.default": Row(lambda self, repeats: composites.tile(self, repeats)),
    **{f"squeeze.{how}": Row(_squeeze) for how in ("default", "dim", "dims")},
    "unsqueeze.default": Row(lambda self, dim: ops.unsqueeze(self, dim)),
    "slice.Tensor": Row(lambda self, dim, start, end, step: ops.slice_(self, [start], [end], [dim], [step])),
    "select.int": Row(_select),
    "split_with_sizes.default": Row(lambda self, split_sizes, dim: tuple(ops.split(self, split_sizes, dim))),
    "split.Tensor": Row(_split_equal),
    "unbind.int": Row(_unbind),
    "cat.default": Row(_cat),
    "stack.default": Row(_stack),
    "flip.default": Row(lambda self, dims: ops.flip(self, dims) if dims else self),
    "constant_pad_nd.default": Row(_pad),
    "copy.default": Row(lambda self, src: ops.broadcast(ops.cast(src, self.dtype), self.shape)),
    **{f"arange.{how}": Row(_arange) for how in ("default", "start", "start_step")},
    "full.default": Row(_full),
    "zeros.default": Row(_filled(0)),
    "ones.default": Row(_filled(1)),
    "empty.memory_format": Row(_filled(0)),  # any values will do
    "scalar_tensor.default": Row(lambda s, dtype: ops.full(s, (), _dtype(dtype))),
    "full_like.default": Row(_full_like),
    "zeros_like.default": Row(_filled_like(0)),
    "ones_like.default": Row(_filled_like(1)),
}
