"""ONNX models that cases start from: onnx's own node tests, and pieces of given models."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

_LARGEST_TEST, _LARGEST_MODEL, _LARGEST_WEIGHTS = 100_000, 20_000_000, 300_000
"""Bytes of a node test, of a model, and of the weights of a piece: beyond, a case takes too long."""

_PIECES, _NODES = 20, 8
"""Pieces of each model, and nodes of a piece, at most."""

_DECIDING = 64
"""Elements of an integer input of a node test that may decide shapes: it becomes a constant."""


@cache
def node_tests() -> tuple[bytes, ...]:
    """Onnx's node tests, with the inputs that decide shapes turned into constants."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    out = []
    for case in cases:
        if case.model is None or case.model.ByteSize() > _LARGEST_TEST:
            continue
        model = ModelProto.FromString(case.model.SerializeToString())
        inputs = case.data_sets[0][0] if case.data_sets else []
        arrays = {v.name: a for v, a in zip(model.graph.input, inputs, strict=False) if isinstance(a, np.ndarray)}
        deciding = {name for node in model.graph.node for name in node.input[1:]}
        kept = []
        for value in model.graph.input:
            array = arrays.get(value.name)
            if value.name in deciding and array is not None and array.dtype.kind in "iub" and array.size <= _DECIDING:
                model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            else:
                kept.append(value)
        del model.graph.input[:]
        model.graph.input.extend(kept)
        out.append(model.SerializeToString())
    return tuple(out)


def corpus(models: Sequence[str]) -> tuple[bytes, ...]:
    """The node tests, and pieces of these files."""
    return (*node_tests(), *pieces(tuple(models)))


@cache
def pieces(models: tuple[str, ...]) -> tuple[bytes, ...]:
    """Runs of nodes of models, with their small weights. Models that are large are left out."""
    return tuple(piece for path in models if Path(path).stat().st_size <= _LARGEST_MODEL for piece in _cut(path))


def _cut(path: str) -> list[bytes]:
    out = []
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    graph = model.graph
    types = {v.name: v for v in [*graph.value_info, *graph.input, *graph.output]}
    stored = {t.name: t for t in graph.initializer}
    rng = random.Random(Path(path).stem)
    for _ in range(_PIECES):
        length = rng.randint(1, _NODES)
        at = rng.randrange(max(1, len(graph.node) - length))
        nodes = graph.node[at : at + length]
        made = dict.fromkeys(name for node in nodes for name in node.output if name)
        read = list(dict.fromkeys(n for node in nodes for n in node.input if n and n not in made))
        weights = [stored[n] for n in read if n in stored]
        inputs = [types[n] for n in read if n not in stored and n in types]
        if len(weights) + len(inputs) < len(read) or sum(w.ByteSize() for w in weights) > _LARGEST_WEIGHTS:
            continue
        inner = {n for node in nodes for n in node.input}
        outputs = [types[n] for n in made if n in types and n not in inner]
        outputs = outputs or [types[n] for n in made if n in types]
        if outputs:
            piece = helper.make_graph(nodes, "piece", inputs, outputs, weights)
            out.append(helper.make_model(piece, opset_imports=model.opset_import, ir_version=8).SerializeToString())
    return out
