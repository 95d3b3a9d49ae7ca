"""Reads an e-graph out of egglog again and again as it grows, and works out only what is new.

egglog lists the rows of a function in the order in which they were written. So a listing is the one before it, less the
rows that have changed since, and then the new rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.base.memory_limit import collector_paused
from eqsat.egraph.declarations import Atoms
from eqsat.egraph.snapshot import SOURCE, ENode, Snapshot
from eqsat.program.core_table import CORE, CoreOp


class Listings:
    """The last listing of each function, with what was made of its rows.

    Rows are compared as egglog holds them, which takes a small part of the time of working them out.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[Sequence[Any], list[Any]]] = {}

    def made(self, name: str, rows: Sequence[Any], make: Callable[[Any], Any]) -> list[Any]:
        """`make` of each row of the function `name`; of rows that are in its last listing, what was made then."""
        last, known = self._last.get(name, ((), []))
        found, at, end = [], 0, len(last)
        for row in rows:
            while at < end and last[at] != row:
                at += 1
            found.append(known[at] if at < end else make(row))
            at += 1
        self._last[name] = rows, found
        return found


@dataclass(slots=True)
class _Row:
    """An e-node as egglog lists it, or the rule that made it.

    Attributes:
        key: the attributes as egglog holds them, then the operands; classes by the reader's own numbers.
        attrs, args: the attributes, and the operands by these numbers.
        vector: what egglog holds in place of operands of any number. It stays the same while their classes change.
        output: the class of the e-node by these numbers, or the number of the rule.
        subsumed: whether rules stopped matching it.
        node: the e-node that it last was in a snapshot.
    """

    key: tuple[int, ...]
    attrs: tuple[Any, ...]
    args: tuple[int, ...]
    vector: Any
    output: int
    subsumed: bool
    node: ENode | None = None


class Reader:
    """Snapshots of one e-graph, at any time. Classes are numbered in the order in which egglog lists them, which is
    deterministic: what was read before changes no number."""

    def __init__(self, egraph: Any, atoms: Atoms, rule_names: Sequence[str]) -> None:
        self._i64, self._vec = egraph.value_to_i64, egraph.value_to_vec
        self._atoms, self._rule_names = atoms.values, rule_names
        self._own: dict[Any, int] = {}
        self._listings = Listings()
        self._last: Snapshot | None = None
        self._names: dict[int, int] = {}

    def read(self, functions: Mapping[str, Any]) -> Snapshot:
        """The e-graph whose functions these are."""
        number: dict[int, int] = {}  # of each class in the snapshot, by the reader's own
        nodes: list[ENode] = []
        left_out: list[tuple[CoreOp, _Row, str]] = []
        with collector_paused():
            for row in CORE.values():
                self._add_nodes(row, functions, number, nodes, left_out)
            roots = dict(self._listings.made("Root", functions["Root"].rows, self._root))
            _mention(roots.values(), number)
            const = self._listings.made("const", functions["const"].rows, lambda made: self._class(made.inputs[0]))
            _mention(const, number)
            named = self._listings.made("Named", functions["Named"].rows, self._named)
        self._names = {number[cls]: name for name, cls in named}
        n = len(number)
        constant = {number[cls] for cls in const}
        in_order = [number[roots[i]] for i in sorted(roots)]
        made = Snapshot(nodes, n, [c in constant for c in range(n)], in_order)
        # Rules that subsume each other's results can leave a class nothing: it keeps what was subsumed.
        own = [_node(row, listed, rule, number) for row, listed, rule in left_out if listed.output in number]
        kept = [node for node in own if made.best[node.cls] < 0]
        made.needless = [node for node in own if made.best[node.cls] >= 0]
        self._last = replace(made, nodes=nodes + kept) if kept else made
        return self._last

    def names(self, snapshot: Snapshot) -> Mapping[int, int]:
        """The names of classes, if the snapshot is the last one that was read."""
        return self._names if snapshot is self._last else {}

    def _add_nodes(
        self,
        row: CoreOp,
        functions: Mapping[str, Any],
        number: dict[int, int],
        nodes: list[ENode],
        left_out: list[tuple[CoreOp, _Row, str]],
    ) -> None:
        """Add the e-nodes of an operator, and number the classes that its rows are the first to mention."""
        made_by: dict[tuple[int, ...], str] = {}
        for why in self._listed(row, f"why_{row.name}", functions, self._i64):
            _mention(why.args, number)
            made_by[why.key] = self._rule_names[why.output]
        for listed in self._listed(row, row.name, functions, self._class):
            _mention(listed.args, number)
            rule = made_by.get(listed.key, SOURCE)
            if listed.subsumed and rule != SOURCE:  # the program as it was written stays whole
                left_out.append((row, listed, rule))
                continue
            _mention((listed.output,), number)
            nodes.append(_node(row, listed, rule, number))

    def _listed(self, row: CoreOp, name: str, functions: Mapping[str, Any], output: Callable[[Any], int]) -> list[_Row]:
        """The rows of an operator, or of the rules that made its e-nodes."""
        count, plain = len(row.attrs), [a.kind == "int" for a in row.attrs]

        def made(listed: Any) -> _Row:
            inputs = listed.inputs
            held = tuple([self._i64(v) for v in inputs[:count]])
            attrs = tuple([v if p else self._atoms[v] for v, p in zip(held, plain, strict=True)])
            args = () if row.arity is None else tuple(map(self._class, inputs[count:]))
            return _Row(held + args, attrs, args, inputs[count:], output(listed.output), listed.subsumed)

        found = self._listings.made(name, functions[name].rows, made)
        if row.arity is None:
            for listed in found:
                listed.args = tuple(map(self._class, self._vec(*listed.vector)))
                listed.key = listed.key[:count] + listed.args
        return found

    def _root(self, listed: Any) -> tuple[int, int]:
        """The place of a root, and its class."""
        place, cls = listed.inputs
        return self._i64(place), self._class(cls)

    def _named(self, listed: Any) -> tuple[int, int]:
        """A name, and its class."""
        return self._i64(listed.inputs[0]), self._class(listed.output)

    def _class(self, value: Any) -> int:
        return self._own.setdefault(value, len(self._own))


def _mention(classes: Iterable[int], number: dict[int, int]) -> None:
    """Number the classes that have no number yet."""
    for cls in classes:
        if cls not in number:
            number[cls] = len(number)


def _node(row: CoreOp, listed: _Row, rule: str, number: Mapping[int, int]) -> ENode:
    """The e-node of a row; the one of the last snapshot where that is equal."""
    args, cls = tuple([number[a] for a in listed.args]), number[listed.output]
    node = listed.node
    if node is None or node.cls != cls or node.args != args or node.rule != rule:
        node = listed.node = ENode(row.name, listed.attrs, args, cls, rule)
    return node
