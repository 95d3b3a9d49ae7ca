"""The plan of an export: the ONNX node for each term, and the opset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eqsat.errors import InputError
from eqsat.frontends.onnx.file.load import NEWEST_OPSET, OLDEST_OPSET, domain_of, subgraphs
from eqsat.frontends.onnx.read.opaque import OneNode, since_version
from eqsat.frontends.onnx.read.written import FileNode
from eqsat.frontends.onnx.write.after import following_opsets
from eqsat.frontends.onnx.write.basic import BASIC, cuts
from eqsat.frontends.onnx.write.form import Form, ints, opset_for
from eqsat.frontends.onnx.write.kept import Kept
from eqsat.frontends.onnx.write.recognise import recognisers
from eqsat.program.ir import Program
from eqsat.program.ops import row
from eqsat.program.term import Term

if TYPE_CHECKING:
    from onnx import NodeProto

_LEAVES = frozenset({"input", "constant"})


@dataclass(frozen=True)
class Plan:
    """Every term that needs a node, with its form, operands first; and domain to opset version."""

    forms: Mapping[Term, Form]
    opsets: Mapping[str, int]


def plan(program: Program, opset: int) -> Plan:
    """The forms of a program at the least opset, from `opset` on, that admits them all.

    Raises InputError for an operator that ONNX does not have at any opset for its element type.
    """
    opsets = _opaque_opsets(program, opset)
    while True:
        forms = _forms(program, opsets[""])
        needed = {term: opset_for(form_, opsets[""]) for term, form_ in forms.items() if form_.op}
        for term, first in needed.items():
            if first is None:
                raise InputError(f"{term.op} of {term.dtype} has no ONNX form; cast its operands first")
        highest = max((first for first in needed.values() if first is not None), default=opsets[""])
        if highest == opsets[""]:
            kept = [form_.attrs["spec"] for form_ in forms.values() if not form_.op]
            return Plan(forms, {spec.domain: spec.opset for spec in kept if isinstance(spec, FileNode)} | opsets)
        last, opsets = opsets[""], _opaque_opsets(program, highest)
        if opsets[""] <= last:
            raise InputError(
                f"operators that stay as they are exist up to opset {last} alone, and others need {highest}; "
                f"convert the model to opset {highest}"
            )


def operators(program: Program) -> list[tuple[Term, tuple[Term, ...]]]:
    """The results and operands of ONNX operators: of the model that the program came from, and of the newest opset."""
    forms = newest_forms(program)
    found = [(term, tuple(form.terms())) for term, form in forms.items() if len(list(form.forms())) == 1]
    for each in program.written:
        found += [(term, tuple(arg for arg in each.args if arg)) for term in each.results if term]
    return list(dict.fromkeys(found))


# Forms


def newest_forms(program: Program) -> dict[Term, Form]:
    """The forms at the newest opset, whatever the model that the program came from has; none if an operator is unknown
    there."""
    try:
        return _forms(replace(program, written=()), NEWEST_OPSET)
    except InputError:  # an operator from elsewhere
        return {}


def _forms(program: Program, opset: int) -> dict[Term, Form]:
    """The forms, operands first; chosen from the outputs down, so that terms inside composites are not written."""
    terms = program.terms()
    readers = _readers(program, terms)
    joint = {**_splits(terms), **_opaque(terms)}
    kept = Kept(program, opset)
    chosen: dict[Term, Form] = {}
    order: list[Term] = []
    stack = [(term, False) for term in reversed(list(program.outputs.values()))]
    while stack:
        term, done = stack.pop()
        if done:
            order.append(term)
        elif term not in chosen and (term.op not in _LEAVES or kept.unpacks(term)):
            found = kept.form(term)
            if found is None or not chosen.keys().isdisjoint(found.outputs):
                found = joint.get(term) or _recognised(term, opset, readers) or _basic(term, opset)
            chosen.update(dict.fromkeys((each for each in found.outputs if each is not None), found))
            chosen[term] = found
            stack.append((term, True))
            stack.extend((operand, False) for operand in reversed(list(found.terms())))
    return {term: chosen[term] for term in order}


def _basic(term: Term, opset: int) -> Form:
    if term.op not in BASIC:
        raise InputError(f"{term.op} has no ONNX form; add a row to BASIC in eqsat/frontends/onnx/write/basic.py")
    return BASIC[term.op](term, opset)


def _recognised(term: Term, opset: int, readers: Mapping[Term, set[Term | None]]) -> Form | None:
    for recogniser in recognisers(term.op):
        found = recogniser(term, opset)
        if found is not None and _closed(term, found, readers) and _writable(found, opset):
            return found
    return None


def _writable(found: Form, opset: int) -> bool:
    """Whether the opset admits the form. A dilated mean has no other good form: the model's opset is raised for it."""
    needed = opset_for(found, opset)
    return needed == opset or needed == found.least


def _readers(program: Program, terms: Iterable[Term]) -> dict[Term, set[Term | None]]:
    """The readers of each term; None represents the program's outputs."""
    readers: dict[Term, set[Term | None]] = {}
    for term in terms:
        for arg in term.args:
            readers.setdefault(arg, set()).add(term)
    for term in program.outputs.values():
        readers.setdefault(term, set()).add(None)
    return readers


def _closed(root: Term, found: Form, readers: Mapping[Term, set[Term | None]]) -> bool:
    """Whether nothing else reads the form's inner values, which would then be computed twice. Views are free."""
    operands = set(found.terms())
    inside = {root}
    stack = [root]
    while stack:
        for arg in stack.pop().args:
            if arg not in operands and arg not in inside:
                inside.add(arg)
                stack.append(arg)
    computed = (term for term in inside if term is not root and term.args and not row(term.op).view)
    return all(readers[term] <= inside for term in computed)


def _splits(terms: Iterable[Term]) -> dict[Term, Form]:
    """Slices that cut one tensor along one axis into consecutive parts, with nothing left over: one Split."""
    groups: dict[tuple[Term, int], list[tuple[int, int, Term]]] = {}
    for term in terms:
        cut = cuts(term) if term.op == "slice" else {}
        if len(cut) == 1:
            [(axis, (start, stop, step))] = cut.items()
            if step == 1:
                groups.setdefault((term.args[0], axis), []).append((start, stop, term))
    forms = {}
    for (x, axis), parts in groups.items():
        parts.sort(key=lambda part: part[:2])
        starts, stops = [part[0] for part in parts], [part[1] for part in parts]
        if len(parts) > 1 and starts == [0, *stops[:-1]] and stops[-1] == x.shape[axis]:
            sizes = ints([stop - start for start, stop, _ in parts], "split")
            outputs = tuple(part[2] for part in parts)
            split = Form("Split", (x, sizes), {"axis": axis}, outputs)
            forms.update(dict.fromkeys(outputs, split))
    return forms


def _opaque(terms: Iterable[Term]) -> dict[Term, Form]:
    """One node for all outputs of an opaque operator."""
    calls: dict[tuple[object, tuple[Term, ...]], list[Term]] = {}
    for term in terms:
        if term.op == "opaque":
            calls.setdefault((term.attr("spec"), term.args), []).append(term)
    forms = {}
    for (spec, args), outputs in calls.items():
        if not isinstance(spec, OneNode):
            raise InputError(
                f"opaque operator {outputs[0].attr('name')} did not come from ONNX and has no ONNX form; "
                "write the parts before and after it apart"
            )
        one = Form("", args, {"spec": spec}, tuple(outputs))
        forms.update(dict.fromkeys(outputs, one))
    return forms


# Opsets


def _opaque_opsets(program: Program, least: int) -> dict[str, int]:
    """Domain to version: the least main opset from `least` on at which every opaque node keeps its meaning.

    If there is none, the nearest one below. Raises InputError if opaque nodes have no opset in common.
    """
    from onnx import defs

    opsets: dict[str, int] = {}
    common = set(range(OLDEST_OPSET, defs.onnx_opset_version() + 1))
    for spec in {term.attr("spec"): None for term in program.terms() if term.op == "opaque"}:
        if isinstance(spec, OneNode):
            proto = spec.proto()
            imports = {entry.domain: entry.version for entry in proto.opset_import}
            common &= _same_meaning(proto.graph.node[0], imports.pop("", None), common)
            for domain, version in imports.items():
                if opsets.setdefault(domain, version) != version:
                    raise InputError(f"opaque operators need versions {opsets[domain]} and {version} of '{domain}'")
    if program.header.after is not None:
        common &= following_opsets(program.header.after, common, opsets)
    if not common:
        raise InputError("opaque operators of different opsets cannot be written into one model; export them apart")
    above = [opset for opset in common if opset >= least]
    return {"": min(above) if above else max(common), **opsets}


def _same_meaning(node: NodeProto, opset: int | None, candidates: Iterable[int]) -> set[int]:
    """The main opsets at which the node is defined as at `opset`; a node with bodies keeps its own opset."""
    if opset is None or domain_of(node):
        return set(candidates)
    if any(True for _ in subgraphs(node)):
        return {opset}
    return {each for each in candidates if since_version(node, each) == since_version(node, opset)}
