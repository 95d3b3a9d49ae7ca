"""Terms over a snapshot, for the rules that the host runs.

A term is a class id or `(op, attrs, operands)`. The constructors normalise: a node that the snapshot already holds is
its class, views compose, the identity view is its operand. So an equality that is already known costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from eqsat.egraph.required import Derivation
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.layout import arithmetic as lt
from eqsat.layout.arithmetic import Layout
from eqsat.program.core import measure

Term = int | tuple[str, tuple[Any, ...], tuple[Any, ...]]


class Terms:
    """Looks into a snapshot and builds terms over it."""

    says_again = False
    """Whether equalities are wanted that the snapshot holds already."""

    def __init__(self, snapshot: Snapshot, derivations: Sequence[Derivation] = ()) -> None:
        """`derivations` are good programs in the snapshot, as far as they are known."""
        self.snapshot, self.derivations = snapshot, derivations
        self._cats: dict[int, ENode | None] = {}

    def nodes(self, op: str) -> Iterator[ENode]:
        """Every e-node with this operator."""
        return (n for n in self.snapshot.nodes if n.op == op)

    def of(self, cls: int, op: str) -> Iterator[ENode]:
        """The e-nodes of a class with this operator."""
        nodes = self.snapshot.nodes
        return (nodes[i] for i in self.snapshot.members[cls] if nodes[i].op == op)

    def const(self, cls: int) -> bool:
        """Whether the class depends on constants alone."""
        return self.snapshot.const[cls]

    def type_of(self, term: Term) -> tuple[int, str]:
        """(elements, dtype) of a term."""
        if isinstance(term, int):
            return self.snapshot.size[term], self.snapshot.dtype[term]
        op, attrs, operands = term
        known = [self.type_of(t) for t in operands]
        return measure(op, attrs, [k[0] for k in known], [k[1] for k in known])

    def size(self, term: Term) -> int:
        """Elements of a term."""
        return self.type_of(term)[0]

    def make(self, op: str, attrs: tuple[Any, ...], operands: Sequence[Term]) -> Term:
        """A term, or the class that already holds it."""
        if all(isinstance(t, int) for t in operands):
            found = self.snapshot.find(op, attrs, operands)  # type: ignore[arg-type]
            if found is not None:
                return found
        return (op, attrs, tuple(operands))

    def view(self, term: Term, layout: Layout) -> Term:
        """V(term, layout), composed with a view that `term` is."""
        if layout.is_identity(self.size(term)):
            return term
        if not isinstance(term, int) and term[0] == "V":
            composed = lt.compose(term[1][0], layout)
            if composed is not None:
                return self.view(term[2][0], composed)
        if isinstance(term, int):
            for node in self.of(term, "Full"):
                if not layout.masked:
                    return self.make("Full", (node.attrs[0], layout.size, node.attrs[2]), ())
        return self.make("V", (layout,), (term,))

    def product(self, a: Term, b: Term, batch: int, m: int, k: int, n: int) -> Term:
        """MM(a[batch, m, k], b[batch, k, n])."""
        return self.make("MM", (batch, m, k, n), (a, b))

    def swapped(self, term: Term, batch: int, rows: int, columns: int) -> Term:
        """Each [rows, columns] of a batch transposed."""
        return self.view(term, lt.of_transpose((batch, rows, columns), (0, 2, 1)))

    def cat(self, operands: Sequence[Term]) -> Term:
        """Flat concatenation."""
        return operands[0] if len(operands) == 1 else self.make("Cat", (), operands)

    def sums(self) -> list[int]:
        """The sums that depend on inputs and are not addends of other sums."""
        added = {a for n in self._additions() for a in n.args}
        return list(dict.fromkeys(n.cls for n in self._additions() if n.cls not in added and not self.const(n.cls)))

    def addends(self, top: int, whole: Callable[[int], bool] = lambda cls: False) -> Iterator[int]:
        """The addends of a sum, left to right; those of an addend as well, unless it is constant or `whole`."""
        stack, seen = [top], set[int]()
        while stack:
            cls = stack.pop()
            addition = next((n for n in self.of(cls, "Bin") if n.attrs[0] == "add"), None)
            if addition is None or self.const(cls) or cls in seen or whole(cls):
                yield cls
            else:
                seen.add(cls)
                stack += reversed(addition.args)

    def _additions(self) -> Iterator[ENode]:
        return (n for n in self.nodes("Bin") if n.attrs[0] == "add")

    def finest_cat(self, cls: int) -> ENode | None:
        """The Cat of a class with the most members (coarser ones say nothing that it does not)."""
        if cls not in self._cats:
            self._cats[cls] = max(self.of(cls, "Cat"), key=lambda n: (len(n.args), n.args), default=None)
        return self._cats[cls]
