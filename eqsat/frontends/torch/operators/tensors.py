"""Torch as the other modules reach it: its tensors and element types in NumPy's and eqsat's terms, and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import numpy as np

from eqsat.base.numerics import Array, dtype_name, np_dtype
from eqsat.errors import DtypeError, EqsatError, InputError, one_line
from eqsat.program.term import Shape

NAMES = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
)  # fmt: skip
"""Element types that torch and eqsat both have, under the same names."""


def import_torch(part: str = "torch") -> Any:
    """torch, or a module of it. Raises InputError where torch is not installed."""
    try:
        return import_module(part)
    except ImportError:
        raise InputError("torch is not installed; pip install 'eqsat[torch]', or export to ONNX elsewhere") from None


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Any failure as an InputError: torch raises errors of every type, also those of the module's own code."""
    try:
        with _levels_kept():
            yield
    except EqsatError:
        raise
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = " ".join(str(cause).split())[:200] or type(cause).__name__
        raise InputError(one_line(f"{what}: {reason}")) from error


@contextmanager
def _levels_kept() -> Iterator[None]:
    """Close the levels of differentiation and of `vmap` that a failure leaves open. Graphs open and close them by calls
    of their own; later programs would be traced within a level that was left open."""
    torch = import_torch()
    functorch = torch._C._functorch
    outer = functorch.maybe_current_level() or 0
    try:
        yield
    finally:
        while (functorch.maybe_current_level() or 0) > outer:
            functorch.pop_dynamic_layer_stack()
        if torch.autograd.forward_ad._current_level < 0:  # the caller is in no forward level
            with suppress(RuntimeError):  # there is at most one, and torch does not say whether it is open
                torch._C._exit_dual_level(level=0)


def name_of(dtype: Any) -> str:
    """A torch dtype's name in eqsat. Raises DtypeError where programs have no such type."""
    name = str(dtype).removeprefix("torch.")
    if name not in NAMES:
        raise DtypeError(f"programs have no element type {dtype}; use one of {', '.join(NAMES)}")
    return name


def dtype_of(name: str) -> Any:
    """The torch dtype of this name. Raises DtypeError where torch has none."""
    if name not in NAMES:
        raise DtypeError(f"torch has no element type {name} that eqsat writes; use one of {', '.join(NAMES)}")
    return getattr(import_torch(), name)


def type_of(tensor: Any) -> tuple[Shape, str]:
    """The shape and the dtype of a tensor, real or fake.

    Raises:
        DtypeError: programs have no such element type.
        InputError: a dim is symbolic, or the tensor is sparse.
    """
    torch = import_torch()
    if tensor.layout != torch.strided:
        raise InputError(f"programs hold dense tensors, got {tensor.layout}")
    if not all(isinstance(n, int) for n in tensor.shape):
        raise InputError(f"programs have fixed shapes, got {tuple(tensor.shape)}")
    return tuple(tensor.shape), name_of(tensor.dtype)


def to_numpy(tensor: Any) -> Array:
    """The values of a tensor on any device; bfloat16 by its bits, which NumPy alone lacks."""
    torch = import_torch()
    host = tensor.detach().cpu().contiguous()
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(np_dtype("bfloat16"))
    return host.numpy()


def to_tensor(array: Array) -> Any:
    """A tensor on the CPU with these values, in memory of its own. Raises DtypeError where torch lacks the type."""
    torch = import_torch()
    dtype = dtype_of(dtype_name(array.dtype))
    own = np.array(array, order="C")
    return torch.from_numpy(own.view(np.int16)).view(dtype) if dtype == torch.bfloat16 else torch.from_numpy(own)
