"""Programs that one pass over the data computes: launches, bytes and predicted time.

    python benchmarks/streams.py [--device D] [--time-limit S] [--models DIR] [--json FILE] [NAME...]

A row holds the launches and predicted microseconds of a program as written (operators fused as they stand) and
optimised; the launches wanted; and the bytes that the optimised kernels move, in multiples of the compulsory bytes:
each input read once (of a table, the rows that are asked for) and each output written once. The programs are those on
which Mirage (OSDI 2025) shows its gains, with attention in several shapes and the norms and layers of transformers.
All are float16; the weights of layers and norms are constant, except in LoRA. With --models, a table of ONNX files
follows: their launches, times and the geometric mean gain. Exit code 1 if a program takes more
launches than wanted, or moves more than 1.15 times the compulsory bytes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import eqsat
from eqsat.base.numerics import itemsize
from eqsat.cli.shared.output import console, print_table
from eqsat.program.ir import Program

HALF = "float16"
MOST_BYTES = 1.15
"""Most bytes that a program may move, over its compulsory bytes."""


@dataclass(frozen=True)
class Row:
    """A program of the table.

    Attributes:
        build: its function, over traced arrays of the shapes in `inputs`; the last of them are the `weights`.
        wanted: launches.
        dtypes: of inputs that are not float16; `read` is how many elements of an input are asked for, where not all.
        weights: the inputs that are constant.
    """

    build: Callable[..., Any]
    inputs: Mapping[str, tuple[int, ...]]
    wanted: int
    dtypes: Mapping[str, str] = field(default_factory=dict)
    read: Mapping[str, int] = field(default_factory=dict)
    weights: tuple[str, ...] = ()

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
    "GQA decode": Row(attention, {"q": (2, 8, 128), "k": (2, 8192, 128), "v": (2, 8192, 128)}, 2),
    "attention, 1024 keys": Row(attention, dict.fromkeys("qkv", (32, 1024, 128)), 1),
    "attention, 128 keys": Row(attention, dict.fromkeys("qkv", (12, 128, 64)), 1),
    "causal attention": Row(causal_attention, dict.fromkeys("qkv", (12, 512, 64)), 1),
    "masked attention": Row(
        masked_attention, dict.fromkeys("qkv", (12, 256, 64)) | {"mask": (256, 256)}, 1, {"mask": "bool"}
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


def measured(program: Program, device: str, time_limit: float) -> dict[str, Any]:
    """Launches, bytes and times of a program as written and optimised."""
    report = eqsat.optimize(program, device=device, time_limit=time_limit).report
    kept = ("launches", "bytes", "predicted_us")
    figures = {f"{side}_{k}": report[side][k] for side in ("source", "result") for k in kept}
    return figures | {"gap": report["gap"], "families": [k["family"] for k in report["kernels"]]}


def rows(names: list[str], device: str, time_limit: float) -> list[dict[str, Any]]:
    """The table's figures."""
    made = []
    for name, row in ROWS.items():
        if not names or name in names:
            figures = measured(row.program(), device, time_limit)
            ratio = figures["result_bytes"] / row.compulsory()
            made.append({"program": name, "wanted": row.wanted, "bytes_ratio": round(ratio, 3)} | figures)
    return made


def models(folder: Path, device: str, time_limit: float) -> list[dict[str, Any]]:
    """The same for ONNX files; dynamic dims are 1, sequences 128."""
    made = []
    for path in sorted(folder.glob("*.onnx")):
        program = eqsat.from_onnx(path, shapes=_dims(path))
        made.append({"model": path.stem} | measured(program, device, time_limit))
    return made


def _dims(path: Path) -> dict[str, int]:
    """Values for a file's dynamic dims."""
    import onnx

    inputs = onnx.load(path, load_external_data=False).graph.input
    named = {d.dim_param for x in inputs for d in x.type.tensor_type.shape.dim if d.dim_param}
    return {name: 128 if "seq" in name else 1 for name in sorted(named)}


def gain(figures: list[dict[str, Any]]) -> float:
    """The geometric mean of time as written over time optimised."""
    return math.exp(sum(math.log(x["source_predicted_us"] / x["result_predicted_us"]) for x in figures) / len(figures))


def show(title: str, first: str, figures: list[dict[str, Any]]) -> None:
    """Print a table."""
    wanted = "wanted" in figures[0]
    columns = [first, "launches", *(["wanted", "bytes / compulsory"] if wanted else []), "as written", "us", "less"]
    table = []
    for x in figures:
        more = [str(x["wanted"]), f"{x['bytes_ratio']:.2f}"] if wanted else []
        before, after = x["source_predicted_us"], x["result_predicted_us"]
        launches = f"{x['source_launches']} -> {x['result_launches']}"
        table.append([x[first], launches, *more, f"{before:.4g}", f"{after:.4g}", f"{before / after:.2f}x"])
    print_table(console(), title, columns, table)
    console().print(f"geometric mean: {gain(figures):.3f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *ROWS], metavar="NAME")
    parser.add_argument("--device", default="mi300x")
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--models", type=Path, help="a folder of ONNX files")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = {"rows": rows(args.names, args.device, args.time_limit), "models": []}
    show(f"streams on {args.device}", "program", found["rows"])
    if args.models:
        found["models"] = models(args.models, args.device, args.time_limit)
        show(f"models on {args.device}", "model", found["models"])
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    sys.exit(any(x["result_launches"] > x["wanted"] or x["bytes_ratio"] > MOST_BYTES for x in found["rows"]))


if __name__ == "__main__":
    main()
