"""ONNX operators that move, reshape, select or generate elements without arithmetic."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from eqsat.base.numerics import INTS, np_dtype
from eqsat.errors import InputError, ShapeError
from eqsat.frontends.onnx.file.load import DTYPE_OF_CODE, tensor_array
from eqsat.frontends.onnx.operators.node import Node, Row, of_operands, row
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.terms.lookups import wrapped
from eqsat.program import composites, ops
from eqsat.program.composites import broadcasting
from eqsat.program.sizes import ELEMENT_WORK, FOLDED
from eqsat.program.term import Term

_PAD_BY_GATHER = ("reflect", "edge", "wrap")  # modes, which numpy.pad has under the same names


def _axes(node: Node) -> tuple[int, ...] | None:
    """The axes of Squeeze and Unsqueeze: an attribute before opset 13, an input since."""
    return node.attr("axes") if node.version < 13 else node.ints(1)


_MADE = 4
"""Steps of NumPy in which an array is made and read once."""


_RUN = 1 << 18
"""Elements that are computed at once, so that a processor's cache holds them."""


def _check_folded(node: Node, elements: int) -> None:
    """Raises Declined for an array that is too large to be made ahead of time, after all that was made before."""
    if elements > FOLDED:
        raise Declined(f"{elements} elements; at most {FOLDED} are computed ahead of time")
    if not node.constants.budget.spend(elements * _MADE * ELEMENT_WORK):
        raise Declined(f"{elements} elements, after all that was computed ahead of time before")


def _where(condition: Term, a: Term, b: Term) -> Term:
    """log1p, which ONNX lacks, where these are its steps as this package writes them."""
    found = broadcasting("where", condition, a, b)
    if condition.op == "equal" and a.op == "log" and a.shape == condition.shape:
        x = condition.args[1]
        if composites.log1p_in_steps(x) is found:
            return ops.log1p(x)
    return found


# Shapes


def _reshape(node: Node) -> Term:
    x = node.input(0)
    target = list(node.required_ints(1))
    if not node.attr("allowzero", 0):
        if any(n == 0 and i >= x.ndim for i, n in enumerate(target)):
            raise ShapeError(f"reshape cannot keep an axis that {x.shape} does not have, got {tuple(target)}")
        target = [x.shape[i] if n == 0 else n for i, n in enumerate(target)]
    return ops.reshape(x, target)


def _flatten(node: Node) -> Term:
    x = node.input(0)
    axis = node.attr("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        raise ShapeError(f"flatten takes an axis in [{-x.ndim}, {x.ndim}], got {axis} for {x.shape}")
    axis += x.ndim if axis < 0 else 0
    return ops.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


def _squeeze(node: Node) -> Term:
    return ops.squeeze(node.input(0), _axes(node))


def _unsqueeze(node: Node) -> Term:
    axes = _axes(node)
    if axes is None:
        raise InputError("the axes are missing; the ONNX operator requires them")
    return ops.unsqueeze(node.input(0), axes)


def _expand(node: Node) -> Term:
    """Broadcasts both ways: a target dim of 1 keeps the input's dim."""
    x = node.input(0)
    target = ops.full(0, node.required_ints(1), x.dtype)
    return ops.broadcast(x, composites.common_shape(x, target))


def _tile(node: Node) -> Term:
    x, repeats = node.input(0), node.required_ints(1)
    if len(repeats) != x.ndim or min(repeats, default=0) < 0:
        raise ShapeError(f"tile takes a repeat >= 0 per axis, got {repeats} for {x.shape}")
    return composites.tile(x, repeats)


# Selections


def _slice(node: Node) -> Term:
    x = node.input(0)
    if node.version < 10:
        return ops.slice_(x, node.required("starts"), node.required("ends"), node.attr("axes"))
    starts, ends, axes, steps = node.required_ints(1), node.required_ints(2), node.ints(3), node.ints(4)
    if steps is not None and len(steps) == len(starts):
        of = range(len(starts)) if axes is None else axes
        starts = [_backwards_from(x, *at) for at in zip(starts, of, steps, strict=False)]
    return ops.slice_(x, starts, ends, axes, steps)


def _backwards_from(x: Term, start: int, axis: int, step: int) -> int:
    """The start of a slice by Python's rules, where one that goes backwards from before the first element is empty.
    ONNX has it begin at the first element."""
    return max(start, -x.shape[axis]) if step < 0 and -x.ndim <= axis < x.ndim else start


def _gather(node: Node) -> Term:
    data, axis = node.input(0), ops.axis_of(node.attr("axis", 0), node.input(0).ndim)
    check_places(node, node.input(1), data, axis)
    return ops.gather(data, node.input(1), axis)


def check_places(node: Node, indices: Term, data: Term, axis: int) -> None:
    """Raises InputError for constant indices of which one is no place along an axis: the model has no meaning."""
    value, n = node.constants.value(indices), data.shape[axis]
    if value is not None and value.size and not (-n <= value.min() and value.max() < n):
        wrong = value.max() if value.max() >= n else value.min()
        raise InputError(
            f"reads place {wrong} along axis {axis} of {data.shape}, which has {n}; "
            "correct the indices, or choose other sizes of the model's inputs (--shape)"
        )


def _split(node: Node) -> list[Term]:
    x = node.input(0)
    axis = ops.axis_of(node.attr("axis", 0), x.ndim)
    sizes = node.attr("split") if node.version < 13 else node.ints(1)
    if sizes is None:
        parts = node.attr("num_outputs", len(node.wanted))
        size = x.shape[axis]
        if size % parts and node.version < 18:
            raise ShapeError(f"split of axis {axis} of {x.shape} into {parts} equal parts leaves a rest; give sizes")
        chunk = -(-size // parts)
        sizes = [max(0, min(chunk, size - i * chunk)) for i in range(parts)]
    return ops.split(x, sizes, axis)


def _pad(node: Node) -> Term:
    x = node.input(0)
    mode = node.attr("mode", "constant")
    axes = node.ints(3) if node.version >= 18 else None
    axes = tuple(range(x.ndim)) if axes is None else tuple(ops.axis_of(axis, x.ndim) for axis in axes)
    pads = node.required("pads") if node.version < 11 else node.required_ints(1)
    if len(pads) != 2 * len(axes):
        raise ShapeError(f"pad takes a begin and an end per padded axis, got {pads} for axes {axes} of {x.shape}")
    lo, hi = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(axes):
        lo[axis], hi[axis] = pads[i], pads[i + len(axes)]
    if mode == "constant" and node.version < 11:
        return ops.pad(x, lo, hi, node.attr("value", 0.0))
    if mode == "constant":
        return _pad_constant(node, x, lo, hi)
    if mode not in _PAD_BY_GATHER:
        raise Declined(f"mode '{mode}'")
    return _pad_by_gather(node, x, lo, hi, mode)


def _pad_constant(node: Node, x: Term, lo: list[int], hi: list[int]) -> Term:
    """Padding with one value; if an input gives the value, copies of it are concatenated."""
    value = node.optional(2)
    if value is None or node.constants.is_constant(value):
        return ops.pad(x, lo, hi, node.scalar(2, 0))
    x = ops.pad(x, [min(n, 0) for n in lo], [min(n, 0) for n in hi])
    for axis, counts in enumerate(zip(lo, hi, strict=True)):
        before, after = (
            ops.broadcast(ops.reshape(value, ()), (*x.shape[:axis], max(n, 0), *x.shape[axis + 1 :])) for n in counts
        )
        x = ops.concat([before, x, after], axis)
    return x


def _pad_by_gather(node: Node, x: Term, lo: list[int], hi: list[int], mode: Any) -> Term:
    """Padding that repeats elements: each axis is indexed by its positions, padded in the same mode."""
    for axis, (before, after) in enumerate(zip(lo, hi, strict=True)):
        if before == after == 0:
            continue
        _check_folded(node, x.shape[axis] + max(before, 0) + max(after, 0))
        kept = np.arange(x.shape[axis])[max(-before, 0) : x.shape[axis] - max(-after, 0)]
        where = np.pad(kept, (max(before, 0), max(after, 0)), mode=mode)
        x = ops.gather(x, ops.constant(where), axis)
    return x


def _depth_to_space(node: Node) -> Term:
    """x[n, c b b, h, w] to [n, c, h b, w b]; mode DCR: the blocks lie outside c, CRD: inside."""
    x, b = node.input(0), node.required("blocksize")
    n, depth, h, w = node.dims(0, 4)
    c = depth // (b * b)
    if node.attr("mode", "DCR") == "DCR":
        apart, perm = (n, b, b, c, h, w), (0, 3, 4, 1, 5, 2)
    else:
        apart, perm = (n, c, b, b, h, w), (0, 1, 4, 2, 5, 3)
    return ops.reshape(ops.transpose(ops.reshape(x, apart), perm), (n, c, h * b, w * b))


def _space_to_depth(node: Node) -> Term:
    """x[n, c, h b, w b] to [n, b b c, h, w]."""
    if node.attr("mode", "DCR") != "DCR":
        raise Declined(f"mode '{node.attr('mode')}'")
    x, b = node.input(0), node.required("blocksize")
    n, c, h, w = node.dims(0, 4)
    apart = ops.reshape(x, (n, c, h // b, b, w // b, b))
    return ops.reshape(ops.transpose(apart, (0, 3, 5, 1, 2, 4)), (n, b * b * c, h // b, w // b))


def _trilu(node: Node) -> Term:
    """The upper or lower triangle of the last two axes, zero elsewhere."""
    x, k = node.input(0), node.whole(1, 0)
    _check_folded(node, prod(x.shape[-2:]))
    ones = np.ones(x.shape[-2:], np.bool_)
    kept = np.triu(ones, k) if node.attr("upper", 1) else np.tril(ones, k)
    mask = ops.broadcast(ops.constant(kept), x.shape)
    return ops.where(mask, x, ops.full_like(0, x))


def _one_hot(node: Node) -> Term:
    """indices[*s] to [*s with depth at axis]: values[1] where position equals index (modulo depth), else values[0]."""
    indices, depth, values = node.input(0), node.whole(1), node.input(2)
    axis = ops.axis_of(node.attr("axis", -1), indices.ndim + 1)
    counted = wrapped(ops.cast(indices, "int64"), depth)
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
    hot = ops.equal(ops.broadcast(ops.unsqueeze(counted, axis), shape), ops.iota(shape, axis))
    off, on = (ops.broadcast(ops.reshape(part, ()), shape) for part in ops.split(values, [1, 1]))
    return ops.where(hot, on, off)


# Shapes and constants as values


def _shape(node: Node) -> Term:
    bounds = slice(node.attr("start"), node.attr("end"))
    return constant_term(np.array(node.input(0).shape[bounds], np.int64))


def _constant(node: Node) -> Term:
    attributes = node.attributes
    for name, dtype in (("value_float", "float32"), ("value_floats", "float32"), ("value_int", "int64"),
                        ("value_ints", "int64")):  # fmt: skip
        if name in attributes:
            return constant_term(np.asarray(attributes[name], np_dtype(dtype)))
    if "sparse_value" in attributes:
        raise InputError("its value is sparse, which is not supported; store it dense")
    if "value" not in attributes or attributes["value"].data_type not in DTYPE_OF_CODE:
        raise Declined("values that no program holds")
    array = tensor_array(attributes["value"], None, "Constant")
    node.constants.budget.grant(array.size)
    return constant_term(array)


def constant_term(array: np.ndarray[Any, Any]) -> Term:
    """A constant; one of a single element is `full`, so that rules see a scalar."""
    if array.size == 1:
        return ops.full(array.item(), array.shape, array.dtype.name)
    return ops.constant(array)


def _constant_of_shape(node: Node) -> Term:
    shape = node.required_ints(0)
    value = node.attr("value")
    if value is None:
        return ops.full(0.0, shape, "float32")
    if value.data_type not in DTYPE_OF_CODE:
        raise Declined("a value that no program holds")
    array = tensor_array(value, None, "ConstantOfShape")
    return ops.full(array.reshape(-1)[0].item(), shape, array.dtype.name)


def _range(node: Node) -> Term:
    start, limit, delta = (node.scalar(i) for i in range(3))
    dtype = node.input(0).dtype
    if not np.isfinite([start, limit, delta]).all() or delta == 0:
        raise InputError(
            f"a range from {start} to {limit} by {delta} has no end; give finite numbers, and no step of 0"
        )
    count = max(int(np.ceil((limit - start) / delta)), 0)
    if dtype in INTS and (start, delta) == (0, 1) and count:
        return ops.iota((count,), 0, dtype)
    _check_folded(node, count)
    values = np.empty(count, np_dtype(dtype))
    for at in range(0, count, _RUN):  # what is on the way takes no memory
        values[at : at + _RUN] = (start + np.arange(at, min(at + _RUN, count)) * delta).astype(values.dtype)
    return ops.constant(values)


def _eye_like(node: Node) -> Term:
    x, code = node.input(0), node.attr("dtype")
    dtype = x.dtype if code is None else _dtype(code)
    rows, columns = node.dims(0, 2)
    _check_folded(node, rows * columns)
    return ops.constant(np.eye(rows, columns, node.attr("k", 0), np_dtype(dtype)))


def _cast(node: Node) -> Term:
    return ops.cast(node.input(0), _dtype(node.required("to")))


def _dtype(code: int) -> str:
    if code not in DTYPE_OF_CODE:
        raise Declined("a dtype that no program holds")
    return DTYPE_OF_CODE[code]


_TYPES_WIDENED = (13, 19, 21, 23, 24, 25)  # versions that only admit further element types
_NARROW = "to or from float8, 4 and 2 bits"

MOVEMENT: dict[str, Row] = {
    "Cast": row(_cast, 6, 9, *_TYPES_WIDENED, 28, unless=_NARROW),
    "CastLike": row(of_operands(lambda x, y: ops.cast(x, y.dtype)), 15, *_TYPES_WIDENED[1:], unless=_NARROW),
    "Concat": row(lambda node: ops.concat(node.all_inputs(), node.required("axis")), 4, 11, 13),
    "Constant": row(_constant, 1, 9, 11, 12, *_TYPES_WIDENED),
    "ConstantOfShape": row(_constant_of_shape, 9, 20, *_TYPES_WIDENED[2:], unless="the shape varies"),
    "DepthToSpace": row(_depth_to_space, 1, 11, 13, 28),
    "Expand": row(_expand, 8, 13, unless="the shape varies"),
    "EyeLike": row(_eye_like, 9, 22),
    "Flatten": row(_flatten, 1, 9, 11, *_TYPES_WIDENED),
    "Gather": row(_gather, 1, 11, 13),
    "Identity": row(of_operands(lambda x: x), 1, 14, 16, *_TYPES_WIDENED),
    "OneHot": row(_one_hot, 9, 11, 28, unless="the depth varies"),
    "Pad": row(_pad, 2, 11, 18, *_TYPES_WIDENED, unless="other modes than constant, reflect, edge, wrap"),
    "Range": row(_range, 11, 27, unless="the bounds vary"),
    "Reshape": row(_reshape, 5, 14, *_TYPES_WIDENED, unless="the shape varies"),
    "Shape": row(_shape, 1, 15, *_TYPES_WIDENED),
    "Size": row(lambda node: constant_term(np.array(node.input(0).size, np.int64)), 1, *_TYPES_WIDENED),
    "Slice": row(_slice, 1, 10, 11, 13, unless="the bounds vary"),
    "SpaceToDepth": row(_space_to_depth, 1, 13, 28, unless="another mode than DCR"),
    "Split": row(_split, 2, 11, 13, 18, unless="the sizes vary"),
    "Squeeze": row(_squeeze, 1, 11, *_TYPES_WIDENED, unless="the axes vary"),
    "Tile": row(_tile, 6, 13, unless="the repeats vary"),
    "Transpose": row(lambda node: ops.transpose(node.input(0), node.attr("perm")), 1, *_TYPES_WIDENED),
    "Trilu": row(_trilu, 14, unless="k varies"),
    "Unsqueeze": row(_unsqueeze, 1, 11, *_TYPES_WIDENED, unless="the axes vary"),
    "Where": row(of_operands(_where), 9, 16),
}
"""One row per operator, with the since-versions whose meaning the converter covers."""
