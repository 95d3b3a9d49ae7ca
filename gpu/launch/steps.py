"""The parts of a lowered plan: buffers, the steps that fill them, and the places of temporaries in one arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from eqsat.base.numerics import itemsize
from eqsat.extract.plan.memory import first_fit
from eqsat.gpu.families.base import Kernel

BufferKind = Literal["input", "constant", "temporary", "output"]


@dataclass(frozen=True)
class Buffer:
    """A contiguous array. A temporary is in the arena at byte `offset`; `output` is an output's name in the program."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: BufferKind
    offset: int = 0
    output: str = ""

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * itemsize(self.dtype)


@dataclass(frozen=True)
class Place:
    """Where an array lies: so many elements into a buffer."""

    buffer: str
    offset: int = 0


@dataclass(frozen=True)
class Fill:
    """Set every element of a buffer."""

    buffer: str
    value: float | int | bool


@dataclass(frozen=True)
class Launch:
    """Run a kernel."""

    kernel: Kernel
    arguments: tuple[Place, ...]


@dataclass(frozen=True)
class HostCall:
    """Run an opaque operator by its own implementation: `key` in the plan's `opaque`, result `index` to each output."""

    key: str
    inputs: tuple[Place, ...]
    sizes: tuple[int, ...]
    outputs: tuple[tuple[int, Place], ...]


@dataclass(frozen=True)
class LibraryProduct:
    """A product of plain matrices, a[B, M, K] @ b[B, K, N], by the vendor's library; strides count elements."""

    dims: tuple[int, int, int, int]
    operands: tuple[Place, Place]
    strides: tuple[tuple[int, ...], tuple[int, ...]]
    output: Place


Step = Fill | Launch | HostCall | LibraryProduct


def arranged(
    buffers: Mapping[str, Buffer], steps: Sequence[Step], results: Sequence[Place]
) -> tuple[dict[str, int], int]:
    """(byte offset of each temporary, bytes of the arena): first fit, largest first, by lifetimes."""
    life: dict[str, tuple[int, int]] = {}
    for i, step in enumerate(steps):
        for name in _touched(step):
            first, _ = life.get(name, (i, i))
            life[name] = (first, i)
    for place in results:
        if place.buffer in life:
            life[place.buffer] = (life[place.buffer][0], len(steps))
    wanted = {b.name: b.nbytes for b in buffers.values() if b.kind == "temporary" and b.name in life}
    return first_fit(wanted, life)


def _touched(step: Step) -> list[str]:
    match step:
        case Fill():
            return [step.buffer]
        case Launch():
            return [p.buffer for p in step.arguments]
        case HostCall():
            return [p.buffer for p in (*step.inputs, *(p for _, p in step.outputs))]
        case LibraryProduct():
            return [p.buffer for p in (*step.operands, step.output)]
