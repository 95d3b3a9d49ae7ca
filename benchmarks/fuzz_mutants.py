"""ONNX models with something wrong in them: attributes, dims, names, types, wiring, bytes.

They start from onnx's own node tests and from pieces of given models. If onnxruntime accepts a mutant, our result must
agree with its result; otherwise any result, or an InputError of one line, is right.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, helper, numpy_helper
from onnx_mutations import STRUCTURAL, flip
from onnx_oracle import LARGEST, Fault, by_onnxruntime, check_line, compare_all, reference_agrees

SECONDS = 60.0
BYTES = 6_000_000_000

SEARCH_SECONDS = 10.0
"""Enough for nearly all, on a busy machine too: an abandoned search ends its worker, and another has to start."""

_models: list[bytes] = []
"""The models that are mutated."""


def prepare(options: argparse.Namespace) -> None:
    """Collect the models that are mutated."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    _models[:] = [*_node_tests(), *(_pieces(options.models) if options.models else ())]


def _node_tests() -> list[bytes]:
    """Onnx's node tests, with the inputs that decide shapes turned into constants."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    out = []
    for case in cases:
        model = case.model
        if model is None or model.ByteSize() > 100_000:
            continue
        model = ModelProto.FromString(model.SerializeToString())
        inputs = case.data_sets[0][0] if case.data_sets else []
        arrays = {v.name: a for v, a in zip(model.graph.input, inputs, strict=False) if isinstance(a, np.ndarray)}
        deciding = {name for node in model.graph.node for name in node.input[1:]}
        kept = []
        for value in model.graph.input:
            array = arrays.get(value.name)
            if value.name in deciding and array is not None and array.dtype.kind in "iub" and array.size <= 64:
                model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            else:
                kept.append(value)
        del model.graph.input[:]
        model.graph.input.extend(kept)
        out.append(model.SerializeToString())
    return out


def _pieces(folder: Path) -> list[bytes]:
    """Runs of nodes of real models, with their small weights."""
    out = []
    for path in sorted(folder.glob("*.onnx")):
        if path.stat().st_size > 20_000_000:
            continue
        model = onnx.shape_inference.infer_shapes(onnx.load(path))
        graph = model.graph
        types = {v.name: v for v in [*graph.value_info, *graph.input, *graph.output]}
        stored = {t.name: t for t in graph.initializer}
        rng = random.Random(path.stem)
        for _ in range(20):
            length = rng.randint(1, 8)
            at = rng.randrange(max(1, len(graph.node) - length))
            nodes = graph.node[at : at + length]
            made = dict.fromkeys(name for node in nodes for name in node.output if name)
            read = list(dict.fromkeys(n for node in nodes for n in node.input if n and n not in made))
            weights = [stored[n] for n in read if n in stored]
            inputs = [types[n] for n in read if n not in stored and n in types]
            if len(weights) + len(inputs) < len(read) or sum(w.ByteSize() for w in weights) > 300_000:
                continue
            inner = {n for node in nodes for n in node.input}
            outputs = [types[n] for n in made if n in types and n not in inner]
            outputs = outputs or [types[n] for n in made if n in types]
            if outputs:
                piece = helper.make_graph(nodes, "piece", inputs, outputs, weights)
                out.append(helper.make_model(piece, opset_imports=model.opset_import, ir_version=8).SerializeToString())
    return out


def steps(seed: int) -> int:
    """How many mutations the case has."""
    return random.Random(seed).choice((1, 1, 1, 2, 2, 3, 4))


def case(seed: int, kept: Any) -> bytes:
    """The bytes of a file."""
    rng = random.Random(f"base {seed}")
    data = rng.choice(_models)
    for step in range(steps(seed)) if kept is None else kept:
        rng = random.Random(f"{seed} {step}")
        if rng.random() < 0.12:
            data = flip(rng, data)
            continue
        try:
            model = ModelProto.FromString(data)
            rng.choice(STRUCTURAL)(rng, model)
            data = model.SerializeToString()
        except (DecodeError, ValueError):  # bytes that no longer parse, numbers and texts that a field cannot hold
            data = flip(rng, data)
    return data


def save(data: bytes, folder: Path, name: str) -> None:
    (folder / f"{name}.onnx").write_bytes(data)


def judge(data: bytes, stage: Callable[[str], None]) -> str:
    """Read, optimise and compare one model."""
    import eqsat
    from eqsat.check.inputs import random_inputs
    from eqsat.errors import InputError

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        try:
            program = eqsat.from_onnx(path)
            best = eqsat.optimize(program, time_limit=SEARCH_SECONDS, explain_time=0.0)
        except InputError as error:
            check_line(str(error))
            return "refused"
        program_text = str(program)
        if not program_text:
            raise Fault("an empty program")
        if sum(term.size for term in program.inputs) > LARGEST:
            return "result, no runtime"
        stage("foreign")
        inputs = next(random_inputs(program, 1, 0))
        wanted = by_onnxruntime(data, program, inputs)
        stage("")
        if wanted is None:
            return "result, no runtime"
        if program.opaque():
            return "result, carried"
        for name, one in (("as read", program), ("optimised", best.program)):
            try:
                got = one.run(inputs)
            except InputError as error:
                raise Fault(f"{name}: refused in a run: {error}") from error
            try:
                compare_all(name, got, wanted, one)
            except Fault:
                if not reference_agrees(data, one, inputs, got):
                    raise
                return "result, onnxruntime wrong"
        return "result, right"
