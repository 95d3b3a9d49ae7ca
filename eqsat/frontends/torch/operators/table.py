"""Which ATen operators become terms: one row each, by the operator's name and overload.

The rows cover what torch's own core decompositions leave of inference graphs. An application that its row declines, or
whose result has another shape or type than torch's, is no term: a graph keeps it as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from eqsat.errors import EqsatError
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.torch.operators.lookups import LOOKUPS
from eqsat.frontends.torch.operators.movement import MOVEMENT
from eqsat.frontends.torch.operators.pointwise import POINTWISE
from eqsat.frontends.torch.operators.products import PRODUCTS
from eqsat.frontends.torch.operators.reductions import REDUCTIONS
from eqsat.frontends.torch.operators.row import Built, Row
from eqsat.frontends.torch.operators.tensors import import_torch, type_of
from eqsat.frontends.torch.operators.windows import WINDOWS
from eqsat.program import ops
from eqsat.program.term import Term

ROWS: dict[str, Row] = POINTWISE | MOVEMENT | LOOKUPS | PRODUCTS | WINDOWS | REDUCTIONS
"""Every row, by `name.overload` in the namespace `aten`."""


def name_of_operator(node: Any) -> str:
    """The operator of a node of an FX graph, as in `ROWS`; other functions by their own names."""
    return str(node.target).removeprefix("aten.") if node.op == "call_function" else node.op


def built(node: Any, values: Mapping[Any, Built]) -> Built:
    """The terms of a call of a function in an FX graph, given those of its operands.

    Raises:
        EqsatError: no row covers it, or its terms have other shapes or types than torch's results.
    """
    if node.target is operator.getitem:
        source, index = node.args
        found = values[source]
        part = found[index] if isinstance(found, tuple) else None
        if part is None:
            raise Declined(f"result {index} of {name_of_operator(source)}")
        return part
    name = name_of_operator(node)
    if name not in ROWS or "val" not in node.meta:
        raise Declined(f"no row for {name}")
    map_arg = import_torch().fx.node.map_arg
    args, kwargs = map_arg(node.args, values.__getitem__), map_arg(node.kwargs, values.__getitem__)
    try:
        terms = ROWS[name](node.target._schema, args, kwargs)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise Declined(f"{name}: {error}") from error
    _check(name, terms, node.meta["val"])
    return terms


def _check(name: str, terms: Built, wanted: Any) -> None:
    """Raises Declined where terms have not the shapes and types of torch's results."""
    several = isinstance(terms, tuple)
    if several != isinstance(wanted, tuple | list):
        raise Declined(f"{name}: another number of results")
    pairs = zip(terms, wanted, strict=True) if isinstance(terms, tuple) else [(terms, wanted)]
    for term, tensor in pairs:
        if term is not None and (term.shape, term.dtype) != type_of(tensor):
            raise Declined(f"{name}: torch's result is {tuple(tensor.shape)} {tensor.dtype}, not {term.spec}")


def is_known(node: Any, but_whole: bool = False) -> bool:
    """Whether a row covers this node of an FX graph whose nodes have example values (`meta["val"]`): all of its results
    that are used, and for a part of several results also the operator that it comes from.

    Args:
        but_whole: leave out what torch computes as one operator.
    """
    source = node.args[0] if node.target is operator.getitem else node
    row = ROWS.get(name_of_operator(source))
    if row is None or (but_whole and row.is_whole(source.target._schema, source.args, source.kwargs)):
        return False
    try:
        terms = built(source, {operand: stand_in(operand) for operand in source.all_input_nodes})
    except EqsatError:
        return False
    if not isinstance(terms, tuple):
        return source is node
    used = [user for user in source.users if user.users]
    return all(user.target is operator.getitem and terms[user.args[1]] is not None for user in used)


def stand_in(node: Any) -> Built:
    """Inputs of the shapes and types of a node's results.

    Raises:
        EqsatError: the node's results are no tensors that programs hold.
    """
    value = node.meta.get("val")
    if isinstance(value, tuple | list):
        return tuple(_input(f"{node.name}.{i}", part) for i, part in enumerate(value))
    return _input(node.name, value)


def _input(name: str, tensor: Any) -> Term:
    if not isinstance(tensor, import_torch().Tensor):
        raise Declined(f"{name} is no tensor")
    return ops.input(name, *type_of(tensor))
