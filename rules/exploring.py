"""Rules for proving only."""

from __future__ import annotations

from eqsat.rule import AnyRule

RULES: tuple[AnyRule, ...] = ()
