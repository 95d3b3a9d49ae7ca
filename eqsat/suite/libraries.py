"""Programs run by CuPy, operator by operator, and by onnxruntime. (torch runs them as `eqsat.to_torch` writes them.)"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import eqsat
from eqsat.base.numerics import np_dtype
from eqsat.program.ir import Program
from eqsat.program.term import Term

Function = Callable[..., Any]

_NAMES = {
    **dict.fromkeys(
        ("abs", "sqrt", "reciprocal", "exp", "log", "log1p", "tanh", "sin", "cos", "floor", "ceil", "sign")
    ),
    **dict.fromkeys(("add", "equal", "less", "less_equal", "greater", "greater_equal", "where", "matmul")),
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
    "pow": "power",
    "round": "rint",
}
"""Operators that are a function of CuPy, and its name where that is another one."""


class NotCovered(Exception):
    """A library has no function for an operator, or does not compute on the GPU."""


class InRuntime:
    """The program as written, in onnxruntime, with inputs and outputs where its provider computes.

    Raises:
        ImportError: onnxruntime is not installed.
        NotCovered: it was built without the provider.
    """

    def __init__(self, program: Program, provider: str = "CUDAExecutionProvider", device: str = "cuda") -> None:
        import onnxruntime

        if provider not in onnxruntime.get_available_providers():
            raise NotCovered(f"onnxruntime has no {provider}")
        self._values, self._device = onnxruntime.OrtValue, device
        self._names, self._outputs = program.input_names, tuple(program.outputs)
        model = eqsat.to_onnx(program).SerializeToString()
        self._session = onnxruntime.InferenceSession(model, providers=[provider])

    def bound(self, arrays: Mapping[str, Any]) -> Any:
        """NumPy arrays by name, copied to where they are read; what a run takes, and gives its outputs to."""
        binding = self._session.io_binding()
        for name in self._names:
            binding.bind_ortvalue_input(name, self._values.ortvalue_from_numpy(arrays[name], self._device, 0))
        for name in self._outputs:
            binding.bind_output(name, self._device)
        return binding

    def __call__(self, binding: Any) -> None:
        """A run, to its end."""
        self._session.run_with_iobinding(binding)
        binding.synchronize_outputs()


def in_cupy(program: Program, cupy: Any, erf: Function) -> Callable[..., tuple[Any, ...]]:
    """The program as a function of its inputs in order, each an array of CuPy; `erf` is that of cupyx.scipy.special.

    Raises:
        NotCovered: an operator has no function.
    """
    functions = _functions(cupy, erf)
    order = program.terms()
    constants = {t: cupy.asarray(t.attr("value").array) for t in order if t.op == "constant"}
    for term in order:
        if term.op not in functions and term.op not in ("input", "constant"):
            raise NotCovered(term.op)

    def call(*arrays: Any) -> tuple[Any, ...]:
        values: dict[Term, Any] = {**constants, **dict(zip(program.inputs, arrays, strict=True))}
        for term in order:
            if term not in values:
                values[term] = functions[term.op](*(values[a] for a in term.args), **dict(term.attrs))
        return tuple(values[term] for term in program.outputs.values())

    return call


def _functions(cupy: Any, erf: Function) -> Mapping[str, Function]:
    """By operator; each takes operands, and attributes by name."""

    def reduce(x: Any, kind: str, axes: Any, keepdims: bool) -> Any:
        axis = axes[0] if kind in ("argmax", "argmin") else tuple(axes)
        return getattr(cupy, kind)(x, axis=axis, keepdims=keepdims)

    def sliced(x: Any, starts: Any, stops: Any, steps: Any) -> Any:
        ranges = zip(starts, stops, steps, strict=True)
        return x[tuple(slice(a, None if b < 0 else b, s) for a, b, s in ranges)]

    return {op: getattr(cupy, name or op) for op, name in _NAMES.items()} | {
        "erf": erf,
        "rsqrt": lambda x: cupy.reciprocal(cupy.sqrt(x)),
        "sigmoid": lambda x: cupy.reciprocal(1 + cupy.exp(-x)),
        "relu": lambda x: cupy.maximum(x, 0),
        "cast": lambda x, dtype: x.astype(np_dtype(dtype)),
        "transpose": lambda x, perm: cupy.transpose(x, perm),
        "reshape": lambda x, shape: x.reshape(shape),
        "broadcast": lambda x, shape: cupy.broadcast_to(x, shape),
        "concat": lambda *xs, axis: cupy.concatenate(xs, axis),
        "slice": sliced,
        "pad": lambda x, lo, hi, value: cupy.pad(x, list(zip(lo, hi, strict=True)), constant_values=value),
        "full": lambda value, shape, dtype: cupy.full(shape, value, np_dtype(dtype)),
        "gather": lambda x, i, axis: cupy.take(x, i, axis=axis),
        "reduce": reduce,
    }
