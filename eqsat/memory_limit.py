"""How much memory this process may take: judged from sizes before anything large is allocated.

The search itself runs in a worker with a limit of its own (`eqsat.saturate.Limits`). What grows with a model's weights
and values is here: constants that are computed ahead of time, and values of the check. Pages of mapped weights do not
count: they are let go of as they are read (`eqsat.mapped`), and the system takes them back when it needs them.
"""

from __future__ import annotations

import os
from pathlib import Path

from eqsat.errors import InputError

SHARE = 0.75
"""Part of the machine's memory, or of what a container may take of it, that is the limit by default."""

UNKNOWN = 8 << 30
"""Bytes of memory of a machine that does not say how many it has."""

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_limit(given: int | None) -> int:
    """Bytes that this process may take; the default where none are given.

    Raises:
        InputError: it is no positive whole number.
    """
    if given is None:
        return int(SHARE * _machine())
    if isinstance(given, bool) or not isinstance(given, int) or given <= 0:
        raise InputError(f"memory_limit {given!r}: expected bytes, a whole number above 0, or None for the default")
    return given


def in_use() -> int:
    """Bytes of this process that lie in no file; 0 where the system does not tell."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return 0


def _machine() -> int:
    try:
        sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, OSError, ValueError):
        sizes = [UNKNOWN]
    for path in _CGROUPS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            sizes.append(int(text))
    return min(sizes)
