"""Elements of tensor programs over symbols: sums of products of reads, over which z3 is asked about indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import z3

VALUE = z3.DeclareSort("Value")
"""What arrays hold: nothing is known of it."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function that is no polynomial, over sums of products; a fold (a maximum) binds a variable below a size."""

    name: Any
    args: tuple[Sum, ...]
    bound: tuple[Any, Any] | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A fill where a condition holds, else a sum of products: what a masked view reads."""

    condition: Any
    fill: Any
    inner: Sum


Atom = Any
"""A value of the sort `VALUE` (a read, a fill, a number), a Function or a Choice."""


@dataclass(frozen=True, slots=True)
class Product:
    """coefficient * (the sum over some variables, each below a size, of the product of some atoms)."""

    coefficient: int
    bound: tuple[tuple[Any, Any], ...]
    atoms: tuple[Atom, ...]


Sum = tuple[Product, ...]

ONE: Sum = (Product(1, (), ()),)

FILLED, READ = (z3.Const(name, VALUE) for name in ("zero", "one"))
"""What an element counts by that a view fills with zero, and one that it reads."""

INVERSE = "inverse"
"""The function that is one divided by its argument, which is a float."""


def atom(value: Atom) -> Sum:
    """A sum of one atom."""
    return (Product(1, (), (value,)),)


def constant(value: Any) -> Any:
    """The value that an attribute stands for."""
    return z3.Const(f"value {value}", VALUE)


def times(left: Sum, right: Sum) -> Sum:
    """The product of two sums."""
    return tuple(_multiplied(a, b) for a in left for b in right)


def _multiplied(a: Product, b: Product) -> Product:
    """The product of two products: their variables are told apart."""
    for i, (v, size) in enumerate(b.bound):
        if any(v.eq(u) for u, _ in a.bound):
            apart = z3.FreshInt("k")
            b = replace(substituted(b, [(v, apart)]), bound=(*b.bound[:i], (apart, size), *b.bound[i + 1 :]))
    return Product(a.coefficient * b.coefficient, a.bound + b.bound, a.atoms + b.atoms)


def negated(terms: Sum) -> Sum:
    """The sum with its sign changed."""
    return tuple(replace(t, coefficient=-t.coefficient) for t in terms)


def summed(terms: Sum, variable: Any, size: Any) -> Sum:
    """The sum over a variable below a size."""
    return tuple(replace(t, bound=(*t.bound, (variable, size))) for t in terms)


def lone(terms: Sum) -> Atom | None:
    """The atom that a sum is; None for any other sum."""
    plain = len(terms) == 1 and terms[0].coefficient == 1 and not terms[0].bound and len(terms[0].atoms) == 1
    return terms[0].atoms[0] if plain else None


def value_of(terms: Sum) -> Any:
    """The value of the sort `VALUE` that a sum is; None for any other."""
    found = lone(terms)
    return None if isinstance(found, Function | Choice) else found


def applied(name: Any, args: Sequence[Sum]) -> Atom:
    """A function of values as a value; of anything else as itself."""
    values = [value_of(a) for a in args]
    if any(v is None for v in values):
        return Function(name, tuple(args))
    return z3.Function(str(name), *[VALUE] * (len(values) + 1))(*values)


def operands(of: Atom | None, name: Any) -> list[Any] | None:
    """What a function of this name is applied to in a value; None where it is not at its top."""
    if of is None or isinstance(of, Function | Choice) or of.decl().name() != str(name):
        return None
    return of.children()


def head(of: Atom) -> str:
    """What an atom is at its top: atoms with different heads are never compared."""
    if isinstance(of, Function):
        return f"function {of.name}"
    if isinstance(of, Choice):
        return "choice"
    if z3.is_app_of(of, z3.Z3_OP_ITE):
        return head(of.arg(2))
    return f"{of.decl().name()}/{of.num_args()}" if of.num_args() else str(of)


Pairs = Sequence[tuple[Any, Any]]


def substituted(term: Product, pairs: Pairs) -> Product:
    """A product with variables replaced in its atoms; it sums over the same variables as before."""
    return replace(term, atoms=tuple(_atom_with(a, pairs) for a in term.atoms))


def replaced(terms: Sum, pairs: Pairs) -> Sum:
    """A sum with variables replaced."""
    return tuple(substituted(t, pairs) for t in terms)


def _atom_with(of: Atom, pairs: Pairs) -> Atom:
    if isinstance(of, Function):
        return replace(of, args=tuple(replaced(a, pairs) for a in of.args))
    if isinstance(of, Choice):
        condition, fill = (z3.substitute(part, *pairs) for part in (of.condition, of.fill))
        return Choice(condition, fill, replaced(of.inner, pairs))
    return z3.substitute(of, *pairs)
