"""Calls of torch operators that no row covers: carried in programs without being understood, run by torch itself."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from eqsat.base.numerics import Array
from eqsat.errors import InputError
from eqsat.frontends.torch.operators.row import Built
from eqsat.frontends.torch.operators.tensors import import_torch, to_numpy, to_tensor, type_of
from eqsat.program import ops
from eqsat.program.term import Term


@dataclass(frozen=True)
class Operand:
    """The place of a tensor among the operands of a call."""

    place: int


@dataclass(frozen=True)
class TorchCall:
    """An operator of torch with its arguments except the tensors.

    Attributes:
        name: `namespace.operator.overload`.
        args, kwargs: plain values, with an `Operand` for each tensor, lists as tuples; keywords in order.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]

    @property
    def several(self) -> bool:
        """Whether it gives several results, or a list."""
        returns = self.function._schema.returns
        return len(returns) != 1 or "[" in str(returns[0].type) or "List" in str(returns[0].type)

    @property
    def function(self) -> Any:
        """The operator."""
        return reduce(getattr, self.name.split("."), import_torch().ops)

    def bound(self, operands: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with these tensors, or nodes."""
        return _filled(self.args, operands), {name: _filled(value, operands) for name, value in self.kwargs}

    def run(self, *arrays: Array) -> list[Array]:
        """The results for these operands."""
        args, kwargs = self.bound([to_tensor(array) for array in arrays])
        found = self.function(*args, **kwargs)
        return [to_numpy(x) for x in (found if isinstance(found, tuple | list) else (found,))]


def carried(node: Any, values: Mapping[Any, Built]) -> Built:
    """A call in an FX graph as opaque terms.

    Raises:
        InputError: it is no pure operator from tensors to tensors of types that programs hold.
    """
    torch = import_torch()
    if node.target is operator.getitem:
        raise InputError(f"a result of torch operator {node.args[0].target} that eqsat does not compute is used")
    if not isinstance(node.target, torch._ops.OpOverload):
        raise InputError(f"torch operator {node.target}: programs hold operators on tensors alone")
    if node.target._schema.is_mutable or torch.Tag.nondeterministic_seeded in node.target.tags:
        raise InputError(f"torch operator {node.target} changes a tensor in place, or draws random numbers")
    operands: list[Term] = []
    args = _frozen(node.args, values, operands)
    kwargs = tuple((name, _frozen(value, values, operands)) for name, value in node.kwargs.items())
    call = TorchCall(str(node.target), args, kwargs)
    results = node.meta.get("val")
    several = isinstance(results, tuple | list)
    tensors = list(results) if several else [results]
    if not all(isinstance(x, torch.Tensor) for x in tensors):
        raise InputError(f"torch operator {call.name} gives other results than tensors")
    terms = ops.opaque(call.name, operands, [type_of(x) for x in tensors], call, call.run)
    return terms if several else terms[0]


def _frozen(value: Any, values: Mapping[Any, Built], operands: list[Term]) -> Any:
    """A hashable form of an argument; its tensors are added to the operands."""
    if isinstance(value, tuple | list):
        return tuple(_frozen(part, values, operands) for part in value)
    if not isinstance(value, import_torch().fx.Node):
        return value
    term = values[value]
    if not isinstance(term, Term):
        raise InputError(f"torch operator {value.target} has several results, which are passed on together")
    operands.append(term)
    return Operand(len(operands) - 1)


def _filled(value: Any, operands: Sequence[Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_filled(part, operands) for part in value)
    return operands[value.place] if isinstance(value, Operand) else value
