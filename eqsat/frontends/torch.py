"""Converts torch modules to programs, in memory, through torch's own ONNX exporter."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from eqsat.base.arguments import instance, shown
from eqsat.errors import InputError
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.program.ir import Program

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 18  # torch's exporter writes this version without a conversion


def from_torch(
    module: Any,
    *examples: Any,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Program:
    """The program that a torch module computes at inference, for inputs with the examples' shapes and dtypes.

    Args:
        module: a torch.nn.Module; its weights become constants. Its training or evaluation mode is kept.
        examples: a tensor (or NumPy array) for each argument of `forward`.
        input_names, output_names: names in the program; by default torch's names.

    Raises:
        InputError: torch is not installed, an argument has the wrong type, or torch's exporter fails on the module.
    """
    try:
        torch: Any = import_module("torch")
    except ImportError:
        raise InputError("torch is not installed; pip install 'eqsat[torch]', or export to ONNX elsewhere") from None
    instance("from_torch", module, torch.nn.Module, "a torch.nn.Module and a tensor for each of its arguments")
    try:
        tensors = tuple(torch.as_tensor(example) for example in examples)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"from_torch: an example is no tensor: {error}") from None
    names = {"input_names": _listed(input_names), "output_names": _listed(output_names)}
    training = module.training
    module.eval()
    try:
        model = _exported(torch, module, tensors, names)
    except (torch.onnx.errors.OnnxExporterError, torch.onnx.OnnxExporterError, RuntimeError, TypeError) as error:
        reason = " ".join(str(_first_cause(error)).split())[:200]
        raise InputError(f"torch cannot export {type(module).__name__} to ONNX: {reason}") from error
    finally:
        module.train(training)
    return from_onnx(model)


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _listed(names: Sequence[str] | None) -> list[str] | None:
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InputError(f"from_torch: names {shown(names)}: expected a list of strings, or None for torch's own")
    return list(names)


def _exported(torch: Any, module: Any, tensors: tuple[Any, ...], names: dict[str, list[str] | None]) -> ModelProto:
    """Export with the Dynamo exporter if its package onnxscript is installed, else with the TorchScript exporter."""
    if find_spec("onnxscript") is not None:
        program = torch.onnx.export(module, tensors, opset_version=OPSET, dynamo=True, verbose=False, **names)
        return program.model_proto
    from onnx import ModelProto

    buffer = io.BytesIO()
    torch.onnx.export(module, tensors, buffer, opset_version=OPSET, dynamo=False, **names)
    return ModelProto.FromString(buffer.getvalue())
