"""Integers and truth values that floats decide, without any input. They count as part of the program.

There the last bit of a float may matter, as in the buckets of relative positions. So they are computed as a runtime
does, in their own types, and are constants from then on. What rounding, or a logarithm of zero, does on the way to them
is not seen from outside.
"""

from __future__ import annotations

from dataclasses import replace

from eqsat.base.numerics import is_float
from eqsat.program.constants import constant_node
from eqsat.program.core import CoreProgram, Node, evaluate, topological
from eqsat.program.node import is_folded, substitute
from eqsat.program.term import ConstArray


def decided_ahead(program: CoreProgram) -> CoreProgram:
    """The program with each of these as a constant."""
    fixed: dict[Node, bool] = {}
    decided: dict[Node, bool] = {}
    for node in topological(program.roots):
        fixed[node] = is_folded(node.op) and all(fixed[a] for a in node.args)
        here = not is_float(node.dtype) and any(is_float(a.dtype) for a in node.args)
        decided[node] = fixed[node] and (here or any(decided[a] for a in node.args))
    constants = dict(program.constants)
    found: dict[Node, Node] = {}
    seen: set[Node] = set()
    stack = list(program.roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if decided[node] and not is_float(node.dtype):
            [value] = evaluate([node], {}, program.constants)
            found[node] = constant_node(ConstArray(value), constants)
        else:
            stack += node.args
    if not found:
        return program
    return replace(program, roots=tuple(substitute(program.roots, found)), constants=constants)
