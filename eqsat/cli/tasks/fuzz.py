"""`eqsat fuzz`: looks for wrong answers on random programs, models and calls."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat.cli.shared.options import Cluster, JsonFile, Workers, output_folder
from eqsat.errors import InputError

if TYPE_CHECKING:
    from eqsat.fuzzing.search import Found

RESULTS = "results.sqlite"
_FAULTS = 1
_MINUTES = 1.0
"""How long to look where nothing says how much."""

_UNBOUNDED = 1 << 40


def fuzz(
    corpus: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[IN.onnx]...", help="Models to cut pieces from."),
    ] = None,
    programs: Annotated[
        int | None,
        typer.Option("--programs", min=0, metavar="N", help="Random programs, half with pieces of models."),
    ] = None,
    models: Annotated[
        int | None, typer.Option("--models", min=0, metavar="N", help="ONNX models with something wrong in them.")
    ] = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Only cases of this kind; may be repeated.", show_default=False),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.0, metavar="M", help="Begin no case after this time.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The first one; the others count up.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", parser=output_folder, help="Where to keep outcomes and faults."),
    ] = None,
    again: Annotated[
        Path | None, typer.Option("--again", metavar="FILE.json", help="Judge the case of such a file only.")
    ] = None,
    workers: Workers = None,
    on: Cluster = None,
    json_file: JsonFile = None,
) -> None:
    """Judge random cases: programs against their source in float64 and in onnxruntime, and broken models.

    A seed always gives the same case. Programs have all element types, special values, policies and devices. They are
    optimised in bundles of 14; for one bundle in 32 each alone, some of them twice, and kernels run in the checker.
    Where no number is given, bundles are also treated as large programs are: in parts, and checked by samples. A broken
    model must give a right result or an error of one line. Each case has a process that may die, hang or run out of
    memory. Faults of the same cause count as one, and are shrunk. With -o, what was judged is not judged again.

    Further kinds: programs (each alone), bombs (files that ask for endless work), misuse (wrong arguments), signals,
    threads. Exit code 1 if there was a fault.

    Examples:

    - `eqsat fuzz --minutes 10`
    - `eqsat fuzz models/*.onnx --programs 1000 --models 1000 --seed 5000 -o faults/`
    - `eqsat fuzz --again faults/programs-5017.json`
    - `eqsat fuzz --kind bombs --kind misuse --minutes 5`
    """
    from eqsat.base.files import check_outputs, make_folder
    from eqsat.base.progress_bar import progress_bar
    from eqsat.cli.shared.output import answer, check_kept
    from eqsat.frontends.onnx.file.load import digest_of
    from eqsat.fuzzing import search
    from eqsat.fuzzing.kinds import parts
    from eqsat.runs.store import Store

    if again is not None:
        check_outputs({"--again": again}, {"--json": json_file})
        seen = search.again(again)
        if answer({"schema": 1, "outcomes": dict(seen.words), "cause": seen.cause, "text": seen.text}, json_file):
            typer.echo(seen.text or ", ".join(seen.words))
        raise typer.Exit(_FAULTS if seen.cause else 0)
    counts = _counts(programs, models, kinds)
    files = {str(path.absolute()): digest_of(path) for path in corpus or ()}
    seconds = math.inf if minutes is None else 60 * minutes
    if minutes is None and programs is None and models is None:
        seconds = 60 * _MINUTES
    if output is not None:
        make_folder(output)
    check_kept(corpus or (), output, (RESULTS,), json_file)
    wanted = sum(count * max(1, len(parts(name, seed))) for name, count in counts.items())

    with progress_bar("fuzzing") as bar, Store(output / RESULTS if output else ":memory:") as store:

        def told(found: Found) -> None:
            share = found.cases / wanted if wanted < _UNBOUNDED else 0.0
            bar(f"{found.cases} cases, {len(found.faults)} causes of faults", share)

        tasks = search.cases(counts, seed, files, seconds)
        found = search.search(tasks, store, workers or os.cpu_count() or 1, on, told)
    faults = _shrunk(found, files, output)
    words = {name: dict(sorted(count.items())) for name, count in sorted(found.words.items())}
    if answer({"schema": 1, "cases": found.cases, "outcomes": words, "faults": faults}, json_file):
        if not words:
            typer.echo("no case was judged: give more --minutes, or a number of --programs or --models above 0")
        for name, count in words.items():
            typer.echo(f"{name}: {', '.join(f'{word} {n}' for word, n in count.items())}")
        for fault in faults:
            typer.echo(f"fault: {fault['kind']} {fault['seed']}, steps {fault['steps']}: {fault['cause']}")
            typer.echo(fault.get("file") or fault["text"].rstrip())
    if faults:
        raise typer.Exit(_FAULTS)


def _shrunk(found: Found, files: Mapping[str, str], output: Path | None) -> list[dict[str, Any]]:
    """A row for each cause of faults, its first case shrunk; the cases are kept in the folder `output`, if it is given.

    Args:
        files: digests of the models to cut pieces from, by path.
    """
    from eqsat.frontends.onnx.file.load import files_of
    from eqsat.fuzzing import search

    read = [file for model in files for file in files_of(Path(model))]
    faults = []
    for (name, cause), (first, seen) in sorted(found.faults.items()):
        kept = search.shrunk(name, first, cause, files)
        faults.append({"kind": name, "cause": cause, "seed": first, "steps": kept, "text": seen.text})
        if output is not None:
            faults[-1]["file"] = str(search.save(output, name, first, kept, files, seen, read))
    return faults


def _counts(programs: int | None, models: int | None, kinds: list[str] | None) -> dict[str, int]:
    """How many cases of each kind are asked for.

    Raises:
        InputError: kinds are given in both ways, or one is unknown.
    """
    from eqsat.fuzzing.kinds import kind
    from eqsat.fuzzing.programs import BLOCK

    asked = programs is not None or models is not None
    if kinds:
        if asked:
            raise InputError("--kind: give how many with --minutes, or leave out --programs and --models")
        found = dict.fromkeys(kinds, _UNBOUNDED)
    elif asked:
        half = (programs or 0) // 2
        found = {"bundles": -(-((programs or 0) - half) // BLOCK), "pieces": half, "mutants": models or 0}
    else:
        found = dict.fromkeys(("bundles", "large", "pieces", "mutants"), _UNBOUNDED)
    for name in found:
        kind(name)
    return {name: count for name, count in found.items() if count}
