"""What may go wrong between a plan and a launch."""

from __future__ import annotations

from eqsat.errors import EqsatError


class NotLowerable(EqsatError):
    """A kernel that its family's template cannot express; the caller splits it into simpler ones."""


class CompileFailed(EqsatError):
    """A kernel text that a compiler refused: the message names the saved source and log."""


class DeviceFailed(EqsatError):
    """A GPU, or its driver, that stopped with an error of its own."""
