"""Jaxprs as terms: each primitive by its row; calls of other jaxprs are inlined, loops of known length unrolled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.base.numerics import dtype_name, np_dtype
from eqsat.errors import EqsatError, InputError
from eqsat.frontends.jax.layers import LAYERS
from eqsat.frontends.jax.movement import MOVEMENT
from eqsat.frontends.jax.pointwise import POINTWISE
from eqsat.frontends.jax.row import Builder, apply
from eqsat.frontends.terms.lookups import part
from eqsat.program import ops
from eqsat.program.term import Shape, Term

ROWS: dict[str, Builder] = POINTWISE | MOVEMENT | LAYERS
"""Every row, by the name of its primitive."""

_BODIES = {
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "remat2": "jaxpr",
    "scan": "jaxpr",
}
"""Primitives that call a jaxpr, and the parameter that holds it. Rules for gradients are left out."""

UNROLLED = 50_000
"""Most applications of primitives in a program, with loops unrolled."""


def type_of(aval: Any) -> tuple[Shape, str]:
    """The shape and the dtype of a value. Raises DtypeError where programs have no such element type."""
    return tuple(aval.shape), dtype_name(aval.dtype)


def read(jaxpr: Any, consts: Sequence[Any], operands: Sequence[Term]) -> list[Term]:
    """The results of a jaxpr.

    Raises:
        InputError: it has primitives without a row, or a use of one that its row does not cover.
    """
    used = _primitives(jaxpr)
    if missing := sorted(name for name in used if name not in ROWS):
        raise InputError(f"from_jax: no operator for {', '.join(missing)}")
    if used.total() > UNROLLED:
        raise InputError(f"from_jax: {used.total()} primitives with scans unrolled; at most {UNROLLED} are read")
    return _results(jaxpr, consts, operands)


def _primitives(jaxpr: Any) -> Counter[str]:
    """How often primitives are applied, in a jaxpr and in those that it calls."""
    found: Counter[str] = Counter()
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if (body := _body(name, params)) is None:
            found[name] += 1
        else:
            times = params["length"] if name == "scan" else 1
            found.update({inner: times * count for inner, count in _primitives(body[0]).items()})
    return found


def _body(name: str, params: Mapping[str, Any]) -> tuple[Any, Sequence[Any]] | None:
    """The jaxpr that a primitive calls, and its constants."""
    if name not in _BODIES:
        return None
    called = params[_BODIES[name]]
    return getattr(called, "jaxpr", called), getattr(called, "consts", ())


def _results(jaxpr: Any, consts: Sequence[Any], operands: Sequence[Term]) -> list[Term]:
    values: dict[Any, Term] = {v: constant(c, v.aval) for v, c in zip(jaxpr.constvars, consts, strict=True)}
    values |= zip(jaxpr.invars, operands, strict=True)

    def value(atom: Any) -> Term:
        return constant(atom.val, atom.aval) if hasattr(atom, "val") else values[atom]

    for equation in jaxpr.eqns:
        name, args = equation.primitive.name, [value(atom) for atom in equation.invars]
        body = _body(name, equation.params)
        if body is None:
            found = _applied(equation, args)
        elif name == "scan":
            found = _scanned(*body, args, equation.params)
        else:
            found = _results(*body, args)
        values |= zip(equation.outvars, found, strict=True)
    return [value(atom) for atom in jaxpr.outvars]


def _scanned(jaxpr: Any, consts: Sequence[Any], operands: Sequence[Term], params: Mapping[str, Any]) -> list[Term]:
    """A loop, step after step: what it carries at the end, and the results of all steps, stacked. Operands are fixed
    ones, those carried, and arrays whose rows are for one step each."""
    first, last = params["num_consts"], params["num_consts"] + params["num_carry"]
    fixed, carried, rows = operands[:first], list(operands[first:last]), operands[last:]
    steps = range(params["length"])
    made: list[list[Term]] = []
    for i in reversed(steps) if params["reverse"] else steps:
        row = [part(x, 0, i) for x in rows]
        found = _results(jaxpr, consts, [*fixed, *carried, *row])
        carried = found[: last - first]
        made.append(found[last - first :])
    if params["reverse"]:
        made.reverse()
    return [*carried, *(ops.stack(results) for results in zip(*made, strict=True))]


def _applied(equation: Any, operands: Sequence[Term]) -> list[Term]:
    """The results of a primitive by its row."""
    name = equation.primitive.name
    try:
        found = apply(ROWS[name], operands, equation.params)
    except EqsatError as error:
        raise InputError(f"from_jax: this use of {name} is not covered: {error}") from None
    for term, variable in zip(found, equation.outvars, strict=True):
        if (term.shape, term.dtype) != type_of(variable.aval):
            raise InputError(f"from_jax: this use of {name} is not covered: it gives {variable.aval}, not {term.spec}")
    return found


def constant(value: Any, aval: Any) -> Term:
    """An array of this type that a jaxpr holds; a number where it has no dims."""
    shape, dtype = type_of(aval)
    array = np.asarray(value, np_dtype(dtype))
    return ops.constant(array) if shape else ops.full(array.item(), (), dtype)
