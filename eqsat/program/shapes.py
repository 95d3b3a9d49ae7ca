"""Shape rules: the type of every operator's result, and the reasons why operands are refused.

A rule takes the operands (anything with `.shape` and `.dtype`) and the operator's attributes by name, and returns
(shape, dtype). Attributes arrive normalised: axes count from 0, slices are explicit; `eqsat.program.ops` sees to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

from eqsat.base.numerics import (
    ELEMENTWISE,
    INTS,
    REDUCTIONS,
    STORED,
    STORED_INTS,
    Windows,
    dtype_name,
    kind_of,
    np_dtype,
)
from eqsat.errors import DtypeError, ShapeError, StoredError

Shape = tuple[int, ...]
Type = tuple[Shape, str]


class Typed(Protocol):
    """What a shape rule reads of an operand."""

    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> str: ...


def _got(*args: Typed) -> str:
    return " and ".join(str(a.shape) for a in args)


def _check_kind(op: str, kinds: Sequence[str], *args: Typed) -> None:
    for arg in args:
        if kind_of(arg.dtype) not in kinds:
            if arg.dtype in STORED:
                raise StoredError(f"{op} takes {' or '.join(kinds)} operands, got {arg.dtype}: cast it first")
            raise DtypeError(f"{op} takes {' or '.join(kinds)} operands, got {arg.dtype}")


def _check_same_dtype(op: str, *args: Typed) -> None:
    if len({arg.dtype for arg in args}) > 1:
        raise DtypeError(f"{op} takes operands of one dtype, got {' and '.join(a.dtype for a in args)}: cast one")


def _check_dims(op: str, shape: Any) -> Shape:
    if not isinstance(shape, tuple) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise ShapeError(f"{op} takes a shape of static, non-negative dims, got {shape}")
    return shape


def leaf(shape: Shape, dtype: str, **_: Any) -> Type:
    """input and full: the shape they were given."""
    np_dtype(dtype)
    return _check_dims("a tensor", shape), dtype


def constant(value: Any) -> Type:
    return value.view.shape, dtype_name(value.view.dtype)


def iota(shape: Shape, axis: int, dtype: str) -> Type:
    """0, 1, 2, ... along `axis`."""
    _check_dims("iota", shape)
    if not 0 <= axis < len(shape):
        raise ShapeError(f"iota takes an axis in [0, {len(shape)}), got {axis}")
    if kind_of(dtype) not in ("float", "int"):
        error = StoredError if dtype in STORED else DtypeError
        raise error(f"iota takes a number dtype, got {dtype}")
    return leaf(shape, dtype)


def elementwise(op: str, *args: Typed) -> Type:
    """Equal shapes, equal dtypes: broadcasting is an operator of its own."""
    row = ELEMENTWISE[op]
    _check_same_dtype(op, *args)
    _check_kind(op, row.kinds, *args)
    if any(a.shape != args[0].shape for a in args):
        raise ShapeError(f"{op} takes operands of one shape, got {_got(*args)}: broadcast them first")
    return args[0].shape, row.result or args[0].dtype


def where(c: Typed, a: Typed, b: Typed) -> Type:
    if c.dtype != "bool":
        raise DtypeError(f"where takes a bool condition, got {c.dtype}")
    _check_same_dtype("where", a, b)
    if not c.shape == a.shape == b.shape:
        raise ShapeError(f"where takes operands of one shape, got {_got(c, a, b)}: broadcast them first")
    return a.shape, a.dtype


def cast(x: Typed, dtype: str) -> Type:
    """Between element types that programs compute with and stored integers of whole bytes."""
    np_dtype(dtype)
    for name in (x.dtype, dtype):
        if name in STORED and name not in STORED_INTS:
            raise StoredError(f"cast takes element types of whole bytes that NumPy has, got {name}")
    return x.shape, dtype


def matmul(a: Typed, b: Typed) -> Type:
    """a[..., m, k] @ b[..., k, n]: equal leading dims."""
    _check_same_dtype("matmul", a, b)
    _check_kind("matmul", ("float", "int"), a, b)
    fits = len(a.shape) >= 2 and len(b.shape) >= 2 and a.shape[-1] == b.shape[-2]
    if not fits or a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(f"matmul takes (..., m, k) @ (..., k, n), got {a.shape} @ {b.shape}")
    return a.shape[:-1] + b.shape[-1:], a.dtype


def transpose(x: Typed, perm: tuple[int, ...]) -> Type:
    if sorted(perm) != list(range(len(x.shape))):
        raise ShapeError(f"transpose takes a permutation of {len(x.shape)} axes, got {perm} for {x.shape}")
    return tuple(x.shape[i] for i in perm), x.dtype


def reshape(x: Typed, shape: Shape) -> Type:
    _check_dims("reshape", shape)
    if prod(shape) != prod(x.shape):
        raise ShapeError(f"reshape takes a shape of as many elements, got {x.shape} to {shape}")
    return shape, x.dtype


def broadcast(x: Typed, shape: Shape) -> Type:
    """NumPy's rule: dims align on the right, and each is 1 or the target's."""
    _check_dims("broadcast", shape)
    tail = shape[len(shape) - len(x.shape) :]
    if len(x.shape) > len(shape) or any(n not in (1, m) for n, m in zip(x.shape, tail, strict=True)):
        raise ShapeError(f"broadcast takes dims that are 1 or the target's, aligned right, got {x.shape} to {shape}")
    return shape, x.dtype


def slice_(x: Typed, starts: Shape, stops: Shape, steps: Shape) -> Type:
    """range(start, stop, step) along each axis, every index inside; a stop of -1 ends a descending slice at 0."""
    got = f"got starts {starts}, stops {stops}, steps {steps} of {x.shape}"
    if not len(starts) == len(stops) == len(steps) == len(x.shape):
        raise ShapeError(f"slice takes a start, stop and step per axis, {got}")
    shape = []
    for n, start, stop, step in zip(x.shape, starts, stops, steps, strict=True):
        indices = range(start, stop, step or 1)
        if step == 0 or (indices and not (0 <= indices[0] < n and 0 <= indices[-1] < n)):
            raise ShapeError(f"slice takes non-zero steps and indices inside the axis, {got}")
        shape.append(len(indices))
    return tuple(shape), x.dtype


def concat(*xs: Typed, axis: int) -> Type:
    _check_same_dtype("concat", *xs)
    rank = len(xs[0].shape)
    if not 0 <= axis < rank:
        raise ShapeError(f"concat takes an axis in [0, {rank}), got {axis} of {_got(*xs)}")
    rests = {(*x.shape[:axis], *x.shape[axis + 1 :]) for x in xs}
    if len(rests) > 1 or any(len(x.shape) != rank for x in xs):
        raise ShapeError(f"concat takes shapes that agree outside axis {axis}, got {_got(*xs)}")
    joined = sum(x.shape[axis] for x in xs)
    return (*xs[0].shape[:axis], joined, *xs[0].shape[axis + 1 :]), xs[0].dtype


def pad(x: Typed, lo: Shape, hi: Shape, value: float) -> Type:
    whole = all(isinstance(n, int) and n >= 0 for n in (*lo, *hi))
    if not len(lo) == len(hi) == len(x.shape) or not whole:
        raise ShapeError(f"pad takes a non-negative lo and hi per axis, whole numbers, got {lo} and {hi} for {x.shape}")
    return tuple(n + p + q for n, p, q in zip(x.shape, lo, hi, strict=True)), x.dtype


def reduce(x: Typed, kind: str, axes: tuple[int, ...], keepdims: bool) -> Type:
    if kind not in REDUCTIONS:
        raise ShapeError(f"reduce takes a kind among {', '.join(REDUCTIONS)}, got {kind!r}")
    row = REDUCTIONS[kind]
    _check_kind(kind, row.kinds, x)
    rank = len(x.shape)
    if list(axes) != sorted(set(axes)) or not all(0 <= a < rank for a in axes):
        raise ShapeError(f"{kind} takes ascending axes in [0, {rank}), got {axes} for {x.shape}")
    if row.result and len(axes) != 1:
        raise ShapeError(f"{kind} takes one axis, got {axes} for {x.shape}")
    if kind not in ("sum", "prod") and prod(x.shape[a] for a in axes) == 0:
        raise ShapeError(f"{kind} takes axes of at least one element, got {axes} for {x.shape}")
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes)
    return kept, row.result or x.dtype


def gather(data: Typed, indices: Typed, axis: int) -> Type:
    """data[..., indices, ...]: the indexed axis becomes the dims of `indices`."""
    if indices.dtype not in INTS:
        error = StoredError if indices.dtype in STORED else DtypeError
        raise error(f"gather takes int32 or int64 indices, got {indices.dtype}")
    if not 0 <= axis < len(data.shape):
        raise ShapeError(f"gather takes an axis in [0, {len(data.shape)}), got {axis} for {data.shape}")
    return (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), data.dtype


def window_dims(op: str, spatial: Shape, kernel: Shape, how: Windows) -> Shape:
    """How often a window fits along each axis: floor((n + lo + hi - dilation (k - 1) - 1) / stride) + 1."""
    strides, lo, hi, dilations = how
    got = f"got kernel {kernel}, strides {strides}, pads {lo} {hi}, dilations {dilations} over {spatial}"
    rank = len(spatial)
    if not rank or any(len(v) != rank for v in (kernel, strides, lo, hi, dilations)):
        raise ShapeError(f"{op} takes one kernel dim, stride, pad and dilation per spatial axis, {got}")
    if min((*kernel, *strides, *dilations)) < 1 or min((*lo, *hi)) < 0:
        raise ShapeError(f"{op} takes kernel, strides and dilations of at least 1 and pads of at least 0, {got}")
    spans = [n + p + q - d * (k - 1) for n, p, q, d, k in zip(spatial, lo, hi, dilations, kernel, strict=True)]
    if min(spans) < 1:
        raise ShapeError(f"{op} takes a window no larger than the padded axis, {got}")
    return tuple((n - 1) // s + 1 for n, s in zip(spans, strides, strict=True))


def conv(x: Typed, w: Typed, groups: int, **how: Shape) -> Type:
    """x[n, c, *s], w[oc, c/groups, *k] to [n, oc, *out]."""
    _check_same_dtype("conv", x, w)
    _check_kind("conv", ("float", "int"), x, w)
    ranked = len(x.shape) == len(w.shape) >= 3
    if not ranked or groups < 1 or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise ShapeError(
            f"conv takes x (n, c, *s) and w (oc, c/groups, *k) with groups dividing oc, "
            f"got {x.shape} and {w.shape}, groups {groups}"
        )
    out = window_dims("conv", x.shape[2:], w.shape[2:], Windows(**how))
    return (x.shape[0], w.shape[0], *out), x.dtype


def pool(x: Typed, kind: str, kernel: Shape, **how: Shape) -> Type:
    """x[n, c, *s] to [n, c, *out]."""
    if kind not in ("max", "sum"):
        raise ShapeError(f"pool takes kind max or sum, got {kind!r}")
    _check_kind("pool", ("float", "int"), x)
    if len(x.shape) < 3:
        raise ShapeError(f"pool takes x (n, c, *s), got {x.shape}")
    out = window_dims("pool", x.shape[2:], kernel, Windows(**how))
    return (*x.shape[:2], *out), x.dtype


def opaque(*args: Typed, out_shape: Shape, out_dtype: str, **_: Any) -> Type:
    return leaf(out_shape, out_dtype)
