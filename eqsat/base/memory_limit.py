"""How much memory this process may use. Sizes are compared with the limit before anything large is allocated.

The search itself runs in a worker process with its own limit (`eqsat.egraph.saturate.Limits`). This limit is for data
that grows with a model's weights and values: constants computed ahead of time, and the values that the check computes.
Pages of mapped weights do not count: they are released as they are read (`eqsat.base.mapped`), and the system can take
them back at any time.

The search makes many small objects and no cycles of them, so it pauses the garbage collector, which finds cycles only.
So does a command while it loads: a fifth of that was spent on collecting.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from eqsat.base.arguments import integer
from eqsat.errors import InputError

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None

SHARE = 0.75
"""The default limit, as a share of the machine's memory that the process may use."""

UNKNOWN = 8 << 30
"""Bytes of memory assumed for a machine that does not report it."""

_CGROUPS = Path("/sys/fs/cgroup")


_pausing = Lock()
_pauses = 0
_collected = True


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector, until the last of all threads that paused it is done.

    Cyclic garbage is kept meanwhile. Where there is little, work on millions of small objects takes a quarter less
    time.
    """
    global _pauses, _collected
    with _pausing:
        if _pauses == 0:
            _collected = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _pausing:
            _pauses -= 1
            if _pauses == 0 and _collected:
                gc.enable()


def memory_limit(given: int | None) -> int:
    """Bytes that this process may use; the default if None is given.

    Raises:
        InputError: the limit is not a positive whole number.
    """
    if given is None:
        return int(SHARE * min(_machine(), _address_space()))
    number = integer(given)
    if number is None or number <= 0:
        raise InputError(f"memory_limit {given!r}: expected bytes, a whole number above 0, or None for the default")
    return number


def in_use() -> int:
    """Bytes of this process's memory that are not file-backed; 0 if the system does not report it."""
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
    """The files with the memory limits of a process's cgroups and their parents; `groups` is /proc/self/cgroup.

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
    """Bytes that this process may use by its address space limit (`ulimit -v`)."""
    if resource is None:
        return sys.maxsize
    try:
        bound, _ = resource.getrlimit(resource.RLIMIT_AS)
        mapped = int(_text("/proc/self/statm").split()[0]) * resource.getpagesize()
    except IndexError:  # not reported
        return sys.maxsize
    return sys.maxsize if bound == resource.RLIM_INFINITY else in_use() + max(0, bound - mapped)


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None
