"""Groups: independent kernels as one launch, each with blocks of its own.

Members with the same text share one copy of it. The index of a block selects the member, and so the arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from eqsat.gpu.code.cache import HERE
from eqsat.gpu.families.base import Kernel, Part, environment, finished

NAME = "group"

_PREFIX = "all_"
"""Of the arrays' names outside of the members' texts."""

T = TypeVar("T")


@dataclass(frozen=True)
class _Alike:
    """Members of one text.

    Attributes:
        count: of members, each with so many `blocks`, beginning at block `first` of the launch.
        part: their text.
        arrays: (C type, name in the text, C expression that chooses the member's) of its arrays.
    """

    count: int
    blocks: int
    first: int
    part: Part
    arrays: list[tuple[str, str, str]]


def parts_of(kernels: Sequence[Kernel]) -> list[Part]:
    """The parts of some kernels. Every member of a group must have one."""
    return [kernel.part for kernel in kernels if kernel.part is not None]


def grouped(kernels: Sequence[Kernel]) -> Kernel:
    """One kernel that does what all of these do. Each has `limits.THREADS`; equal texts stand side by side.

    Its arguments are `gathered` from theirs.
    """
    parts = parts_of(kernels)
    texts = _texts(kernels, parts)
    part = Part(
        description=f"// {len(kernels)} kernels of {len(texts)} texts, each with blocks of its own.",
        statements=environment(HERE / "families").get_template("group.jinja").render(texts=texts),
        reads=tuple(dtype for part in parts for dtype in part.reads),
        writes=tuple(dtype for part in parts for dtype in part.writes),
        lds_bytes=max(part.lds_bytes for part in parts),
        matrix=any(part.matrix for part in parts),
        prefix=_PREFIX,
    )
    entry, source = finished(NAME, kernels[0].threads, part)
    return Kernel(
        entry=entry,
        family=NAME,
        variant=f"{len(kernels)}_of_{len(texts)}",
        source=source,
        blocks=sum(kernel.blocks for kernel in kernels),
        threads=kernels[0].threads,
        arguments=gathered(kernels, [kernel.arguments for kernel in kernels]),
        fills={node: value for kernel in kernels for node, value in kernel.fills.items()},
        claims=tuple(dict.fromkeys(claim for kernel in kernels for claim in kernel.claims)),
        part=part,
    )


def side_by_side(kernels: Sequence[Kernel], things: Sequence[T]) -> list[T]:
    """Sort one item for each kernel so that kernels with equal texts are neighbours."""
    entries = [kernel.entry for kernel in kernels]
    order = sorted(range(len(kernels)), key=lambda i: entries.index(entries[i]))
    return [things[i] for i in order]


def gathered(kernels: Sequence[Kernel], arguments: Sequence[Sequence[T]]) -> tuple[T, ...]:
    """The arguments of a group: first all arrays that its members read, then all that they write."""
    counts = [len(part.reads) for part in parts_of(kernels)]
    reads = [x for count, xs in zip(counts, arguments, strict=True) for x in xs[:count]]
    return (*reads, *(x for count, xs in zip(counts, arguments, strict=True) for x in xs[count:]))


def _texts(kernels: Sequence[Kernel], parts: Sequence[Part]) -> list[_Alike]:
    texts: list[_Alike] = []
    start = first = 0
    while start < len(kernels):
        kernel = kernels[start]
        stop = start + 1
        while stop < len(kernels) and kernels[stop].entry == kernel.entry:
            stop += 1
        members = [_names(parts, i) for i in range(start, stop)]
        arrays = [
            (ctype, name, _chosen([names[j] for names in members]))
            for j, (ctype, name) in enumerate(parts[start].parameters)
        ]
        texts.append(_Alike(stop - start, kernel.blocks, first, parts[start], arrays))
        first += kernel.blocks * (stop - start)
        start = stop
    return texts


def _names(parts: Sequence[Part], i: int) -> list[str]:
    """The names of member i's arrays in the group."""
    reads, writes = sum(len(p.reads) for p in parts[:i]), sum(len(p.writes) for p in parts[:i])
    names = [f"{_PREFIX}in{reads + j}" for j in range(len(parts[i].reads))]
    return names + [f"{_PREFIX}out{writes + j}" for j in range(len(parts[i].writes))]


def _chosen(names: Sequence[str]) -> str:
    """The C expression of the array of member `member`."""
    choices = [f"member == {i} ? {name} : " for i, name in enumerate(names[:-1])]
    return "".join(choices) + names[-1]
