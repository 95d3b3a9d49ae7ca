"""Walks over shared, immutable graphs: terms, core nodes, or anything else with operands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Protocol, Self, TypeVar


class Operation(Protocol):
    """A node whose operands are of its own kind."""

    @property
    def args(self) -> Sequence[Self]: ...


O = TypeVar("O", bound=Operation)


def operands_first(roots: Iterable[O], leaves: Iterable[O] = ()) -> list[O]:
    """Every node reachable from the roots, once, operands before their readers. The order depends only on the graph.

    Args:
        leaves: nodes at which the walk stops; they are not in the result. A set or a mapping is not copied.
    """
    known = leaves if isinstance(leaves, Set | Mapping) else set(leaves)
    seen: set[O] = set()
    order: list[O] = []
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        at, ready = stack.pop()
        if ready:
            order.append(at)
        elif at not in seen and at not in known:
            seen.add(at)
            stack.append((at, True))
            stack.extend((arg, False) for arg in reversed(at.args) if arg not in seen)
    return order
