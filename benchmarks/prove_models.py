"""Whole models against their optimised forms: CPU seconds to optimise and to prove, and the proofs that stay open.

    python benchmarks/prove_models.py DIR [NAME...] [--against DEVICE|onnxruntime|onnxsim]... [--limit SECONDS]
        [--proof-limit SECONDS] [--faults N] [--certificates N] [--shape NAME=SIZE]... [--table FILE]

DIR holds ONNX models; with NAMEs, those whose names match one of these patterns are taken.
Each is optimised for every DEVICE (mi300x by default), or saved as onnxruntime's basic level
or onnxsim (if it is installed) rewrites it, and `eqsat prove` compares the two. With `--faults N`, N faults are
planted in each result, drawn with a fixed seed (`PLANTED`): a weight changed by 1 %, rows of a matrix swapped,
another axis, a bias added twice, and others. A fault that fits nowhere or breaks the model is drawn again. One that is
not refuted counts as one without effect where the outputs stay the same, up to 1e-5 of their scale.
With `--certificates N`, a certificate of each proof is written and verified, and N corruptions of it
(`benchmarks/corruptions.py`), drawn with a fixed seed, are to be refused. Exit code 1 if a result was refuted, a
fault proved or a corrupted certificate verified.

The rows of the table are printed one by one; `--table FILE` also appends them to FILE, and leaves out what has a row
there. CPU seconds are those of this process and its workers. BLAS gets one thread: on a busy machine its threads wait
for each other, and their waiting counts.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import numpy as np
import onnx
from common import models, sizes
from corruptions import corrupted
from onnx import numpy_helper

import eqsat
from eqsat.cli.shared.options import parse_shapes
from eqsat.cli.shared.output import console
from eqsat.errors import CheckFailed, InputError
from eqsat.program.ir import Program
from eqsat.proof.values.points import typical
from eqsat.rules import CHECKABLE
from eqsat.verify.checker import verify
from eqsat.verify.pairing import matched

ONNXRUNTIME, ONNXSIM = "onnxruntime", "onnxsim"
CERTIFIED = ["certificate in kB", "lemmas", "uses", "verified in s", "refused"]
_NO_EFFECT = 1e-5
_DRAWS = 5
"""Faults that are drawn for each that is planted."""
SIBLINGS = {"Add": "Sub", "Sub": "Add", "Mul": "Add", "Div": "Mul", "Erf": "Tanh", "Sigmoid": "Tanh", "Relu": "Abs"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--against", action="append")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of each search, and of each proof")
    parser.add_argument("--proof-limit", type=float, help="seconds of each proof, if others")
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--certificates", type=int, metavar="N")
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--table", type=Path, metavar="FILE")
    asked = parser.parse_intermixed_args()
    columns = ["model", "against", "made in CPU s", "proved in CPU s", "ratio", "verdict", "cuts", "e-graphs"]
    columns += ["faults refuted", "no effect", "within rounding", "unknown", "proved"] if asked.faults else []
    columns += CERTIFIED if asked.certificates is not None else []
    table = Table(columns, asked.table)
    wrong: list[str] = []
    for path in models([asked.folder]):
        if asked.names and not any(fnmatch(path.stem, name) for name in asked.names):
            continue
        for against in asked.against or ["mi300x"]:
            if not table.has(path.stem, against):
                table.add([path.stem, against, *cells(path, against, asked, wrong)])
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def cells(path: Path, against: str, asked: argparse.Namespace, wrong: list[str]) -> list[str]:
    """The row of a model, from its third column on."""
    source = eqsat.from_onnx(path, shapes=sizes(path, parse_shapes(asked.shape)))
    limit = asked.proof_limit or asked.limit
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "result.onnx"
        begun = cpu_seconds()
        made(source, against, written, asked.limit)
        finished = cpu_seconds()
        result = eqsat.from_onnx(written)
        proof = eqsat.prove(source, result, time_limit=limit, certify=asked.certificates is not None)
        making, proving = finished - begun, cpu_seconds() - finished
        found = Counter(faults(source, written, asked.faults, limit, wrong))
    row = [f"{making:.1f}", f"{proving:.1f}", f"{proving / max(making, 0.1):.1f}", proof.verdict]
    row += [str(proof.stats.get(name, "")) for name in ("cuts", "proofs")]
    if asked.faults:
        row += [str(found[verdict]) for verdict in ("refuted", "no effect", "within rounding", "unknown", "proved")]
    if asked.certificates is not None:
        row += certified(source, result, proof.certificate, asked.certificates, wrong)
    said = path.stem, against, proof.reason, proof.uncertified
    console(stderr=True).print(" ".join(said), markup=False, highlight=False)
    if proof.verdict == "refuted":
        wrong.append(f"{path.stem} against {against}: {proof.reason}")
    return row


class Table:
    """A table in Markdown that grows row by row, on stdout and in a file."""

    def __init__(self, columns: Sequence[str], file: Path | None) -> None:
        self._file = file
        self._known = file.read_text(encoding="utf-8").splitlines() if file is not None and file.exists() else []
        head = ["| " + " | ".join(columns) + " |", "| --- | --- |" + " ---: |" * (len(columns) - 2)]
        for line in head if self._known[:2] != head else ():
            self._write(line)

    def has(self, *first: str) -> bool:
        """Whether the file had a row with these first cells from the start."""
        return any(line.startswith("| " + " | ".join(first) + " |") for line in self._known)

    def add(self, row: Sequence[str]) -> None:
        self._write("| " + " | ".join(row) + " |")

    def _write(self, line: str) -> None:
        print(line, flush=True)
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def cpu_seconds() -> float:
    """CPU time of this process and its children, living ones as Linux lists them."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = sum(os.times()[:4])
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in listed.read_text().split():
            with suppress(OSError):  # it has just ended
                stat = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, stat[11:13])) / ticks
    return total


def made(source: Program, against: str, written: Path, limit: float) -> None:
    """Write what a device's search, onnxruntime or onnxsim makes of the model."""
    if against not in (ONNXRUNTIME, ONNXSIM):
        eqsat.to_onnx(eqsat.optimize(source, device=against, time_limit=limit).program, written)
        return
    fixed = written.with_name("source.onnx")  # with the same dims
    eqsat.to_onnx(source, fixed)
    if against == ONNXSIM:
        simplified, _ = importlib.import_module("onnxsim").simplify(onnx.load(fixed))
        onnx.save(simplified, written)
        return
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(written)
    options.log_severity_level = 3
    ort.InferenceSession(str(fixed), options, providers=["CPUExecutionProvider"])


def certified(source: Program, result: Program, text: str | None, count: int, wrong: list[str]) -> list[str]:
    """The cells on a certificate: its size, its lemmas and their uses, seconds to verify it, corruptions refused."""
    if text is None:
        return ["-"] * len(CERTIFIED)
    begun = time.monotonic()
    found = verify(source, result, text, CHECKABLE)
    seconds = time.monotonic() - begun
    rng = random.Random(0)
    refused = 0
    for _ in range(count):
        change = corrupted(text, rng)
        try:
            verify(source, result, change.of(text), CHECKABLE)
            wrong.append(f"a certificate verifies with {change}")
        except (CheckFailed, InputError):
            refused += 1
    return [f"{len(text) / 1000:.1f}", str(found.lemmas), str(found.uses), f"{seconds:.1f}", f"{refused} of {count}"]


# Faults


def faults(source: Program, written: Path, count: int, limit: float, wrong: list[str]) -> Iterator[str]:
    """The verdicts on a result with faults; one that has no place, or leaves no program, is drawn again."""
    rng = random.Random(0)
    result = eqsat.from_onnx(written)
    left = count
    for _ in range(_DRAWS * count):
        if not left:
            return
        model = onnx.load(written)
        name, plant = rng.choice(list(PLANTED.items()))
        place = plant(model, rng)
        if place is None:
            continue
        try:
            proof = eqsat.prove(source, eqsat.from_onnx(model), time_limit=limit)
        except InputError:
            continue  # not a program any more
        left -= 1
        console(stderr=True).print(f"  {name}, {place}: {proof}"[:300], markup=False, highlight=False)
        if proof.verdict != "refuted" and effect(result, eqsat.from_onnx(model)) <= _NO_EFFECT:
            yield "no effect"
            continue
        if proof.verdict == "proved":
            wrong.append(f"{name}, {place}: {proof.reason}")
        yield "within rounding" if proof.within_rounding else proof.verdict


def effect(source: Program, other: Program) -> float:
    """The largest difference of outputs, relative to their scale, on a few inputs; infinite where one has no value."""
    names = matched(source, other)
    worst = 0.0
    for point in typical(source, other, names, {}):
        given = {t.attr("name"): point[t.attr("name")].reshape(t.shape) for t in source.inputs}
        one = source.run(given, "float64").values()
        two = other.run({theirs: given[mine] for theirs, mine in names.items()}, "float64").values()
        for a, b in zip(one, two, strict=True):
            a, b = a.astype(np.float64), b.astype(np.float64)
            gap = np.nan_to_num(np.abs(a - b), nan=np.inf).max(initial=0.0)
            worst = max(worst, float(gap / np.abs(a).max(initial=1e-300)))
    return worst


Fault = Callable[[onnx.ModelProto, random.Random], str | None]
"""Changes a model, and says where; None where it has no place for the fault."""

FLOATS, INTEGERS = (1, 10), (6, 7, 9)
"""Element types of initializers: float32 and float16; int32, int64 and bool."""


def _stored(types: tuple[int, ...], single: bool, change: Callable[[np.ndarray], np.ndarray]) -> Fault:
    """Another value of an initializer of these types, of one element or of more."""

    def plant(model: onnx.ModelProto, rng: random.Random) -> str | None:
        tensors = [t for t in model.graph.initializer if t.data_type in types and (np.prod(t.dims) == 1) == single]
        if not tensors:
            return None
        tensor = rng.choice(tensors)
        array = numpy_helper.to_array(tensor)
        changed = change(array).astype(array.dtype)
        tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
        return None if (array == changed).all() else tensor.name

    return plant


def _of_node(operators: Collection[str], change: Callable[[onnx.NodeProto], None], *attributes: str) -> Fault:
    """Another node in place of one of these operators, with one of these attributes if there are any."""

    def plant(model: onnx.ModelProto, rng: random.Random) -> str | None:
        named = [n for n in model.graph.node if n.op_type in operators]
        nodes = [n for n in named if not attributes or any(a.name in attributes for a in n.attribute)]
        if not nodes:
            return None
        node = rng.choice(nodes)
        change(node)
        return node.name

    return plant


def _swapped(array: np.ndarray) -> np.ndarray:
    return array[[1, 0, *range(2, len(array))]] if len(array) > 1 else array


def _heads(array: np.ndarray) -> np.ndarray:
    size = array.shape[-1] // 8 if array.ndim > 1 else 0
    parts = array[..., size : 2 * size], array[..., :size], array[..., 2 * size :]
    return np.concatenate(parts, -1) if size else array


def _sibling(node: onnx.NodeProto) -> None:
    node.op_type = SIBLINGS[node.op_type]


def _left_out(node: onnx.NodeProto) -> None:
    node.op_type = "Identity"
    del node.input[1:], node.attribute[:]


def _axis(node: onnx.NodeProto) -> None:
    attribute = next(a for a in node.attribute if a.name in ("axis", "perm"))
    if attribute.name == "perm":
        attribute.ints[:] = [*attribute.ints[:-2], attribute.ints[-1], attribute.ints[-2]]
    else:
        attribute.i += -1 if attribute.i else 1


def _added_twice(model: onnx.ModelProto, rng: random.Random) -> str | None:
    fixed = {t.name for t in model.graph.initializer}
    places = [i for i, n in enumerate(model.graph.node) if n.op_type == "Add" and fixed & set(n.input)]
    if not places:
        return None
    node = model.graph.node[rng.choice(places)]
    bias = next(name for name in node.input if name in fixed)
    first = f"{node.output[0]} once"
    again = onnx.helper.make_node("Add", [first, bias], [node.output[0]])
    at = next(i for i, n in enumerate(model.graph.node) if n is node or n.output[0] == node.output[0])
    node.output[0] = first
    model.graph.node.insert(at + 1, again)
    return node.name


PLANTED: dict[str, Fault] = {
    "a weight changed by 1 %": _stored(FLOATS, False, lambda array: array * 1.01),
    "rows swapped": _stored(FLOATS, False, _swapped),
    "a number changed": _stored(FLOATS, True, lambda array: array * 10),
    "another operator": _of_node(SIBLINGS, _sibling),
    "an operator left out": _of_node(("Add", "Mul", "Relu", "Gelu", "Erf", "Tanh", "Softmax"), _left_out),
    "parts of each row swapped": _stored(FLOATS, False, _heads),
    "a mask or an index off by one": _stored(INTEGERS, False, lambda array: np.roll(array, 1, axis=-1)),
    "another axis": _of_node(("Softmax", "Concat", "Transpose", "Gather"), _axis, "axis", "perm"),
    "a bias added twice": _added_twice,
}
"""Kinds of faults."""

if __name__ == "__main__":
    sys.exit(main())
