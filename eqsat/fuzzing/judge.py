"""One case, judged as a task of a run, and what its outcome says."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eqsat.fuzzing.kinds import Fault, kind
from eqsat.runs.task import Outcome, Task, Tell

_ROOM = Path(__file__).parent.name


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a case: how often each word; for a fault also its cause, by which equal faults are found, and its
    text.
    """

    words: Mapping[str, int]
    cause: str = ""
    text: str = ""


def task(name: str, seed: int, models: Mapping[str, str], kept: Sequence[int] | None = None) -> Task:
    """The task to judge a case.

    Args:
        models: ONNX files to cut pieces from: path to digest.
        kept: the steps that make the case, if not all.
    """
    row = kind(name)
    given = {"kind": name, "seed": seed, "models": list(models.values()), "kept": None if kept is None else list(kept)}
    places = {"paths": list(models)}
    return Task(f"{name} {seed}", "eqsat.fuzzing.judge:judged", given, row.SECONDS, row.BYTES, places)


def judged(given: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """The verdict on a case, as JSON."""
    row = kind(given["kind"])
    try:
        found = row.judge(row.case(given["seed"], given["kept"], given["paths"]), tell)
        return {"words": {found: 1} if isinstance(found, str) else dict(found)}
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  whatever a case raises is what is looked for
        return {"words": {"fault": 1}, "cause": _cause(error), "text": "".join(traceback.format_exception(error))}


def _cause(error: Exception) -> str:
    """The kind of the exception and the function of eqsat that raised it; of a wrong answer, what is wrong."""
    if isinstance(error, Fault):
        return f"{type(error).__name__}: {str(error).splitlines()[0][:40]}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).parent.name != _ROOM] or list(frames)
    inner = [f for f in own if "/site-packages/" not in f.filename and "/lib/python" not in f.filename] or own
    return f"{type(error).__name__} in {Path(inner[-1].filename).name}:{inner[-1].name}"


def verdict(outcome: Outcome) -> Verdict:
    """What an outcome says: a process that died in foreign code is no fault of eqsat."""
    if outcome.value is not None:
        return Verdict(**outcome.result)
    if outcome.stage:
        return Verdict({f"{outcome.stage}: {outcome.failure}": 1})
    return Verdict({"fault": 1}, outcome.failure, outcome.trace)
