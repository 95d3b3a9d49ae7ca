"""How users declare rules of their own: `from eqsat.rule import rule`."""

from eqsat.language.equation import rule

__all__ = ["rule"]
