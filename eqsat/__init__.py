"""eqsat: a superoptimizer for tensor programs.

    p = eqsat.from_onnx("model.onnx")     # or eqsat.trace(fn, eqsat.spec((348, 768)), ...)
    best = eqsat.optimize(p, device="mi300x")
    print(best)
    f = best.compile()
    eqsat.to_onnx(best.program, "out.onnx")

Everything below is imported on first use, so that `import eqsat` stays fast.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqsat.base.progress_bar import progress_bar
    from eqsat.dynamic.buckets import optimize_buckets
    from eqsat.dynamic.optimize import optimize_dynamic
    from eqsat.dynamic.result import Dynamic
    from eqsat.frontends.jax.function import from_jax
    from eqsat.frontends.onnx.read.model import from_onnx
    from eqsat.frontends.onnx.write.model import to_onnx
    from eqsat.frontends.torch.module import from_torch, to_torch
    from eqsat.jit import jit
    from eqsat.pipeline.optimize import optimize
    from eqsat.pipeline.result import Result
    from eqsat.program.ir import Program
    from eqsat.proof.answer import Proof
    from eqsat.proof.prove import prove
    from eqsat.tracing.trace import spec, trace
    from eqsat.tracing.tracer import Tracer

_HOME = {
    "Dynamic": "eqsat.dynamic.result",
    "Program": "eqsat.program.ir",
    "Proof": "eqsat.proof.answer",
    "Result": "eqsat.pipeline.result",
    "Tracer": "eqsat.tracing.tracer",
    "from_jax": "eqsat.frontends.jax.function",
    "from_onnx": "eqsat.frontends.onnx.read.model",
    "from_torch": "eqsat.frontends.torch.module",
    "jit": "eqsat.jit",
    "optimize": "eqsat.pipeline.optimize",
    "optimize_buckets": "eqsat.dynamic.buckets",
    "optimize_dynamic": "eqsat.dynamic.optimize",
    "progress_bar": "eqsat.base.progress_bar",
    "prove": "eqsat.proof.prove",
    "spec": "eqsat.tracing.trace",
    "to_onnx": "eqsat.frontends.onnx.write.model",
    "to_torch": "eqsat.frontends.torch.module",
    "trace": "eqsat.tracing.trace",
}
"""Public names and the module that holds each."""

_FUNCTIONS = frozenset({
    "abs", "add", "argmax", "argmin", "avg_pool", "bitwise_and", "bitwise_or", "bitwise_xor", "broadcast_to", "ceil",
    "clip", "concat", "concatenate", "conv", "cos", "divide", "dot", "einsum", "elu", "equal", "erf", "exp",
    "expand_dims", "flip", "floor", "floor_divide", "full", "full_like", "gelu", "greater", "greater_equal", "hstack",
    "invert", "layernorm", "leaky_relu", "less", "less_equal", "log", "log1p", "log_softmax", "logical_and",
    "logical_not", "logical_or", "logsumexp", "matmul", "max", "max_pool", "maximum", "mean", "min", "minimum",
    "moveaxis", "multiply", "negative", "not_equal", "ones", "outer", "pad", "positive", "power", "prod", "reciprocal",
    "relu", "remainder", "reshape", "rint", "rmsnorm", "round", "rsqrt", "sigmoid", "sign", "silu", "sin", "softmax",
    "softplus", "split", "sqrt", "squeeze", "stack", "std", "subtract", "sum", "swapaxes", "take", "tanh", "tile",
    "transpose", "var", "vstack", "where", "zeros",
})  # fmt: skip
"""Functions of `eqsat.tracing.functions` for traced values, under NumPy's names, and common layers: `eqsat.exp(x)`."""

__all__ = [
    "Dynamic",
    "Program",
    "Proof",
    "Result",
    "Tracer",
    "from_jax",
    "from_onnx",
    "from_torch",
    "jit",
    "optimize",
    "optimize_buckets",
    "optimize_dynamic",
    "progress_bar",
    "prove",
    "spec",
    "to_onnx",
    "to_torch",
    "trace",
]


class _Package(ModuleType):
    """The type of this package's module, in which `eqsat.jit` is the function and never the submodule of that name.

    The import system sets a loaded submodule as an attribute of its parent; for the names above this is prevented.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)  # picklers know the type of modules, not this one


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _FUNCTIONS:
        return getattr(importlib.import_module("eqsat.tracing.functions"), name)
    if name == "__version__":
        return importlib.import_module("eqsat.base.version").version()
    raise AttributeError(f"module 'eqsat' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_FUNCTIONS})
