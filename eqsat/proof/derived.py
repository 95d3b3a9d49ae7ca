"""Statements that make two values of an e-graph equal, for a certificate.

egglog keeps no proofs. So every rule is matched once more over the final e-graph, and each match is stated of terms.
Each class has one term that stands for it. Congruence closure picks the statements that the goal needs
(`eqsat.proof.closure`). For rules in code, the laws of concatenation are stated instead (`eqsat.verify.joins`). What
such rules say of constants becomes a promise, which is computed where the proof is used.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, product
from typing import Any

from eqsat.egraph import host_terms
from eqsat.egraph.match import Bindings, Matcher, Shape
from eqsat.egraph.snapshot import SOURCE, ENode, Snapshot
from eqsat.language.rule import AnyRule, HostRule, Lit, Pat, Pattern, Rule, Var
from eqsat.layout.arithmetic import Layout, of_transpose, row_major, shown_whole, strided
from eqsat.program.core import Node
from eqsat.program.node import STEPS
from eqsat.proof.addends import MOST_ADDENDS, Sums
from eqsat.proof.attempt import Local
from eqsat.proof.closure import Closure
from eqsat.verify.congruence import Congruence
from eqsat.verify.joins import cut, inside, picked, split
from eqsat.verify.terms import Terms

Named = Callable[[int], int]

_MOST_PUSHED = 400
"""Views that are moved into operators for one statement of a rule in code."""

_ROUNDS = 3
"""How often rules are matched: e-graphs drop views that repeat others, which further rules may have matched before."""

_MOST_TRIED = 300_000
"""Statements times terms up to which statements are tried to be left out: about two seconds."""


@dataclass(frozen=True, slots=True)
class Statement:
    """An equality of two terms, and its line of a certificate given the names of terms."""

    left: int
    right: int
    line: Callable[[Named], dict[str, Any]]


Head = tuple[str, str]
"""An operator and its function; an empty one stands for any."""


class _Candidates:
    """Rules by the heads of their left sides, and of the operands there: few are left to be matched at any place."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = list(rules)
        self._of: dict[tuple[Head, int], list[tuple[Rule, list[tuple[int, Head]]]]] = {}

    def at(self, op: str, attrs: Sequence[Any], operands: Sequence[Container[Head]]) -> Iterator[Rule]:
        """The rules that may match an operator over operands with these heads, in their order."""
        heads = _heads(op, attrs)
        key = heads[-1], len(operands)
        if key not in self._of:
            rules = [r for r in self._rules if len(r.left.args) == len(operands) and _head(r.left) in heads]
            self._of[key] = [
                (r, [(i, _head(p)) for i, p in enumerate(r.left.args) if isinstance(p, Pat)]) for r in rules
            ]
        for rule, wanted in self._of[key]:
            if all(head in operands[i] for i, head in wanted):
                yield rule


def _heads(op: str, attrs: Sequence[Any]) -> tuple[Head, ...]:
    """What patterns call an operator with these attributes, the most precise last."""
    return ((op, ""), (op, attrs[0])) if attrs and isinstance(attrs[0], str) else ((op, ""),)


def _head(pattern: Pat) -> Head:
    function = pattern.attrs[0] if pattern.attrs else None
    return pattern.op, function.value if isinstance(function, Lit) and isinstance(function.value, str) else ""


class Statements:
    """Equalities of terms that certificates may state, in the order in which they were found.

    Attributes:
        terms: what they speak of; further terms may be added.
    """

    def __init__(self, terms: Terms, rules: Sequence[AnyRule]) -> None:
        self.terms = terms
        self.rules = rules
        self._found: list[Statement] = []
        self._closure = Closure(terms)
        data = [rule for rule in rules if isinstance(rule, Rule)]
        views = [r for r in data if r.left.op == "V" and isinstance(r.left.args[0], Pat)]
        folding = [r for r in views if isinstance(r.left.args[0], Pat) and r.left.args[0].op in ("V", "Full")]
        self._simplifying = _Candidates(dict.fromkeys([*(r for r in data if r.subsumes), *folding]))
        self._moving = views
        self._simplified = 0

    def equal(self, a: int, b: int) -> bool:
        """Whether what was stated makes two terms equal."""
        return self._closure.equal(a, b)

    def needed(self, pairs: Sequence[tuple[int, int]]) -> list[Statement]:
        """The statements from which it follows that both of each pair are equal. They must be.

        Where there are few, each without which the rest is enough is left out.
        """
        numbers = {number for a, b in pairs for number in self._closure.explain(a, b)}
        kept = [self._found[number] for number in sorted(numbers)]
        own, number = Terms(), {}
        own.copy(self.terms, [t for s in kept for t in (s.left, s.right)] + [t for pair in pairs for t in pair], number)
        for statement in list(kept) if len(kept) * len(own.rows) <= _MOST_TRIED else ():
            rest = [s for s in kept if s is not statement]
            closed = Congruence(own, [(number[s.left], number[s.right]) for s in rest])
            if all(closed.equal(number[a], number[b]) for a, b in pairs):
                kept = rest
        return kept

    def rule(self, rule: Rule, at: int) -> int | None:
        """A rule whose left side is this term, if it is; its right side."""
        right = self._by(rule, at)
        self.simplify()
        return right

    def values(self, a: int, b: int) -> None:
        """Two terms that are computed from constants, and have the same values."""
        self.state(a, b, lambda named: {"values": [named(a), named(b)]})

    def moves(self, a: int, b: int) -> None:
        """Two terms only move elements, as constants say where to, and move the same."""
        self.state(a, b, lambda named: {"moves": [named(a), named(b)]})

    def cut(self, at: int, sizes: Sequence[int]) -> None:
        """A term is its runs of these sizes, joined; views of joined arrays are moved into them."""
        begun = len(self.terms.rows)
        self.state(at, cut(self.terms, at, sizes), lambda named: {"cut": named(at), "into": list(sizes)})
        self._push(begun)

    def split(self, at: int, sizes: Sequence[int]) -> int:
        """State that a product is the sum of products over these runs of its inner axis, or that a reduction combines
        the reductions of these runs of its rows. Views of operands are moved into them. The result is the new term."""
        begun = len(self.terms.rows)
        right = split(self.terms, at, sizes)
        self.state(at, right, lambda named: {"split": named(at), "into": list(sizes)})
        self._push(begun)
        return right

    def picked(self, at: int) -> None:
        """Rows by joined indices, and of joined tables, as rows by each index of one table."""
        right = picked(self.terms, at)
        if right is not None:
            self.state(at, right, lambda named: {"picked": named(at)})
            for part in self.terms.rows[right][2]:
                self.picked(part)

    def _push(self, begun: int) -> None:
        """Move views that were added since into what they are views of."""
        for i in range(begun, begun + _MOST_PUSHED):
            if i >= len(self.terms.rows):
                break
            if self.terms.rows[i][0] == "V":
                self.inside(i)
                for rule in self._moving:
                    self.rule(rule, i)

    def inside(self, at: int) -> None:
        """A view of joined arrays is a view of some of them, if it is."""
        right = inside(self.terms, at)
        if right is not None:
            self.state(at, right, lambda named: {"inside": named(at)})

    def state(self, left: int, right: int, line: Callable[[Named], dict[str, Any]]) -> None:
        """Two terms are equal, as a line says."""
        self._note(left, right, line)
        self.simplify()

    def simplify(self) -> None:
        """State what simplifies new terms, as e-graphs do: they hold neither identity views nor factors of one."""
        while self._simplified < len(self.terms.rows):
            at = self._simplified
            self._simplified += 1
            op, attrs, args = self.terms.rows[at]
            for rule in self._simplifying.at(op, attrs, [_heads(*self.terms.rows[a][:2]) for a in args]):
                self._by(rule, at)

    def _by(self, rule: Rule, at: int) -> int | None:
        right = self.terms.instance(rule, at)
        if right is not None:
            self._note(at, right, lambda named: {"rule": rule.name, "at": named(at)})
        return right

    def _note(self, left: int, right: int, line: Callable[[Named], dict[str, Any]]) -> None:
        if not self._closure.equal(left, right):
            self._closure.state(left, right, len(self._found))
            self._found.append(Statement(left, right, line))


class _Order:
    """E-nodes in the order in which rules reach them: the programs as they were written, then what is `reached`, then
    all others."""

    def __init__(self, nodes: Sequence[ENode], begun: int) -> None:
        """Those before the place `begun` are left out."""
        self.reached = deque(i for i, node in enumerate(nodes) if node.rule == SOURCE)
        self._others = iter(range(begun, len(nodes)))
        self._done = set(range(begun))

    def __iter__(self) -> Iterator[int]:
        while (at := self.reached.popleft() if self.reached else next(self._others, None)) is not None:
            if at not in self._done:
                self._done.add(at)
                yield at


class Lemma:
    """The equality of two values over leaves, derived from the e-graph that proved it.

    Attributes:
        statements: what was stated.
        leaves: the numbers of leaves.
        sides: the numbers of both values.
    """

    def __init__(self, proof: Local, leaves: Sequence[Node], rules: Sequence[AnyRule], deadline: float) -> None:
        """State what makes the sides equal, as far as the time allows; `holds` says whether it did."""
        found = self._found = proof.found.with_needless()
        self._deadline = deadline
        terms = Terms()
        self.statements = Statements(terms, rules)
        self.leaves = terms.add_nodes(leaves)
        self.sides: tuple[int, int] = tuple(terms.add_nodes(proof.sides))  # type: ignore[assignment]
        for pair in proof.agreeing:
            self.statements.values(*terms.add_nodes(pair))
        for pair in proof.moving:
            self.statements.moves(*terms.add_nodes(pair))
        self._sums = Sums(self.statements, [rule for rule in rules if isinstance(rule, Rule)])
        for pair in proof.sums:
            one, other = terms.add_nodes(pair)
            self._sums.meet(one, other, frozenset())
        self._of_class = self._best()
        self._heads = [{h for n in found.of_class(c) for h in _heads(n.op, n.attrs)} for c in range(found.n_classes)]
        for part in (self._match, self._show, self._run):
            if not self.holds():
                part()

    def holds(self) -> bool:
        """Whether the statements make both sides equal."""
        return self.statements.equal(*self.sides)

    def _in_time(self) -> bool:
        return time.monotonic() <= self._deadline

    def _best(self) -> list[int]:
        """The term that stands for each class."""
        found, terms = self._found, self.statements.terms
        numbers = [-1] * found.n_classes
        for cls in sorted(range(found.n_classes), key=lambda c: (found.depth[c], c)):
            node = found.nodes[found.best[cls]]
            numbers[cls] = terms.add(node.op, node.attrs, [numbers[a] for a in node.args])
        for node in found.nodes:
            terms.add(node.op, node.attrs, [numbers[a] for a in node.args])
        return numbers

    def _match(self) -> None:
        """State every match of a rule that is data; then those of views that only right sides hold, and so on.

        It starts at the e-nodes of the programs as they were written, and goes on with what right sides of matches
        hold: most of an e-graph is nearer to neither side than the proof.
        """
        rules = _Candidates(rule for rule in self.statements.rules if isinstance(rule, Rule))
        done = 0
        for _ in range(_ROUNDS):
            matcher = Matcher(self._found, self.statements.rules, self._in_time)
            order = _Order(self._found.nodes, done)
            further: dict[ENode, None] = {}
            for at in order:
                if self.holds() or not self._in_time():
                    return
                node = self._found.nodes[at]
                for rule in rules.at(node.op, node.attrs, [self._heads[a] for a in node.args]):
                    for bound, left in matcher.left_sides(rule, at):
                        self.statements.rule(rule, self._number(left, bound))
                        self._right(rule.right, bound, matcher, order, further)
            done = len(self._found.nodes)
            self._grow(list(further))

    def _right(
        self, pattern: Pattern, bound: Bindings, matcher: Matcher, order: _Order, further: dict[ENode, None]
    ) -> int | None:
        """The class of a part of the right side of a match, if it has one; new views of classes are noted."""
        if isinstance(pattern, Var):
            return bound[pattern.name]
        args = [self._right(arg, bound, matcher, order, further) for arg in pattern.args]
        known = tuple(a for a in args if a is not None)
        if len(known) < len(args):
            return None
        attrs = tuple(matcher.number(a, bound) for a in pattern.attrs)
        at = self._found.entry(pattern.op, attrs, known)
        if at is not None:
            order.reached.append(at)
            return self._found.nodes[at].cls
        if pattern.op == "V" and not attrs[0].is_identity(self._found.size[known[0]]):
            further[ENode(pattern.op, attrs, known, -1)] = None
        return None

    def _grow(self, further: Sequence[ENode]) -> None:
        """Add e-nodes, each as a class of its own."""
        found, first = self._found, self._found.n_classes
        nodes = [replace(node, cls=first + i) for i, node in enumerate(further)]
        const = [*found.const, *(found.const[node.args[0]] for node in further)]
        self._found = Snapshot([*found.nodes, *nodes], len(const), const, found.roots, found.stats)
        self._of_class += [
            self.statements.terms.add(node.op, node.attrs, [self._of_class[a] for a in node.args]) for node in nodes
        ]
        self._heads += [set(_heads(node.op, node.attrs)) for node in nodes]

    def _number(self, shape: Shape, bound: Mapping[str, Any]) -> int:
        if isinstance(shape, str):
            return self._of_class[bound[shape]]
        at, operands = shape
        node = self._found.nodes[at]
        return self.statements.terms.add(node.op, node.attrs, [self._number(s, bound) for s in operands])

    def _show(self) -> None:
        """Add views that take back what shows all of an array: arrays are equal where one such view of both is."""
        found, terms = self._found, self.statements.terms
        for node in found.nodes:
            if not self._in_time():
                break
            if node.op == "V" and (back := _taken_back(node.attrs[0], found.size[node.args[0]])) is not None:
                for inner in found.of_class(node.args[0]):
                    shown = terms.add(inner.op, inner.attrs, [self._of_class[a] for a in inner.args])
                    terms.add("V", (back,), (terms.add("V", node.attrs, (shown,)),))
        self.statements.simplify()

    def _run(self) -> None:
        """State what rules in code say, and what they said of products before the graph had grown."""
        for rule in self.statements.rules:
            if isinstance(rule, HostRule) and self._in_time():
                rule.apply(_Spelling(self._found), self._state)
        graph = host_terms.Terms(self._found)
        for view in graph.nodes("V"):
            for cat in graph.of(view.args[0], "Cat"):
                self.statements.inside(self._over(view, self._joined(cat.args)))
        for multiplied in graph.nodes("MM"):
            left, right = multiplied.args
            for members in self._cats(right):
                self._state(multiplied.cls, ("MM", multiplied.attrs, (left, ("Cat", (), members))))
        for added in graph.nodes("Bin"):
            self._stacked(added, 1)
        for reduced in graph.nodes("Red"):
            self._stacked(reduced, reduced.attrs[1])
            self._beside(reduced, graph)

    def _stacked(self, node: ENode, block: int) -> None:
        """State that an operator of joined operands is the join of its results on their parts, each of whole blocks."""
        for cats in product(*map(self._cats, node.args)):
            if self.holds() or not self._in_time():
                return
            of_each = [set(accumulate(self._found.size[a] for a in cat)) for cat in cats]
            ends = sorted(end for end in set.intersection(*of_each) if end % block == 0)
            if len(ends) > 1:
                sizes = [(end - start) // block for start, end in pairwise([0, *ends])]
                self.statements.cut(self._over(node, *map(self._joined, cats)), sizes)

    def _beside(self, reduced: ENode, graph: host_terms.Terms) -> None:
        """State that a reduction of arrays beside each other combines those of each."""
        fn, columns = reduced.attrs
        rows = self._found.size[reduced.cls]
        for cat, joined in self._side_by_side(reduced.args[0], rows, columns, graph) if fn in STEPS else ():
            sizes = [self._found.size[a] for a in cat]
            if not self.holds() and self._in_time() and not any(size % rows for size in sizes):
                self.statements.split(self._over(reduced, joined), [size // rows for size in sizes])

    def _side_by_side(
        self, cls: int, rows: int, columns: int, graph: host_terms.Terms
    ) -> Iterator[tuple[tuple[int, ...], int]]:
        """What is joined to the transpose of an array of rows; and the array made of that."""
        turned = of_transpose((columns, rows, 1), (1, 0, 2))
        if turned.is_identity(rows * columns):
            yield from ((cat, self._joined(cat)) for cat in self._cats(cls))
        for view in graph.of(cls, "V"):
            if view.attrs[0] == turned and self._found.size[view.args[0]] == rows * columns:
                yield from ((cat, self._over(view, self._joined(cat))) for cat in self._cats(view.args[0]))

    def _joined(self, members: Iterable[int]) -> int:
        return self.statements.terms.add("Cat", (), [self._of_class[a] for a in members])

    def _over(self, node: ENode, *operands: int) -> int:
        """The operator of an e-node over other terms."""
        return self.statements.terms.add(node.op, node.attrs, operands)

    def _state(self, cls: int, term: host_terms.Term) -> None:
        """A class equals a term."""
        if not self._in_time():
            return
        at, own = self._spelled(term), self._of_class[cls]
        terms = self.statements.terms
        if all(terms.rows[i][0] not in ("In", "Opaque") for i in terms.below([at, own])):
            self.statements.values(own, at)
        for cat in self._cats(cls):
            self.statements.cut(at, [self._found.size[a] for a in cat])
        self.statements.picked(at)
        self._add_up(cls, at, frozenset(self._of_class[c] for c in _classes(term)))

    def _add_up(self, cls: int, at: int, addends: frozenset[int]) -> None:
        """State how a sum with products of joined arrays comes from the first sum of a class."""
        split, parts = self._split(at, addends)
        own = self._sum(cls)
        if split != at and own is not None:
            self._sums.meet(own[0], split, parts | own[1])

    def _split(self, at: int, addends: frozenset[int]) -> tuple[int, frozenset[int]]:
        """A sum with its products of joined arrays split; and its addends."""
        terms = self.statements.terms
        op, attrs, args = terms.rows[at]
        if at in addends or op not in ("Bin", "MM"):
            return at, addends
        if op == "Bin":
            sides = [self._split(a, addends) for a in args]
            return terms.add(op, attrs, [side for side, _ in sides]), addends.union(*(known for _, known in sides))
        joined, _, members = terms.rows[args[1]]
        batch, _, _, columns = attrs
        if joined != "Cat" or batch != 1 or any(terms.size[m] % columns for m in members):
            return at, addends
        right = self.statements.split(at, [terms.size[m] // columns for m in members])
        products = [i for i in terms.below([right], frozenset(args)) if terms.rows[i][0] == "MM"]
        return right, addends.union(products)

    def _sum(self, cls: int) -> tuple[int, frozenset[int]] | None:
        """The first sum that a class holds, and its addends; products are not taken apart."""
        graph, addends = host_terms.Terms(self._found), set[int]()

        def first(at: int) -> ENode | None:
            return next((node for node in graph.of(at, "Bin") if node.attrs == ("add",)), None)

        def spelled(at: int, above: frozenset[int]) -> int:
            node = None if above and any(graph.of(at, "MM")) else first(at)
            if node is None or at in above or len(addends) > MOST_ADDENDS:
                addends.add(self._of_class[at])
                return self._of_class[at]
            return self.statements.terms.add("Bin", node.attrs, [spelled(a, above | {at}) for a in node.args])

        return None if first(cls) is None else (spelled(cls, frozenset()), frozenset(addends))

    def _cats(self, cls: int) -> Iterator[tuple[int, ...]]:
        return (n.args for n in self._found.of_class(cls) if n.op == "Cat" and all(self._found.size[a] for a in n.args))

    def _spelled(self, term: host_terms.Term) -> int:
        if isinstance(term, int):
            return self._of_class[term]
        op, attrs, operands = term
        return self.statements.terms.add(op, attrs, [self._spelled(t) for t in operands])


def _classes(term: host_terms.Term) -> Iterator[int]:
    """The classes that a term is made of."""
    if isinstance(term, int):
        yield term
    else:
        for operand in term[2]:
            yield from _classes(operand)


def _taken_back(layout: Layout, size: int) -> Layout | None:
    """The view of a view that is the whole array of this size again, read forwards; None where the view does not show
    all of it."""
    if layout.is_identity(size) or layout.offset or shown_whole(layout) != size:
        return None
    weights = row_major([n for n, _ in layout.dims])
    digits = [(stride, n, weight) for (n, stride), weight in zip(layout.dims, weights, strict=True) if stride]
    return strided(0, [(n, weight) for _, n, weight in sorted(digits, reverse=True)])


class _Spelling(host_terms.Terms):
    """Terms that are not looked up, so that the statements of a rule in code are kept as they are made."""

    def make(self, op: str, attrs: tuple[Any, ...], operands: Sequence[host_terms.Term]) -> host_terms.Term:
        return (op, attrs, tuple(operands))
