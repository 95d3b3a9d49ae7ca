"""Memory-mapped arrays in files, whose pages are released after they have been read.

A model's weights are read rarely and in long runs: to be hashed, folded, compared or written. Between two such runs
the pages of a mapped file need not stay in this process: the operating system's file cache brings them back.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from math import prod

import numpy as np

from eqsat.base.numerics import Array

BLOCK_BYTES = 1 << 24
"""Bytes of an array that are read before its pages are released."""

_LARGE = 1 << 20
"""Size in bytes from which releasing pages is worth a system call."""


def map_file(path: str | os.PathLike[str], dtype: np.dtype, offset: int, shape: tuple[int, ...]) -> Array:
    """A read-only array in a file; `offset` is in bytes. An empty array is not mapped."""
    if prod(shape) == 0:
        return np.zeros(shape, dtype)
    return np.asarray(np.memmap(path, dtype, "r", offset, shape))


def blocks(array: Array) -> Iterator[memoryview]:
    """The bytes of a contiguous array, block by block; if it is mapped, pages that have been read are released."""
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.size, BLOCK_BYTES):
        part = flat[start : start + BLOCK_BYTES]
        yield part.data
        release(part)


def release(array: Array) -> None:
    """Release the pages of a contiguous array in a file that is mapped to be read; any other array is left alone: its
    pages may hold changes that the file does not have."""
    if array.nbytes < _LARGE or not array.flags.c_contiguous:
        return
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if not isinstance(owner, mmap.mmap) or not memoryview(owner).readonly:
        return
    start = array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if length > 0 and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED, first, length)
