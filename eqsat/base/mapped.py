"""Arrays that lie in files: mapped where they are read, let go of where they have been.

A model's weights are read in long runs and seldom: to be hashed, folded, compared, written. The pages of a mapped file
need not stay in memory between two such runs, and the file's own cache brings them back.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from math import prod

import numpy as np

from eqsat.base.numerics import Array

BLOCK_BYTES = 1 << 24
"""How much of an array is read before its pages are let go of."""

_LARGE = 1 << 20
"""Bytes from which on letting go of pages is worth a system call."""


def map_file(path: str | os.PathLike[str], dtype: np.dtype, offset: int, shape: tuple[int, ...]) -> Array:
    """An array in a file, read-only; `offset` in bytes. An empty one holds nothing of the file."""
    if prod(shape) == 0:
        return np.zeros(shape, dtype)
    return np.asarray(np.memmap(path, dtype, "r", offset, shape))


def blocks(array: Array) -> Iterator[memoryview]:
    """The bytes of a contiguous array, block by block; the pages of a mapped one are let go of behind."""
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.size, BLOCK_BYTES):
        part = flat[start : start + BLOCK_BYTES]
        yield part.data
        release(part)


def release(array: Array) -> None:
    """Let go of the pages that a contiguous mapped array occupies; anything else stays as it is."""
    if array.nbytes < _LARGE or not array.flags.c_contiguous:
        return
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if not isinstance(owner, mmap.mmap):
        return
    start = array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if length > 0 and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED, first, length)
