"""Programs that one walk over the data computes: attention, norms and layers of transformers, in float16.

They are those on which Mirage (OSDI 2025) shows its gains, and attention in several shapes. The weights of layers and
norms are constant, except in LoRA.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import eqsat
from eqsat.base.numerics import itemsize
from eqsat.program.ir import Program

HALF = "float16"


@dataclass(frozen=True)
class Row:
    """A program of the table.

    Attributes:
        build: its function, over traced arrays of the shapes in `inputs`; the last of them are the `weights`.
        wanted: launches.
        dtypes: of inputs that are not float16; `read` is how many elements of an input are asked for, where not all.
        weights: the inputs that are constant.
        fused: torch has it as one function, scaled dot product attention: of all keys, of `causal` ones, or of those
            that a mask allows.
    """

    build: Callable[..., Any]
    inputs: Mapping[str, tuple[int, ...]]
    wanted: int
    dtypes: Mapping[str, str] = field(default_factory=dict)
    read: Mapping[str, int] = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    fused: str | None = None

    def program(self) -> Program:
        """The traced program."""
        specs = {name: eqsat.spec(shape, self.dtypes.get(name, HALF)) for name, shape in self.inputs.items()}
        rng = np.random.default_rng(0)
        held = {name: (rng.standard_normal(self.inputs[name]) / 64).astype(HALF) for name in self.weights}

        def layer(**arrays: Any) -> Any:
            return self.build(**arrays, **held)

        return eqsat.trace(layer, **{name: spec for name, spec in specs.items() if name not in held})

    def compulsory(self) -> int:
        """Bytes of the inputs, read once, and of the outputs, written once."""
        program = self.program()
        read = {name: self.read.get(name, math.prod(shape)) for name, shape in self.inputs.items()}
        sizes = [(n, self.dtypes.get(name, HALF)) for name, n in read.items()]
        sizes += [(math.prod(t.shape), t.dtype) for t in program.outputs.values()]
        return sum(n * itemsize(dtype) for n, dtype in sizes)


def attention(q: Any, k: Any, v: Any) -> Any:
    """softmax(q k^T / sqrt(d)) v."""
    scale = 1 / math.sqrt(q.shape[-1])
    return eqsat.softmax(q @ eqsat.swapaxes(k, -1, -2) * scale, -1) @ v


def masked_attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """The same where a mask allows it."""
    scores = q @ eqsat.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]))
    return eqsat.softmax(eqsat.where(mask, scores, -np.inf), -1) @ v


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    """The same where keys are not after their query."""
    n = q.shape[-2]
    return masked_attention(q, k, v, np.tril(np.ones((n, n), bool)))


def norm(x: Any, gain: Any, shift: Any) -> Any:
    """LayerNorm over the last axis."""
    return eqsat.layernorm(x) * gain + shift


def two_layers(x: Any, g: Any, s: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    """x + gelu(norm(x) w1 + b1) w2 + b2."""
    return x + eqsat.gelu(norm(x, g, s) @ w1 + b1) @ w2 + b2


def embeddings(words: Any, places: Any, kinds: Any, ids: Any, at: Any, kind: Any, gain: Any, shift: Any) -> Any:
    """The norm of the sum of three rows of tables."""
    total = eqsat.take(words, ids, 0) + eqsat.take(places, at, 0) + eqsat.take(kinds, kind, 0)
    return norm(total, gain, shift)


_IDS = {"ids": "int64", "at": "int64", "kind": "int64"}

ROWS = {
    "RMSNorm + linear": Row(
        lambda x, g, w: eqsat.rmsnorm(x) * g @ w,
        {"x": (16, 4096), "g": (4096,), "w": (4096, 4096)},
        1,
        weights=("g", "w"),
    ),
    "LayerNorm + linear": Row(
        lambda x, g, s, w: norm(x, g, s) @ w,
        {"x": (128, 768), "g": (768,), "s": (768,), "w": (768, 3072)},
        1,
        weights=("g", "s", "w"),
    ),
    "gated MLP": Row(
        lambda x, w1, w3: eqsat.silu(x @ w1) * (x @ w3),
        {"x": (8, 4096), "w1": (4096, 4096), "w3": (4096, 4096)},
        1,
        weights=("w1", "w3"),
    ),
    "LoRA": Row(
        lambda x, w, a, b: x @ w + x @ a @ b, {"x": (16, 4096), "w": (4096, 4096), "a": (4096, 16), "b": (16, 4096)}, 1
    ),
    "GQA decode": Row(attention, {"q": (2, 8, 128), "k": (2, 8192, 128), "v": (2, 8192, 128)}, 2, fused="all"),
    "attention, 1024 keys": Row(attention, dict.fromkeys("qkv", (32, 1024, 128)), 1, fused="all"),
    "attention, 128 keys": Row(attention, dict.fromkeys("qkv", (12, 128, 64)), 1, fused="all"),
    "causal attention": Row(causal_attention, dict.fromkeys("qkv", (12, 512, 64)), 1, fused="causal"),
    "masked attention": Row(
        masked_attention,
        dict.fromkeys("qkv", (12, 256, 64)) | {"mask": (256, 256)},
        1,
        {"mask": "bool"},
        fused="masked",
    ),
    "QK-norm attention": Row(
        lambda q, k, v: attention(eqsat.rmsnorm(q), eqsat.rmsnorm(k), v),
        {"q": (16, 128, 128), "k": (16, 4096, 128), "v": (16, 4096, 128)},
        1,
    ),
    "LN, W1, gelu, W2, residual": Row(
        two_layers,
        {"x": (128, 768), "g": (768,), "s": (768,), "w1": (768, 3072), "b1": (3072,), "w2": (3072, 768), "b2": (768,)},
        2,
        weights=("g", "s", "w1", "b1", "w2", "b2"),
    ),
    "embeddings": Row(
        embeddings,
        {"words": (30522, 768), "places": (512, 768), "kinds": (2, 768)}
        | dict.fromkeys(("ids", "at", "kind"), (128,))
        | {"gain": (768,), "shift": (768,)},
        1,
        _IDS,
        {"words": 128 * 768, "places": 128 * 768},
    ),
}
"""The programs, by name."""
