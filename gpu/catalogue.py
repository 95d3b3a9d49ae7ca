"""The catalogue of kernels: families, their variants and examples, and the verdicts of the compile gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eqsat.gpu.build.gates import Verdict, judged
from eqsat.gpu.families import contraction, pointwise, row, stream
from eqsat.gpu.families.base import Choice, Family, Kernel
from eqsat.gpu.launch.generate import chain
from eqsat.gpu.table.targets import Target
from eqsat.program.core import Node, topological

FAMILIES: dict[str, Family] = {
    f.name: f for f in (pointwise.FAMILY, contraction.FAMILY, contraction.REDUCING, stream.FAMILY, row.FAMILY)
}
"""Every family by name."""

_UNITS = 304
"""Compute units of the device that samples are made for: enough that nothing is split."""


def samples(target: Target, dtype: str) -> Iterator[tuple[str, Kernel]]:
    """(family and variant, kernel) for every variant with operands of a type, at sizes that vectors divide.

    Variants are spread over the examples. One that takes some operands alone gets the next example that has them.
    """
    for family in FAMILIES.values():
        examples = list(family.examples(family.sizes[0], dtype).values())
        for i, choice in enumerate(family.choices(target, dtype)):
            tried = (made(examples[(i + j) % len(examples)], target, choice) for j in range(len(examples)))
            for kernel in next(kernels for kernels in tried if _shows(kernels, choice)):
                yield kernel.name, kernel


def _shows(kernels: Sequence[Kernel], choice: Choice) -> bool:
    """Whether kernels have the tile that was chosen for them."""
    return choice.tile is None or any(choice.tile in kernel.variant for kernel in kernels)


def made(outputs: tuple[Node, ...], target: Target, choice: Choice) -> tuple[Kernel, ...]:
    """The launches that compute an example."""
    inputs = tuple(n for n in topological(outputs) if n.op == "In")
    return chain("", outputs, inputs, target, _UNITS, choice=choice).kernels


def verdicts(target: Target, dtype: str) -> dict[str, tuple[Kernel, Verdict]]:
    """Every variant for operands of a type, by name, compiled and judged.

    Left out: products of halves on the vector units, which compute in float like those of float32.

    Raises:
        InputError: the compiler of the target is not installed.
    """
    return judged({n: k for n, k in samples(target, dtype) if dtype == "float32" or not _by_vector(k)}, target)


def _by_vector(kernel: Kernel) -> bool:
    return kernel.tile is not None and kernel.tile.unit == "vector"
