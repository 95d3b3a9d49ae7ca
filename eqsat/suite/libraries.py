"""Programs run by other array libraries, operator by operator: CuPy, and torch, eager or compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.base.numerics import np_dtype
from eqsat.program.ir import Program
from eqsat.program.term import Term

Function = Callable[..., Any]

_SAME_NAME = (
    *("abs", "sqrt", "reciprocal", "exp", "log", "log1p", "tanh", "sin", "cos", "floor", "ceil", "sign", "add"),
    *("less", "less_equal", "greater", "greater_equal", "where", "matmul"),
)
_BY_NUMPY_NAME = dict(zip(_SAME_NAME, _SAME_NAME, strict=True)) | {
    "neg": "negative",
    "not": "logical_not",
    "and": "logical_and",
    "or": "logical_or",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "min": "minimum",
    "max": "maximum",
    "mod": "remainder",
}
"""Operators whose function has the same name in CuPy and torch."""


class NotCovered(Exception):
    """A library has no function for an operator, or for a form of it."""


@dataclass(frozen=True)
class Library:
    """An array library.

    Attributes:
        functions: by operator; each takes operands, and attributes by name.
        array: converts a NumPy array to one of the library.
    """

    functions: Mapping[str, Function]
    array: Function

    def run(self, program: Program) -> Callable[..., tuple[Any, ...]]:
        """The program as a function of its inputs in order, each an array of the library.

        Raises:
            NotCovered: an operator has no function.
        """
        order = program.terms()
        inputs = list(program.inputs)
        constants = {t: self.array(t.attr("value").array) for t in order if t.op == "constant"}
        for term in order:
            if term.op not in self.functions and term.op not in ("input", "constant"):
                raise NotCovered(term.op)

        def call(*arrays: Any) -> tuple[Any, ...]:
            values: dict[Term, Any] = {**constants, **dict(zip(inputs, arrays, strict=True))}
            for term in order:
                if term not in values:
                    values[term] = self.functions[term.op](*(values[a] for a in term.args), **dict(term.attrs))
            return tuple(values[term] for term in program.outputs.values())

        return call


def _sliced(x: Any, starts: Any, stops: Any, steps: Any) -> Any:
    ranges = zip(starts, stops, steps, strict=True)
    return x[tuple(slice(a, None if b < 0 else b, s) for a, b, s in ranges)]


def _alike(xp: Any) -> dict[str, Function]:
    """The functions that have the same name in both libraries."""
    return {op: getattr(xp, name) for op, name in _BY_NUMPY_NAME.items()} | {
        "concat": lambda *xs, axis: xp.concatenate(xs, axis),
        "reshape": lambda x, shape: x.reshape(shape),
        "broadcast": lambda x, shape: xp.broadcast_to(x, shape),
        "slice": _sliced,
    }


def cupy_library(cupy: Any, erf: Function) -> Library:
    """CuPy; `erf` is that of cupyx.scipy.special."""

    def reduce(x: Any, kind: str, axes: Any, keepdims: bool) -> Any:
        axis = axes[0] if kind in ("argmax", "argmin") else tuple(axes)
        return getattr(cupy, kind)(x, axis=axis, keepdims=keepdims)

    own = {
        "erf": erf,
        "rsqrt": lambda x: cupy.reciprocal(cupy.sqrt(x)),
        "sigmoid": lambda x: cupy.reciprocal(1 + cupy.exp(-x)),
        "relu": lambda x: cupy.maximum(x, 0),
        "round": cupy.rint,
        "pow": cupy.power,
        "equal": cupy.equal,
        "cast": lambda x, dtype: x.astype(np_dtype(dtype)),
        "transpose": lambda x, perm: cupy.transpose(x, perm),
        "pad": lambda x, lo, hi, value: cupy.pad(x, list(zip(lo, hi, strict=True)), constant_values=value),
        "full": lambda value, shape, dtype: cupy.full(shape, value, np_dtype(dtype)),
        "gather": lambda x, i, axis: cupy.take(x, i, axis=axis),
        "reduce": reduce,
    }
    return Library({**_alike(cupy), **own}, cupy.asarray)


def torch_library(torch: Any, device: str) -> Library:
    """torch on a device."""
    reductions = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}

    def reduce(x: Any, kind: str, axes: Any, keepdims: bool) -> Any:
        if kind in ("argmax", "argmin"):
            return getattr(torch, kind)(x, axes[0], keepdims)
        if kind not in reductions:
            raise NotCovered(kind)
        return reductions[kind](x, tuple(axes), keepdims)

    def pad(x: Any, lo: Any, hi: Any, value: Any) -> Any:
        pairs = [side for pair in reversed(list(zip(lo, hi, strict=True))) for side in pair]
        return torch.nn.functional.pad(x, pairs, value=value)

    own = {
        **{name: getattr(torch, name) for name in ("erf", "rsqrt", "sigmoid", "relu", "round", "pow")},
        "equal": torch.eq,
        "cast": lambda x, dtype: x.to(getattr(torch, dtype)),
        "transpose": lambda x, perm: x.permute(perm),
        "pad": pad,
        "gather": lambda x, i, axis: x[(slice(None),) * axis + (i.long(),)],
        "full": lambda value, shape, dtype: torch.full(shape, value, dtype=getattr(torch, dtype), device=device),
        "reduce": reduce,
    }
    return Library({**_alike(torch), **own}, lambda array: torch.from_numpy(array.copy()).to(device))
