"""Refused results and failed searches: the best result that passes, and a folder that reproduces the failure."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from eqsat.base.files import write_folder
from eqsat.check.inputs import SEED
from eqsat.errors import CheckFailed, CheckTooLarge, CheckUndecided, EqsatError, InputError
from eqsat.pipeline.report import advice_on
from eqsat.pipeline.result import Result
from eqsat.pipeline.selection import Reason, Selection
from eqsat.program.ir import Program
from eqsat.search.search import Problem

LARGEST = 256 << 20
"""Largest constants, in bytes, of a program that is kept; of others only the settings and the text are kept."""

SHORT: Mapping[type[EqsatError], Literal["memory", "time"]] = {CheckTooLarge: "memory", CheckUndecided: "time"}
"""What was short where the check could not tell: no defect, as far as it is known."""

_SHOWN = 1 << 20
"""Most characters of a program's text."""


def what_passes(
    selection: Selection,
    made: Callable[..., Result],
    refused: list[EqsatError],
    in_time: Callable[[], bool],
    about: Callable[[Selection], dict[str, Any]],
) -> tuple[Result, Selection]:
    """The result after the check refused a selection, and the selection that it was made from. Forms that pass by
    themselves are optimised, the others stay as written. Further refusals are added to `refused`.

    Args:
        made: builds and checks a result; with `unchecked`, the source itself.
        in_time: whether there is time to try one more form.
        about: the report's entry on a fallback.

    Raises:
        CheckFailed: even the program as written differs.
    """
    changed = selection.changed()
    passing: list[tuple] = []
    for form in changed if len(changed) > 1 else ():
        if not in_time():
            break
        others = [other for other in changed if other is not form]
        if _passes(lambda others=others: made(selection.keep(others, "refused")), refused):
            passing.append(form)
    kept = selection
    for passed in (passing, []) if passing else ([],):
        kept = selection.keep([form for form in changed if form not in passed], _reason(refused))
        try:
            return made(kept), kept
        except CheckFailed as error:
            refused.append(error)
    if type(refused[-1]) in SHORT:
        kept = selection.keep(selection.solved, _reason(refused))
        return made(kept, unchecked=True), kept
    raise type(refused[-1])(
        f"{refused[-1]}, even as it is written: run the program without eqsat. {advice_on(about(kept))}"
    )


def _reason(refused: Sequence[EqsatError]) -> Reason:
    """Why forms stay as written after these refusals."""
    return "time" if all(isinstance(error, CheckUndecided) for error in refused) else "refused"


def _passes(work: Callable[[], Result], refused: list[EqsatError]) -> bool:
    """Whether the check passes; a refusal is added to `refused`."""
    try:
        work()
    except CheckFailed as error:
        refused.append(error)
        return False
    return True


def fallback(
    problem: Problem, selection: Selection, refused: Sequence[EqsatError], asked: Mapping[str, Any]
) -> dict[str, Any]:
    """The failure or refusal, for the report, and the folder that reproduces it, unless time or memory was short.

    `asked` are the arguments of `optimize` that reproduce the failure.
    """
    told = list(dict.fromkeys(map(str, refused)))
    failed = {form for form, x in selection.found.items() if x.failed is not None}
    left = failed | {form for form, reason in selection.kept.items() if reason in ("refused", "time")}
    parts = sum(part.form in left for part in problem.parts)
    about: dict[str, Any] = {"parts": parts, "of": len(problem.parts), "refused": told, "folder": None}
    if all(type(error) in SHORT for error in refused):
        return about | {"cause": SHORT[type(refused[0])]}
    own = {
        "device": problem.asked.device.name,
        "time_limit": problem.budget.limit,
        "seed": SEED,
        "rules": [row.name for row in problem.asked.rules],
    }
    folder = keep(problem.source, {**asked, **own}, told)
    return about | {"cause": "failed" if failed else "differs", "folder": folder and str(folder)}


def failures_dir() -> Path:
    """Where refused programs are kept: $EQSAT_STATE_DIR/failures, else in the user's state folder."""
    import platformdirs

    return Path(os.environ.get("EQSAT_STATE_DIR") or platformdirs.user_state_dir("eqsat")) / "failures"


def keep(program: Program, settings: Mapping[str, Any], refused: list[str]) -> Path | None:
    """Write a folder that reproduces a failed check; None if it cannot be written.

    It holds `settings.json` and the program as ONNX, as a pickle and as text. Equal failures are kept once.
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
    """The files with the program (ONNX for `eqsat optimize`, a pickle of the exact terms), and why any are missing."""
    from eqsat.frontends.onnx.write.model import to_onnx

    size = program.constant_bytes()
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
