"""A search for faults: cases one after the other, faults by cause, each shrunk to what it needs."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eqsat.base.files import make_folder, read_json, write_bytes, write_text
from eqsat.errors import InputError, missing
from eqsat.fuzzing.judge import Verdict, task, verdict
from eqsat.fuzzing.kinds import kind, parts
from eqsat.runs.guarded import Processes
from eqsat.runs.run import run
from eqsat.runs.store import Store
from eqsat.runs.task import Task


@dataclass(slots=True)
class Found:
    """What a search found: how often each word, by kind; and for each cause of a fault the least seed that has it."""

    words: dict[str, Counter[str]] = field(default_factory=dict)
    faults: dict[tuple[str, str], tuple[int, Verdict]] = field(default_factory=dict)

    def add(self, name: str, seed: int, seen: Verdict) -> None:
        """Count the words for a case of the kind `name`."""
        self.words.setdefault(name, Counter()).update(seen.words)
        if seen.cause:
            key = name, seen.cause
            self.faults[key] = min(self.faults.get(key, (seed, seen)), (seed, seen), key=lambda fault: fault[0])

    @property
    def cases(self) -> int:
        return sum(words.total() for words in self.words.values())


def cases(counts: Mapping[str, int], first: int, models: Mapping[str, str], seconds: float) -> Iterator[Task]:
    """Tasks of all kinds in turns, so many of each, until the time is up.

    Args:
        counts: by kind; seeds count up from `first`.
    """
    ends = time.monotonic() + seconds
    for i in range(max(counts.values(), default=0)):
        for name, count in counts.items():
            if time.monotonic() >= ends:
                return
            if i < count:
                yield task(name, first + i, models)


def search(
    tasks: Iterable[Task],
    store: Store,
    workers: int,
    on: str | None = None,
    told: Callable[[Found], None] = lambda found: None,
) -> Found:
    """Judge the cases; `told` is called after each.

    If a case with parts has a fault or ends in foreign code, its parts are judged alone and count in its place. The
    whole counts as a fault only if none of them is one.
    """
    found = Found()
    for each, outcome, _ in run(tasks, store, workers, on):
        name, seed, seen = each.given["kind"], each.given["seed"], verdict(outcome)
        sound = outcome.value is not None and not seen.cause
        alone = [] if sound else [(part, verdict(own)) for part, own, _ in run(_parts(each), store, workers, on)]
        for part, its in alone:
            found.add(part.given["kind"], part.given["seed"], its)
        if not alone or (seen.cause and not any(its.cause for _, its in alone)):
            found.add(name, seed, seen)
        told(found)
    return found


def _parts(whole: Task) -> list[Task]:
    """The parts of a case as tasks."""
    models = dict(zip(whole.places["paths"], whole.given["models"], strict=True))
    return [task(*part, models) for part in parts(whole.given["kind"], whole.given["seed"])]


def shrunk(name: str, seed: int, cause: str, models: Mapping[str, str]) -> list[int]:
    """The steps of a case that a fault needs. All others are left out: first all steps, then halves, quarters,
    and so on to single ones.
    """
    processes = Processes(1)
    try:
        kept = list(range(kind(name).steps(seed)))
        size = 2 * len(kept)
        while size > 1:
            size = -(-size // 2)
            for start in reversed(range(0, len(kept), size)):
                fewer = kept[:start] + kept[start + size :]
                if verdict(processes.done(task(name, seed, models, fewer))).cause == cause:
                    kept = fewer
        return kept
    finally:
        processes.close()


def save(
    folder: Path,
    name: str,
    seed: int,
    kept: Sequence[int],
    models: Mapping[str, str],
    seen: Verdict,
    read: Iterable[Path] = (),
) -> Path:
    """Write the file that reproduces a fault (`again`), and the case as files for people beside it.

    Args:
        read: the files of the models, which are not written over.
    """
    make_folder(folder)
    row = kind(name)
    files = row.files(row.case(seed, kept, list(models)))
    path = _free(folder / f"{name}-{seed}.json", files, {file.resolve() for file in read})
    data = {"schema": 1, "kind": name, "seed": seed, "kept": list(kept), "models": dict(models), "cause": seen.cause}
    write_text(path, json.dumps(data | {"text": seen.text}, indent=2) + "\n")
    for ending, content in files.items():
        write_bytes(path.with_suffix(ending), content)
    return path


def _free(path: Path, endings: Iterable[str], read: Set[Path]) -> Path:
    """The path, or one with a longer name, so that no file of that name and these endings was read."""
    while any(each.resolve() in read for each in (path, *map(path.with_suffix, endings))):
        path = path.with_stem(f"{path.stem}-again")
    return path


def again(path: Path) -> Verdict:
    """The verdict on the case that a file of `save` describes.

    Raises:
        InputError: the file describes none.
    """
    try:
        data: Any = read_json(path, "the file of a fault")
        asked = task(data["kind"], int(data["seed"]), dict(data["models"]), [int(step) for step in data["kept"]])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: does not describe a case ({missing(error)})") from None
    processes = Processes(1)
    try:
        return verdict(processes.done(asked))
    finally:
        processes.close()
