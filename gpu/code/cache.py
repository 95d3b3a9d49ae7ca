"""The disk cache of compiled kernels: one file per digest of all its inputs."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from eqsat.base.files import write_text
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

    Its name holds a digest of its content, so that a truncated or foreign file is built again. It is written beside its
    place and renamed: a reader never sees half a file, and two builders do not clash. If the cache's folder cannot be
    written, a temporary one serves until the process ends.
    """
    for home in _homes():
        found = _whole(home / kind, key, suffix)
        if found is not None:
            return found
    try:
        return _built(cache_dir() / kind, key, suffix, build)
    except OSError:
        return _built(_without_cache() / kind, key, suffix, build)


def keep_text(kind: str, name: str, text: str) -> Path:
    """Store a text under a name, replacing an older one; returns its path."""
    path = cache_dir() / kind / name
    try:
        write_text(path, text, parents=True)
    except InputError:
        path = _without_cache() / kind / name
        write_text(path, text, parents=True)
    return path


def kept_text(kind: str, name: str) -> str | None:
    """The text stored under a name; None if there is none, or it cannot be read."""
    for home in _homes():
        try:
            return (home / kind / name).read_text(encoding="utf-8")
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
            if path.name == _name(key, path, suffix):
                return path
            path.unlink()
        except OSError:
            continue
    return None


def _built(folder: Path, key: str, suffix: str, build: Callable[[Path], object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        draft = Path(scratch) / f"{key}{suffix}"
        build(draft)
        path = folder / _name(key, draft, suffix)
        os.replace(draft, path)
    return path


def _name(key: str, path: Path, suffix: str) -> str:
    return f"{key}.{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}{suffix}"
