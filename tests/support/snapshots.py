"""Random e-graphs whose classes hold equal values: random expressions, merged where their values agree.

They look like results of saturation: several ways to compute a class, cycles (a slice of a concatenation of slices),
constants, masked and overlapping views.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.egraph.snapshot import ENode, Snapshot, needs_only_constants
from eqsat.extract.kernels.cuts import Cut
from eqsat.layout import arithmetic as lay
from eqsat.program.core import evaluate, make

Array = np.ndarray[Any, Any]

DTYPE = "float64"
DIMS = (2, 3, 4)


@dataclass
class Builder:
    """An e-graph under construction. `values` holds the array that each class stands for."""

    values: list[Array] = field(default_factory=list)
    nodes: dict[tuple[str, tuple[Any, ...], tuple[int, ...]], int] = field(default_factory=dict)
    const: list[bool] = field(default_factory=list)
    _classes: dict[bytes, int] = field(default_factory=dict)

    @property
    def numbers(self) -> list[int]:
        """The classes that are not indices."""
        return [c for c, x in enumerate(self.values) if x.dtype == DTYPE]

    def add(self, op: str, attrs: tuple[Any, ...] = (), args: tuple[int, ...] = (), value: Array | None = None) -> int:
        """The class of an e-node: that of an equal value if there is one."""
        if value is None:
            value = apply(op, attrs, [self.values[a] for a in args])
        key = np.round(value, 9).tobytes() + f"{value.dtype} {value.size}".encode()
        cls = self._classes.setdefault(key, len(self.values))
        if cls == len(self.values):
            self.values.append(value)
            self.const.append(False)
        self.nodes.setdefault((op, attrs, args), cls)
        self.const[cls] = self.const[cls] or needs_only_constants(op, [self.const[a] for a in args])
        return cls

    def snapshot(self, roots: list[int]) -> Snapshot:
        nodes = [ENode(op, attrs, args, cls) for (op, attrs, args), cls in self.nodes.items()]
        return Snapshot(nodes, len(self.values), list(self.const), roots)


def apply(op: str, attrs: tuple[Any, ...], args: list[Array]) -> Array:
    """One operator of the core on arrays."""
    leaves = [make("In", (f"a{i}", x.size, x.dtype.name)) for i, x in enumerate(args)]
    node = make(op, attrs, leaves)
    (value,) = evaluate([node], {f"a{i}": x for i, x in enumerate(args)}, {})
    return value


def random_snapshot(seed: int, operators: int) -> tuple[Snapshot, list[Array]]:
    """A snapshot of about this many e-nodes, and the value of each class."""
    rng = np.random.default_rng(seed)
    b = Builder()
    for i, size in enumerate(rng.choice([6, 8, 12, 24], 3)):
        b.add("In", (f"x{i}", int(size), DTYPE), value=rng.normal(size=size))
    b.add("Const", ("w", 12, DTYPE), value=rng.normal(size=12))
    b.add("Full", (0.5, 12, DTYPE), value=np.full(12, 0.5))
    for i, size in enumerate((2, 6)):
        b.add("In", (f"i{i}", size, "int64"), value=rng.integers(-1, 2, size))
    for _ in range(operators):
        _grow(b, rng)
    dynamic = [c for c in b.numbers if not b.const[c]]
    roots = sorted({dynamic[-1], int(rng.choice(dynamic))})
    return b.snapshot(roots), b.values


def _grow(b: Builder, rng: np.random.Generator) -> None:
    a = int(rng.choice(b.numbers))
    size = b.values[a].size
    same = [c for c in b.numbers if b.values[c].size == size]
    other = int(rng.choice(same))
    match rng.choice(["Un", "Bin", "Where", "V", "V", "Slice", "MM", "MM", "Red", "Row", "Cat", "Gather"]):
        case "Un":
            b.add("Un", (str(rng.choice(["neg", "relu", "tanh"])),), (a,))
        case "Bin":
            f = str(rng.choice(["add", "mul", "sub", "max"]))
            b.add("Bin", (f,), (a, other))
            if f != "sub":
                b.add("Bin", (f,), (other, a))
        case "V":
            b.add("V", (_layout(size, rng),), (a,))
        case "Slice" if size > 2:
            n = int(rng.integers(1, size))
            b.add("V", (lay.strided(int(rng.integers(size - n + 1)), ((n, 1),)),), (a,))
        case "MM":
            _product(b, a, rng)
        case "Red":
            widths = [d for d in DIMS if size % d == 0 and size > d]
            if widths:
                b.add("Red", (str(rng.choice(["sum", "max"])), int(rng.choice(widths))), (a,))
        case "Row" if size % 3 == 0 and size > 3:
            reduced = b.add("Red", ("sum", 3), (a,))
            back = b.add("V", (lay.strided(0, ((size // 3, 1), (3, 0))),), (reduced,))
            b.add("Bin", ("mul",), (other, back))
        case "Cat" if size <= 12:
            group = b.add("Cat", (), (a, other))
            b.add("V", (lay.strided(0, ((size, 1),)),), (group,))
            b.add("V", (lay.strided(size, ((size, 1),)),), (group,))
        case "Gather" if size > 1:
            index = int(rng.choice([c for c in range(len(b.values)) if c not in b.numbers]))
            n = int(rng.choice([d for d in (*DIMS, size) if d > 1 and size % d == 0]))
            outer = int(rng.choice([d for d in (1, *DIMS) if size % (d * n) == 0]))
            b.add("Gather", (outer, n, size // (outer * n)), (a, index))
            b.add("Un", ("neg",), (index,))


def _layout(size: int, rng: np.random.Generator) -> lay.Layout:
    n = int(rng.choice([d for d in (1, *DIMS) if size % d == 0]))
    shape = (size // n, n)
    match rng.choice(["transpose", "rows", "columns", "pad", "window"]):
        case "transpose":
            return lay.of_transpose(shape, (1, 0))
        case "rows":
            return lay.strided(0, ((size, 1), (3, 0)))
        case "columns":
            return lay.strided(0, ((2, 0), (size, 1)))
        case "pad":
            return lay.of_pad(shape, (1, 0), (0, 1), 0.0)
        case _:
            return lay.strided(0, ((max(size - 1, 1), 1), (min(size, 2), 1)))


def _product(b: Builder, a: int, rng: np.random.Generator) -> None:
    m, k, n = (int(rng.choice(DIMS)) for _ in range(3))
    left = [c for c in b.numbers if b.values[c].size in (m * k, 2 * m * k)]
    right = [c for c in b.numbers if b.values[c].size in (k * n, 2 * k * n)]
    pairs = [(x, y) for x in left for y in right if b.values[x].size * n == b.values[y].size * m]
    if pairs:
        x, y = pairs[int(rng.integers(len(pairs)))]
        b.add("MM", (b.values[x].size // (m * k), m, k, n), (x, y))


def value_of(cut: Cut, snapshot: Snapshot, values: list[Array]) -> Array:
    """What a kernel computes, given what its leaves hold."""
    if cut.node < 0:
        return values[cut.cls]
    node = snapshot.nodes[cut.node]
    return apply(node.op, node.attrs, [value_of(x, snapshot, values) for x in cut.subs])
