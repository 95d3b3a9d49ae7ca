"""What kernels there are: families, their variants and examples, and a kernel of every variant to compile."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.gpu.code.targets import Target
from eqsat.gpu.families import contraction, pointwise, row
from eqsat.gpu.families.base import Choice, Family, Kernel
from eqsat.gpu.launch.generate import chain
from eqsat.program.core import Node, topological

DTYPES = ("float32", "float16", "bfloat16")

FAMILIES: dict[str, Family] = {
    f.name: f for f in (pointwise.FAMILY, contraction.FAMILY, contraction.REDUCING, row.FAMILY)
}
"""Every family by name."""

_UNITS = 304
"""Compute units of the device that samples are made for: enough that nothing is split."""


def samples(target: Target, dtype: str) -> Iterator[tuple[str, Kernel]]:
    """(family and variant, kernel) for every variant with operands of a type, at sizes that vectors divide."""
    for family in FAMILIES.values():
        examples = list(family.examples(family.sizes[0], dtype).values())
        for i, choice in enumerate(family.choices(target, dtype)):
            for kernel in made(examples[i % len(examples)], target, choice):
                yield f"{kernel.family} {kernel.variant}", kernel


def example_samples(target: Target, dtype: str) -> Iterator[tuple[str, Kernel]]:
    """(family and example, kernel) for every example, at each of the family's other sizes."""
    for family in FAMILIES.values():
        for sizes in family.sizes[1:]:
            for name, outputs in family.examples(sizes, dtype).items():
                for kernel in made(outputs, target, Choice()):
                    yield f"{family.name}: {name}, {sizes}", kernel


def made(outputs: tuple[Node, ...], target: Target, choice: Choice) -> tuple[Kernel, ...]:
    """The launches that compute an example."""
    inputs = tuple(n for n in topological(outputs) if n.op == "In")
    return chain("", outputs, inputs, target, _UNITS, choice=choice).kernels
