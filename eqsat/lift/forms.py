"""Forms: the shape and the element order in which a flat array becomes a term. Lifting chooses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from eqsat.layout.arithmetic import Layout, compose, identity, inverse
from eqsat.layout.map import CACHE_SIZE
from eqsat.lift.view_chain import cut_for, dims_of, reading, repeats_cut
from eqsat.program.node import Node
from eqsat.program.term import Shape, Term


@dataclass(frozen=True, slots=True)
class Form:
    """How a term holds a node: V(flat term, order) is the node, and the term has this shape.

    Most orders are the identity. A convolution's term is [n, channels, ...] where its product is
    [groups, n * out, channels]; keeping the order pending lets the views around it cancel.
    """

    order: Layout
    shape: Shape

    @property
    def direct(self) -> bool:
        """Whether the flat term is the node."""
        return self.order.is_identity(self.order.size)


def plain(shape: Shape) -> Form:
    """The form whose flat term is the node itself."""
    return Form(identity(prod(shape)), shape)


@dataclass(frozen=True, slots=True)
class Need:
    """An operand that a term requires: V(node, layout) in this shape."""

    node: Node
    layout: Layout
    shape: Shape


def whole(node: Node, shape: Shape) -> Need:
    """The node itself in this shape."""
    return Need(node, identity(node.size), shape)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to write a node: the form of the term, its operands, its cost to a human reader without the moves of its
    operands, and a function that builds the term from the operands' terms."""

    form: Form
    needs: tuple[Need, ...]
    cost: float
    build: Callable[[Sequence[Term]], Term]


@lru_cache(maxsize=CACHE_SIZE)
def pushed(form: Form, layout: Layout) -> tuple[Form, ...]:
    """Natural forms of V(node, layout), given a form of the node: its dims sliced and transposed."""
    if layout.is_identity(form.order.size):
        return (form,)
    total = compose(form.order, layout)
    if total is None:
        return ()
    found = reading(total, dims_of(form.shape))
    if found is None:
        return ()
    return tuple(plain(shape) for shape in _with_leading_units(form.shape, found.sizes))


def _with_leading_units(like: Shape, dims: Shape) -> Iterator[Shape]:
    """``dims`` with as many leading dims of size 1 as ``like`` has, then without."""
    units = next((i for i, n in enumerate(like) if n != 1), 0)
    if units:
        yield (1,) * units + dims
    yield dims


@lru_cache(maxsize=CACHE_SIZE)
def pulled(layout: Layout, n_in: int, shape: Shape) -> tuple[Form, ...]:
    """Forms of a node of ``n_in`` elements from which V(node, layout) in ``shape`` is a short chain."""
    if layout.is_identity(n_in):
        return (plain(shape),)
    coarse = reading(layout, (n_in,) if n_in > 1 else ())
    if coarse is None:
        return ()
    found = repeats_cut(reading(layout, cut_for(coarse, shape)) or coarse, shape)
    forms = []
    moved = [place for place in found.places if place >= 0]
    if dims_of(shape) == found.sizes and moved == list(range(len(found.radices))):
        # Repeated dims get size 1, so that one broadcast is enough.
        digits = iter(zip(found.places, moved_sizes(found.places, found.radices), strict=True))
        forms.append(tuple(1 if n == 1 else next(digits)[1] for n in shape))
    forms += _with_leading_units(shape, found.radices)
    return tuple(map(plain, dict.fromkeys(forms)))


def moved_sizes(places: Shape, radices: Shape) -> list[int]:
    """The size of the operand's dim that each digit moves; 1 where it repeats."""
    return [1 if place < 0 else radices[place] for place in places]


def undone(layout: Layout, n_in: int, shape: Shape) -> Form | None:
    """The form of the node whose term is also V(node, layout) in ``shape``; None if the view loses elements."""
    order = inverse(layout, n_in)
    return None if order is None else Form(order, shape)
