"""How much memory this process may take: judged from sizes before anything large is allocated.

The search itself runs in a worker with a limit of its own (`eqsat.egraph.saturate.Limits`). What grows with a model's
weights and values is here: constants that are computed ahead of time, and values of the check. Pages of mapped weights
do not
count: they are let go of as they are read (`eqsat.base.mapped`), and the system takes them back when it needs them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from eqsat.errors import InputError

try:
    import resource
except ImportError:  # Windows has no such bounds
    resource = None

SHARE = 0.75
"""The default limit, as a part of the memory that the machine has and the process may use."""

UNKNOWN = 8 << 30
"""Bytes of memory of a machine that does not say how many it has."""

_CGROUPS = Path("/sys/fs/cgroup")


def memory_limit(given: int | None) -> int:
    """Bytes that this process may take; the default where none are given.

    Raises:
        InputError: it is no positive whole number.
    """
    if given is None:
        return int(SHARE * min(_machine(), _address_space()))
    if isinstance(given, bool) or not isinstance(given, int) or given <= 0:
        raise InputError(f"memory_limit {given!r}: expected bytes, a whole number above 0, or None for the default")
    return given


def in_use() -> int:
    """Bytes of this process that lie in no file; 0 where the system does not tell."""
    for line in _text("/proc/self/status").splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    return 0


def _machine() -> int:
    try:
        sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, OSError, ValueError):
        sizes = [UNKNOWN]
    sizes += [size for path in _group_files(_text("/proc/self/cgroup")) if (size := _number(_text(path))) is not None]
    return min(sizes)


def _group_files(groups: str) -> list[Path]:
    """The files that limit the memory of a process: of its groups, given as the system lists them, and those above.

    >>> [str(path) for path in _group_files("0::/user/job")]  # doctest: +NORMALIZE_WHITESPACE
    ['/sys/fs/cgroup/user/job/memory.max', '/sys/fs/cgroup/user/memory.max', '/sys/fs/cgroup/memory.max']
    """
    found: list[Path] = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            root, name = (_CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (_CGROUPS, "memory.max")
            own = Path(path.lstrip("/"))
            found += [root / group / name for group in (own, *own.parents)]
    return found


def _address_space() -> int:
    """Bytes that this process may come to, by the bound on its address space (`ulimit -v`)."""
    if resource is None:
        return sys.maxsize
    try:
        bound, _ = resource.getrlimit(resource.RLIMIT_AS)
        mapped = int(_text("/proc/self/statm").split()[0]) * resource.getpagesize()
    except IndexError:  # it does not tell
        return sys.maxsize
    return sys.maxsize if bound == resource.RLIM_INFINITY else in_use() + max(0, bound - mapped)


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None
