"""`eqsat emit`: the kernels of a program, as sources that anyone can compile and launch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from eqsat.cli.shared.options import Device, JsonFile, ModelFile, Numerics, Optimized, Shape, TimeLimit, output_folder


def emit(
    context: typer.Context,
    model: ModelFile,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", parser=output_folder, help="Folder to write; made if it is not there."
        ),
    ],
    device: Device = "mi300x",
    time_limit: TimeLimit = 10.0,
    numerics: Numerics = "reassociate",
    shape: Shape = None,
    optimized: Optimized = True,
    json_file: JsonFile = None,
) -> None:
    """Write kernel sources, a manifest of buffers and launches, and the constants of a program.

    The folder is complete: any launcher can compile the sources and run the steps of manifest.json in order. Its
    README.md has the compile line.

    Examples:

    - `eqsat emit model.onnx -o kernels/`
    - `eqsat emit model.onnx -o kernels/ --device h100 --as-written`
    """
    from eqsat.cli.shared.output import answer, check_files, device_file, engineering
    from eqsat.cli.shared.search import begun, load, optimise
    from eqsat.errors import InputError
    from eqsat.gpu.emit import KNOWN
    from eqsat.gpu.emit import emit as write_folder
    from eqsat.pipeline.report import unknown_places

    def check(names: Sequence[str]) -> None:
        there = {f"{name} in --output": output / name for name in names if output.is_dir()}
        check_files({"the model": model}, {**there, "--json": json_file}, {"--output": output, **device_file(device)})

    check(KNOWN)
    budget = begun(context, time_limit)
    program = load(model, shape, budget)
    if program.opaque():
        carried = ", ".join(f"{place['operator']} ({place['makes']})" for place in unknown_places(program))
        raise InputError(f"{model}: no kernel computes {carried}; replace it in the model")
    best = optimise(program, device, budget, numerics, rules=None if optimized else [])
    if "unchecked" in best.report:
        raise InputError(
            f"{model}: {best.report['unchecked']}; give a longer --time-limit, or a machine of more memory"
        )
    manifest = write_folder(best.plan, best.report["device"], output, best.program, check)
    if answer(manifest, json_file):
        launches = sum("kernel" in step for step in manifest["steps"])
        sources = len({step["source"] for step in manifest["steps"] if "kernel" in step})
        memory = engineering(manifest["memory"]["peak"], "B")
        device_text = f"{manifest['device']} ({manifest['arch']})"
        typer.echo(f"{output}: {sources} sources, {launches} launches, {memory} of memory, for {device_text}")
