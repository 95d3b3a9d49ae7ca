"""What a frontend's row raises where it does not cover a use of its operator."""

from __future__ import annotations

from eqsat.errors import EqsatError


class Declined(EqsatError):
    """A row does not cover this use of its operator: the operator stays as it is."""
