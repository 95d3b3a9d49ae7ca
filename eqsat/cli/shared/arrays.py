"""Reads a program's inputs and expected outputs from .npz files, and writes its outputs to them.

An array named `x` or `in_x` is the value of input `x`. An array named `out_NAME`, or `out_0`, `out_1` ... in order, is
the expected value of an output. NumPy's file format has no bfloat16, float8 or int4: such arrays are stored in a type
that holds all their values (float32, int8, uint8).
"""

from __future__ import annotations

import io
import lzma
import math
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import numpy as np

from eqsat.base.compare import relative_error
from eqsat.base.files import file_size, replaces, replacing
from eqsat.base.memory_limit import in_use, memory_limit
from eqsat.base.numerics import np_dtype
from eqsat.errors import InputError

if TYPE_CHECKING:
    from eqsat.program.ir import Program

_SINGLE = b"\x93NUMPY"
"""The first bytes of an .npy file."""

_NO_HEADER = (ValueError, TypeError, OverflowError, SyntaxError, MemoryError, tokenize.TokenError)
"""What NumPy raises for a header that is none: it reads up to 10 000 characters as a Python literal, of any nesting."""

_MOST_ELEMENTS = 2**63 - 1
"""Of an axis in NumPy."""

Arrays = dict[str, np.ndarray[Any, Any]]


def read_arrays(path: Path, program: Program) -> tuple[Arrays, Arrays]:
    """The program's inputs in `path`, and the expected outputs in it, if any.

    Raises:
        InputError: no such file, not an .npz, an array that is neither an input nor an expected output, or two arrays
            for one. Missing inputs, wrong shapes and wrong dtypes are found when the program runs.
    """
    names = set(program.input_names)
    outputs = list(program.outputs)
    expected_as = {f"out_{i}": name for i, name in enumerate(outputs)} | {f"out_{name}": name for name in outputs}
    inputs: Arrays = {}
    expected: Arrays = {}
    for key, array in _load(path).items():
        if key in names or key.removeprefix("in_") in names:
            name, of = key if key in names else key.removeprefix("in_"), inputs
        elif key in expected_as:
            name, of = expected_as[key], expected
        else:
            raise InputError(f"{path}: {program.no_input(key)}")
        if name in of:
            raise InputError(f"{path}: holds {name!r} under two names, one of them {key!r}; leave one of them out")
        of[name] = array
    taken = {term.attr("name"): term for term in program.inputs}
    given = {name: _restored(array, np_dtype(taken[name].dtype)) for name, array in inputs.items()}
    wanted = {name: _seen(array, np_dtype(program.outputs[name].dtype)) for name, array in expected.items()}
    for name, array in (given | wanted).items():
        if array.dtype.type is np.void:
            raise InputError(f"{path}: {name!r} holds bare bytes; save numbers of the program's element types")
    return given, wanted


def _load(path: Path) -> Arrays:
    file_size(path, "the .npz file")
    try:
        with path.open("rb") as file:
            if file.read(len(_SINGLE)) == _SINGLE:
                raise InputError(f"{path}: holds a single array; save the inputs by name with numpy.savez")
        with zipfile.ZipFile(path) as archive:
            _check_members(path, archive)
        with np.load(path, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}
    except OSError as error:
        if error.errno is None:  # of bz2, for bytes that it did not compress
            raise _no_archive(path) from None
        raise InputError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError):
        raise _no_archive(path) from None


def _no_archive(path: Path) -> InputError:
    return InputError(f"{path}: is no .npz file of plain arrays; save the inputs with numpy.savez")


def _check_members(path: Path, archive: zipfile.ZipFile) -> None:
    """Check the headers of all arrays before anything is decompressed: a small file may expand to terabytes.

    Raises:
        InputError: an array of Python objects (never unpickled) or of other things than numbers, an array whose length
            differs from its header, or more bytes in total than this process may use.
        ValueError: a member is not an array.
    """
    held = 0
    twice = [name for name, count in Counter(map(_name, archive.namelist())).items() if count > 1]
    if twice:
        raise InputError(f"{path}: holds two arrays {twice[0]!r}; leave one of them out")
    for member in archive.infolist():
        with archive.open(member) as file:
            shape, dtype = _header(file)
            if dtype.hasobject:
                raise InputError(f"{path}: {member.filename!r} holds Python objects; save plain arrays")
            if not _numbers(dtype):
                raise InputError(f"{path}: {member.filename!r} holds {dtype}, which are no numbers of a program")
            said = math.prod(shape) * dtype.itemsize
            if said != member.file_size - file.tell():
                raise InputError(f"{path}: {member.filename!r} is not as long as its shape {shape} says; save it again")
            held += said
    room = memory_limit(None) - in_use()
    if held > room:
        raise InputError(f"{path}: holds {held} bytes of arrays; there is memory for {max(room, 0)}")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and the dtype that an .npy file claims.

    Raises:
        ValueError: it has no header, or one of sizes that no array has.
    """
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = header(file)
    except _NO_HEADER:
        raise ValueError("no header of an array") from None
    if not all(type(dim) is int and 0 <= dim <= _MOST_ELEMENTS for dim in shape):
        raise ValueError("no sizes of an array")
    return shape, dtype


def _numbers(dtype: np.dtype[Any]) -> bool:
    """Whether its elements are real numbers, or the bytes of those for which NumPy's files have no type."""
    return dtype.kind in "biuf" or dtype in (np.dtype("V1"), np.dtype("V2"))


def _name(member: str) -> str:
    """The array's name, as NumPy makes it from that of the archive's member."""
    return member.removesuffix(".npy")


def _restored(array: np.ndarray[Any, Any], wanted: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array of a type that NumPy's files lack, from its bytes or from the wider type it was stored in."""
    if wanted.isbuiltin != 1 and array.dtype == _travelling(wanted):
        return array.astype(wanted)
    return _seen(array, wanted)


def _seen(array: np.ndarray[Any, Any], wanted: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The bytes of a type that NumPy's files lack as numbers of that type; other arrays as they are."""
    of_it = wanted.isbuiltin != 1 and array.dtype == np.dtype(f"V{wanted.itemsize}")
    return array.view(wanted) if of_it else array


def _travelling(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A type that NumPy's files support and that holds every value of the dtype."""
    if dtype.isbuiltin == 1:
        return dtype
    return np.dtype(np.float32 if "float" in dtype.name else np.int8 if dtype.name.startswith("int") else np.uint8)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write `arrays` as an .npz file. Unlike `numpy.savez`, this allows any name, including `file`."""
    with replacing(path) as file:
        if replaces(path):
            _write_archive(file, arrays)
            return
        whole = io.BytesIO()  # devices say that they can seek, and cannot
        _write_archive(whole, arrays)
        file.write(whole.getbuffer())


def _write_archive(file: BinaryIO, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            plain = array.astype(_travelling(array.dtype), copy=False)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(plain), allow_pickle=False)


def largest_error(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """`relative_error` of numbers of any type."""
    return relative_error(got.astype(np.float64), expected.astype(np.float64))
