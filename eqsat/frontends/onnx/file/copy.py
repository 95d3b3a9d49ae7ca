"""Copies ONNX files node for node, with their external data."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from eqsat.base.files import replacing, reserve
from eqsat.errors import InputError, refusing
from eqsat.frontends.onnx.file.load import external_files, external_tensors
from eqsat.frontends.onnx.file.wire import refer

if TYPE_CHECKING:
    from onnx import TensorProto


_RUN = 1 << 26
"""Bytes that the system is asked to copy at a time."""


def _go_on(complete: bool) -> None:
    pass


def copy_model(source: Path, target: Path, go_on: Callable[[bool], None] = _go_on) -> None:
    """Copy a model; all its external data goes to one file beside the copy.

    Args:
        go_on: called now and then, with whether all is copied and only the files' names are to be changed. If it
            raises, nothing is written.

    Raises:
        InputError: the model cannot be read, or the copy not be written.
    """
    data = [file for file in external_files(source) if file.resolve() != source.resolve()]
    if not data:
        with source.open("rb") as read, replacing(target) as write:
            _copy(read, write, go_on)
            go_on(True)
        return
    from onnx import load

    with refusing(lambda: str(source)):
        model = load(source, load_external_data=False)
    beside = target.with_name(f"{target.name}.data")
    starts: dict[Path, int] = {}
    with replacing(target) as file, replacing(beside) as joined:
        for path in data:
            starts[path.resolve()] = joined.tell()
            with path.open("rb") as read:
                _copy(read, joined, go_on)
        for tensor in external_tensors(model):
            _move(tensor, source.parent, beside.name, starts)
        file.write(model.SerializeToString())
        go_on(True)


class _Dropped(Exception):
    """A copy is not wanted any more."""


class EarlyCopy:
    """A copy of a model that is made beside other work, in a thread. No file has its name before `keep`."""

    def __init__(self, source: Path, target: Path) -> None:
        self._decided = threading.Event()
        self._dropped = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(source, target), daemon=True)
        self._thread.start()

    def keep(self) -> None:
        """Complete the copy.

        Raises:
            InputError: as `copy_model`, and whatever else it raised.
        """
        self._decided.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def drop(self) -> None:
        """Remove what was written, unless the copy was kept."""
        self._dropped = True
        self._decided.set()
        self._thread.join()

    def _run(self, source: Path, target: Path) -> None:
        try:
            copy_model(source, target, self._go_on)
        except _Dropped:
            pass
        except OSError as error:
            self._failure = InputError(f"{source}: cannot be copied ({error.strerror})")
        except Exception as error:  # noqa: BLE001 - raised again where the copy is wanted
            self._failure = error

    def _go_on(self, complete: bool) -> None:
        if complete:
            self._decided.wait()
        if self._dropped:
            raise _Dropped


@contextmanager
def copied_early(source: Path, target: Path) -> Iterator[EarlyCopy]:
    """An `EarlyCopy`, dropped at the end of the block unless it was kept."""
    copy = EarlyCopy(source, target)
    try:
        yield copy
    finally:
        copy.drop()


def _copy(source: BinaryIO, target: BinaryIO, go_on: Callable[[bool], None]) -> None:
    """Copy a file that was just opened. The system does it, where it can: some file systems share the blocks then."""
    target.flush()
    reserve(target, os.fstat(source.fileno()).st_size)
    copied = 0
    with suppress(OSError, AttributeError):  # not between these files, or not on this system
        while more := os.copy_file_range(source.fileno(), target.fileno(), _RUN):
            copied += more
            go_on(False)
    if copied:
        source.seek(copied)
        target.seek(os.lseek(target.fileno(), 0, os.SEEK_CUR))
    shutil.copyfileobj(source, target)


def _move(tensor: TensorProto, folder: Path, location: str, starts: Mapping[Path, int]) -> None:
    """Let a tensor refer to the joined file, where the file that held its data now starts there."""
    known = {entry.key: entry.value for entry in tensor.external_data}
    path = (folder / known["location"]).resolve()
    offset = int(known.get("offset", 0))
    length = int(known.get("length", path.stat().st_size - offset))
    refer(tensor, location, starts[path] + offset, length)
