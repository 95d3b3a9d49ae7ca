"""Views in named axes, in the notation of einops: `b m k -> b k m` reads an array [b, m, k] as [b, k, m].

Axes that stand only on the right repeat; along axes that stand only on the left, all elements must be equal. `(b n)` is
two axes counted as one, `1` is an axis of one element, and `...` stands for all other elements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod

from eqsat.errors import InputError
from eqsat.layout import arithmetic as lt
from eqsat.layout.arithmetic import Layout

ONE = "1"
_AXIS = re.compile(r"[a-z1]")
_GROUP = re.compile(r"[a-z1]|\([a-z1 ]*\)")
_SIDE = re.compile(r"(?:\s*(?:[a-z1]|\((?: *[a-z1])+ *\))(?![a-z1]))+\s*")
Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Axes:
    """Two lists of groups of axes: what is read, and as what.

    >>> Axes.read("b m k -> b k 1").letters
    ('b', 'm', 'k')
    """

    source: Groups
    target: Groups

    @staticmethod
    @cache
    def read(text: str, where: str = "axes") -> Axes:
        """Parse `b m k -> b k m`.

        Raises:
            InputError: the text does not parse, or names an axis twice on one side.
        """
        sides = text.split("->")
        if len(sides) != 2:
            raise InputError(f"{where}: a view in axes is 'b m k -> b k m', got {text!r}")
        axes = Axes(*(_groups(side, text, where) for side in sides))
        for side in (axes.source, axes.target):
            named = Axes.letters_of(side)
            if len(set(named)) < len(named):
                raise InputError(f"{where}: an axis is named twice in {text!r}")
        return axes

    @staticmethod
    def letters_of(side: Groups) -> tuple[str, ...]:
        """The axes of a side, outermost first, without those of one element."""
        return tuple(a for group in side for a in group if a != ONE)

    @cached_property
    def letters(self) -> tuple[str, ...]:
        """The named axes of both sides, in order: their sizes are what the view depends on."""
        return tuple(dict.fromkeys(a for side in (self.source, self.target) for a in self.letters_of(side)))

    def transposed(self) -> Axes:
        """The same of transposed matrices: the last two axes of [batch, m, k] change places."""
        return Axes(_swapped(self.source), _swapped(self.target))

    def renamed(self, names: dict[str, str]) -> Axes:
        """With other letters."""
        source, target = (
            tuple(tuple(names.get(a, a) for a in group) for group in side) for side in (self.source, self.target)
        )
        return Axes(source, target)

    def __str__(self) -> str:
        return " -> ".join(
            " ".join(group[0] if len(group) == 1 else f"({' '.join(group)})" for group in side)
            for side in (self.source, self.target)
        )

    def sizes(self, numbers: Sequence[int]) -> dict[str, int]:
        """Axis to size, given those of `letters`."""
        return dict(zip(self.letters, numbers, strict=True))

    def layout(self, sizes: dict[str, int]) -> Layout:
        """The layout that reads [source] as [target]."""
        steps, step = {}, 1
        for axis in reversed(self.letters_of(self.source)):
            steps[axis] = step
            step *= sizes[axis]
        return lt.strided(0, [(sizes[axis], steps.get(axis, 0)) for axis in self.letters_of(self.target)])


def _groups(side: str, text: str, where: str) -> Groups:
    """Axes and groups of axes: `m (b n)`."""
    if not _SIDE.fullmatch(side):
        raise InputError(f"{where}: cannot read the axes {text!r}: letters, 1 and (m n) are known")
    return tuple(tuple(_AXIS.findall(group)) for group in _GROUP.findall(side))


def _swapped(side: Groups) -> Groups:
    return side if len(side) < 3 else (*side[:-2], side[-1], side[-2])


def read_as(axes: Axes, *numbers: int) -> tuple[Layout]:
    """The layout that reads [source] as [target]."""
    return (axes.layout(axes.sizes(numbers)),)


def reads(axes: Axes, layout: Layout, *numbers: int) -> tuple[()] | None:
    """The layout reads [source] as [target]."""
    return () if layout == axes.layout(axes.sizes(numbers)) else None


def along(axes: Axes, layout: Layout, *numbers: int) -> tuple[Layout] | None:
    """V(z, layout) of [source] is the same along the axes that [target] lacks: V(z, L) is it without those, repeated
    along the axes that only [target] has."""
    sizes = axes.sizes(numbers)
    source, kept = axes.letters_of(axes.source), axes.letters_of(axes.target)
    shape = [sizes[a] for a in source]
    if layout.size != prod(shape) or 0 in shape:  # of nothing, there is no first of the repetitions
        return None
    ones = [n if a in kept else 1 for a, n in zip(source, shape, strict=True)]
    one = lt.compose(layout, lt.of_slice(shape, [0] * len(shape), ones, [1] * len(shape)))
    if one is None or lt.compose(one, lt.of_broadcast(ones, shape)) != layout:
        return None
    spread = lt.compose(one, Axes(tuple((a,) for a in source if a in kept), axes.target).layout(sizes))
    return None if spread is None else (spread,)
