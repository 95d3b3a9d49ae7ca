"""Proofs of whole models by sweeping: values that agree on random inputs are proved equal one by one, inputs first.

Both programs are evaluated on a few inputs. A value of the second that agrees with one of the first is a candidate. It
is proved in a small e-graph over a cut: the values nearest to both that both read. What was proved takes the place of
the value in everything above, so that each proof has to bridge a few operators only. Equal proofs, of repeated layers,
are made once. This is how SAT-based checkers compare hardware circuits (A. Mishchenko, S. Chatterjee, R. Jiang and
R. Brayton, "FRAIGs: a unifying representation for logic synthesis and verification", 2005).

A candidate that is not proved is passed over: its operators become part of the proofs above it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import chain, islice
from operator import or_

from eqsat.base.numerics import Array, is_float
from eqsat.check.part import TOLERANCE
from eqsat.egraph.saturate import Growing
from eqsat.errors import InputError
from eqsat.language.rule import AnyRule
from eqsat.layout.arithmetic import Layout, inverse, is_bijective
from eqsat.program.core import CAST, Node, OpaqueCall, evaluate, make, topological
from eqsat.program.node import flops, is_elementwise, is_leaf, substitute
from eqsat.proof.attempt import Attempt, Effort, Facts, Local
from eqsat.proof.joined import Join, joins
from eqsat.proof.values.ahead import Ahead
from eqsat.proof.values.enclosure import OutOfTime
from eqsat.proof.values.signatures import Index, Signature, signature

_SHARE = 0.1
"""Of the tolerance of the narrowest type: how far values that are candidates may be apart. Constants on one side may
have been rounded once more."""


_MANY_FLOPS = 10**9
"""Of both programs, from which on they are evaluated on one point only: a second takes that long, in float64."""

_BETWEEN = 12
"""Most values between one and the latest that it is a function of: a norm has eight."""


_EFFORTS = (Effort(1_200, 30, 24, 1), Effort(12_000, 60, 64, 2))
"""Of one pass over the program after the other: most proofs are short, and one that is not may be not needed."""

QUICK = _EFFORTS[:1]

_TOO_LARGE = frozenset({"nodes", "steps", "time"})
"""Why an e-graph ended that may still succeed with more."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A value of the second program that agrees with one of the first on all inputs.

    Attributes:
        left, right: the values; `right` over what was proved equal before.
        stop: why the last e-graph that tried ended, empty where they were proved equal.
        operators: what lies between the values and the cut.
        computed: of each of the values, what is computed on the way from the cut, in which types.
        proof, leaves: where an e-graph proved them equal: the proof, and what its leaves stand for; None where both
            only move elements, and move the same.
        back: where the proof is of a view of both, the view that undoes it.
    """

    left: Node
    right: Node
    stop: str = ""
    operators: tuple[str, ...] = ()
    computed: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    proof: Local | None = None
    leaves: Mapping[Node, Node] = field(default_factory=dict)
    back: Layout | None = None


@dataclass(slots=True)
class Swept:
    """What sweeping found.

    Attributes:
        equal: whether all outputs were proved equal.
        cuts: pairs of values that were proved equal, identical ones and constants aside, inputs first.
        constants: pairs of constants that agree.
        proofs: e-graphs that proved them; the others repeat one of these.
        unproved: the candidates that were passed over, inputs first.
        values: values of the second program.
        nearer: the outputs of the second program, with values of the first for all that was proved equal.
        late: whether the time limit ended it.
    """

    values: int
    equal: bool = False
    proofs: int = 0
    cuts: list[Cut] = field(default_factory=list)
    constants: list[tuple[Node, Node]] = field(default_factory=list)
    unproved: list[Cut] = field(default_factory=list)
    nearer: list[Node] = field(default_factory=list)
    late: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """Two programs on a few inputs.

    Attributes:
        joins: how values of both are joined (`eqsat.proof.joined`).
        signatures: of the values of both, and of the parts of joined values.
        point: the first of the inputs, flat; `outputs` are those of both on it, flat.
        turned: values of the second program, and views of these (`_turned`).
    """

    joins: Mapping[Node, Join]
    signatures: Mapping[Node, Signature]
    turned: Mapping[Node, Sequence[Node]]
    point: Mapping[str, Array]
    outputs: tuple[list[Array], list[Array]]


def sample(
    left: Sequence[Node],
    right: Sequence[Node],
    constants: Ahead,
    opaque: Mapping[str, OpaqueCall],
    points: Sequence[Mapping[str, Array]],
    deadline: float,
) -> Sample:
    """Evaluate both programs, on one point where that takes seconds. Points on which an index is out of range are left
    out: an input may become an index behind operators that say nothing of its size.

    Args:
        points: inputs, flat, by name.

    Raises:
        InputError: an index is out of range on each of the points.
        OutOfTime: the deadline has passed.
    """
    turned = _turned(right)
    roots = [*left, *right, *(view for views in turned.values() for view in views)]
    seen: list[dict[Node, Signature]] = []
    found: list[tuple[Mapping[str, Array], list[Array]]] = []

    def note(node: Node, value: Array, args: list[Array]) -> Array:
        if time.monotonic() > deadline:
            raise OutOfTime
        seen[-1][node] = signature(node.dtype, [value])
        for part, array in zip(parts.get(node, ()), joined[node].arrays(value) if node in joined else (), strict=True):
            seen[-1].setdefault(part, signature(node.dtype, [array]))
        return value

    order = topological([*left, *right])
    joined = joins(order, constants)
    parts = {node: join.parts(node) for node, join in joined.items()}
    if sum(map(flops, order)) > _MANY_FLOPS:
        points = points[:1]
    for point in points:
        seen.append({})
        try:
            outputs = evaluate(roots, point, constants.values, opaque, "float64", note)
        except InputError:
            seen.pop()
            if not found and point is points[-1]:
                raise
        else:
            found.append((point, outputs))
    signatures: dict[Node, Signature] = {}
    for node in seen[0]:
        of = [noted[node] for noted in seen]
        scales, sums = (sum((getattr(each, part) for each in of), ()) for part in ("scales", "sums"))
        signatures[node] = Signature(node.size, node.dtype, scales, sums)
    first, outputs = found[0]
    of_right = outputs[len(left) : len(left) + len(right)]
    return Sample(joined, signatures, turned, first, (outputs[: len(left)], of_right))


def _turned(roots: Sequence[Node]) -> dict[Node, list[Node]]:
    """Computed values through the views by which later ones read them: one program may hold a value transposed, and
    read it in order only behind an activation or a power."""
    found: dict[Node, dict[Node, None]] = {}
    for view in topological(roots):
        if view.op != "V" or not is_bijective(view.attrs[0], view.args[0].size):
            continue
        stack = [*view.args]
        while stack:
            node = stack.pop()
            turned = make("V", view.attrs, [node])
            if node.op == "V" or is_leaf(node.op) or turned in found.setdefault(node, {}):
                continue
            found[node][turned] = None
            stack += [a for a in node.args if a.size == node.size] if is_elementwise(node.op) else []
    return {node: list(views) for node, views in found.items()}


def sweep(
    left: Sequence[Node],
    right: Sequence[Node],
    constants: Ahead,
    sampled: Sample,
    rules: Sequence[AnyRule],
    deadline: float,
    progress: Callable[[float], None] = lambda share: None,
    efforts: Sequence[Effort] = (),
    settled: Callable[[Sequence[Node]], bool] = lambda nearer: False,
) -> Swept:
    """Prove the outputs `right` equal to `left`, as far as the time until `deadline` (`time.monotonic`) allows.

    Args:
        sampled: both on a few inputs (`sample`).
        progress: told the share of values that are done.
        efforts: of the passes, if others than all.
        settled: asked after a pass that proved too little, with the outputs of the second program as far as it is
            proved (`Swept.nearer`); True ends the sweep.
    """
    run = _Sweep(left, right, constants, sampled, rules, deadline, progress)
    try:
        for effort in efforts or _EFFORTS:
            run.go(effort)
            run.found.nearer = substitute(right, run.proved)
            if run.found.equal or settled(run.found.nearer):
                break
    except OutOfTime:
        run.found.late = True
        run.found.unproved = run.open_still()
        run.found.nearer = substitute(right, run.proved)
    return run.found


class _Sweep:
    def __init__(
        self,
        left: Sequence[Node],
        right: Sequence[Node],
        constants: Ahead,
        sampled: Sample,
        rules: Sequence[AnyRule],
        deadline: float,
        progress: Callable[[float], None],
    ) -> None:
        self._left, self._right = left, right
        self._constants, self._progress = constants, progress
        self._order = topological(right)
        self._joins, self._signatures, self._turned = sampled.joins, sampled.signatures, sampled.turned
        self._known: dict[tuple[Node, Node], Attempt] = {}
        self._hard: set[Node] = set()
        """Values that this pass found too large to prove: so is what is computed of them, until a later pass."""
        of_left = topological(left)
        types = {node.dtype for node in (*of_left, *self._order)}
        self._tolerance = _SHARE * max((TOLERANCE.get(each, 0.0) for each in types), default=0.0)
        self._facts = Facts(constants, self._tolerance, rules, deadline)
        self._of_left = dict.fromkeys([*of_left, *self._further_parts(of_left)])
        """Values of the first program, and parts of joined ones."""
        self.proved: dict[Node, Node] = {}
        """Values of the second program, and the values of the first that they were proved to be."""
        self.found = Swept(len(self._order))
        self._open: list[Cut] = []

    def go(self, effort: Effort) -> None:
        """One pass over the values of the second program, operands first."""
        meant: dict[Node, Node] = {}
        index = Index({node: self._signatures[node] for node in self._of_left}, self._tolerance)
        self._open = self.open_still()
        self.found.cuts, self.found.constants, self.found.unproved = [], [], []
        self._hard.clear()
        for done, node in enumerate(self._order):
            self._progress(done / len(self._order))
            value = make(node.op, node.attrs, [meant[a] for a in node.args]) if node.args else node
            meant[node] = value
            if value in self._of_left or (is_leaf(value.op) and value.op != "Const"):
                continue
            near = sorted(index.close_to(self._signatures[node]), key=lambda each: each.op != value.op)
            candidates = chain(near, self._joined(node, value, index))
            proved = next((each for each in candidates if self._equal(each, value, effort)), None)
            proved = proved or self._turned_back(node, value, index, effort)
            if proved is not None:
                meant[node] = self.proved[node] = proved
        pairs = [(left, meant[right]) for left, right in zip(self._left, self._right, strict=True)]
        self.found.equal = all(left is right or self._equal(left, right, effort) for left, right in pairs)

    def _further_parts(self, order: Sequence[Node]) -> Iterator[Node]:
        """The parts of joined values of the first program that it has no other value for."""
        index = Index({node: self._signatures[node] for node in order}, self._tolerance)
        for node in order:
            for part in self._joins[node].parts(node) if node in self._joins else ():
                if part in self._signatures and not any(index.close_to(self._signatures[part])):
                    yield part

    def _joined(self, node: Node, value: Node, index: Index[Node]) -> Iterator[Node]:
        """The value of a node as values of the first program that its parts may be, joined; none where it is that.

        Of several that are alike on all inputs those are taken that the same operator computes.
        """
        known = value.op == "Cat" and all(a in self._of_left for a in value.args)
        if node in self._joins and not known:
            join = self._joins[node]
            near = [list(index.close_to(self._signatures[part])) for part in join.parts(node)]
            if all(near):
                yield join.joined([next((n for n in of if n.op == node.op), of[0]) for of in near])

    def _turned_back(self, node: Node, value: Node, index: Index[Node], effort: Effort) -> Node | None:
        """The value of a node as a view of one of the first program: a view of the one was proved to be the other."""
        for view in () if self._constants.is_fixed(value) else self._turned.get(node, ()):
            turned, back = make("V", view.attrs, [value]), inverse(view.attrs[0], value.size)
            for each in index.close_to(self._signatures[view]):
                if back is not None and self._equal(each, turned, effort):
                    found = make("V", (back,), [each])
                    self.found.cuts[-1] = replace(self.found.cuts[-1], left=found, right=value, back=back)
                    return found
        return None

    def open_still(self) -> list[Cut]:
        """What this pass left open, and the one before where this one has not come to it."""
        seen = {cut.right for cut in (*self.found.cuts, *self.found.unproved)}
        return self.found.unproved + [cut for cut in self._open if cut.right not in seen]

    def _equal(self, left: Node, right: Node, effort: Effort) -> bool:
        self._facts.in_time()
        if self._constants.is_fixed(left) and self._constants.is_fixed(right):
            agree = self._constants.agree(left, right)
            if agree:
                self.found.constants.append((left, right))
            return agree
        if self._facts.move_alike(left, right):
            self.found.cuts.append(Cut(left, right))
            return True
        tried: list[tuple[Attempt, Mapping[Node, Node]]] = []
        with Growing(self._facts.rules) as live:
            for attempt, leaves, most in self._attempts(left, right, effort, tried):
                known = attempt.proof
                attempt.go_on(live, most)
                self.found.proofs += attempt.proof is not known
                if attempt.proof is not None and self._facts.hold(attempt.proof, leaves):
                    self.found.cuts.append(Cut(left, right, "", *_between(attempt.sides), attempt.proof, leaves))
                    return True
        cut = Cut(left, right, "no cut is near")
        if tried:
            last, _ = tried[-1]
            cut = Cut(left, right, last.stop if last.proof is None else "other constants", *_between(last.sides))
        self.found.unproved.append(cut)
        if cut.stop in _TOO_LARGE and effort is not _EFFORTS[-1]:
            self._hard.add(right)
        return False

    def _attempts(
        self, left: Node, right: Node, effort: Effort, tried: list[tuple[Attempt, Mapping[Node, Node]]]
    ) -> Iterator[tuple[Attempt, Mapping[Node, Node], int | None]]:
        """Attempts over cuts, what their leaves stand for, and how large their e-graphs may become.

        All cuts get a small e-graph first. Attempts that have not ended go on afterwards, the last cut first. Where all
        have ended, as rules say no more of so few operators, one further cut is tried. `tried` receives them in the
        order of cuts.
        """
        cuts = self._cuts(left, right, effort)
        for cut in islice(cuts, effort.further + 1):
            yield self._attempt(left, right, cut, effort, tried)
        first = self._first_known(left, right, effort.operators)
        if first is not None:
            yield self._attempt(left, right, first, effort, tried)
        ended = all(attempt.stop == "saturated" for attempt, _ in tried)
        for cut in islice(cuts, ended):
            yield self._attempt(left, right, cut, effort, tried)
        for attempt, leaves in reversed(tried):
            if not attempt.ended:
                yield attempt, leaves, None

    def _attempt(
        self,
        left: Node,
        right: Node,
        cut: frozenset[Node],
        effort: Effort,
        tried: list[tuple[Attempt, Mapping[Node, Node]]],
    ) -> tuple[Attempt, Mapping[Node, Node], int]:
        """The attempt over a cut, which may be one that another value needed."""
        sides, leaves = self._over_leaves(left, right, cut)
        attempt = self._known.get(sides)
        if attempt is None or (attempt.proof is None and attempt.effort != effort):
            attempt = self._known[sides] = Attempt(self._facts, sides, leaves, effort)
        tried.append((attempt, leaves))
        return attempt, leaves, effort.small

    # Cuts

    def _cuts(self, left: Node, right: Node, effort: Effort) -> Iterator[frozenset[Node]]:
        """Sets of values of which both sides are functions, with constants, and these further and further down."""
        passed: frozenset[Node] = frozenset()
        while (cut := self._meet(left, right, passed, effort.operators)) is not None:
            yield cut
            if all(not node.args for node in cut):
                break
            passed |= frozenset(inner for node in cut for inner in self._down(node))

    def _first_known(self, left: Node, right: Node, most: int) -> frozenset[Node] | None:
        """The values of the first program that the second side reads first, and what the first side reads beside them.

        Of joined values a side may need a part alone: the others are leaves, whatever they are. None where all leaves
        are of both sides, or more than `most` operators lie above.
        """
        theirs, operators = self._above(right, lambda node: node in self._of_left)
        if not theirs <= self._of_left.keys():
            return None
        wanted = sum(1 << self._places[node] for node in theirs)
        ours, more = self._above(
            left, lambda node: node in theirs or (node in self._of_left and not self._below[node] & wanted)
        )
        if operators + more > most or not theirs & ours or theirs == ours:
            return None
        return frozenset(theirs | ours)

    def _above(self, root: Node, ends: Callable[[Node], bool]) -> tuple[set[Node], int]:
        """The leaves of a value, constants aside, and the number of operators above them."""
        leaves: set[Node] = set()
        seen, stack, operators = {root}, [root], 0
        while stack:
            node = stack.pop()
            if self._constants.is_fixed(node):
                continue
            if ends(node) or not node.args:
                leaves.add(node)
                continue
            operators += node.op != "V"
            for arg in node.args:
                if arg not in seen:
                    seen.add(arg)
                    stack.append(arg)
        return leaves, operators

    @cached_property
    def _places(self) -> dict[Node, int]:
        return {node: i for i, node in enumerate(self._of_left)}

    @cached_property
    def _below(self) -> dict[Node, int]:
        """For a value of the first program, a bit set of the places of all that it is computed of, itself included."""
        below: dict[Node, int] = {}
        for node, i in self._places.items():
            below[node] = reduce(or_, (below[a] for a in node.args), 1 << i)
        return below

    def _meet(self, left: Node, right: Node, passed: frozenset[Node], most: int) -> frozenset[Node] | None:
        """The latest values that both sides read, not those that are `passed`.

        The latest value that only one side reads is replaced by its operands until there is none. None where more than
        `most` operators lie above, or a value that was too large to prove.
        """
        readers = {left: 1, right: 2}
        heap = [(-left.uid, left), (-right.uid, right)]
        heapq.heapify(heap)
        cut: set[Node] = set()
        operators = 0
        while heap:
            _, node = heapq.heappop(heap)
            shared = readers[node] == 3 and node.op != "V" and node not in passed
            if not node.args or (shared and not self._constants.is_fixed(node)):
                cut.add(node)
                continue
            operators += node.op != "V" and not self._constants.is_fixed(node)
            if operators > most or (node in self._hard and node is not right):
                return None
            for arg in node.args:
                if arg not in readers:
                    heapq.heappush(heap, (-arg.uid, arg))
                readers[arg] = readers.get(arg, 0) | readers[node]
        return frozenset(cut)

    def _down(self, node: Node) -> list[Node]:
        """A value and what lies between it and the latest one that it is a function of: of a softmax, its scores.

        Only the value where none is near.
        """
        heap = [(-node.uid, node)]
        between: list[Node] = []
        while heap and len(between) < _BETWEEN:
            _, latest = heapq.heappop(heap)
            if between and not heap and latest.op not in ("V", "Un"):
                return between
            between.append(latest)
            for arg in latest.args:
                if not self._constants.is_fixed(arg) and (-arg.uid, arg) not in heap:
                    heapq.heappush(heap, (-arg.uid, arg))
        return [node]

    def _over_leaves(self, left: Node, right: Node, cut: frozenset[Node]) -> tuple[tuple[Node, Node], dict[Node, Node]]:
        """The values over numbered leaves in place of the cut, and what each leaf stands for.

        What is computed from constants alone is a constant, or one number, views aside: rules look behind those.
        """
        stand_ins: dict[Node, Node] = {}
        leaves: dict[Node, Node] = {}
        seen: set[Node] = set()
        stack = [right, left]
        while stack:
            node = stack.pop()
            if node in seen or node.op == "Full":
                continue
            seen.add(node)
            fixed = self._constants.is_fixed(node)
            number = self._constants.number(node) if fixed and node.args else None
            if number is not None:
                self.found.constants.append((number, node))
                stand_ins[node] = number
            elif node in cut or (fixed and node.op not in ("Cat", "V")):
                leaf = make("Const" if fixed else "In", (f"#{len(leaves)}", node.size, node.dtype))
                stand_ins[node], leaves[leaf] = leaf, node
            else:
                stack.extend(reversed(node.args))
        one, other = substitute([left, right], stand_ins)
        return (one, other), leaves


def _between(sides: tuple[Node, Node]) -> tuple[tuple[str, ...], tuple[frozenset[str], frozenset[str]]]:
    """The operators of two values, and what each computes."""
    one, other = sides
    return tuple(n.op for n in topological(sides) if not is_leaf(n.op)), (_computed(one), _computed(other))


def _computed(root: Node) -> frozenset[str]:
    """What is computed on the way to a value, in which types of floats; casts and views compute nothing."""
    order = [n for n in topological([root]) if n.op not in ("V", "Cat") and not is_leaf(n.op) and is_float(n.dtype)]
    return frozenset(f"{n.op} in {n.dtype}" for n in order if not (n.op == "Un" and n.attrs[0].startswith(CAST)))
