"""Index expressions evaluated by their definitions."""

from __future__ import annotations

from itertools import product

from eqsat.gpu.code.index import Index, Quotient, Remainder, Var


def value(index: Index, env: dict[Var, int]) -> int:
    """The index with its variables replaced by numbers, by the definitions."""
    total = index.constant
    for atom, c in index.terms:
        match atom:
            case Var():
                total += c * env[atom]
            case Quotient():
                total += c * (value(atom.of, env) // atom.by)
            case Remainder():
                total += c * (value(atom.of, env) % atom.by)
    return total


def environments(variables: list[Var]) -> list[dict[Var, int]]:
    return [dict(zip(variables, v, strict=True)) for v in product(*(range(x.extent) for x in variables))]
