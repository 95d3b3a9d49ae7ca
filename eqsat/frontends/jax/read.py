"""Jaxprs as terms: each primitive by its row, calls of other jaxprs inlined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.base.numerics import dtype_name, np_dtype
from eqsat.errors import EqsatError, InputError
from eqsat.frontends.jax.layers import LAYERS
from eqsat.frontends.jax.movement import MOVEMENT
from eqsat.frontends.jax.pointwise import POINTWISE
from eqsat.frontends.jax.row import Builder, apply
from eqsat.program import ops
from eqsat.program.term import Shape, Term

ROWS: dict[str, Builder] = POINTWISE | MOVEMENT | LAYERS
"""Every row, by the name of its primitive."""

_BODIES = {
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}
"""Primitives that call a jaxpr, and the parameter that holds it. Rules for gradients are left out."""


def type_of(aval: Any) -> tuple[Shape, str]:
    """The shape and the dtype of a value. Raises DtypeError where programs have no such element type."""
    return tuple(aval.shape), dtype_name(aval.dtype)


def read(jaxpr: Any, consts: Sequence[Any], operands: Sequence[Term]) -> list[Term]:
    """The results of a jaxpr.

    Raises:
        InputError: it has primitives without a row, or a use of one that its row does not cover.
    """
    if missing := sorted({name for name in _primitives(jaxpr) if name not in ROWS}):
        raise InputError(f"from_jax: no operator for {', '.join(missing)}")
    return _results(jaxpr, consts, operands)


def _primitives(jaxpr: Any) -> Iterator[str]:
    """The primitives of a jaxpr and of those that it calls."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if (body := _body(name, equation.params)) is not None:
            yield from _primitives(body[0])
        else:
            yield name


def _body(name: str, params: Mapping[str, Any]) -> tuple[Any, Sequence[Any]] | None:
    """The jaxpr that a primitive calls, and its constants."""
    if name not in _BODIES or _BODIES[name] not in params:
        return None
    called = params[_BODIES[name]]
    return getattr(called, "jaxpr", called), getattr(called, "consts", ())


def _results(jaxpr: Any, consts: Sequence[Any], operands: Sequence[Term]) -> list[Term]:
    values: dict[Any, Term] = {v: constant(c, v.aval) for v, c in zip(jaxpr.constvars, consts, strict=True)}
    values |= zip(jaxpr.invars, operands, strict=True)

    def value(atom: Any) -> Term:
        return constant(atom.val, atom.aval) if hasattr(atom, "val") else values[atom]

    for equation in jaxpr.eqns:
        args = [value(atom) for atom in equation.invars]
        body = _body(equation.primitive.name, equation.params)
        found = _results(*body, args) if body is not None else _applied(equation, args)
        values |= zip(equation.outvars, found, strict=True)
    return [value(atom) for atom in jaxpr.outvars]


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
