"""Groups: siblings that no concatenation asks for, joined into one.

All members are contractions of one program: else a group would force work that no program needs. These programs are
looked at: what all derivations of the roots share, the program as it was written, and each good cover that is known.
What all share is too little, since a product of a sum with a constant has a second derivation. A single program is too
little as well, since its accidents would decide. In attention, x @ v meets a constant w behind the softmax, and is
x @ (v @ w) where constants are folded, in the program of the shortest chains of products. So a group of that program
counts as well, if it replaces one member of a group of the others. The rest of its groups seldom gain, and make
e-graphs half as large again.

Members that share an operand, or have equal sizes and one type, form a group. A group never holds a member that another
needs: fusing dependent products makes a cycle, as in a shipped compiler. Groups then grow upward through equal
operators with constant or aligned operands. A group is inserted as `G = cat(members)`, each member a slice of G. So are
those of a concatenation that is there already, if it is one product and a member is read elsewhere as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from eqsat.egraph.host_terms import Term, Terms
from eqsat.egraph.required import Needs, as_written, needs_of, needs_of_all, of_fewest_products
from eqsat.egraph.snapshot import ENode
from eqsat.language.rule import HostRule
from eqsat.layout import arithmetic as lt
from eqsat.layout.arithmetic import Layout

_MOST_GROUPS = 400


@dataclass(frozen=True, slots=True)
class Group:
    """Classes to be joined, each read through its layout (a transpose where widths differ, else the identity).

    `products` are those of one left operand, where widths differ: they are also columns of one product.
    """

    members: tuple[int, ...]
    layouts: tuple[Layout, ...]
    products: tuple[ENode, ...] = ()


def _form_groups(graph: Terms, emit: Callable[[int, Term], None]) -> None:
    for group in find_groups(graph):
        parts = [graph.view(c, layout) for c, layout in zip(group.members, group.layouts, strict=True)]
        joined = graph.cat(parts)
        if isinstance(joined, int) and not _a_product_in_part(graph, joined, group.members):
            continue
        start = 0
        for cls, layout in zip(group.members, group.layouts, strict=True):
            size = graph.size(cls)
            back = lt.inverse(layout, size)
            assert back is not None, "group layouts are permutations"
            slot = lt.compose(lt.strided(start, [(size, 1)]), back)
            assert slot is not None, "a contiguous run composes with any layout"
            emit(cls, graph.view(joined, slot))
            start += size
        if group.products:
            _side_by_side(graph, group, emit)


def _a_product_in_part(graph: Terms, joined: int, members: Sequence[int]) -> bool:
    """Whether a concatenation that is there is one product as well, and a member of it is read elsewhere, too."""
    nodes = graph.snapshot.nodes
    readers = (nodes[p] for c in members for p in graph.snapshot.parents[c])
    return any(graph.of(joined, "MM")) and any(n.op not in ("Cat", "V") for n in readers)


def _side_by_side(graph: Terms, group: Group, emit: Callable[[int, Term], None]) -> None:
    """[a @ b1, ..., a @ bn] = a @ [b1, ..., bn]: as a stream, it may make the rows of `a` on the way."""
    _, m, k, _ = group.products[0].attrs
    left = group.products[0].args[0]
    widths = [node.attrs[3] for node in group.products]
    n = sum(widths)
    columns = graph.cat([graph.swapped(node.args[1], 1, k, w) for node, w in zip(group.products, widths, strict=True)])
    joined = graph.product(left, graph.swapped(columns, 1, n, k), 1, m, k, n)
    for cls, start, w in zip(group.members, accumulate(widths, initial=0), widths, strict=False):
        emit(cls, graph.view(joined, lt.strided(start, ((m, n), (w, 1)))))


def find_groups(graph: Terms) -> list[Group]:
    """Every group of the e-graph, in a deterministic order."""
    snapshot = graph.snapshot
    programs = [needs_of_all(snapshot), needs_of(snapshot, as_written(snapshot))]
    finders = [_Finder(graph, needs, anew=False) for needs in programs]
    finders += [_Finder(graph, needs_of(snapshot, d), anew=True) for d in graph.derivations]
    found: dict[tuple[int, ...], Group] = {}
    for group in (g for finder in finders for g in finder.groups):
        found.setdefault(group.members, group)
    known = list(found)
    for group in _Finder(graph, needs_of(snapshot, of_fewest_products(snapshot)), anew=False).groups:
        if any(_one_replaced(group.members, members) for members in known):
            found.setdefault(group.members, group)
    return list(found.values())


def _one_replaced(group: Sequence[int], other: Sequence[int]) -> bool:
    """Whether a group has the members of another, of at least three, but for one."""
    return len(group) == len(other) > 2 and len(set(group).intersection(other)) == len(other) - 1


class _Finder:
    """The groups of what some programs have in common; those of products that are in a group already only `anew`."""

    def __init__(self, graph: Terms, needs: Needs, anew: bool) -> None:
        self.graph, self.needs = graph, needs
        self.groups: list[Group] = []
        self._taken: set[int] = set()
        joined = {n.cls for n in graph.nodes("Cat") if not graph.const(n.cls)}
        sliced = set() if anew else {n.cls for n in graph.nodes("V") if n.args[0] in joined}
        self.products = [
            c
            for c in needs.order
            if needs.classes >> c & 1 and c not in joined and c not in sliced and any(graph.of(c, "MM"))
        ]
        self.shared_operand()
        self.equal_sizes()
        self.grow()

    def _independent(self, classes: list[int]) -> bool:
        return not any(self.needs.of[a] >> b & 1 for a in classes for b in classes if a != b)

    def _add(self, classes: list[int], products: Sequence[ENode] = ()) -> None:
        layouts = [lt.of_transpose((n.attrs[1], n.attrs[3]), (1, 0)) for n in products]
        layouts = layouts or [lt.identity(self.graph.size(c)) for c in classes]
        self.groups.append(Group(tuple(classes), tuple(layouts), tuple(products)))
        self._taken.update(classes)

    def shared_operand(self) -> None:
        """Products that read one dynamic operand: of equal sizes, else of any width."""
        keyed: dict[tuple, list[int]] = {}
        widths: dict[tuple[int, int, int], dict[int, ENode]] = {}
        for cls in self.products:
            for node in self.graph.of(cls, "MM"):
                left, right = node.args
                for side, operand, other in ((0, left, right), (1, right, left)):
                    if not self.graph.const(operand):
                        keyed.setdefault((side, operand, node.attrs, self.graph.const(other)), []).append(cls)
                if node.attrs[0] == 1 and not self.graph.const(left):
                    widths.setdefault((left, node.attrs[1], node.attrs[2]), {}).setdefault(cls, node)
        by_count = sorted(keyed.values(), key=lambda classes: -len(set(classes)))
        unequal = [w for w in widths.values() if len({n.attrs[3] for n in w.values()}) > 1]
        for nodes in unequal:
            free = {c: n for c, n in nodes.items() if c not in self._taken}
            if len(free) > 1 and self._independent(list(free)):
                self._add(list(free), list(free.values()))
        for classes in by_count:
            free = [c for c in dict.fromkeys(classes) if c not in self._taken]
            if len(free) > 1 and self._independent(free):
                self._add(free)

    def equal_sizes(self) -> None:
        """Products of equal sizes and one type that share nothing, level by level of their dependence on each other."""
        keyed: dict[tuple, list[int]] = {}
        for cls in self.products:
            if cls not in self._taken:
                for node in self.graph.of(cls, "MM"):
                    constness = tuple(self.graph.const(a) for a in node.args)
                    keyed.setdefault((node.attrs, self.graph.snapshot.dtype[cls], constness), []).append(cls)
        for classes in keyed.values():
            for level in self._levels([c for c in dict.fromkeys(classes) if c not in self._taken]):
                if len(level) > 1:
                    self._add(level)

    def _levels(self, classes: list[int]) -> Iterator[list[int]]:
        """The classes by the longest chain of them that each needs.

        A cover may compute a class in several ways, so that two classes need each other: these are left out.
        """
        among = sum(1 << c for c in classes)
        below = {c: self.needs.of[c] & among & ~(1 << c) for c in classes}
        level: dict[int, int] = {}
        for cls in sorted(classes, key=lambda c: below[c].bit_count()):
            needed = [level.get(d) for d in classes if below[cls] >> d & 1]
            known = [n for n in needed if n is not None]
            if len(known) == len(needed):
                level[cls] = 1 + max(known, default=-1)
        for wanted in sorted(set(level.values())):
            yield [c for c in classes if level.get(c) == wanted]

    def grow(self) -> None:
        """Join what reads the members in one way: an equal operator, its other operands constant or aligned members."""
        known = {g.members for g in self.groups}
        where: dict[int, list[tuple[int, int]]] = {}
        for g, group in enumerate(self.groups):
            for i, cls in enumerate(group.members):
                where.setdefault(cls, []).append((g, i))
        g = 0
        while g < len(self.groups) and len(self.groups) < _MOST_GROUPS:
            group = self.groups[g]
            above = [self._above(cls, i, g, where) for i, cls in enumerate(group.members)]
            for key, first in above[0].items():
                members = [a.get(key) for a in above]
                found = [m for m in members if m is not None]
                distinct = len(set(found)) == len(members)
                if first is None or not distinct or tuple(found) in known or not self._independent(found):
                    continue
                known.add(tuple(found))
                layouts = list(group.layouts)
                if key[0] in ("V", "Red"):
                    if any(
                        not layout.is_identity(self.graph.size(c))
                        for c, layout in zip(group.members, layouts, strict=True)
                    ):
                        continue
                    layouts = [lt.identity(self.graph.size(c)) for c in found]
                self.groups.append(Group(tuple(found), tuple(layouts)))
                for i, cls in enumerate(found):
                    where.setdefault(cls, []).append((len(self.groups) - 1, i))
            g += 1

    def _above(self, cls: int, i: int, g: int, where: dict[int, list[tuple[int, int]]]) -> dict[tuple, int]:
        """What reads member i of group g, keyed so that equal keys mean the same operator on aligned operands."""
        graph = self.graph
        found: dict[tuple, int] = {}
        for index in graph.snapshot.parents[cls]:
            node = graph.snapshot.nodes[index]
            if not self.needs.classes >> node.cls & 1 or graph.const(node.cls):
                continue
            permutes = node.op == "V" and lt.is_bijective(node.attrs[0], graph.size(cls))
            if node.op not in ("Un", "Bin", "Red") and not permutes:
                continue
            operands = [self._aligned(a, cls, i, g, where) for a in node.args]
            if None not in operands:
                found.setdefault((node.op, node.attrs, tuple(operands)), node.cls)
        return found

    def _aligned(self, operand: int, cls: int, i: int, g: int, where: dict[int, list[tuple[int, int]]]) -> str | None:
        if self.graph.const(operand):
            return "constant"
        if operand == cls:
            return f"group {g}"
        for other, j in where.get(operand, ()):
            if j == i and len(self.groups[other].members) == len(self.groups[g].members):
                return f"group {other}"
        return None


RULES: tuple[HostRule, ...] = (
    HostRule(
        "group-siblings",
        "a1, ..., an => cat(a1, ..., an)[slice i]",
        _form_groups,
        "exact",
        "MIGraphX PR 4723: horizontal fusion of MLP towers, and horizontal fusion of dots",
        "siblings become one kernel: one launch, and operands that they share are read once",
        guard_text="one program computes all of them, and none of them needs another",
        phase="groups",
    ),
)
