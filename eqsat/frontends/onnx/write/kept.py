"""Writes a term as a node of the model that the program was read from, where such a node computes it.

A node's results are terms over its operands. A term is an instance of them if it is equal up to what stands at the
operands; it is then written as that node, which reads these instead. Runs of views are equal if they read the same
elements, however they are spelled: lifting writes a nearest Resize with fewer views. Each node keeps its name once.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping
from weakref import WeakKeyDictionary

from eqsat.frontends.onnx.read.written import FileNode
from eqsat.frontends.onnx.write.form import Form
from eqsat.layout.arithmetic import Layout, compose, identity
from eqsat.program.ir import Program, Written
from eqsat.program.node import make
from eqsat.program.ops import row
from eqsat.program.term import Shape, Term, rebuilt

_SPREAD = frozenset({"broadcast", "full", "iota"})
"""Operators that ONNX needs no node for: it broadcasts their operand by itself."""

_MOST_TRIED = 256
"""Nodes of one kind that a term is compared with: deep models have thousands of them."""

_UNPACKS = "DequantizeLinear"
"""Kept though its result is constant: a runtime computes with the quantised weights, or quantises the result anew."""

Binding = Mapping[Term, Term]
"""An operand of a node to what stands there."""


class Kept:
    """Finds the nodes of terms. It must be asked about readers first: a reader's node tells which nodes made its
    operands."""

    def __init__(self, program: Program, opset: int) -> None:
        own = {name: term for term, name in program.names.items()}
        self._came = {term: own[name] for name, term in program.outputs.items() if name in own}
        self._varies = _varying(program)
        self._maker: dict[Term, Written] = {}
        self._alike: dict[object, dict[Term, Written]] = {}  # those of nodes that were used come last
        for each in program.written:
            if each.spec.means_the_same(opset) and not _passes_on(each):
                for result in each.results:
                    if result is not None and self._maker.setdefault(result, each) is each:
                        self._alike.setdefault(_kind(result, each), {})[result] = each
        self._used: set[int] = set()
        self._unpacked = {each.results[0]: each for each in program.written if _unpacks(each, opset)}

    def unpacks(self, term: Term) -> bool:
        """Whether a node of the model makes this constant of a quantised one."""
        return term in self._unpacked

    def form(self, term: Term) -> Form | None:
        """The node that computes a term; None if no node of the model does."""
        if term in self._unpacked:
            return self._instance(self._unpacked[term], {}, {})
        if not self._varies[term]:
            return None
        for result, node in self._candidates(term):
            binding = _binding(result, term, node)
            if binding is not None:
                return self._instance(node, binding, {result: term})
        return None

    def _candidates(self, term: Term) -> Iterator[tuple[Term, Written]]:
        """Results and their nodes that a term may be an instance of, the likeliest first, then those not used yet."""
        for came in (term, self._came.get(term)):
            if came in self._maker:
                yield came, self._maker[came]
        for kind in _kinds(term):
            yield from itertools.islice(self._alike.get(kind, {}).items(), _MOST_TRIED)

    def _instance(self, node: Written, binding: Binding, known: Binding) -> Form:
        """The node over other operands; `known` are its results for which there are terms."""
        for operand, term in binding.items():
            self._came.setdefault(term, operand)
        args = tuple(None if arg is None else binding.get(arg, arg) for arg in node.args)
        results = tuple(
            None if result is None else known.get(result) or _over(result, binding) for result in node.results
        )
        spec: FileNode = node.spec
        if id(node) in self._used:
            spec = spec.unnamed()
        self._used.add(id(node))
        for result in node.results:
            if result is not None and self._maker.get(result) is node:
                alike = self._alike[_kind(result, node)]
                alike[result] = alike.pop(result)
        return Form("", args, {"spec": spec}, results)


def _varying(program: Program) -> dict[Term, bool]:
    varies: dict[Term, bool] = {}
    for term in program.terms():
        varies[term] = row(term.op).varies or any(varies[arg] for arg in term.args)
    return varies


def _passes_on(node: Written) -> bool:
    """Whether a result is an operand, or a constant: the node is not what makes it."""
    return any(result in node.args or not result.args for result in node.results if result is not None)


def _unpacks(node: Written, opset: int) -> bool:
    spec: FileNode = node.spec
    constant = all(each is None or each.op == "constant" for each in (*node.args, *node.results))
    return constant and not spec.domain and spec.proto().op_type == _UNPACKS and spec.means_the_same(opset)


def _kind(result: Term, node: Written) -> object:
    """What a term must have in common with a node's result to be an instance of it: the operator, or all of the views
    that it ends with inside the node."""
    *_, kind = _kinds(result, node.args)
    return kind


def _kinds(term: Term, leaves: Container[Term | None] = ()) -> Iterator[object]:
    """The kinds of a term that is an operator, or a run of one view and more, down to `leaves`."""
    runs = list(_views(term, leaves))[1:]
    if not runs:
        yield _operator(term)
    for base, layout in runs:
        yield layout, *_type(base), *_type(term)


def _views(term: Term, leaves: Container[Term | None] = ()) -> Iterator[tuple[Term, Layout]]:
    """What a term is a view of, and by which layout: itself, its operand and so on, down to `leaves`."""
    layout: Layout | None = identity(term.size)
    base = term
    while layout is not None:
        yield base, layout
        if not row(base.op).view or not base.size or (base is not term and base in leaves):
            return
        own = _own_layout(base)
        layout = layout if own is None else compose(own, layout)
        (base,) = base.args


_OWN: WeakKeyDictionary[Term, Layout | None] = WeakKeyDictionary()
"""What `_own_layout` found, while a program holds the view: candidates are compared with many terms each."""


def _own_layout(view: Term) -> Layout | None:
    """The layout by which a view reads its operand; None if it reads all of it in order."""
    if view not in _OWN:
        (operand,) = view.args
        read, lower = make("In", ("", operand.size, operand.dtype)), row(view.op).lower
        assert lower is not None
        made = lower(view, [read])
        _OWN[view] = None if made is read else made.attrs[0]
    return _OWN[view]


def _binding(result: Term, term: Term, node: Written) -> Binding | None:
    """What stands at the node's operands if the term is an instance of its result; operands that the result does not
    read must be constants, and stay."""
    found: dict[Term, Term] = {}
    seen: set[tuple[Term, Term]] = set()
    stack = [(result, term)]
    while stack:
        wanted, at = stack.pop()
        if (wanted, at) in seen:
            continue
        seen.add((wanted, at))
        if wanted in node.args:
            spread = at.op in _SPREAD and at is not wanted
            if spread or found.setdefault(wanted, at) is not at or _type(wanted) != _type(at):
                return None
        elif (pairs := _alike(wanted, at, node)) is None:
            return None
        else:
            stack.extend(pairs)
    left = [arg for arg in node.args if arg is not None and arg not in found]
    return found if all(arg.op == "constant" for arg in left) else None


def _alike(wanted: Term, at: Term, node: Written) -> list[tuple[Term, Term]] | None:
    """What must be equal below two terms for them to be equal; None if they compute or view differently."""
    if row(wanted.op).view and wanted.size:
        *_, (base, layout) = _views(wanted, node.args)
        same = [own for own, by in _views(at) if own is not at and by == layout and _type(own) == _type(base)]
        return [(base, same[-1])] if same and _type(wanted) == _type(at) else None
    if wanted is not at and _operator(wanted) != _operator(at):
        return None
    return list(zip(wanted.args, at.args, strict=True))


def _operator(term: Term) -> tuple[object, ...]:
    """Equal for terms that apply the same operator to as many operands, with results of the same type."""
    return term.op, term.attrs, *_type(term), len(term.args)


def _type(term: Term) -> tuple[Shape, str]:
    return term.shape, term.dtype


def _over(result: Term, binding: Binding) -> Term:
    """A result over other operands."""
    if all(operand is term for operand, term in binding.items()):
        return result
    made = dict(binding)
    stack = [result]
    while stack:
        term = stack[-1]
        waiting = [arg for arg in term.args if term not in made and arg not in made]
        if not waiting:
            stack.pop()
            if term not in made:
                made[term] = rebuilt(term, [made[a] for a in term.args])
        stack.extend(waiting)
    return made[result]
