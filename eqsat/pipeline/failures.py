"""What the check refused, kept in a folder that reproduces it: the program and how it was optimised."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from eqsat.base.files import write_folder
from eqsat.errors import EqsatError, InputError
from eqsat.program.ir import Program

LARGEST = 256 << 20
"""Bytes of constants up to which a program is kept: beyond, only how it was optimised and its text are."""

_SHOWN = 1 << 20
"""Characters of a program's text."""


def failures_dir() -> Path:
    """Where refused programs are kept: $EQSAT_STATE_DIR/failures, else in the user's state folder."""
    import platformdirs

    return Path(os.environ.get("EQSAT_STATE_DIR") or platformdirs.user_state_dir("eqsat")) / "failures"


def keep(program: Program, settings: Mapping[str, Any], refused: list[str]) -> Path | None:
    """Write a folder that reproduces a failed check; None where nothing can be written there.

    It holds `settings.json` and the program as ONNX, as a pickle and as text. The same failure is kept once.
    """
    text = str(program)
    digest = hashlib.sha256(f"{text}{dict(settings)}".encode()).hexdigest()[:16]
    about: dict[str, Any] = {"settings": dict(settings), "refused": refused, "versions": _versions()}

    def fill(folder: Path) -> None:
        about["files"] = _write_program(program, folder)
        (folder / "program.txt").write_text(text[:_SHOWN], encoding="utf-8", errors="backslashreplace")
        (folder / "settings.json").write_text(json.dumps(about, indent=1, default=str))

    try:
        target = failures_dir() / digest
        write_folder(target, fill, "settings.json")
    except (InputError, OSError, RuntimeError):  # a home that cannot be found is a RuntimeError
        return None
    return target


def _write_program(program: Program, folder: Path) -> dict[str, str]:
    """The files that hold the program, and why others do not: ONNX for `eqsat optimize`, a pickle of the very terms."""
    from eqsat.frontends.onnx.write.model import to_onnx

    size = sum(t.attr("value").array.nbytes for t in program.terms() if t.op == "constant")
    if size > LARGEST:
        return {"program": f"not kept: {size / 1e9:.1f} GB of constants"}
    kept: dict[str, str] = {}
    try:
        to_onnx(program, folder / "program.onnx")
        kept["program.onnx"] = "as ONNX"
    except EqsatError as error:
        kept["program.onnx"] = f"not written: {error}"
    try:
        (folder / "program.pickle").write_bytes(pickle.dumps(program))
        kept["program.pickle"] = "an eqsat.Program"
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        kept["program.pickle"] = f"not written: {error}"
    return kept


def _versions() -> dict[str, str]:
    names = ("eqsat", "egglog", "numpy", "onnx", "highspy")
    found = {d.metadata["Name"]: d.version for d in metadata.distributions() if d.metadata["Name"] in names}
    return dict(sorted(found.items())) | {"python": platform.python_version(), "system": platform.platform()}
