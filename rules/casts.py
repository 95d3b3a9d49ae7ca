"""Conversions between element types: one after another, and past operators that do not round.

A conversion to a type that holds every value of its operand's loses nothing, so a later one can start from the operand.
Views, concatenations and broadcasts move past a conversion as past any function of one operand.
"""

from __future__ import annotations

from eqsat.language.equation import rules
from eqsat.language.rule import Rule

_CONVERT = "MIGraphX eliminate_convert"

RULES: tuple[Rule, ...] = (
    *rules(
        "cast-there-and-back",
        "f(g(a)) == a",
        when="cast_back(f, g, dtype(a))",
        source=_CONVERT,
        why="a type that holds every value of another gives each back unchanged",
    ),
    *rules(
        "cast-of-widening",
        "f(g(a)) == h(a)",
        when="h = cast_through(f, g, dtype(a))",
        source=_CONVERT,
        why="two conversions in a row are one where the first loses nothing",
    ),
)
