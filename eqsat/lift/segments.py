"""Lifting segment by segment: segments of the same form are lifted once, and the terms are reused for all of them.

Choosing shapes is a search whose cost grows faster than the program. Segments are small, and equal segments need only
one search: leaves are replaced by placeholders (constants by unique arrays of the same size), the result is cached,
and each instance puts its own leaves back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from operator import or_

import numpy as np

from eqsat.base.graphs import O, operands_first
from eqsat.base.numerics import FLOATS, INTS, np_dtype
from eqsat.lift.forms import whole
from eqsat.lift.lift import lift_nodes, lift_tidied
from eqsat.lift.part import Part
from eqsat.lift.tidy import Tidied, tidied
from eqsat.program import ops
from eqsat.program.constants import viewed
from eqsat.program.core import CoreProgram, Node, lower_terms, make, topological
from eqsat.program.ir import Program
from eqsat.program.node import substitute
from eqsat.program.term import ConstArray, Shape, Term, distinguish, is_large, rebuilt
from eqsat.program.term import topological as term_order

_DIGITS = 200
"""Base of the numbers in stand-ins: every computed element type except bool holds whole numbers up to here."""


@dataclass(frozen=True, slots=True)
class LiftedProgram:
    """A program over shaped terms.

    Attributes:
        cuts: pairs of equal terms in the source and in the program, operands first. Views of the source are left out,
            because their values depend on other values.
        meanings: for these terms and the outputs of the program, the same term in which each constant computed ahead of
            time is replaced by its computation from constants of the source.
    """

    program: Program
    cuts: list[tuple[Term, Term]]
    meanings: Mapping[Term, Term] = field(default_factory=dict)


def lift_parts(parts: Sequence[Part], core: CoreProgram, exact: bool) -> LiftedProgram:
    """The program over shaped terms that computes `parts`, which were rewritten from `core`; with `exact`, its sums are
    in the same order."""
    lifter = _Lifter(parts, core, exact)
    return LiftedProgram(lifter.program(), lifter.cuts, lifter.meanings)


@dataclass(frozen=True, slots=True)
class _Lifted:
    """The terms of a form, over `inputs` (placeholder name -> leaf number) and `constants` (digest -> leaf number).

    Attributes:
        origins: digest of a computed constant to the term it was computed from.
        kept: the terms of values that the source has as well; None where the terms hold no such value.
    """

    outputs: tuple[Term, ...]
    kept: tuple[Term | None, ...]
    origins: Mapping[str, Term]
    inputs: Mapping[str, int]
    constants: Mapping[str, int]


class _Lifter:
    def __init__(self, parts: Sequence[Part], core: CoreProgram, exact: bool) -> None:
        self.parts, self.core, self.exact = parts, core, exact
        self.term: dict[Node, Term] = {}
        self.meaning: dict[Node, Term] = {}
        self.cuts: list[tuple[Term, Term]] = []
        self.meanings: dict[Term, Term] = {}
        self._forms: dict[object, _Lifted] = {}
        self._repeats = Counter(part.segment.form for part in parts)
        inputs = [core.source_term[node] for node in core.inputs]
        self.term.update(zip(core.inputs, inputs, strict=True))
        self.meaning.update(self.term)

    def program(self) -> Program:
        """All parts, each over the terms of the parts before it."""
        for part in self.parts:
            if self._as_written(part):
                continue
            instance = _Instance(part, self.core, anonymous=self._repeats[part.segment.form] > 1)
            lifted = self._forms.get(instance.key)
            if lifted is None:
                lifted = self._forms[instance.key] = instance.lift(self.exact)
            nodes = [node for node, _ in instance.kept]
            kept = [(node, term) for node, term in zip(nodes, lifted.kept, strict=True) if term is not None]
            terms, meanings = self._placed([*lifted.outputs, *(term for _, term in kept)], lifted, instance)
            n = len(lifted.outputs)
            self.term.update(zip(part.segment.roots, terms[:n], strict=True))
            self.meaning.update(zip(part.segment.roots, meanings[:n], strict=True))
            self.cuts += [(self.core.source_term[node], term) for (node, _), term in zip(kept, terms[n:], strict=True)]
            self.meanings.update(zip(terms[n:], meanings[n:], strict=True))
        outputs = {}
        for name, node, shape in zip(self.core.root_names, self.core.roots, self.core.root_shapes, strict=True):
            outputs[name] = ops.reshape(self.term[node], shape)
            self.meanings[outputs[name]] = ops.reshape(self.meaning[node], shape)
        return Program(tuple(self.core.source_term[n] for n in self.core.inputs), outputs)

    def _as_written(self, part: Part) -> bool:
        """Add a part that stays as written: by the source's own terms, over what is read of other parts. False if it
        changes, or if these terms read something else: they may compute anew what another part does."""
        source, roots = self.core.source_term, part.segment.roots
        own = substitute(roots, {node: stand_in for stand_in, node in part.leaves.items()})
        leaves = [leaf for leaf in part.segment.leaves.values() if leaf.op != "Const"]
        if tuple(own) != _recognised(part, part.roots) or not all(node in source for node in (*roots, *leaves)):
            return False
        bases = [base for root in roots if (base := _base(root)) in source and base not in leaves]
        inside = list(dict.fromkeys([*bases, *roots]))
        if _reads(inside, leaves) != _reads([source[node] for node in inside], [source[leaf] for leaf in leaves]):
            return False
        terms, meanings = (self._rebuilt(inside, leaves, known) for known in (self.term, self.meaning))
        if len(terms) < len(inside):
            return False
        for node, term, meaning in zip(inside, terms, meanings, strict=True):
            self.term[node], self.meaning[node], self.meanings[term] = term, meaning, meaning
            if node.op != "V":
                self.cuts.append((source[node], term))
        return True

    def _rebuilt(self, nodes: Sequence[Node], leaves: Sequence[Node], terms: Mapping[Node, Term]) -> list[Term]:
        """The source's terms for nodes over these `terms` for leaves, without those for which it takes other values."""
        known: dict[Term, Term | None] = {self.core.source_term[leaf]: terms[leaf] for leaf in leaves}
        return [term for node in nodes if (term := _over(self.core.source_term[node], known, {}))]

    def _placed(self, outputs: Sequence[Term], lifted: _Lifted, instance: _Instance) -> tuple[list[Term], list[Term]]:
        """Terms of a form with the leaves of an instance, and their meanings."""
        origins = {
            digest: _with_leaves([term], lambda leaf: self._leaf(leaf, lifted, instance, self.meaning))[0]
            for digest, term in lifted.origins.items()
        }

        def meant(leaf: Term) -> Term | None:
            origin = origins.get(leaf.attr("value").digest) if leaf.op == "constant" else None
            if origin is not None:
                return ops.reshape(origin, leaf.shape)
            return self._leaf(leaf, lifted, instance, self.meaning)

        terms = _with_leaves(outputs, lambda leaf: self._leaf(leaf, lifted, instance, self.term))
        return terms, _with_leaves(outputs, meant)

    def _leaf(self, leaf: Term, lifted: _Lifted, instance: _Instance, terms: Mapping[Node, Term]) -> Term | None:
        """The instance's term for a leaf of its form; None if the leaf is the same in every instance."""
        if leaf.op == "input":
            return terms[instance.leaves[lifted.inputs[leaf.attr("name")]]]
        if leaf.op == "constant" and leaf.attr("value").digest in lifted.constants:
            node = instance.leaves[lifted.constants[leaf.attr("value").digest]]
            return instance.constant(node, leaf.shape)
        return None


def _with_leaves(roots: Sequence[Term], replaced: Callable[[Term], Term | None]) -> list[Term]:
    """Terms with their leaves replaced."""
    memo: dict[Term, Term] = {}
    for term in term_order(roots):
        memo[term] = rebuilt(term, [memo[a] for a in term.args]) if term.args else replaced(term) or term
    return [memo[t] for t in roots]


class _Instance:
    """One segment with its leaves numbered, source and result over the same placeholders."""

    def __init__(self, part: Part, core: CoreProgram, anonymous: bool) -> None:
        self.part, self.core = part, core
        self.leaves: list[Node] = []
        self.values: dict[Node, np.ndarray] = {}
        self._anonymous = anonymous
        self._placeholder: dict[Node, Node] = {}
        self._stand_ins: dict[str, np.ndarray] = {}
        self._permuted: set[Node] = set()
        for leaf in part.segment.leaves.values():
            self._number(leaf)
        self.kept = [(node, made) for node, made in part.kept if node in core.source_term]
        roots = _recognised(part, [*part.roots, *(made for _, made in self.kept)])
        below = {n: part.leaves.get(n, n) for n in topological(roots) if n.op in ("In", "Const")}
        for leaf in below.values():
            self._number(leaf)
        known = {n: self._placeholder[leaf] for n, leaf in below.items()}
        after = tuple(substitute(roots, known))
        self._after, self._inside = after[: len(part.roots)], after[len(part.roots) :]
        origins = {made: origin for made, origin in part.origins.items() if made in known}
        came = substitute(tuple(origins.values()), self._placeholder)
        self._origins = {known[made]: origin for made, origin in zip(origins, came, strict=True)}
        self._root_shapes = tuple(self._shape(r) for r in part.segment.roots)
        self._inside_shapes = tuple(self._shape(node) for node, _ in self.kept)
        self.key = (
            self._after,
            self._inside,
            self._inside_shapes,
            tuple(self._origins.items()),
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
        values = self.part.constants.get(digest, self.core.constants.get(digest))
        assert values is not None
        apart = leaf.size > 1 and leaf.dtype in (*FLOATS, *INTS) and number < _DIGITS**2
        if apart and viewed(digest) != digest and _is_permuted(values):
            self.values[leaf] = values
            self._permuted.add(leaf)
        else:
            self._flatten(leaf, values)
        if leaf in self._permuted or (apart and self._anonymous):
            constant = _stand_in(number, leaf.size, leaf.dtype)
        elif viewed(digest) != digest:  # terms identify constants by the digests of their arrays
            constant = ConstArray(self.values[leaf])
        else:
            constant = None
        self._placeholder[leaf] = leaf if constant is None else make("Const", (constant.digest, leaf.size, leaf.dtype))
        self._stand_ins[self._placeholder[leaf].attrs[0]] = self.values[leaf] if constant is None else constant.array

    def _flatten(self, leaf: Node, values: np.ndarray) -> None:
        """Hold the values of a constant in a row; a copy is known by how the constant reads another one."""
        digest = leaf.attrs[0]
        self.values[leaf] = _flat(values)
        if viewed(digest) != digest:
            distinguish(self.values[leaf], lambda: digest)

    def constant(self, leaf: Node, shape: Shape) -> Term:
        """The term of a constant in this shape. One in another order than memory stays a view where that is possible:
        what reads it may put it back in order."""
        if leaf in self._permuted:
            view = self.values[leaf].reshape(shape)
            if np.may_share_memory(view, self.values[leaf]):
                return ops.constant(ConstArray.moved(view, leaf.attrs[0]))
            self._permuted.remove(leaf)
            self._flatten(leaf, self.values[leaf])
        return ops.constant(self.values[leaf].reshape(shape))

    def _shape(self, node: Node) -> Shape:
        term = self.core.source_term.get(node)
        return term.shape if term is not None else (node.size,)

    def lift(self, exact: bool) -> _Lifted:
        """Lift the result to terms over placeholders."""
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
        short = tidied([*self._after, *self._inside], self._stand_ins, source.source_term, exact)
        n = len(self._after)
        inside = [whole(node, shape) for node, shape in zip(short.roots[n:], self._inside_shapes, strict=True)]
        short = short._replace(roots=short.roots[:n])
        outputs, kept = lift_tidied(short, self._root_shapes, source, inside)
        return _Lifted(
            outputs=tuple(outputs),
            kept=tuple(kept),
            origins=self._lifted_origins(outputs, short, source),
            inputs={self._placeholder[n].attrs[0]: i for i, n in enumerate(self.leaves) if n.op != "Const"},
            constants={self._placeholder[n].attrs[0]: i for i, n in enumerate(self.leaves) if n.op == "Const"},
        )

    def _lifted_origins(self, outputs: Sequence[Term], short: Tidied, source: CoreProgram) -> dict[str, Term]:
        """The origins of the constants in terms, as terms of the same shapes."""
        came = substitute(tuple(short.origins.values()), self._origins)
        known = {n.attrs[0]: origin for n, origin in [*self._origins.items(), *zip(short.origins, came, strict=True)]}
        constants = (t for t in term_order(outputs) if t.op == "constant")
        wanted = {t.attr("value").digest: t.shape for t in constants if t.attr("value").digest in known}
        terms = lift_nodes([known[digest] for digest in wanted], list(wanted.values()), source)
        return dict(zip(wanted, terms, strict=True))

    @property
    def _canonical(self) -> dict[Node, Node]:
        roots = self.part.segment.roots
        return dict(zip(roots, substitute(roots, self._placeholder), strict=True))

    def _source_terms(self) -> dict[Node, Term]:
        """The source's terms for the nodes of this segment, over placeholders."""
        source_term, placeholder = self.core.source_term, self._placeholder
        leaves = [leaf for leaf in self.leaves if leaf.op != "Const"]
        over = {leaf: ops.input(placeholder[leaf].attrs[0], self._shape(leaf), leaf.dtype) for leaf in leaves}
        stand_ins = {leaf.attrs[0]: self._stand_ins[placeholder[leaf].attrs[0]] for leaf in self.values}
        found = {placeholder[leaf]: term for leaf, term in over.items()}
        known: dict[Term, Term | None] = {source_term[leaf]: term for leaf, term in over.items() if leaf in source_term}
        nodes = self._said(known)
        for node, made in zip(nodes, substitute(nodes, placeholder), strict=True):
            if term := _over(source_term[node], known, stand_ins):
                found[made] = term
        return found

    def _said(self, leaves: Mapping[Term, Term | None]) -> list[Node]:
        """The nodes of this segment that terms of the source compute from its leaves.

        A term may go past a leaf for which the source has no term, or another one, down to values and constants of
        other segments. What it is lowered to shows that. Its constants are its own there, not stand-ins: a gather is
        lowered to a view by its indices.
        """
        source_term, known = self.core.source_term, dict(leaves)
        stand_in = {leaf: made for leaf, made in self._placeholder.items() if leaf.op != "Const"}
        unsaid = {leaf for leaf in stand_in if leaf not in source_term}
        terms: dict[Node, Term] = {}
        for node in operands_first(self.part.segment.roots, self._placeholder):
            if not unsaid.isdisjoint(node.args):
                unsaid.add(node)
            elif node in source_term and (term := _over(source_term[node], known, {})):
                terms[node] = term
        if not terms:
            return []
        inputs = tuple(term for term in leaves.values() if term)
        _, lowered = lower_terms(Program(inputs, {str(i): term for i, term in enumerate(terms.values())}))
        meant = substitute(list(terms), stand_in)
        return [node for (node, term), own in zip(terms.items(), meant, strict=True) if lowered[term] is own]


def _reads(roots: Sequence[O], leaves: Sequence[O]) -> list[int]:
    """The leaves that each root is computed from, as a bit set."""
    found = {leaf: 1 << i for i, leaf in enumerate(leaves)}
    for node in operands_first(roots, found.copy()):
        found[node] = reduce(or_, (found[a] for a in node.args), 0)
    return [found[root] for root in roots]


def _base(node: Node) -> Node:
    """The node that a chain of views reads."""
    while node.op == "V":
        (node,) = node.args
    return node


def _flat(array: np.ndarray) -> np.ndarray:
    """The values in a row. A copy is read-only: otherwise every constant of them would copy them again."""
    own = np.ascontiguousarray(array)
    if own is not array:
        own.flags.writeable = False
    return own.reshape(-1)


def _is_permuted(values: np.ndarray) -> bool:
    """Whether a large array is read in another order than it has in memory, and no element along a whole axis."""
    return is_large(values) and not values.flags.c_contiguous and all(values.strides)


def _recognised(part: Part, roots: Sequence[Node]) -> tuple[Node, ...]:
    """Nodes of a part, with the source's own nodes wherever they compute the same. Kernels read constants in their own
    element order, so that nodes over these constants look new although they are not."""
    inside = operands_first(part.segment.roots, part.segment.leaves.values())
    source = set(substitute(inside, {node: stand_in for stand_in, node in part.leaves.items()}))
    meant: dict[Node, Node] = {}
    made: dict[Node, Node] = {}
    for node in topological(roots):
        if not node.args:
            meant[node], made[node] = part.origins.get(node, node), node
            continue
        meant[node] = make(node.op, node.attrs, [meant[a] for a in node.args])
        known = meant[node] in source
        made[node] = meant[node] if known else make(node.op, node.attrs, [made[a] for a in node.args])
    return tuple(made[root] for root in roots)


@lru_cache(maxsize=256)
def _stand_in(number: int, size: int, dtype: str) -> ConstArray:
    """A unique array, zero except for its first elements; its untouched zero pages use no memory."""
    array = np.zeros(size, np_dtype(dtype))
    array[0], array[1] = number % _DIGITS + 1, number // _DIGITS
    array.flags.writeable = False  # otherwise it would be copied
    distinguish(array, lambda: f"stand-in {number} {size} {dtype}")
    return ConstArray(array)


def _over(root: Term, known: dict[Term, Term | None], stand_ins: Mapping[str, np.ndarray]) -> Term | None:
    """The term over the known ones, its constants replaced by stand-ins; None if it depends on another input."""
    for term in operands_first([root], known):
        args = [a for arg in term.args if (a := known[arg])]
        if term.op == "constant":
            array = stand_ins.get(term.attr("value").digest)
            known[term] = term if array is None else ops.constant(array.reshape(term.shape))
        elif term.op == "input" or len(args) < len(term.args):
            known[term] = None
        else:
            known[term] = rebuilt(term, args)
    return known[root]
