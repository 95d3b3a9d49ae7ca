"""The disk cache of compiled kernels: one file per digest of all its inputs."""

from __future__ import annotations

import atexit
import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from eqsat.errors import InputError

HERE = Path(__file__).resolve().parents[1]
TEMPLATES = HERE / "templates"
SIMT = HERE / "simt"


def cache_dir() -> Path:
    """The folder of compiled kernels and tuning results: $EQSAT_CACHE_DIR, else the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("EQSAT_CACHE_DIR") or platformdirs.user_cache_dir("eqsat"))


@cache
def headers_digest() -> str:
    """A digest of every header that kernels or the checker include."""
    digest = hashlib.sha256()
    for path in sorted([*TEMPLATES.glob("*.h"), *SIMT.glob("*.h"), *SIMT.glob("*.cpp")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def digest_of(*parts: str | Iterable[str]) -> str:
    """A digest of texts and lists of texts, headers included."""
    digest = hashlib.sha256(headers_digest().encode())
    for part in parts:
        for text in (part,) if isinstance(part, str) else tuple(part):
            digest.update(str(len(text)).encode() + b":" + text.encode())
    return digest.hexdigest()[:32]


@cache
def generator_digest() -> str:
    """A digest of everything that writes kernel texts and launches."""
    digest = hashlib.sha256()
    for path in sorted([*HERE.rglob("*.py"), *HERE.rglob("*.jinja"), *TEMPLATES.glob("*.h")]):
        digest.update(str(path.relative_to(HERE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def cached(kind: str, key: str, suffix: str, build: Callable[[Path], object]) -> Path:
    """The file for `key`; `build` writes it to the path that it is given if the cache has none.

    Its name holds a digest of its content, so that a truncated or foreign file is built again. It is built elsewhere,
    because the cache's disk may be full, which a compiler takes for a fault of the source. If the cache's folder cannot
    be written, a temporary one serves until the process ends.
    """
    for home in _homes():
        found = _whole(home / kind, key, suffix)
        if found is not None:
            return found
    with _said(), tempfile.TemporaryDirectory(prefix="eqsat-") as scratch:
        draft = Path(scratch) / f"{key}{suffix}"
        build(draft)
        content = draft.read_bytes()
        return _kept(f"{kind}/{_name(key, content, suffix)}", content, stat.S_IMODE(draft.stat().st_mode))


def keep_text(kind: str, name: str, text: str) -> Path:
    """Store a text under a name, replacing an older one; returns its path."""
    return _kept(f"{kind}/{name}", text.encode("utf-8", errors="backslashreplace"))


def kept_text(kind: str, name: str) -> str | None:
    """The text stored under a name; None if there is none, or it cannot be read."""
    for home in _homes():
        try:
            return _content(home / kind / name).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _homes() -> list[Path]:
    """The folders that may hold files: the cache, and this process's own if it has one."""
    return [cache_dir(), *([_without_cache()] if _without_cache.cache_info().currsize else [])]


@cache
def _without_cache() -> Path:
    """A folder for this process alone."""
    folder = Path(tempfile.mkdtemp(prefix="eqsat-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _whole(folder: Path, key: str, suffix: str) -> Path | None:
    """The file for `key` whose content matches the digest in its name; damaged ones are deleted."""
    try:
        found = sorted(path for path in folder.glob(f"{key}.*") if path.name.endswith(suffix))
    except OSError:
        return None
    for path in found:
        try:
            if _is_whole(path, key, suffix):
                return path
            path.unlink()
        except OSError:
            continue
    return None


class _NoFile(OSError):
    """A pipe, a device or a folder is in the place of a file."""


def _is_whole(path: Path, key: str, suffix: str) -> bool:
    try:
        return path.name == _name(key, _content(path), suffix)
    except _NoFile:
        return False


def _content(path: Path) -> bytes:
    """What a regular file holds. A pipe in its place is not waited for: nobody may ever write to it.

    Raises:
        OSError: there is no such file, or none that can be read.
    """
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _NoFile(errno.EINVAL, os.strerror(errno.EINVAL))
        return file.read()


def _kept(name: str, content: bytes, mode: int | None = None) -> Path:
    """A file with this content in the cache; where the cache cannot be written, in a folder of this process alone.

    Raises:
        InputError: that one's disk is full, too.
    """
    try:
        return _put(cache_dir() / name, content, mode)
    except OSError:
        with _said():
            return _put(_without_cache() / name, content, mode)


@contextmanager
def _said() -> Iterator[None]:
    """A full disk of temporary files is named: of an error that names no file stdout is taken for the cause."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        place = tempfile.gettempdir()
        raise InputError(
            f"{place}: no room to compile a kernel ({error.strerror}); set TMPDIR to another folder"
        ) from None


def _put(path: Path, content: bytes, mode: int | None) -> Path:
    """Write a file beside its place and rename it: a reader never sees half of it, and two writers do not clash.
    Whatever else is in its place goes, unless it is a folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        draft = Path(scratch) / "draft"
        draft.write_bytes(content)
        if mode is not None:
            draft.chmod(mode)
        os.replace(draft, path)
    return path


def _name(key: str, content: bytes, suffix: str) -> str:
    return f"{key}.{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
