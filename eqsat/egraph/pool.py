"""The workers that saturate. They are apart from what they are asked for, so that one can be started before that is
loaded."""

from __future__ import annotations

import os

from eqsat.base.worker import Pool

MEMORY = 3 << 30
"""Bytes of address space that a worker may take, if its caller does not say."""

WORKERS = Pool("eqsat.egraph.saturate:Saturations", most=max(2, os.cpu_count() or 1))
"""One for each thread that saturates; beyond the processors, threads wait for each other within their time limits."""


STARTING = 0.5
"""Seconds from the start of a process in which no worker is ready."""


def start() -> None:
    """Start a worker, if there is none: it loads egglog while the caller loads the rest of a command."""
    with WORKERS.lent(MEMORY, None, timeout=0.0):
        pass
