"""Which of TASO's published substitutions the rules derive, and which `eqsat prove` proves.

    python benchmarks/taso.py graph_subst.pb [--limit SECONDS]

The file is that of https://github.com/jiazhihao/TASO. Each substitution maps outputs of one small graph to those of
another; both become one program, whose pairs of outputs are to meet in an e-graph of the rules of proofs. Where they do
not, `eqsat prove` decides, with `--limit` seconds. Sizes are the most general ones that fit, each different from all
others; convolutions have windows of 3 x 3, as those of the file. Exit code 1 if a substitution is refuted or unknown.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

import eqsat
from eqsat.egraph.saturate import Limits, saturate
from eqsat.egraph.snapshot import Snapshot
from eqsat.program import ops
from eqsat.program.core import lower
from eqsat.program.ir import Program
from eqsat.program.term import Term
from eqsat.rules import PROVING

CONV, RELU, CONCAT, SPLIT, ADD, MUL, MATMUL = 3, 8, 12, 13, 16, 17, 18
"""Types of operators, from TASO's `ops.h`."""

PLAIN = {RELU: "relu", ADD: "add", MUL: "mul", MATMUL: "matmul"}
"""Operators that have no parameters here."""

ACTIVATION, RANK, AXIS = 9, 10, 11
"""Keys of parameters, from TASO's `ops.h`."""

AC_MODE_RELU = 2
WINDOW = 3

LIMITS = Limits(seconds=8.0, nodes=20_000)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a graph: its operands are (operator, output), where negative operators are inputs."""

    type: int
    operands: tuple[tuple[int, int], ...]
    parameters: dict[int, int]


@dataclass(frozen=True, slots=True)
class Substitution:
    """Two graphs. `outputs` pairs outputs of the source with their equals in the result, as (operator, output)."""

    source: list[Operator]
    result: list[Operator]
    outputs: list[tuple[tuple[int, int], tuple[int, int]]]


# The file: protocol buffers, of which it uses integers and messages


def _fields(data: bytes) -> dict[int, list]:
    """What a message has, by the numbers of its fields."""
    found: dict[int, list] = defaultdict(list)
    for field in UnknownFieldSet(Empty.FromString(data)):
        value = field.data
        found[field.field_number].append(value - (value >> 63 << 64) if isinstance(value, int) else value)
    return found


def _operator(data: bytes) -> Operator:
    fields = _fields(data)
    operands = tuple((f[1][0], f[2][0]) for f in map(_fields, fields[2]))
    return Operator(fields[1][0], operands, {f[1][0]: f[2][0] for f in map(_fields, fields[3])})


def read(path: Path) -> list[Substitution]:
    """The substitutions of a file, in its order."""
    found = []
    for rule in map(_fields, _fields(path.read_bytes())[1]):
        source, result = (list(map(_operator, rule[side])) for side in (1, 2))
        outputs = [((f[1][0], f[3][0]), (f[2][0], f[4][0])) for f in map(_fields, rule[3])]
        found.append(Substitution(source, result, outputs))
    return found


# Sizes: a dim is a number of parts, which are equal where graphs say so


class Dims:
    """Equations between sums of unknown sizes, solved from left to right."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, ...]] = {}
        self._names = count()
        self.window = self.fresh()

    def fresh(self) -> tuple[int, ...]:
        return (next(self._names),)

    def parts(self, dim: Sequence[int]) -> tuple[int, ...]:
        """A sum of unknowns that are not known to be sums of others."""
        return tuple(p for name in dim for p in (self.parts(self._known[name]) if name in self._known else (name,)))

    def equal(self, one: Sequence[int], other: Sequence[int]) -> None:
        """Two sums are equal: part by part, where they have as many; an unknown is a sum.

        Raises:
            ValueError: neither is the case.
        """
        left, right = self.parts(one), self.parts(other)
        if len(right) == 1 and len(left) > 1:
            left, right = right, left
        if len(left) == 1:
            if left != right:
                self._known[left[0]] = right
        elif len(left) == len(right):
            for x, y in zip(left, right, strict=True):
                self.equal((x,), (y,))
        else:
            raise ValueError(f"a sum of {len(left)} sizes cannot be one of {len(right)}")


Shape = list[tuple[int, ...]]


def _shapes(graph: Sequence[Operator], inputs: dict[int, Shape], rank: int, dims: Dims) -> list[list[Shape]]:
    """The shapes of all outputs of each operator."""
    made: list[list[Shape]] = []
    for operator in graph:
        shapes = []
        for at, output in operator.operands:
            if at < 0 and at not in inputs:
                inputs[at] = [dims.fresh() for _ in range(rank)]
            shapes.append(inputs[at] if at < 0 else made[at][output])
        made.append(list(_results(operator, shapes, dims)))
    return made


def _results(operator: Operator, shapes: Sequence[Shape], dims: Dims) -> Iterator[Shape]:
    """The shapes of the outputs of an operator, once its operands fit each other."""
    first, axis = shapes[0], operator.parameters.get(AXIS, 0)
    match operator.type:
        case t if t == MATMUL:
            dims.equal(first[1], shapes[1][0])
            yield [first[0], shapes[1][1]]
        case t if t == CONV:
            weights = shapes[1]
            for side in weights[2:]:
                dims.equal(side, dims.window)
            if len(dims.parts(first[1])) == 2 * len(dims.parts(weights[1])):  # two groups
                dims.equal(first[1], weights[1] * 2)
                dims.equal(weights[0], dims.fresh() * 2)
            else:
                dims.equal(first[1], weights[1])
            yield [first[0], weights[0], *first[2:]]
        case t if t == SPLIT:
            parts = dims.fresh(), dims.fresh()
            dims.equal(first[axis], parts[0] + parts[1])
            yield from ([*first[:axis], part, *first[axis + 1 :]] for part in parts)
        case _:
            for other in shapes[1:]:
                for i, (x, y) in enumerate(zip(first, other, strict=True)):
                    if operator.type != CONCAT or i != axis:
                        dims.equal(x, y)
            joined = sum((shape[axis] for shape in shapes), ())
            yield [*first[:axis], joined, *first[axis + 1 :]] if operator.type == CONCAT else first


# Programs


def program(rule: Substitution) -> Program:
    """Both graphs of a substitution over the same inputs, with outputs left0, left1 ... and right0, right1 ..."""
    every = [*rule.source, *rule.result]
    rank = 4 if any(o.type == CONV or o.parameters.get(RANK) == 4 for o in every) else 2
    dims, shapes = Dims(), dict[int, Shape]()
    made = [_shapes(graph, shapes, rank, dims) for graph in (rule.source, rule.result)]
    for places in rule.outputs:
        one, other = (made[side][at][output] for side, (at, output) in enumerate(places))
        for x, y in zip(one, other, strict=True):
            dims.equal(x, y)
    sizes = {dims.parts(dims.window)[0]: WINDOW}

    def size(dim: Sequence[int]) -> int:
        return sum(sizes.setdefault(part, WINDOW + len(sizes)) for part in dims.parts(dim))

    inputs = {at: ops.input(f"x{-at}", tuple(map(size, shapes[at]))) for at in sorted(shapes, reverse=True)}
    outputs = {}
    for side, graph in enumerate((rule.source, rule.result)):
        terms: list[list[Term]] = []
        for operator, results in zip(graph, made[side], strict=True):
            operands = [inputs[at] if at < 0 else terms[at][output] for at, output in operator.operands]
            axis = operator.parameters.get(AXIS, 0)
            terms.append(_terms(operator, operands, [size(shape[axis]) for shape in results]))
        for i, places in enumerate(rule.outputs):
            at, output = places[side]
            outputs[f"{('left', 'right')[side]}{i}"] = terms[at][output]
    return Program(tuple(inputs.values()), outputs)


def _terms(operator: Operator, operands: Sequence[Term], along: Sequence[int]) -> list[Term]:
    """The outputs of an operator, which have these sizes along its axis."""
    axis = operator.parameters.get(AXIS, 0)
    if operator.type in PLAIN:
        return [ops.make(PLAIN[operator.type], *operands)]
    if operator.type == CONCAT:
        return [ops.concat(operands, axis)]
    if operator.type == SPLIT:
        return ops.split(operands[0], along, axis)
    if operator.type == CONV:
        image, weights = operands
        pads = (WINDOW // 2,) * 2
        found = ops.conv(image, weights, pads_lo=pads, pads_hi=pads, groups=image.shape[1] // weights.shape[1])
        return [ops.relu(found) if operator.parameters[ACTIVATION] == AC_MODE_RELU else found]
    raise ValueError(f"no operator: {operator}")


def derived(both: Program) -> bool:
    """Whether the rules of proofs bring all pairs of outputs together."""
    pairs = len(both.outputs) // 2
    goals = [(i, pairs + i) for i in range(pairs)]
    found = saturate(Snapshot.from_core(list(lower(both).roots)), PROVING, LIMITS, goals=goals)
    return all(found.roots[one] == found.roots[other] for one, other in goals)


def proved(both: Program, limit: float) -> str:
    """The verdict of `eqsat prove` and its method."""
    sides = [
        Program(both.inputs, {name.removeprefix(side): t for name, t in both.outputs.items() if name.startswith(side)})
        for side in ("left", "right")
    ]
    proof = eqsat.prove(sides[0], sides[1], time_limit=limit)
    return f"{proof.verdict}, {proof.method}" if proof.method else proof.verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for each that is not derived")
    arguments = parser.parse_args()
    verdicts: Counter[str] = Counter()
    seconds = []
    for i, rule in enumerate(read(arguments.file)):
        both = program(rule)
        begun = time.monotonic()
        verdict = "derived by rules" if derived(both) else proved(both, arguments.limit)
        seconds.append(time.monotonic() - begun)
        verdicts[verdict] += 1
        if verdict != "derived by rules":
            print(f"{i}: {verdict}, {seconds[-1]:.1f} s", flush=True)
    seconds.sort()
    times = f"median {seconds[len(seconds) // 2]:.2f} s, longest {seconds[-1]:.2f} s"
    print(f"{len(seconds)} substitutions: {dict(verdicts)}; {times}")
    return int(any(v.startswith(("refuted", "unknown")) for v in verdicts))


if __name__ == "__main__":
    sys.exit(main())
