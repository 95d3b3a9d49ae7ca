"""Conversions between element types: of each other, and past what does not round.

A widening that holds every value of the narrower type loses nothing, so that what follows it may as well start there.
Views, concatenations and broadcasts move past a conversion as past any function of one operand.
"""

from __future__ import annotations

from eqsat.language.rule import Rule, rule

_CONVERT = "MIGraphX eliminate_convert"

RULES: tuple[Rule, ...] = (
    rule(
        "cast-there-and-back",
        "un(f, un(g, a)) => a",
        when="cast_back(f, g, dtype(a))",
        source=_CONVERT,
        why="a type that holds every value of another gives each back unchanged",
    ),
    rule(
        "cast-of-widening",
        "un(f, un(g, a)) => un(h, a)",
        when="h = cast_through(f, g, dtype(a))",
        source=_CONVERT,
        why="two conversions in a row are one where the first loses nothing",
    ),
)
