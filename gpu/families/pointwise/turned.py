"""Pointwise kernels with transposed operands: transposing copies through LDS.

Adjacent outputs of a transpose read elements that are far apart in memory. So a block takes a square: it reads
transposed operands into LDS along their own rows, and then computes along the rows of the output.

    out[o, p, m, q] = f(x[.. + p + stride * q], ..),  squares over p and q
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.base.numerics import itemsize
from eqsat.gpu.code.c_writer import Region, Value
from eqsat.gpu.code.index import Index, Var, through
from eqsat.gpu.code.scalar import COMPUTE, STORAGE, Lowering, Special, loaded, stored
from eqsat.gpu.families.base import Job
from eqsat.program.core import Node
from eqsat.program.node import is_elementwise

LEAST_EDGE = 16
"""Least extent of p and q; below it squares would be mostly empty."""

LEAST_STRIDE = 16
"""Elements between neighbours: below, a line of the cache still serves several of them."""

MOST_TURNED = 4
"""Operands that LDS holds squares of."""


@dataclass(frozen=True)
class Square:
    """How an output index splits: ((o * p + p) * m + m) * q + q, and the operands that lie along p."""

    o: Var
    p: Var
    m: Var
    q: Var
    turned: tuple[tuple[Node, Index], ...]

    @property
    def index(self) -> Index:
        """The output index."""
        inner = Index.of(self.m) * self.q.extent + Index.of(self.q)
        return (Index.of(self.o) * self.p.extent + Index.of(self.p)) * (self.m.extent * self.q.extent) + inner

    @property
    def edge(self) -> int:
        """Elements of a square along p and q: neighbours in memory fill at least 128 bytes."""
        return 64 if min(itemsize(node.dtype) for node, _ in self.turned) <= 2 else 32

    @property
    def blocks(self) -> int:
        """Squares."""
        edge = self.edge
        return self.o.extent * self.m.extent * -(-self.p.extent // edge) * -(-self.q.extent // edge)


def square_of(job: Job) -> Square | None:
    """The squares to take for a job; None if no operand is transposed."""
    sizes = {node.size for node in job.outputs}
    if len(sizes) > 1:
        return None
    found = [square for o, p, m, q in _splits(job, sizes.pop()) if (square := _square(job, o, p, m, q)) is not None]
    return max(found, key=lambda square: len(square.turned), default=None)


def _splits(job: Job, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Extents of o, p, m and q by which a view of the job turns an array around."""
    seen = set()
    for node in job.nodes:
        if node.op != "V" or node.size != size or node.attrs[0].masked:
            continue
        dims = node.attrs[0].dims
        for i, (extent, stride) in enumerate(dims[:-1]):
            q = dims[-1][0]
            inner = 1
            for n, _ in dims[i + 1 : -1]:
                inner *= n
            split = (size // (extent * inner * q), extent, inner, q)
            if stride == 1 and min(extent, q) >= LEAST_EDGE and split not in seen:
                seen.add(split)
                yield split


def _square(job: Job, o: int, p: int, m: int, q: int) -> Square | None:
    square = Square(Var("o", o), Var("p", p), Var("m", m), Var("q", q), ())
    turned: dict[tuple[Node, Index], None] = {}
    for node in job.outputs:
        for leaf, index in _reads(job, node, square.index):
            stride = index.coefficient(square.q)
            if index.coefficient(square.p) == 1 and stride is not None and abs(stride) >= LEAST_STRIDE:
                turned[leaf, index] = None
    if not turned:
        return None
    return Square(square.o, square.p, square.m, square.q, tuple(turned)[:MOST_TURNED])


def _reads(job: Job, root: Node, at: Index) -> Iterator[tuple[Node, Index]]:
    """The elements of arrays that element `at` of a node reads whatever the values and masks are."""
    seen: set[tuple[Node, Index]] = set()
    stack = [(root, at)]
    while stack:
        node, index = stack.pop()
        if (node, index) in seen:
            continue
        seen.add((node, index))
        if node in job.leaves:
            yield node, index
        elif is_elementwise(node.op):
            stack.extend((a, index) for a in reversed(node.args))
        elif node.op == "V" and not node.attrs[0].masked:
            stack.append((node.args[0], through(node.attrs[0], index)[0]))


def fields(job: Job, square: Square) -> dict[str, Any]:
    """What the template needs: the squares' layout in LDS, and the statements of one element."""
    held, lds_bytes = [], 0
    for node, _ in square.turned:
        size = itemsize(job.dtype(node))
        held.append({"ctype": STORAGE[job.dtype(node)], "offset": lds_bytes})
        lds_bytes += -(-square.edge * (square.edge + 1) * size // 16) * 16
    return {
        "square": square,
        "held": held,
        "lds_bytes": lds_bytes,
        "load": _load(job, square),
        "body": _body(job, square),
    }


def _place(square: Square, i: int) -> str:
    """The C expression of the element of operand i that belongs to p and q."""
    return f"held{i}[(q - first_q) * {square.edge + 1} + p - first_p]"


def _load(job: Job, square: Square) -> str:
    region = Region([square.o, square.p, square.m, square.q], job.index_type)
    for i, (node, index) in enumerate(square.turned):
        region.statement(f"{_place(square, i)} = {job.leaves[node].name}[{region.index(index).text}];")
    return region.text


def _body(job: Job, square: Square) -> str:
    region = Region([square.o, square.p, square.m, square.q], job.index_type)
    special: dict[Node, Special] = {}
    lowering = Lowering(region, job.leaves, special=special)
    for node, _ in square.turned:
        special[node] = _held(job, square, node, lowering)
    for i, node in enumerate(job.outputs):
        value = stored(lowering.value(node, square.index).text, job.dtype(node))
        region.statement(f"out{i}[{region.index(square.index).text}] = {value};")
    return region.text


def _held(job: Job, square: Square, node: Node, lowering: Lowering) -> Special:
    """An array's elements: from LDS where they are held there, else from memory."""
    known: Sequence[tuple[Node, Index]] = square.turned

    def value(index: Index) -> Value:
        if (node, index) not in known:
            return lowering.load(job.leaves[node], index)
        text = loaded(_place(square, known.index((node, index))), job.dtype(node))
        return lowering.region.define(COMPUTE[node.dtype], text, [])

    return value
