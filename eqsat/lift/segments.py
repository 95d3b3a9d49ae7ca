"""Lifting segment by segment: every form of segments is lifted once, and its terms are reused for all instances.

Choosing shapes is a search whose cost grows faster than the program. A segment is small, and equal segments need not be
searched again: leaves are replaced by placeholders (constants by arrays of the same size that nothing else holds), the
result is remembered, and each instance puts its own leaves back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from eqsat.base.numerics import FLOATS, INTS, np_dtype
from eqsat.lift.lift import lift
from eqsat.program import ops
from eqsat.program.core import CoreProgram, Node, make, topological
from eqsat.program.ir import Program
from eqsat.program.node import substitute
from eqsat.program.segments import Segment
from eqsat.program.term import ConstArray, Shape, Term
from eqsat.program.term import make as make_term
from eqsat.program.term import topological as term_order

_DIGITS = 200
"""Numbers that every type which programs compute with holds, bool aside."""


@dataclass(frozen=True, slots=True)
class Part:
    """A segment and what became of it.

    Attributes:
        segment: as cut from the source.
        roots: the same values as the optimiser computes them, over `leaves`, inputs and constants.
        leaves: In node -> the node of another segment that it stands for.
        constants: digest to flat values of the constants below `roots`.
    """

    segment: Segment
    roots: tuple[Node, ...]
    leaves: Mapping[Node, Node]
    constants: Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class LiftedProgram:
    """A program over shaped terms.

    Attributes:
        cuts: for each part the terms of the source that it computes for later parts, with those of the program that are
            equal to them; views aside, whose values are tied to others.
    """

    program: Program
    cuts: list[list[tuple[Term, Term]]]


def lift_parts(parts: Sequence[Part], core: CoreProgram) -> LiftedProgram:
    """The program over shaped terms that computes `parts`, which were rewritten from `core`."""
    lifter = _Lifter(parts, core)
    return LiftedProgram(lifter.program(), lifter.cuts)


@dataclass(frozen=True, slots=True)
class _Lifted:
    """Terms of a form over `inputs` (placeholder name -> leaf number) and `constants` (digest -> leaf number)."""

    outputs: tuple[Term, ...]
    inputs: Mapping[str, int]
    constants: Mapping[str, int]


class _Lifter:
    def __init__(self, parts: Sequence[Part], core: CoreProgram) -> None:
        self.parts, self.core = parts, core
        self.term: dict[Node, Term] = {}
        self.cuts: list[list[tuple[Term, Term]]] = []
        self._forms: dict[object, _Lifted] = {}
        self._repeats = Counter(part.segment.form for part in parts)
        inputs = [core.source_term[node] for node in core.inputs]
        self.term.update(zip(core.inputs, inputs, strict=True))

    def program(self) -> Program:
        """All parts, each over the terms of those before it."""
        read = {node for part in self.parts for node in part.segment.leaves.values() if node.op != "V"}
        for part in self.parts:
            instance = _Instance(part, self.core, anonymous=self._repeats[part.segment.form] > 1)
            lifted = self._forms.get(instance.key)
            if lifted is None:
                lifted = self._forms[instance.key] = instance.lift()
            for node, term in zip(part.segment.roots, self._placed(lifted, instance), strict=True):
                self.term[node] = term
            inner = [n for n in part.segment.roots if n in read and n in self.core.source_term]
            known = [(self.core.source_term[n], self.term[n]) for n in inner]
            self.cuts.append([(source, term) for source, term in known if source.shape == term.shape])
        outputs = {}
        for name, node, shape in zip(self.core.root_names, self.core.roots, self.core.root_shapes, strict=True):
            outputs[name] = ops.reshape(self.term[node], shape)
        return Program(tuple(self.core.source_term[n] for n in self.core.inputs), outputs)

    def _placed(self, lifted: _Lifted, instance: _Instance) -> list[Term]:
        """The terms of a form with the leaves of an instance."""
        memo: dict[Term, Term] = {}
        for term in term_order(lifted.outputs):
            if term.op == "input":
                memo[term] = self.term[instance.leaves[lifted.inputs[term.attr("name")]]]
            elif term.op == "constant" and term.attr("value").digest in lifted.constants:
                leaf = instance.leaves[lifted.constants[term.attr("value").digest]]
                memo[term] = ops.constant(instance.values[leaf].reshape(term.shape))
            else:
                memo[term] = _rebuilt(term, memo)
        return [memo[t] for t in lifted.outputs]


class _Instance:
    """One segment with its leaves numbered, source and result over the same placeholders."""

    def __init__(self, part: Part, core: CoreProgram, anonymous: bool) -> None:
        self.part, self.core = part, core
        self.leaves: list[Node] = []
        self.values: dict[Node, np.ndarray] = {}
        self._anonymous = anonymous
        self._placeholder: dict[Node, Node] = {}
        self._stand_ins: dict[str, np.ndarray] = {}
        for leaf in part.segment.leaves.values():
            self._number(leaf)
        below = {n: part.leaves.get(n, n) for n in topological(part.roots) if n.op in ("In", "Const")}
        for leaf in below.values():
            self._number(leaf)
        self._after = tuple(substitute(part.roots, {n: self._placeholder[leaf] for n, leaf in below.items()}))
        self._root_shapes = tuple(self._shape(r) for r in part.segment.roots)
        self.key = (
            self._after,
            self._root_shapes,
            tuple(self._shape(leaf) for leaf in self.leaves if leaf.op != "Const"),
        )

    def _number(self, leaf: Node) -> None:
        if leaf in self._placeholder:
            return
        number = len(self.leaves)
        self.leaves.append(leaf)
        if leaf.op != "Const":
            self._placeholder[leaf] = make("In", (f"%{number}", leaf.size, leaf.dtype))
            return
        digest = leaf.attrs[0]
        self.values[leaf] = self.part.constants.get(digest, self.core.constants.get(digest))  # type: ignore[assignment]
        if self._anonymous and leaf.size > 1 and leaf.dtype in (*FLOATS, *INTS) and number < _DIGITS**2:
            constant = _stand_in(number, leaf.size, leaf.dtype)
            stand_in = constant.array
            self._placeholder[leaf] = make("Const", (constant.digest, leaf.size, leaf.dtype))
        else:
            stand_in = self.values[leaf]
            self._placeholder[leaf] = leaf
        self._stand_ins[self._placeholder[leaf].attrs[0]] = stand_in

    def _shape(self, node: Node) -> Shape:
        term = self.core.source_term.get(node)
        return term.shape if term is not None else (node.size,)

    def lift(self) -> _Lifted:
        """The result's terms over placeholders."""
        inputs = tuple(self._placeholder[leaf] for leaf in self.leaves if leaf.op != "Const")
        names = tuple(str(i) for i in range(len(self._after)))
        source = replace(
            self.core,
            roots=tuple(self._canonical.values()),
            root_names=names,
            root_shapes=self._root_shapes,
            inputs=inputs,
            constants=self._stand_ins,
            source_term=self._source_terms(),
        )
        program = lift(replace(source, roots=self._after), source)
        return _Lifted(
            outputs=tuple(program.outputs.values()),
            inputs={self._placeholder[n].attrs[0]: i for i, n in enumerate(self.leaves) if n.op != "Const"},
            constants={self._placeholder[n].attrs[0]: i for i, n in enumerate(self.leaves) if n.op == "Const"},
        )

    @property
    def _canonical(self) -> dict[Node, Node]:
        roots = self.part.segment.roots
        return dict(zip(roots, substitute(roots, self._placeholder), strict=True))

    def _source_terms(self) -> dict[Node, Term]:
        """The source's terms for the nodes of this segment, over placeholders."""
        known: dict[Term, Term] = {}
        found: dict[Node, Term] = {}
        for leaf, placeholder in self._placeholder.items():
            term = self.core.source_term.get(leaf)
            if leaf.op != "Const":
                stand_in = ops.input(placeholder.attrs[0], self._shape(leaf), leaf.dtype)
                found[placeholder] = stand_in
                if term is not None:
                    known[term] = stand_in
        stand_in_of = {
            leaf.attrs[0]: self._stand_ins[p.attrs[0]] for leaf, p in self._placeholder.items() if leaf.op == "Const"
        }
        inside = _between(self.part.segment.roots, self._placeholder)
        replaced = substitute(inside, self._placeholder)
        for node, over in zip(inside, replaced, strict=True):
            term = self.core.source_term.get(node)
            if term is not None and node not in self._placeholder:
                rebuilt = _over(term, known, stand_in_of)
                if rebuilt is not None:
                    found[over] = rebuilt
        return found


@lru_cache(maxsize=256)
def _stand_in(number: int, size: int, dtype: str) -> ConstArray:
    """An array that nothing else holds, zero but for its first elements: memory that is never written takes no room."""
    array = np.zeros(size, np_dtype(dtype))
    array[0], array[1] = number % _DIGITS + 1, number // _DIGITS
    array.flags.writeable = False  # or else it would be copied
    return ConstArray(array)


def _between(roots: Sequence[Node], leaves: Mapping[Node, Node]) -> list[Node]:
    """The nodes of a segment, operands first, its leaves left out unless they are roots."""
    seen: dict[Node, None] = {}
    stack = [(r, False) for r in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            seen.setdefault(node)
        elif node not in seen and node not in leaves:
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args))
    return list(seen)


def _over(term: Term, known: dict[Term, Term], stand_ins: Mapping[str, np.ndarray]) -> Term | None:
    """The term over placeholders; None where it reaches past the leaves of the segment."""
    stack = [(term, False)]
    while stack:
        at, ready = stack.pop()
        if at in known:
            continue
        if at.op == "input":
            return None
        if at.op == "constant":
            digest = at.attr("value").digest
            if digest in stand_ins:
                known[at] = ops.constant(stand_ins[digest].reshape(at.shape))
            else:
                known[at] = at
        elif ready or not at.args:
            known[at] = _rebuilt(at, known)
        else:
            stack.append((at, True))
            stack.extend((a, False) for a in at.args)
    return known[term]


def _rebuilt(term: Term, memo: Mapping[Term, Term]) -> Term:
    args = [memo[a] for a in term.args]
    same = all(a is b for a, b in zip(args, term.args, strict=True))
    return term if same else make_term(term.op, *args, **dict(term.attrs))
