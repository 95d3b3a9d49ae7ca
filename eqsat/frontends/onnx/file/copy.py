"""Copies ONNX files node for node, with their external data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from eqsat.base.files import replacing
from eqsat.errors import refusing
from eqsat.frontends.onnx.file.load import external_files, external_tensors
from eqsat.frontends.onnx.file.wire import refer

if TYPE_CHECKING:
    from onnx import TensorProto


_RUN = 1 << 30
"""Bytes that the system is asked to copy at a time."""


def copy_model(source: Path, target: Path) -> None:
    """Copy a model; all its external data goes to one file beside the copy.

    Raises:
        InputError: the model cannot be read, or the copy not be written.
    """
    data = [file for file in external_files(source) if file.resolve() != source.resolve()]
    if not data:
        with source.open("rb") as read, replacing(target) as write:
            _copy(read, write)
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
                _copy(read, joined)
        for tensor in external_tensors(model):
            _move(tensor, source.parent, beside.name, starts)
        file.write(model.SerializeToString())


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    """Copy a file that was just opened. The system does it, where it can: some file systems share the blocks then."""
    target.flush()
    copied = 0
    with suppress(OSError, AttributeError):  # not between these files, or not on this system
        while more := os.copy_file_range(source.fileno(), target.fileno(), _RUN):
            copied += more
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
