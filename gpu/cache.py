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


def cached(kind: str, key: str, suffix: str, build: Callable[[Path], None]) -> Path:
    """The file for `key`; `build` writes it to the path that it is given if the cache has none.

    Written beside its place and renamed, so that a reader never sees half a file and two builders do not clash.
    """
    folder = cache_dir() / kind
    path = folder / f"{key}{suffix}"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        draft = Path(scratch) / path.name
        build(draft)
        os.replace(draft, path)
    return path
