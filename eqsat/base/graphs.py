"""Walks over shared, immutable graphs: terms, core nodes, whatever has operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, Self, TypeVar


class Operation(Protocol):
    """What has operands of its own kind."""

    @property
    def args(self) -> Sequence[Self]: ...


O = TypeVar("O", bound=Operation)


def operands_first(roots: Iterable[O], leaves: Iterable[O] = ()) -> list[O]:
    """Everything below the roots once, operands before their readers, in an order that only the graph decides.

    Args:
        leaves: where the walk stops; these are left out.
    """
    seen = set(leaves)
    order: list[O] = []
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        at, ready = stack.pop()
        if ready:
            order.append(at)
        elif at not in seen:
            seen.add(at)
            stack.append((at, True))
            stack.extend((arg, False) for arg in reversed(at.args) if arg not in seen)
    return order
