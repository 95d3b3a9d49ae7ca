"""What is right for a fuzzed program: errors of one line, and results that agree with onnxruntime."""

from __future__ import annotations

import tempfile
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.base.numerics import np_dtype
from eqsat.errors import InputError
from eqsat.fuzzing.kinds import Fault

LARGEST = 1 << 26
"""Elements of inputs that are drawn for onnxruntime."""

TOLERANCE = {"float64": 1e-6, "float32": 2e-3, "float16": 5e-2, "bfloat16": 2e-1}
"""Of an output's scale, against onnxruntime; products of many steps round differently there."""


def check_line(text: str) -> None:
    """An error is one line that a terminal shows as it is, and not too long."""
    if not text.strip() or len(text) > 1500 or not text.isprintable():
        raise Fault(f"the error is no plain line: {text[:300]!r}")


def optimised(data: bytes, seconds: float) -> Any:
    """The result for the program in an ONNX file, or the part before operators that no program holds; None where the
    file is refused in one line."""
    import eqsat

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        try:
            return eqsat.optimize(eqsat.from_onnx(path, head=True), time_limit=seconds, explain_time=0.0)
        except InputError as error:
            check_line(str(error))
            return None


def whole_files_agree(data: bytes, best: Any) -> bool | None:
    """Whether a file and the whole file of its result give the same in onnxruntime; None where it runs no such file."""
    import eqsat
    from eqsat.check.inputs import SEED, random_values
    from eqsat.frontends.runtime import NotCompared, agreement

    if find_spec("onnxruntime") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "source.onnx", Path(folder) / "result.onnx"
        source.write_bytes(data)
        eqsat.to_onnx(best.program, result)
        program = best.source
        try:
            found = agreement(
                source, result, program.file_outputs, max(TOLERANCE.values()), random_values(program.inputs, 0, SEED)
            )
        except NotCompared:
            return None
    if found.failure:
        raise Fault(f"onnxruntime runs the source alone: {found.failure}")
    return found.agrees


def by_onnxruntime(data: bytes, program: Any, inputs: dict[str, Any]) -> dict[str, Any] | None:
    """A program's outputs by onnxruntime, from a file; None where it is not here, or takes no such file or types."""
    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    if any(np_dtype(t.dtype).isbuiltin != 1 for t in (*program.inputs, *program.outputs.values())):
        return None  # it takes only NumPy's own types
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    raised: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    # Only its own exceptions: any other is a fault of ours, such as an input that eqsat has lost.
    refusals = (raised.Fail, raised.InvalidArgument, raised.InvalidGraph, raised.InvalidProtobuf)
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        taken = {value.name for value in session.get_inputs()}
        found = session.run(list(program.outputs), {k: np.asarray(v) for k, v in inputs.items() if k in taken})
    except (*refusals, raised.NotImplemented, raised.RuntimeException, UnicodeDecodeError):  # of its own message
        return None
    return dict(zip(program.outputs, found, strict=True))


def reference_agrees(data: bytes, program: Any, inputs: dict[str, Any], got: dict[str, Any]) -> bool:
    """Whether onnx's reference evaluator agrees with us, where onnxruntime does not."""
    from onnx.reference import ReferenceEvaluator

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found: Any = ReferenceEvaluator(data).run(list(program.outputs), inputs)
    except Exception:  # noqa: BLE001 - it raises anything on files that it does not take; the fault stands
        return False
    try:
        compare_all("reference", got, dict(zip(program.outputs, found, strict=True)), program)
    except Fault:
        return False
    return True


def compare_all(what: str, got: dict[str, Any], wanted: dict[str, Any], program: Any) -> None:
    """Raise Fault where an output differs from onnxruntime's by more than rounding."""
    for output, want in wanted.items():
        _compare(what, got[output], want, program.outputs[output].dtype)


def _compare(what: str, got: Any, want: Any, dtype: str) -> None:
    if not isinstance(want, np.ndarray) or want.dtype.kind not in "fiub":
        return
    if got.shape != want.shape or got.dtype != want.dtype:
        raise Fault(f"{what}: {got.dtype}{list(got.shape)}, onnxruntime {want.dtype}{list(want.shape)}")
    if dtype not in TOLERANCE:
        wrong = int(np.sum(got != want))
        if wrong > 0.02 * want.size:
            raise Fault(f"{what}: {wrong} of {want.size} integers differ from onnxruntime")
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    both = np.isfinite(got) & np.isfinite(want)
    if np.sum(~both & ~(np.isnan(got) & np.isnan(want)) & (got != want)) > 0.02 * want.size:
        raise Fault(f"{what}: NaN or infinity where onnxruntime has another value")
    scale = max(float(np.abs(want[both]).max(initial=0.0)), 1e-6)
    error = float(np.abs(got[both] - want[both]).max(initial=0.0)) / scale
    if error > TOLERANCE[dtype]:
        raise Fault(f"{what}: off by {error:.1e} of the scale from onnxruntime")
