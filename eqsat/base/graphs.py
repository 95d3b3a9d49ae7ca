"""Walks over shared, immutable graphs (terms, core nodes, or anything else with operands), and sets that merge."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Generic, Protocol, Self, TypeVar


class Operation(Protocol):
    """A node whose operands are of its own kind."""

    @property
    def args(self) -> Sequence[Self]: ...


O = TypeVar("O", bound=Operation)
H = TypeVar("H", bound=Hashable)


def operands_first(
    roots: Iterable[O], leaves: Iterable[O] = (), operands: Callable[[O], Sequence[O]] | None = None
) -> list[O]:
    """Every node reachable from the roots, once, operands before their readers. The order depends only on the graph.

    Args:
        leaves: nodes at which the walk stops; they are not in the result. A set or a mapping is not copied.
        operands: the operands to go on with, asked once for each node in the result; by default all that it has.
    """
    builtin = isinstance(leaves, dict | set)  # asking for these takes less time than for abstract classes
    known = leaves if not leaves or builtin or isinstance(leaves, Set | Mapping) else set(leaves)
    seen: set[O] = set()
    order: list[O] = []
    for root in roots:
        if root in seen or root in known:
            continue
        seen.add(root)
        path, waiting = [root], [iter(root.args if operands is None else operands(root))]
        while path:
            for arg in waiting[-1]:
                if arg in seen or arg in known:
                    continue
                seen.add(arg)
                if below := arg.args if operands is None else operands(arg):
                    path.append(arg)
                    waiting.append(iter(below))
                    break
                order.append(arg)  # half of most graphs: nothing to go on with
            else:
                waiting.pop()
                order.append(path.pop())
    return order


def last_reads(order: Sequence[O], kept: Iterable[O]) -> Iterator[tuple[O, list[O]]]:
    """Each node of an order, operands first, with its operands that no later node reads and that are not kept."""
    last = {arg: node for node in order for arg in node.args}
    last |= dict.fromkeys(kept)
    for node in order:
        yield node, [arg for arg in dict.fromkeys(node.args) if last[arg] is node]


def to_make(root: H, made: Container[H], operands: Callable[[H], Sequence[H]]) -> Iterator[H]:
    """What a root is made from and is not made yet: operands first, the root last.

    The caller makes each, so that `made` holds it, before it asks for the next.
    """
    stack = [root]
    while stack:
        at = stack.pop()
        if at in made:
            continue
        if missing := [arg for arg in operands(at) if arg not in made]:
            stack += [at, *missing]
        else:
            yield at


def components(successors: Mapping[H, Iterable[H]]) -> list[list[H]]:
    """Strongly connected components, each after all components that it reaches (Tarjan 1972, without recursion)."""
    order: dict[H, int] = {}
    low: dict[H, int] = {}
    placed: set[H] = set()
    stack: list[H] = []
    found: list[list[H]] = []
    for start in successors:
        if start in order:
            continue
        work: list[tuple[H, Iterator[H]]] = [(start, iter(successors[start]))]
        order[start] = low[start] = len(order)
        stack.append(start)
        while work:
            v, rest = work[-1]
            for w in rest:
                if w not in order:
                    order[w] = low[w] = len(order)
                    stack.append(w)
                    work.append((w, iter(successors[w])))
                    break
                if w not in placed and order[w] < low[v]:
                    low[v] = order[w]
            else:
                work.pop()
                if work and low[v] < low[work[-1][0]]:
                    low[work[-1][0]] = low[v]
                if low[v] == order[v]:
                    group: list[H] = []
                    while True:
                        w = stack.pop()
                        placed.add(w)
                        group.append(w)
                        if w == v:
                            break
                    found.append(group)
    return found


class Merged(Generic[H]):
    """Disjoint sets: each thing is in one of its own until it is merged with another."""

    def __init__(self) -> None:
        self._above: dict[H, H] = {}

    def find(self, x: H) -> H:
        """The same thing for all of a set."""
        while (above := self._above.get(x, x)) != x:
            self._above[x] = x = self._above.get(above, above)
        return x

    def merge(self, x: H, into: H) -> None:
        """Let the sets of two things be one, which `into` stands for."""
        self._above[self.find(x)] = self.find(into)
