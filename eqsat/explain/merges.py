"""Which kernels of the program as written became which kernels of the result.

Kernels correspond if they compute the same values. A kernel of the result replaces the source's kernels between its
inputs and its outputs. A value that the source does not have is attributed to the kernels that read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from eqsat.base.graphs import Merged
from eqsat.egraph.match import Matcher
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.kernels.candidates import Candidate
from eqsat.extract.kernels.cuts import parts
from eqsat.extract.plan.plan import launches, share_a_launch
from eqsat.extract.plan.stitch import Solved
from eqsat.language.rule import AnyRule
from eqsat.program.core import Node, topological

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Merge:
    """Kernels as written and the kernels that replace them, as places in launch order; either may be empty."""

    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel's classes in the result's e-graph: its outputs, all that it computes (outputs too), and its inputs."""

    outputs: frozenset[int]
    computed: frozenset[int]
    reads: frozenset[int]


def merges(roots: Sequence[Node], written: Solved, solved: Solved, rules: Sequence[AnyRule]) -> list[Merge]:
    """How the kernels of a form of segments as written relate to the chosen ones, in order of launch."""
    order = topological(roots)
    class_of = _classes(order, solved.snapshot, rules)
    before = [_kernel(g, lambda c: class_of[order[c]]) for g in launched(written)]
    after = [_kernel(g, lambda c: c) for g in launched(solved)]
    joined = Merged[int]()
    nodes_of = _by_class((class_of[n], n) for n in order if n.args)
    output_of = _by_class((c, i) for i, kernel in enumerate(before) for c in kernel.outputs)
    computed_in = _by_class((c, i) for i, kernel in enumerate(before) for c in kernel.computed)
    read_by = _by_class((c, k) for k, kernel in enumerate(after) for c in kernel.reads)
    for j, kernel in enumerate(after):
        made = _parts(solved.snapshot, kernel.outputs)
        read = _parts(solved.snapshot, kernel.reads) - made
        seeds = [n for c in made for n in nodes_of.get(c, ())]
        passed = {class_of[n] for n in _between(seeds, lambda n, read=read: class_of[n] in read)}
        met = [i for c in passed for i in output_of.get(c, ())] + [i for c in made for i in computed_in.get(c, ())]
        for i in met:
            joined.merge(len(before) + j, into=i)
        if not seeds:
            for k in (k for c in made for k in read_by.get(c, ())):
                joined.merge(len(before) + k, into=len(before) + j)
    groups = [
        Merge(tuple(i for i in g if i < len(before)), tuple(i - len(before) for i in g if i >= len(before)))
        for g in _by_class((joined.find(i), i) for i in range(len(before) + len(after))).values()
    ]
    return sorted(groups, key=lambda m: m.before or (len(before), *m.after))


def launched(solved: Solved) -> list[list[Candidate]]:
    """The chosen candidates by kernel, in order."""
    groups = [group for group in launches(solved.cover) if group[0].family != "alias"]
    return [kernel for group in groups for kernel in ([[x] for x in group] if share_a_launch(group) else [group])]


def _classes(order: Sequence[Node], snapshot: Snapshot, rules: Sequence[AnyRule]) -> dict[Node, int]:
    """The class of each node of the source; -1 for a node that is no longer in the e-graph."""
    matcher = Matcher(snapshot, rules)
    found: dict[Node, int] = {}
    for node in order:
        operands = [(None if found[a] < 0 else "", found[a]) for a in node.args]
        _, found[node] = matcher.resolve(node.op, node.attrs, operands)
    return found


def _by_class(pairs: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
    """What belongs to each class."""
    found: dict[int, list[T]] = {}
    for cls, x in pairs:
        found.setdefault(cls, []).append(x)
    return found


def _kernel(group: Sequence[Candidate], class_of: Callable[[int], int]) -> _Kernel:
    computed: set[int] = set()
    reads: set[int] = set()
    for cut in parts(x.cut for x in group):
        (reads if cut.node < 0 else computed).add(class_of(cut.cls))
    return _Kernel(frozenset(class_of(x.cls) for x in group), frozenset(computed), frozenset(reads))


def _parts(snapshot: Snapshot, classes: Iterable[int]) -> frozenset[int]:
    """Classes, and classes that are views of them (members of a group, transposes) or the other way round."""
    found = set(classes)
    for cls in tuple(found):
        found |= {snapshot.nodes[i].cls for i in snapshot.parents[cls] if snapshot.nodes[i].op == "V"}
        found |= {n.args[0] for n in snapshot.of_class(cls) if n.op == "V" and not snapshot.const[n.args[0]]}
    return frozenset(found)


def _between(seeds: Sequence[Node], ends: Callable[[Node], bool]) -> Collection[Node]:
    """The nodes below the seeds, down to nodes for which `ends` holds."""
    found: dict[Node, None] = dict.fromkeys(seeds)
    stack = list(seeds)
    while stack:
        for node in stack.pop().args:
            if node not in found and not ends(node):
                found[node] = None
                stack.append(node)
    return found
