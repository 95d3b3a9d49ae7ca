"""Rows that say how a JAX primitive becomes terms.

A builder takes the operands as terms, and names the parameters of the primitive that it understands. A parameter that
it leaves out must be one that says nothing about values, or be unset; otherwise the use is declined. So no parameter is
ignored by oversight.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eqsat.frontends.terms.declined import Declined
from eqsat.program.term import Term

Built = Term | Sequence[Term]
Builder = Callable[..., Built]


_NO_VALUES = frozenset({
    "accuracy", "algorithm", "indices_are_sorted", "out_sharding", "precision", "preferred_element_type", "sharding",
    "unique_indices", "weak_type",
})  # fmt: skip
"""Parameters about speed, places and rounding; the type of the result is checked for every primitive."""


def apply(build: Builder, operands: Sequence[Term], params: Mapping[str, Any]) -> list[Term]:
    """The results of one application. A builder with `**` understands all parameters.

    Raises:
        EqsatError: the row does not cover it.
    """
    kinds = {name: p.kind for name, p in inspect.signature(build).parameters.items()}
    takes = params.keys() if inspect.Parameter.VAR_KEYWORD in kinds.values() else kinds.keys()
    for name, value in params.items():
        if name not in takes | _NO_VALUES and not _unset(value):
            raise Declined(f"{name}={value}")
    found = build(*operands, **{name: value for name, value in params.items() if name in takes})
    return [found] if isinstance(found, Term) else list(found)


def _unset(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, tuple) and not value)
