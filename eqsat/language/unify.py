"""What is known of the sizes and element types in an equation, unified as its operators demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eqsat.errors import InputError
from eqsat.language.axes import Axes
from eqsat.language.rule import Attr, Lit
from eqsat.language.signs import shown


class Cell:
    """What two places of an equation may have in common: a size, an element type, a number of elements."""

    def __init__(self, attr: Attr | None = None) -> None:
        self.attr = attr
        self._same: Cell | None = None

    @property
    def root(self) -> Cell:
        cell = self
        while cell._same is not None:
            cell = cell._same
        return cell

    def unify(self, other: Cell, where: str) -> None:
        """Make both one.

        Raises:
            InputError: different things are known of them.
        """
        one, two = self.root, other.root
        if one is two:
            return
        if one.attr is not None and two.attr is not None and one.attr != two.attr:
            raise InputError(f"{where}: the shapes do not fit: {shown(one.attr)} against {shown(two.attr)}")
        one.attr = one.attr if one.attr is not None else two.attr
        two._same = one

    def become(self, other: Cell) -> None:
        """Be the other one, under its name."""
        if self.root is not other.root:
            self.root._same = other.root


@dataclass(slots=True, eq=False)
class Shape:
    """The shape of some arrays that are known to have one; None while nothing is known of it.

    Attributes:
        size: the number of elements, perhaps shared with other shapes.
        stated: the equation says the dims itself, so that a reduction takes the last of them.
        tail: only the last dim is stated.
    """

    size: Cell = field(default_factory=Cell)
    dims: tuple[Cell, ...] | None = None
    stated: bool = False
    tail: bool = False
    same: Shape | None = None

    @property
    def root(self) -> Shape:
        shape = self
        while shape.same is not None:
            shape = shape.same
        return shape

    def unify(self, other: Shape, where: str) -> None:
        one, two = self.root, other.root
        if one is two:
            return
        one.size.unify(two.size, where)
        if two.dims is not None and not two.tail:
            one.have(two.dims, where)
        one.stated |= two.stated and not two.tail
        two.same = one

    def have(self, dims: Sequence[Cell], where: str) -> None:
        """These are the dims; a matrix is a batch of one."""
        one = self.root
        if one.dims is None or one.tail:
            one.dims, one.tail = tuple(dims), False
            return
        mine, theirs = one.dims, tuple(dims)
        while len(mine) < len(theirs):
            mine = (Cell(Lit(1)), *mine)
        while len(theirs) < len(mine):
            theirs = (Cell(Lit(1)), *theirs)
        for a, b in zip(mine, theirs, strict=True):
            a.unify(b, where)


def roots(shape: Shape) -> list[Cell]:
    return [dim.root for dim in shape.root.dims or ()]


@dataclass(slots=True, eq=False)
class Node:
    """A part of an equation. `op` is a core operator, `var`, `number`, or `same` (a reshape of its operand)."""

    op: str
    args: tuple[Node, ...]
    shape: Shape
    dtype: Cell
    attrs: tuple[Attr | Cell, ...] = ()
    axes: Axes | None = None
