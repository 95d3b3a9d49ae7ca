"""Fuzzing: judge random cases of one kind, each in a guarded process, until the time or the count is used up.

    python benchmarks/fuzz.py KIND [--seconds S] [--count N] [--seed K] [--workers W] [--save DIR] [--models DIR]
    python benchmarks/fuzz.py KIND --only SEED          # one case again, with its traceback

A kind is a module `fuzz_KIND.py` beside this file:

    SECONDS, BYTES                  limits of a case: wall time, address space on top of the process's own
    prepare(options)                once, before the workers are forked (optional)
    case(seed, kept) -> Any         the case of a seed; `kept`, if not None, says which of its steps to keep
    steps(seed) -> int              the number of its steps (optional; for shrinking)
    judge(case, stage) -> str       a word for the outcome; raises faults. `stage("foreign")`: foreign code runs from
                                    here on, whose crashes are no faults; `stage("")`: our code runs again
    save(case, folder, name)        save a case to files (optional)

Faults with the same exception from the same place count as one and are shown once. A fault is shrunk to the fewest
steps, and saved. The exit code is 1 if there was a fault. A seed always gives the same case.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Verdict:
    """The outcome of a case: a word; for a fault also its identity, by which equal faults are found, and its text."""

    word: str
    key: str = ""
    text: str = ""

    @property
    def fault(self) -> bool:
        return bool(self.key)


class Worker:
    """A forked process that judges one case after the other, and may be killed."""

    def __init__(self, kind: ModuleType) -> None:
        self.kind = kind
        self.ours, theirs = FORK.Pipe()
        self.process = FORK.Process(target=_serve, args=(kind, theirs), daemon=False)
        self.process.start()
        theirs.close()
        self.seed, self.stage, self.ends = -1, "", 0.0

    def start(self, seed: int, kept: Sequence[int] | None = None) -> None:
        self.seed, self.stage, self.ends = seed, "", time.monotonic() + self.kind.SECONDS
        self.ours.send((seed, kept))

    def poll(self, timeout: float) -> Verdict | None:
        """The verdict if there is one; None while the case runs. A dead or late process is killed first."""
        try:
            while self.ours.poll(timeout):
                said = self.ours.recv()
                if isinstance(said, Verdict):
                    return said
                self.stage = said
                timeout = 0.0
        except (EOFError, ConnectionResetError):
            return self._ended("died")
        if time.monotonic() < self.ends:
            return None
        return self._ended("hung")

    def _ended(self, how: str) -> Verdict:
        self.kill()
        code = self.process.exitcode or 0
        if self.stage:
            return Verdict(f"{self.stage} {how}")
        name = signal.Signals(-code).name if how == "died" and code < 0 else str(code)
        text = f"{how} ({name})" if how == "died" else f"no answer after {self.kind.SECONDS} s"
        return Verdict("fault", f"{how} {name if how == 'died' else ''}", text)

    @property
    def alive(self) -> bool:
        return self.process.is_alive()

    def kill(self) -> None:
        self.process.join(0.2)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.ours.close()


def _serve(kind: ModuleType, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + kind.BYTES, hard))
    while True:
        try:
            seed, kept = pipe.recv()
        except EOFError:
            return
        pipe.send(_judged(kind, seed, kept, pipe.send))


def _address_space() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def _judged(kind: ModuleType, seed: int, kept: Sequence[int] | None, stage: Any) -> Verdict:
    try:
        return Verdict(kind.judge(kind.case(seed, kept), stage))
    except Exception as error:  # noqa: BLE001 - whatever a case raises is what is looked for
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if "fuzz" not in f.filename] or list(frames)
        inner = [f for f in own if "/site-packages/" not in f.filename and "/lib/python" not in f.filename] or own
        key = f"{type(error).__name__} in {Path(inner[-1].filename).name}:{inner[-1].name}"
        if "Fault" in type(error).__name__:
            key = f"{type(error).__name__} {str(error)[:40]}"
        return Verdict("fault", key, "".join(traceback.format_exception(error)))


def run(
    kind: ModuleType, seeds: range, seconds: float, workers: int
) -> tuple[Counter[str], dict[str, tuple[int, Verdict]]]:
    """Judge the cases of the seeds: counts by word, and one seed for each fault."""
    words: Counter[str] = Counter()
    faults: dict[str, tuple[int, Verdict]] = {}
    waiting, ends = iter(seeds), time.monotonic() + seconds
    team = [Worker(kind) for _ in range(workers)]
    busy: list[Worker] = []
    try:
        while True:
            for i, worker in enumerate(team):
                if worker in busy:
                    continue
                seed = next(waiting, None) if time.monotonic() < ends else None
                if seed is None:
                    continue
                if not worker.alive or worker.ours.closed:
                    worker = team[i] = Worker(kind)
                worker.start(seed)
                busy.append(worker)
            if not busy:
                return words, faults
            wait([w.ours for w in busy], 0.05)
            for worker in list(busy):
                verdict = worker.poll(0.0)
                if verdict is None:
                    continue
                busy.remove(worker)
                if verdict.fault and not worker.ours.closed:  # its state may make the next case fail
                    worker.process.kill()
                    worker.kill()
                words[verdict.word] += 1
                if verdict.fault and verdict.key not in faults:
                    faults[verdict.key] = worker.seed, verdict
                    print(f"\n--- seed {worker.seed}: {verdict.key}\n{verdict.text}", flush=True)
    except KeyboardInterrupt:
        return words, faults
    finally:
        for worker in team:
            if not worker.ours.closed:
                worker.process.kill()
                worker.kill()


def once(kind: ModuleType, seed: int, kept: Sequence[int] | None) -> Verdict:
    """One case in a process of its own."""
    worker = Worker(kind)
    worker.start(seed, kept)
    while (verdict := worker.poll(0.1)) is None:
        pass
    if not worker.ours.closed:
        worker.process.kill()
        worker.kill()
    return verdict


def shrunk(kind: ModuleType, seed: int, key: str) -> list[int] | None:
    """The steps of a case that remain after leaving out all that the fault does not need; None if it has no steps."""
    if not hasattr(kind, "steps"):
        return None
    kept = list(range(kind.steps(seed)))
    for step in list(kept):
        fewer = [s for s in kept if s != step]
        if once(kind, seed, fewer).key == key:
            kept = fewer
    return kept


def main(arguments: Sequence[str] | None = None) -> int:
    kinds = sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--count", type=int, default=1 << 62)
    parser.add_argument("--seed", type=int, default=0, help="the first one; the others follow it")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--save", type=Path, default=None, help="folder for the cases with faults")
    parser.add_argument("--models", type=Path, default=None, help="folder of *.onnx files to cut pieces from")
    parser.add_argument("--only", type=int, default=None, help="judge this seed alone")
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(HERE))
    kind = importlib.import_module(f"fuzz_{options.kind}")
    if hasattr(kind, "prepare"):
        kind.prepare(options)
    if options.only is not None:
        verdict = once(kind, options.only, None)
        print(verdict.text or verdict.word)
        return int(verdict.fault)
    begun = time.monotonic()
    words, faults = run(kind, range(options.seed, options.seed + options.count), options.seconds, options.workers)
    print(f"\n{words.total()} cases in {time.monotonic() - begun:.0f} s: {dict(words.most_common())}")
    for key, (seed, _) in faults.items():
        kept = shrunk(kind, seed, key)
        print(f"seed {seed}{'' if kept is None else f', steps {kept}'}: {key}", flush=True)
        if options.save is not None and hasattr(kind, "save"):
            options.save.mkdir(parents=True, exist_ok=True)
            kind.save(kind.case(seed, kept), options.save, f"{options.kind}-{seed}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
