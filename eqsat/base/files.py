"""Atomic file writes: a file appears complete or not at all.

Data is written to a hidden file or folder beside the target, which is renamed once it is complete. A reader never sees
half a file, and a full disk leaves the old file in place. Pipes, devices and the process's own descriptors
(`/dev/stdout`) cannot be replaced and are written directly. `-` is stdout. There is no fsync: after a power cut, the
file system decides what is left.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from eqsat.base.arguments import shown
from eqsat.errors import InputError

Target = str | os.PathLike[str]

MOST_JSON = 1 << 31
"""Bytes of JSON that are read."""

MOST_PIPED = 1 << 31
"""Bytes that are read from a pipe."""

_CHUNK = 1 << 20
"""Bytes of a pipe that are read at once."""

_counter = itertools.count()
_DESCRIPTOR = re.compile(r"/dev/fd/(\d+)|/proc/self/fd/(\d+)")
_STANDARD = {"-": 1, "/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


def open_stderr() -> None:
    """Where this process was started with stderr closed, as a daemon, open the null device in its place.

    Else the next file that is opened gets its number, and with it whatever compiled code says.
    """
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)


@contextmanager
def replacing(target: Target) -> Iterator[BinaryIO]:
    """An open binary file that becomes `target` when the block ends, and vanishes if the block raises.

    An existing file keeps its permissions. If the target is a symbolic link, the file that it points to is replaced.

    Raises:
        InputError: the target cannot be written (no such folder, read-only, a folder, disk full); it is left unchanged.
    """
    with _named(target):
        descriptor = _descriptor(target)
        if descriptor is not None:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            with os.fdopen(os.dup(descriptor), "wb") as file:
                yield file
                _cut_here(file)
            return
        path, mode = _resolved(target)
        if mode is not None and not stat.S_ISREG(mode):
            with path.open("wb") as file:  # of a folder: raises, as it should
                yield file
            return
        if mode is not None and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        partial = _beside(path)
        try:
            with partial.open("xb") as file:
                if mode is not None:
                    partial.chmod(stat.S_IMODE(mode))
                yield file
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def _cut_here(file: BinaryIO) -> None:
    """End a regular file where writing has ended: what an older one held after that goes. Others append to a log."""
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        import fcntl

        if not fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & os.O_APPEND:
            file.truncate()


def replaces(target: Target) -> bool:
    """Whether `replacing` leaves a target alone until its block ends: not so for pipes, devices and descriptors."""
    with _named(target):
        mode = _resolved(target)[1]
        return _descriptor(target) is None and (mode is None or stat.S_ISREG(mode))


def reserve(file: BinaryIO, size: int) -> None:
    """Let the file system reserve `size` more bytes for a file, where it can.

    ext4 writes a new file to the disk before it replaces another one, unless the file's place there was reserved
    ("auto_da_alloc" in its manual): 0.25 s for 340 MB.

    Raises:
        OSError: there is no place for so many.
    """
    allocate = getattr(os, "posix_fallocate", None)
    if allocate is None:  # as on macOS and Windows
        return
    try:
        allocate(file.fileno(), file.tell(), size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise


def write_bytes(target: Target, data: bytes) -> None:
    """Write a file, as `replacing` does."""
    with replacing(target) as file:
        file.write(data)


def write_text(target: Target, text: str, *, parents: bool = False) -> None:
    """Write a text in UTF-8, as `replacing` does; with `parents`, missing folders are created."""
    if target == "-":
        with _named(target):
            sys.stdout.write(text)
            sys.stdout.flush()
        return
    if parents:
        make_folder(Path(target).parent)
    write_bytes(target, text.encode("utf-8", errors="backslashreplace"))


def file_path(given: Target) -> Path:
    """The path of a file to write. A `Path` of it does not tell that the name was one of a folder.

    Raises:
        InputError: the name ends like that of a folder, and there is none.
    """
    with _named(given):
        _resolved(given)
    return Path(given)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents. Raises InputError if that fails."""
    with _named(path):
        path.mkdir(parents=True, exist_ok=True)


def write_folder(target: Target, fill: Callable[[Path], object], last: str) -> None:
    """Write a folder: `fill` writes the files into an empty temporary folder, from which they are moved to `target`.

    An existing folder keeps its other files. The new ones are moved in once all are complete, `last` at the end.

    Raises:
        InputError: the folder cannot be created or written. It is unchanged, unless files were already being moved in.
    """
    with _named(target):
        path = Path(os.path.realpath(target))
        there = path.is_dir()
        home = path if there else next(p for p in path.parents if p.exists())
        partial = _beside(home / path.name)
        try:
            partial.mkdir()
            fill(partial)
            if there:
                for name in sorted((p.name for p in partial.iterdir()), key=lambda name: (name == last, name)):
                    os.replace(partial / name, path / name)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                os.rename(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def read_bytes(path: Path, most: int, what: str) -> bytes:
    """The bytes of a regular file, or of a pipe of this process (`/dev/stdin`, `/dev/fd/3`).

    Args:
        most: the maximum size in bytes.
        what: a description of the expected file, for messages: 'the .onnx file'.

    Raises:
        InputError: no such file, a folder, a pipe or device that may never end, no permission, more than `most` bytes.
    """
    with _readable(path):
        size = file_size(path, what)
        if size <= most:
            with path.open("rb") as file:
                data = b"".join(_parts(file, size, most + 1))
            if len(data) <= most:
                return data
    raise InputError(f"{path}: has more than {most} bytes; give {what}")


def _parts(file: BinaryIO, size: int, most: int) -> Iterator[bytes]:
    """What a file holds, at most so many bytes: all of a file of this size at once, a pipe in chunks.

    A read takes memory for all that it asks for, whatever there is.
    """
    wanted = size + 1
    while wanted > 0:
        part = file.read(wanted)
        yield part
        most -= len(part)
        if len(part) < wanted:
            return
        wanted = min(_CHUNK, most)


def read_json(path: Path, what: str) -> Any:
    """What a file of JSON says, of at most `MOST_JSON` bytes.

    Raises:
        InputError: as `read_bytes`; or it is not JSON, nested too deeply, or gives a name twice in one object.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise InputError(f"{path}: {shown(twice)} is given twice in one object; of two values none can be trusted")
        return found

    try:
        return json.loads(read_bytes(path, MOST_JSON, what), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:  # no JSON, no text, too many digits
        raise InputError(f"{path}: not JSON ({error}); give {what}") from None


def file_size(path: Path, what: str) -> int:
    """The size in bytes of a file that ends: a regular one, or a pipe of this process, whose size is 0.

    Raises:
        InputError: no such file, a folder, or a pipe or device that may never end.
    """
    with _readable(path):
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise InputError(f"{path}: is a folder; give {what} inside it")
        own = _descriptor(path) is not None
        if not stat.S_ISREG(found.st_mode) and not (own and not stat.S_ISCHR(found.st_mode)):
            raise InputError(f"{path}: is a pipe or a device; give {what} as a file")
        return found.st_size


def keep_pipe(path: Path) -> None:
    """Let a pipe of this process be read more than once: its descriptor becomes that of a file with what came through.

    The path stays the same, and opens that file each time. Any other path is left alone.

    Raises:
        InputError: too much comes, or it cannot be kept.
    """
    descriptor = _descriptor(path)
    with _readable(path):
        if descriptor is None or not path.is_fifo():
            return
        with os.fdopen(descriptor, "rb", closefd=False) as pipe, tempfile.TemporaryFile() as file:
            for part in _parts(pipe, 0, MOST_PIPED + 1):
                file.write(part)
            if file.tell() > MOST_PIPED:
                raise InputError(f"{path}: more than {MOST_PIPED} bytes come through this pipe; give a file")
            file.seek(0)
            os.dup2(file.fileno(), descriptor)


def elsewhere(path: Target) -> Target:
    """The path by which another process opens the same file: a descriptor's number means a file of its own there."""
    descriptor = _descriptor(path)
    return path if descriptor is None else f"/proc/{os.getpid()}/fd/{descriptor}"


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Reading a file fails in one line."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    except ValueError:
        raise InputError(f"{path}: cannot be read (a NUL in the name); check the path") from None


def check_outputs(
    inputs: Mapping[str, Target | None],
    outputs: Mapping[str, Target | None],
    perhaps: Mapping[str, Target | None] = {},
) -> None:
    """Before any work, refuse outputs that would overwrite an input or each other, or whose folder does not exist.

    Args:
        inputs, outputs: the name of each file in messages, and its path; None if the option was not given.
        perhaps: files that are written only where much is to be stored. Their folders are not looked at.

    Raises:
        InputError: two paths are the same file, also through links, descriptors or another spelling (pipes and
            devices are exempt), the folder of an output does not exist, or an output is itself a folder.
    """
    known: list[tuple[str, frozenset[object]]] = []
    for name, path in inputs.items():
        if path is not None:
            with _readable(Path(path)):
                known.append((name, _identity(path)))
    for name, path in {**outputs, **perhaps}.items():
        if path is None:
            continue
        if not os.fspath(path):
            raise InputError(f"{name}: the path is empty; give a file")
        with _named(path):
            identity = _identity(path)
        for other, taken in known:
            if identity and taken and identity & taken:
                verb = "would overwrite" if other in inputs else "is also the file of"
                raise InputError(f"{name} {path} {verb} {other}; choose another file")
        known.append((name, identity))
        if name in outputs and _descriptor(path) is None:
            with _named(path):
                _check_place(path)


def _check_place(target: Target) -> None:
    path, mode = _resolved(target)
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not path.parent.is_dir():
        raise FileNotFoundError


def _identity(target: Target) -> frozenset[object]:
    """Keys that any two names of the same regular file share; empty for targets that may be written twice."""
    descriptor = _descriptor(target)
    place = os.path.realpath(target) if descriptor is None else descriptor
    try:
        found = os.stat(place)
    except OSError:
        folds = sys.platform in ("win32", "darwin")
        return frozenset({place.casefold() if folds and isinstance(place, str) else place})
    if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        return frozenset({place, (found.st_dev, found.st_ino)})
    return frozenset() if descriptor is None else frozenset({descriptor})


def _descriptor(target: Target) -> int | None:
    """The file descriptor of this process that a path refers to, if any."""
    path = os.fspath(target)
    found = _DESCRIPTOR.fullmatch(path)
    return int(found[1] or found[2]) if found else _STANDARD.get(path)


def _resolved(target: Target) -> tuple[Path, int | None]:
    """The path with links resolved, and the mode of the file; None for the mode if the file does not exist."""
    path = Path(os.path.realpath(target))
    if os.fspath(target).endswith(os.sep) and not path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    try:
        return path, path.stat().st_mode
    except FileNotFoundError:
        return path, None


def _beside(path: Path) -> Path:
    """A new name in the same folder. It is short, because the target's name may already have the maximum length."""
    return path.with_name(f".eqsat-{os.getpid()}-{next(_counter)}.partial")


@contextmanager
def _named(target: Target) -> Iterator[None]:
    """Turns file system errors into an InputError that names the target."""
    shown = "stdout" if _descriptor(target) == 1 else os.fspath(target)
    try:
        os.fsencode(target)
    except UnicodeEncodeError:
        raise InputError(f"{shown}: cannot be written (no name of a file); choose another path") from None
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = "no such folder" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise InputError(f"{shown}: cannot be written ({reason}); choose another path") from None
    except ValueError as error:
        if "null byte" in str(error):
            raise InputError(f"{shown!r}: cannot be written (a NUL in the name); choose another path") from None
        raise
