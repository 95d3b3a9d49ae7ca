"""Rows that say how an ATen operator becomes terms: how its operands are promoted, and what builds the terms.

A builder names the arguments of the operator's schema that it understands. An argument that it leaves out must have the
schema's default; otherwise the operator is declined. So no argument is ignored by oversight. Where overloads share a
builder, it has defaults of its own for arguments that some of their schemas lack.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from eqsat.base.numerics import is_float, scalar
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.torch.operators.tensors import dtype_of, import_torch, name_of
from eqsat.program import ops
from eqsat.program.term import Term

Built = Term | tuple[Term | None, ...]
"""A result, or several; None for one that no row builds."""


_NO_VALUES = frozenset({"device", "layout", "memory_format", "non_blocking", "pin_memory"})
"""Arguments that say where results lie, and nothing about their values."""


@dataclass(frozen=True)
class Row:
    """How an operator becomes terms.

    Attributes:
        build: arguments by name to the result, or the results.
        promoted: the arguments (tensors, numbers or None) that are brought to one element type first, by torch's rules.
        floats: whether that type is a float even where the operands are integers.
        whole: whether torch has this as one operator, while the terms would be written back as several, slower ones.
            Such a call is left to torch where the result is a graph of its operators. A string names the argument that
            decides.
    """

    build: Callable[..., Built]
    promoted: tuple[str, ...] = ()
    floats: bool = False
    whole: bool | str = False

    @cached_property
    def takes(self) -> frozenset[str]:
        """The arguments that the builder names."""
        return frozenset(inspect.signature(self.build).parameters)

    def is_whole(self, schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether torch computes this call as one operator that would be written as several."""
        return bool(bound(schema, args, kwargs)[self.whole]) if isinstance(self.whole, str) else self.whole

    def __call__(self, schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Built:
        """The terms of one application; operands are terms.

        Raises:
            EqsatError: the row does not cover it.
        """
        given = bound(schema, args, kwargs)
        for argument in schema.arguments:
            name, value = argument.name, given[argument.name]
            if name not in self.takes | _NO_VALUES and not (
                argument.has_default_value() and value == argument.default_value
            ):
                raise Declined(f"argument {name}={value}")
        if self.promoted:
            given |= _promoted({name: given[name] for name in self.promoted}, self.floats)
        return self.build(**{name: value for name, value in given.items() if name in self.takes})


def bound(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names in the schema."""
    given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | dict(kwargs)
    return {a.name: given.get(a.name, a.default_value) for a in schema.arguments}


def _promoted(operands: Mapping[str, Any], floats: bool) -> dict[str, Any]:
    """Operands of one element type. Numbers become terms of no dims; None stays."""
    dtype = common_dtype([x for x in operands.values() if x is not None], floats)
    return {name: x if x is None else as_term(x, dtype) for name, x in operands.items()}


def common_dtype(operands: Sequence[Any], floats: bool = False) -> str:
    """The element type that torch computes in, of terms and numbers: tensors of no dims count less than others, and
    numbers least."""
    torch = import_torch()
    first, *others = (_stand_in(torch, x) for x in operands)
    found = reduce(torch.promote_types, (torch.result_type(first, other) for other in others or [first]))
    name = name_of(found)
    return name if is_float(name) or not floats else name_of(torch.get_default_dtype())


def converted(x: Term, dtype: Any) -> Term:
    """Integers and booleans are summed as int64."""
    if dtype is not None:
        return ops.cast(x, name_of(dtype))
    return x if is_float(x.dtype) else ops.cast(x, "int64")


def _stand_in(torch: Any, x: Any) -> Any:
    return torch.empty((0,) * x.ndim, dtype=dtype_of(x.dtype), device="meta") if isinstance(x, Term) else x


def as_term(x: Any, dtype: str) -> Term:
    """An operand in this type. Raises InputError for a number that the type does not hold."""
    return ops.cast(x, dtype) if isinstance(x, Term) else ops.full(scalar(x, dtype), (), dtype)
