"""`eqsat kernels list | show | source`: the kernel families, their variants, and the text of any kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat.cli.shared.options import Device, JsonFile, Numerics, Optimized, Shape, TimeLimit, output_file
from eqsat.errors import InputError
from eqsat.gpu.table.limits import OPERANDS, Operands

if TYPE_CHECKING:
    from eqsat.extract.plan.plan import Plan
    from eqsat.gpu.families.base import Family, Kernel
    from eqsat.program.core import Node

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help="Look at the kernels that plans run on.")

DType = Annotated[Operands, typer.Option("--dtype", help="Element type of the operands.")]
FamilyName = Annotated[
    str, typer.Argument(metavar="FAMILY", help="As `eqsat kernels list` names it.", show_default=False)
]
VariantName = Annotated[str | None, typer.Argument(metavar="[VARIANT]", help="One variant.", show_default=False)]
Example = Annotated[
    str | None, typer.Option("--example", metavar="NAME", help="What the family computes; the first by default.")
]


@dataclass(frozen=True)
class Row:
    """A listed variant: its launch at the size of the family's first example, and the device resources it uses.

    `registers` per lane, `lds_bytes` per block and `waves` per SIMD come from the table of compiled variants, and are
    None if the variant is not in it.
    """

    family: str
    variant: str
    dtype: str
    blocks: int
    threads: int
    registers: int | None = None
    lds_bytes: int | None = None
    waves: int | None = None
    most_waves: int | None = None


@app.command("list")
def list_kernels(
    family: Annotated[str | None, typer.Option("--family", help="Only variants of this family.")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="Only variants for operands of this type.")] = None,
    device: Device = "mi300x",
    json_file: JsonFile = None,
) -> None:
    """List the kernel variants of a device: what they are launched with, and what they take of it.

    Examples:

    - `eqsat kernels list --family contraction --dtype float16 --device h100`
    - `eqsat kernels list --json -`
    """
    from eqsat.cli.shared.output import answer, console, print_table
    from eqsat.cli.shared.search import resolved

    device = resolved(device)
    families = [find_family(family)] if family else None
    if dtype is not None and dtype not in OPERANDS:
        raise InputError(f"kernels are made for operands of {', '.join(OPERANDS)}, got {dtype!r}")
    rows = [row for d in OPERANDS if dtype in (None, d) for row in variants(device, d)]
    if families:
        rows = [row for row in rows if row.family == families[0].name]
    if answer({"schema": 1, "device": device, "kernels": [asdict(row) for row in rows]}, json_file):
        columns = ("family", "variant", "operands", "threads", "registers", "LDS bytes", "waves of most")
        cells = [(row.family, row.variant, row.dtype, str(row.threads), *_resources(row)) for row in rows]
        print_table(console(), f"{len(rows)} variants on {device}", columns, cells, words=3)


@app.command("show")
def show(
    name: FamilyName,
    variant: VariantName = None,
    dtype: DType = "float32",
    example: Example = None,
    json_file: JsonFile = None,
) -> None:
    """Show a family: what it computes, its parameters and prices by device, what its variants take of each target.

    Examples:

    - `eqsat kernels show row`
    - `eqsat kernels show contraction matrix_64x64x32 --dtype float16 --example "left transposed"`
    """
    from eqsat.cli.shared.output import answer, console

    family = find_family(name)
    chosen, outputs = find_example(family, dtype, example)
    by_device = {device: [r for r in variants(device, dtype) if r.family == family.name] for device in _gpus()}
    if variant is not None:
        _known(variant, {r.variant for rows in by_device.values() for r in rows}, f"{family.name} variant")
        by_device = {device: [r for r in rows if r.variant == variant] for device, rows in by_device.items()}
    facts = {
        "schema": 1,
        "family": family.name,
        "computes": family.computes,
        "dtype": dtype,
        "parameters": {device: parameters(family, device, dtype) for device in by_device},
        "examples": list(family.examples(family.sizes[0], dtype)),
        "example": {"name": chosen, "term": term_of(outputs), "prices": prices(outputs)},
        "variants": {device: [asdict(row) for row in rows] for device, rows in by_device.items()},
    }
    if answer(facts, json_file):
        _print_family(facts, by_device, console())


@app.command("source")
def source(
    name: Annotated[str, typer.Argument(metavar="FAMILY|IN.onnx", help="A family, or a program.", show_default=False)],
    variant: VariantName = None,
    kernel: Annotated[
        int | None,
        typer.Option("--kernel", metavar="K", min=0, help="Kernel K of the program's plan, from 0; all by default."),
    ] = None,
    dtype: DType = "float32",
    example: Example = None,
    device: Device = "mi300x",
    whole: Annotated[
        bool, typer.Option("--whole", help="With the text of the headers in place of the includes.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", parser=output_file, help="Write it there.")
    ] = None,
    optimized: Optimized = True,
    time_limit: TimeLimit = 10.0,
    numerics: Numerics = "reassociate",
    shape: Shape = None,
    json_file: JsonFile = None,
) -> None:
    """Print the rendered text of a variant, or of the kernels of a program.

    A kernel of a plan may be several texts (a sum in slices, then the sum of those), and several small products one.

    Examples:

    - `eqsat kernels source contraction matrix_128x128x16 --dtype float16`
    - `eqsat kernels source model.onnx --kernel 3 --device h100 --whole -o kernel3.cu`
    """
    from eqsat.base.files import write_text
    from eqsat.cli.shared.output import answer, check_files, device_file
    from eqsat.cli.shared.search import load, optimise, resolved
    from eqsat.gpu.run.cupy_runtime import inlined

    model = Path(name) if name.endswith(".onnx") else None
    check_files({"the model": model}, {"--output": output, "--json": json_file}, device_file(device))
    device = resolved(device)
    if model is not None:
        best = optimise(load(model, shape), device, time_limit, numerics, rules=None if optimized else [])
        made = plan_texts(best.plan, best.report["device"], kernel)
    elif kernel is not None:
        raise InputError(f"--kernel {kernel} counts kernels of a program: name an .onnx file, got {name!r}")
    else:
        made = [((), k) for k in variant_texts(find_family(name), variant, dtype, example, device)]
    texts = [
        {
            "kernels": list(numbers),
            "entry": k.entry,
            "family": k.family,
            "variant": k.variant,
            "blocks": k.blocks,
            "threads": k.threads,
            "source": inlined(k.source) if whole else k.source,
        }
        for numbers, k in made
    ]
    says = answer({"schema": 1, "device": device, "texts": texts}, json_file)
    text = "\n".join(entry["source"] for entry in texts)
    if output is not None:
        write_text(output, text)
    elif says:
        typer.echo(text, nl=False)


# --- what is asked for ------------------------------------------------------------------------------------------------


def find_family(name: str) -> Family:
    """The family called `name`; InputError names the nearest ones."""
    from eqsat.gpu.catalogue import FAMILIES

    _known(name, FAMILIES, "kernel family")
    return FAMILIES[name]


def find_example(family: Family, dtype: str, name: str | None) -> tuple[str, tuple[Node, ...]]:
    """An example of a family by name, the first by default, at the first of its sizes."""
    examples = family.examples(family.sizes[0], dtype)
    chosen = name or next(iter(examples))
    _known(chosen, examples, f"{family.name} example")
    return chosen, examples[chosen]


def _known(name: str, valid: Any, kind: str) -> None:
    from eqsat.errors import unknown

    if name not in valid:
        raise unknown(kind, name, valid)


def _gpus() -> list[str]:
    from eqsat.extract.device.table import DEVICES

    return [name for name in DEVICES if name != "cpu"]


def variants(device: str, dtype: str) -> list[Row]:
    """Every variant for operands of a type on a device, each once."""
    from eqsat.gpu.catalogue import samples
    from eqsat.gpu.run.run import gpu_target
    from eqsat.gpu.table.occupancy import table

    target = gpu_target(device)
    counted = table().get(target.arch, {}).get(dtype, {})
    rows = {}
    for name, k in samples(target, dtype):
        rows.setdefault(name, Row(k.family, k.variant, dtype, k.blocks, k.threads, *counted.get(name, ())))
    return list(rows.values())


def parameters(family: Family, device: str, dtype: str) -> dict[str, list[str]]:
    """The tuning parameters of a family on a device, each with its legal values."""
    from eqsat.gpu.run.run import gpu_target

    return family.parameters(gpu_target(device), dtype)


def term_of(outputs: Sequence[Node]) -> str:
    """The computation over the arrays that are read, one operator per line."""
    from eqsat.gpu.families.base import described
    from eqsat.program.core import topological

    inputs = [n for n in topological(outputs) if n.op == "In"]
    reads = [f"in{i} = {repr(n)[1:-1]}" for i, n in enumerate(inputs)]
    return "\n".join([*reads, *(line.removeprefix("//").strip() for line in described(outputs, inputs).splitlines())])


def prices(outputs: tuple[Node, ...]) -> dict[str, dict[str, Any]]:
    """The cost model's result on every device: the kernels that would be launched, and their time."""
    from eqsat.egraph.snapshot import Snapshot
    from eqsat.extract.cover import source_cover
    from eqsat.extract.plan.plan import build_plan
    from eqsat.program.core import CoreProgram, topological

    names = tuple(f"out{i}" for i in range(len(outputs)))
    inputs = tuple(n for n in topological(outputs) if n.op == "In")
    core = CoreProgram(outputs, names, tuple((n.size,) for n in outputs), inputs, {})
    found = {}
    for device in _gpus():
        plan = build_plan(Snapshot.from_core(outputs), source_cover(core, device), core)
        found[device] = {
            "kernels": [k.family for k in plan.kernels],
            "flops": sum(k.flops for k in plan.kernels),
            "bytes": sum(k.bytes for k in plan.kernels),
            "predicted_us": round(sum(k.predicted_us for k in plan.kernels), 6),
        }
    return found


def variant_texts(family: Family, variant: str | None, dtype: str, example: str | None, device: str) -> list[Kernel]:
    """The kernels of a variant (the cost model's choice without) that compute an example of its family.

    Raises:
        InputError: no such variant or example.
    """
    from eqsat.gpu.catalogue import made
    from eqsat.gpu.families.base import Choice
    from eqsat.gpu.run.run import gpu_target

    target = gpu_target(device)
    _, outputs = find_example(family, dtype, example)
    if variant is None:
        return list(made(outputs, target, Choice()))
    by_variant: dict[str, tuple[Kernel, ...]] = {}
    for choice in family.choices(target, dtype):
        kernels = made(outputs, target, choice)
        by_variant.setdefault(kernels[0].variant, kernels)
    _known(variant, by_variant, f"{family.name} variant")
    return list(by_variant[variant])


def plan_texts(plan: Plan, device: str, number: int | None) -> list[tuple[tuple[int, ...], Kernel]]:
    """The texts of a plan, or of its kernel `number`, each with the numbers of the kernels that it computes.

    Raises:
        InputError: the plan has no such kernel, or it has no text.
    """
    from eqsat.gpu.run.run import texts

    if number is not None and number >= len(plan.kernels):
        last = len(plan.kernels) - 1
        raise InputError(f"--kernel {number}: the plan has {last + 1} kernels, the last is {last}")
    found = [(numbers, k) for numbers, k in texts(plan, device) if number is None or number in numbers]
    if number is not None and not found:
        kernel = plan.kernels[number]
        raise InputError(f"--kernel {number}: {kernel.name} ({kernel.family}) is no launch of its own: it has no text")
    return found


# --- printing ---------------------------------------------------------------------------------------------------------


def _resources(row: Row) -> tuple[str, str, str]:
    if row.registers is None:
        return "", "", ""
    return str(row.registers), str(row.lds_bytes), f"{row.waves}/{row.most_waves}"


def _print_family(facts: dict[str, Any], by_device: dict[str, list[Row]], terminal: Any) -> None:
    from eqsat.cli.shared.output import engineering, print_table
    from eqsat.cli.shared.report import microseconds
    from eqsat.extract.device.table import device as find_device

    typer.echo(f"{facts['family']}, operands of {facts['dtype']}\n\n{facts['computes']}\n")
    shared: dict[tuple[str, str], list[str]] = {}
    for device, found in facts["parameters"].items():
        for name, values in found.items():
            shared.setdefault((name, ", ".join(values)), []).append(device)
    rows = [(name, ", ".join(devices), values) for (name, values), devices in shared.items()]
    print_table(terminal, "Tuning parameters and their legal values", ("parameter", "devices", "values"), rows, words=3)
    typer.echo(f"Examples: {', '.join(facts['examples'])}.\n")
    shown = facts["example"]
    typer.echo(f"{shown['name']}:\n" + "\n".join(f"    {line}" for line in shown["term"].splitlines()) + "\n")
    rows = [
        (device, ", ".join(p["kernels"]), engineering(p["flops"], "FLOP"), engineering(p["bytes"], "B"),
         microseconds(p["predicted_us"]))
        for device, p in shown["prices"].items()
    ]  # fmt: skip
    print_table(terminal, "Its price", ("device", "kernels", "work", "traffic", "predicted"), rows, words=2)
    by_arch = {find_device(device).arch: rows for device, rows in by_device.items()}
    cells: dict[str, dict[str, str]] = {}
    for arch, found in by_arch.items():
        for row in found:
            cells.setdefault(row.variant, {})[arch] = ", ".join(filter(None, _resources(row)))
    rows = [(name, *(by.get(arch, "") for arch in by_arch)) for name, by in cells.items()]
    title = "Registers of a lane, LDS bytes of a block, waves that a SIMD holds of the most"
    print_table(terminal, title, ("variant", *by_arch), rows)
