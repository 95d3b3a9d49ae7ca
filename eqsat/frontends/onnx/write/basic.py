"""The ONNX form of every operator of programs: one row each in `BASIC`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import is_float, lowest
from eqsat.frontends.onnx.file.load import CODE_OF_DTYPE
from eqsat.frontends.onnx.operators.elementwise import SAME
from eqsat.frontends.onnx.write.form import (
    Form,
    Operand,
    Param,
    broadcastable,
    form,
    front,
    ints,
    narrow,
    ramp,
    scalar,
    shape_of,
    typed,
)
from eqsat.program import composites
from eqsat.program.term import Term

Writer = Callable[[Term, int], Form]
"""Maps a term and the opset to its form."""

_TO_THE_START = np.iinfo(np.int64).min  # as the end of a descending slice, this includes index 0
_INLINE_ELEMENTS = 16  # a larger uniform tensor is written as a scalar that is expanded

# Elementwise


_STEPS = {"where": "Where", **{op: name for op, (name, *_) in SAME.items()}}


def _named(op: str) -> Writer:
    return lambda term, opset: form(op, *broadcastable(term.args, term.shape))


def _log1p(term: Term, opset: int) -> Form:
    """ONNX has no log1p."""
    return _in_steps(composites.log1p_in_steps(*term.args), term.args)


def _in_steps(root: Term, operands: Sequence[Term]) -> Form:
    """Elementwise operators over these operands, a node each."""
    made: dict[Term, Operand] = {operand: operand for operand in operands}
    for step in operands_first([root], operands):
        if step.op == "full":
            made[step] = narrow(step)
        else:
            made[step] = front(step, _STEPS[step.op], *(made[arg] for arg in step.args))
    top = made[root]
    assert isinstance(top, Form)
    return top


def _relu(term: Term, opset: int) -> Form:
    """For integers, written as a maximum, because runtimes have a kernel for that."""
    return form("Relu", *term.args) if is_float(term.dtype) else form("Max", *term.args, scalar(0, term.dtype))


def _where(term: Term, opset: int) -> Form:
    """For booleans, written with logical operators, because runtimes have kernels for these."""
    if term.dtype != "bool":
        return form("Where", *broadcastable(term.args, term.shape))
    condition, a, b = term.args
    other = front(term, "And", front(term, "Not", condition), b)
    return form("Or", front(term, "And", condition, a), other)


def _mod(term: Term, opset: int) -> Form:
    """ONNX gives the divisor's sign for integers only; for floats, b is added to fmod where their signs differ."""
    a, b = broadcastable(term.args, term.shape)
    if not is_float(term.dtype):
        return form("Mod", a, b)
    zero = scalar(0, term.dtype)
    rest = front(term, "Mod", a, b, fmod=1)

    def boolean(op: str, *operands: Operand) -> Form:
        return typed(term.shape, "bool", op, *operands)

    signs_differ = boolean("Xor", boolean("Less", rest, zero), boolean("Less", b, zero))
    moved = boolean("And", signs_differ, boolean("Not", boolean("Equal", rest, zero)))
    return form("Where", moved, front(term, "Add", rest, b), rest)


# Leaves


def _uniform(value: float, term: Term) -> Form:
    """A small uniform tensor as it is, a larger one as an expanded scalar."""
    if term.size <= _INLINE_ELEMENTS:
        return form("Identity", scalar(value, term.dtype, term.shape))
    return form("Expand", scalar(value, term.dtype), ints(term.shape, "shape"))


def _iota(term: Term, opset: int) -> Form:
    values = ramp(term)
    if term.shape[term.attr("axis")] != term.size:
        return form("Expand", values, ints(term.shape, "shape"))
    if isinstance(values, Param):
        return form("Identity", Param(values.array.reshape(term.shape), "range"))
    return form("Reshape", values.inputs[0], ints(term.shape, "shape"))


# Views


def _reshape(term: Term, opset: int) -> Form:
    """A reshape of the first tensor below all reshapes; a constant is stored in the shape in which it is read."""
    source = term.args[0]
    while source.op == "reshape":
        source = source.args[0]
    if source.op == "constant":
        return form("Identity", Param(source.attr("value").array.reshape(term.shape), "constant"))
    if source.op == "full":
        return _uniform(source.attr("value"), term)
    if source.shape == term.shape:
        return form("Identity", source)
    return form("Reshape", source, ints(term.shape, "shape"), allowzero=1 if 0 in term.shape else None)


def _transpose(term: Term, opset: int) -> Form:
    """A transpose of the first tensor below all transposes."""
    source, perm = term.args[0], term.attr("perm")
    while source.op == "transpose":
        perm = tuple(source.attr("perm")[i] for i in perm)
        source = source.args[0]
    if perm == tuple(range(term.ndim)):
        return form("Identity", source)
    return form("Transpose", source, perm=list(perm))


def _broadcast(term: Term, opset: int) -> Form:
    """A broadcast that only adds dims of size 1 as a reshape, which copies nothing."""
    operand = narrow(term)
    op = "Reshape" if prod(shape_of(operand)) == term.size > 0 else "Expand"
    return form(op, operand, ints(term.shape, "shape"))


def cuts(term: Term) -> dict[int, tuple[int, int, int]]:
    """Start, stop and step of each axis that a slice does not take whole."""
    bounds = zip(term.attr("starts"), term.attr("stops"), term.attr("steps"), term.args[0].shape, strict=True)
    return {axis: (a, b, s) for axis, (a, b, s, n) in enumerate(bounds) if (a, b, s) != (0, n, 1)}


def _slice(term: Term, opset: int) -> Form:
    x, cut = term.args[0], cuts(term)
    starts, stops, steps = zip(*cut.values(), strict=True) if cut else ((), (), ())
    stops = [int(_TO_THE_START) if stop < 0 else stop for stop in stops]
    inputs = [ints(starts, "starts"), ints(stops, "ends"), ints(list(cut), "axes")]
    return form("Slice", x, *inputs, *([ints(steps, "steps")] if set(steps) != {1} else []))


# Data movement


def _pad(term: Term, opset: int) -> Form:
    value = term.attr("value")
    pads = ints(term.attr("lo") + term.attr("hi"), "pads")
    return form("Pad", term.args[0], pads, *([scalar(value, term.dtype)] if value != 0 else []))


# Products and reductions


def _matmul(term: Term, opset: int) -> Form:
    """Operands without the batch dims that ONNX broadcasts."""
    operands: list[Term] = list(term.args)
    for i, arg in enumerate(term.args):
        inner = _unbatched(arg)
        other = operands[1 - i]
        if np.broadcast_shapes(inner.shape[:-2], other.shape[:-2]) == term.shape[:-2]:
            operands[i] = inner
    return form("MatMul", *operands)


def _unbatched(arg: Term) -> Term:
    while arg.op == "broadcast" and arg.args[0].shape[-2:] == arg.shape[-2:]:
        arg = arg.args[0]
    return arg


_REDUCTIONS = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}


def _reduce(term: Term, opset: int) -> Form:
    kind, axes = term.attr("kind"), term.attr("axes")
    if kind in ("argmax", "argmin"):
        op = "ArgMax" if kind == "argmax" else "ArgMin"
        return form(op, term.args[0], axis=axes[0], keepdims=_unless(1, int(term.attr("keepdims"))))
    return reduction(_REDUCTIONS[kind], term.args[0], axes, term.attr("keepdims"), opset)


def reduction(op: str, x: Term, axes: Sequence[int], keepdims: bool, opset: int) -> Form:
    """A Reduce* node. Axes are an input of ReduceSum, and since opset 18 of all of them; no axes means every axis."""
    keep = _unless(1, int(keepdims))
    if len(axes) == x.ndim:
        return form(op, x, keepdims=keep)
    if op == "ReduceSum" or opset >= 18:
        return form(op, x, ints(axes, "axes"), keepdims=keep)
    return form(op, x, axes=list(axes), keepdims=keep)


def _unless(default: object, value: object) -> object:
    """The value of an attribute; None, which omits it, if it is the default."""
    return None if value == default else value


# Windows


@dataclass(frozen=True)
class Window:
    """A window over an operand x[n, c, *s]."""

    x: Term
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    lo: tuple[int, ...]
    hi: tuple[int, ...]

    @staticmethod
    def bare(term: Term) -> Window:
        """A pool's or convolution's window as it is."""
        kernel = term.attr("kernel") if term.op == "pool" else term.args[1].shape[2:]
        pads = term.attr("pads_lo"), term.attr("pads_hi")
        return Window(term.args[0], kernel, term.attr("strides"), term.attr("dilations"), *pads)

    @staticmethod
    def of(term: Term, fill: float) -> Window:
        """The window, which includes any padding with `fill` below it."""
        window = Window.bare(term)
        x, lo, hi = window.x, window.lo, window.hi
        while x.op == "pad" and x.attr("value") == fill and not any(x.attr("lo")[:2] + x.attr("hi")[:2]):
            lo = tuple(p + q for p, q in zip(lo, x.attr("lo")[2:], strict=True))
            hi = tuple(p + q for p, q in zip(hi, x.attr("hi")[2:], strict=True))
            x = x.args[0]
        return replace(window, x=x, lo=lo, hi=hi)

    def attrs(self) -> dict[str, object]:
        ones = [1] * len(self.kernel)
        return {
            "kernel_shape": list(self.kernel),
            "strides": _unless(ones, list(self.strides)),
            "pads": _unless([0] * 2 * len(ones), [*self.lo, *map(self._after, range(len(ones)))]),
            "dilations": _unless(ones, list(self.dilations)),
        }

    def _after(self, axis: int) -> int:
        """The pad at the end of an axis: as much as before it if no window reads more. Strides may skip it at this size
        and not at another one of a named dim."""
        lo, hi = self.lo[axis], self.hi[axis]
        room = self.x.shape[2 + axis] + lo - self.dilations[axis] * (self.kernel[axis] - 1) - 1
        return lo if hi < lo and (room + lo) // self.strides[axis] == (room + hi) // self.strides[axis] else hi

    def has_small_pads(self) -> bool:
        """Whether all pads are smaller than the kernel, as runtimes require of a pool."""
        return all(pad < k for pad, k in zip(self.lo + self.hi, self.kernel * 2, strict=True))

    def padded(self, fill: float) -> Form:
        """The operand with the pads around it."""
        lo, hi = (0, 0, *self.lo), (0, 0, *self.hi)
        shape = [n + p + q for n, p, q in zip(self.x.shape, lo, hi, strict=True)]
        return typed(shape, self.x.dtype, "Pad", self.x, ints(lo + hi, "pads"), scalar(fill, self.x.dtype))

    def unpadded(self) -> Window:
        none = (0,) * len(self.kernel)
        return replace(self, lo=none, hi=none)


def conv(term: Term, *weights: Operand) -> Form:
    """The term's convolution with these weights (and bias)."""
    window = Window.of(term, 0)
    return form("Conv", window.x, *weights, group=_unless(1, term.attr("groups")), **window.attrs())


def _pool(term: Term, opset: int) -> Form:
    """A sum is the mean, with padding counted, times the kernel's size; with large pads, a convolution with ones."""
    if term.attr("kind") == "max":
        fill = lowest(term.dtype)
        window = Window.of(term, fill)
        if window.has_small_pads():
            return form("MaxPool", window.x, **window.attrs())
        return form("MaxPool", window.padded(fill), **window.unpadded().attrs())
    mean = average_pool(term, True)
    if mean is not None:
        return form("Mul", mean, scalar(prod(term.attr("kernel")), term.dtype))
    ones = scalar(1, term.dtype, (term.shape[1], 1, *term.attr("kernel")))
    window = Window.of(term, 0)
    return form("Conv", window.x, ones, group=_unless(1, term.shape[1]), **window.attrs())


def average_pool(term: Term, counted: bool, x: Term | None = None) -> Form | None:
    """The mean over the windows of a sum pool (of `x` instead, if given), with padding counted or not. None if the pads
    are too large for a pool."""
    window = Window.of(term, 0) if counted and x is None else Window.bare(term)
    if not window.has_small_pads():
        return None
    count = 1 if counted and any(window.lo + window.hi) else None
    mean = front(term, "AveragePool", x or window.x, count_include_pad=count, **window.attrs())
    return replace(mean, least=DILATED_AVERAGE if set(window.dilations) != {1} else 0)


DILATED_AVERAGE = 19  # the opset that gave AveragePool its dilations

BASIC: dict[str, Writer] = {
    **{op: _named(name) for op, (name, *_) in SAME.items()},
    "broadcast": _broadcast,
    "cast": lambda term, opset: form("Cast", term.args[0], to=CODE_OF_DTYPE[term.dtype]),
    "concat": lambda term, opset: form("Concat", *term.args, axis=term.attr("axis")),
    "conv": lambda term, opset: conv(term, term.args[1]),
    "full": lambda term, opset: _uniform(term.attr("value"), term),
    "gather": lambda term, opset: form("Gather", *term.args, axis=term.attr("axis")),
    "iota": _iota,
    "log1p": _log1p,
    "matmul": _matmul,
    "max": _named("Max"),
    "min": _named("Min"),
    "mod": _mod,
    "pad": _pad,
    "pool": _pool,
    "pow": _named("Pow"),
    "reduce": _reduce,
    "relu": _relu,
    "reshape": _reshape,
    "rsqrt": lambda term, opset: form("Reciprocal", front(term, "Sqrt", *term.args)),
    "slice": _slice,
    "transpose": _transpose,
    "where": _where,
}
"""Every operator except inputs, constants and opaque operators, which the exporter writes itself."""
