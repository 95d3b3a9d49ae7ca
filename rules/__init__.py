"""All rules, as data. Each module holds rows of one family; a new rule is one row in one of them.

The rows are compiled when a list of them is first asked for: a worker process is sent its rules, and imports only the
modules that hold code of some.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eqsat.base.arguments import choice
from eqsat.language.rule import ALLOWED, AnyRule, HostRule, Policy, Rule

FAMILIES: dict[str, tuple[AnyRule, ...]]
"""Rules by family, in the order in which they are listed."""

ALL: list[AnyRule]
"""Every rule."""

EXPLORING: tuple[AnyRule, ...]
"""Rules that only `eqsat.prove` and `eqsat explore` use: they do not come to rest on large programs."""

PROVING: tuple[AnyRule, ...]
"""The rules of proofs. Rules that round numbers are left out, and so are groups, which serve prices alone."""

CHECKABLE: tuple[Rule, ...]
"""The rules that certificates may name: those that are data. What rules in code say is derived by the laws of
concatenation, or computed (`eqsat.verify.checker`)."""


def _families() -> dict[str, tuple[AnyRule, ...]]:
    from eqsat.rules import (
        arithmetic,
        branches,
        casts,
        concat,
        constant_sums,
        constants,
        discovered,
        groups,
        normalisation,
        numbers,
        products,
        reductions,
        sums,
        views,
    )

    return {
        "views": views.RULES,
        "products": products.RULES,
        "reductions": reductions.RULES,
        "arithmetic": arithmetic.RULES,
        "numbers": numbers.RULES,
        "normalisation": normalisation.RULES,
        "casts": casts.RULES,
        "concat": concat.RULES,
        "constants": constants.RULES + constant_sums.RULES,
        "sums": sums.RULES + branches.RULES,
        "discovered": discovered.RULES,
        "groups": groups.RULES,
    }


def _all() -> list[AnyRule]:
    return [row for rows in _made("FAMILIES").values() for row in rows]


def _exploring() -> tuple[AnyRule, ...]:
    from eqsat.rules import concat, discovered, exploring

    return exploring.RULES + discovered.PROVING + concat.EXPLORING


def _proving() -> tuple[AnyRule, ...]:
    from eqsat.rules import numbers

    common = (
        row
        for row in _made("ALL")
        if not (isinstance(row, HostRule) and row.phase == "groups") and row not in numbers.ROUNDED
    )
    return (*common, *_made("EXPLORING"))


def _checkable() -> tuple[Rule, ...]:
    return tuple(row for row in _made("PROVING") if isinstance(row, Rule))


_LISTS: dict[str, Callable[[], Any]] = {
    "FAMILIES": _families,
    "ALL": _all,
    "EXPLORING": _exploring,
    "PROVING": _proving,
    "CHECKABLE": _checkable,
}


def _made(name: str) -> Any:
    """A list by its name, made once."""
    if name not in globals():
        globals()[name] = _LISTS[name]()
    return globals()[name]


def __getattr__(name: str) -> Any:
    if name in _LISTS:
        return _made(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def allowed(rules: list[AnyRule], policy: Policy) -> list[AnyRule]:
    """The rules that a numerics policy lets fire.

    Raises:
        InputError: the policy is not known.
    """
    choice("numerics policy", policy, ALLOWED)
    return [row for row in rules if row.numerics in ALLOWED[policy]]
