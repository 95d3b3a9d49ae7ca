"""The disk cache of compiled kernels: a file per digest of everything that went into it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEMPLATES = HERE / "templates"
SIMT = HERE / "simt"


def cache_dir() -> Path:
    """Where compiled kernels and tuning results live: $EQSAT_CACHE_DIR, else the user's cache folder."""
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


def entry(kind: str, key: str, suffix: str) -> Path:
    """Where the cache keeps the file for `key`, which may not be there."""
    return cache_dir() / kind / f"{key}{suffix}"


def cached(kind: str, key: str, suffix: str, build: Callable[[Path], object]) -> Path:
    """The file for `key`; `build` writes it to the path that it is given if the cache has none.

    Written beside its place and renamed, so that a reader never sees half a file and two builders do not clash.
    """
    path = entry(kind, key, suffix)
    if not path.exists():
        _put(path, build)
    return path


def replace_text(path: Path, text: str) -> None:
    """Write a text file in one step, over the one that is there."""
    _put(path, lambda draft: draft.write_text(text))


def _put(path: Path, build: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        draft = Path(scratch) / path.name
        build(draft)
        os.replace(draft, path)
