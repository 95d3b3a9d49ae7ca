"""All rules, as data. Each module holds rows of one family; a new rule is one row in one of them."""

from __future__ import annotations

from eqsat.base.arguments import choice
from eqsat.language.rule import ALLOWED, AnyRule, HostRule, Policy, Rule
from eqsat.rules import (
    arithmetic,
    branches,
    casts,
    concat,
    constant_sums,
    constants,
    discovered,
    exploring,
    groups,
    normalisation,
    numbers,
    products,
    reductions,
    sums,
    views,
)

FAMILIES: dict[str, tuple[AnyRule, ...]] = {
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
"""Rules by family, in the order in which they are listed."""

ALL: list[AnyRule] = [row for rows in FAMILIES.values() for row in rows]
"""Every rule."""


EXPLORING: tuple[AnyRule, ...] = exploring.RULES + discovered.PROVING + concat.EXPLORING
"""Rules that only `eqsat.prove` and `eqsat explore` use: they do not come to rest on large programs."""

PROVING: tuple[AnyRule, ...] = (
    *(row for row in ALL if not (isinstance(row, HostRule) and row.phase == "groups")),
    *EXPLORING,
)
"""The rules of proofs: all, but that groups are not formed, which serves prices alone."""

CHECKABLE: tuple[Rule, ...] = tuple(row for row in PROVING if isinstance(row, Rule))
"""The rules that certificates may name: those that are data. What rules in code say is derived by the laws of
concatenation, or computed (`eqsat.verify.checker`)."""


def allowed(rules: list[AnyRule], policy: Policy) -> list[AnyRule]:
    """The rules that a numerics policy lets fire.

    Raises:
        InputError: the policy is not known.
    """
    choice("numerics policy", policy, ALLOWED)
    return [row for row in rules if row.numerics in ALLOWED[policy]]
