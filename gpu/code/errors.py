"""Errors between a plan and a launch."""

from __future__ import annotations

from eqsat.errors import EqsatError


class NotLowerable(EqsatError):
    """The family's template cannot express a kernel; the caller splits it into simpler ones."""


class CompileFailed(EqsatError):
    """A compiler refused a kernel text: the message names the saved source and log."""


class DeviceFailed(EqsatError):
    """The GPU or its driver reported an error."""
