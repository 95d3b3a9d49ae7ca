"""Write docs/operators.md: every ONNX operator and what becomes of it, from the reader's own tables.

python docs/list_operators.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx
from onnx import defs

from eqsat.frontends.onnx.file.load import OLDEST_OPSET
from eqsat.frontends.onnx.operators.elementwise import RANDOM
from eqsat.frontends.onnx.operators.microsoft import MICROSOFT, UNVERSIONED
from eqsat.frontends.onnx.operators.node import Row
from eqsat.frontends.onnx.read.control import UNROLLED
from eqsat.frontends.onnx.read.convert import ROWS, VENDOR

TARGET = Path(__file__).with_name("operators.md")

HEAD = f"""# ONNX operators

Made by `python docs/list_operators.py` from the reader's tables and the operators of onnx {onnx.__version__}.

- **read**: becomes terms, which rules rewrite and kernels compute. Where a use is named after "unless", that use is
  carried, or comes after the program where it decides the size of the result.
- **expanded**: replaced by the body that the standard defines it with, where all of that is read; else carried.
- **carried**: kept as it is, run on the host by onnx's reference (by onnxruntime, where that has none, is known to be
  wrong or slow, or fails), written back out. Its price is unknown, and so reported.
- **after the program**: makes a value whose size is known only when it runs, or reads or makes what is no tensor of
  numbers. It and all operators that depend on it are kept as they are, behind the program, which ends with what they
  read: `eqsat optimize` optimises that, writes them behind the result and compares whole files in onnxruntime;
  `eqsat explain` explains that; `from_onnx(model, head=True)` returns it. They have no price, and reports list them
  (`after`), with dynamic dimensions too. All else takes whole programs and refuses such a model.
- **refused**: an error of one line.

Whatever depends on constants alone is computed when the model is read, whichever operator it is. Tensors hold any
number type of ONNX and booleans; arithmetic on 8- and 16-bit integers, unsigned ones and float8 is carried, moving
them and casting integers is read. Models are read from opset 7 on; a carried operator whose meaning changed before
opset {OLDEST_OPSET} is refused.
"""

AFTER = "after the program"
IF_TENSORS = "where it reads a tensor"
_OF_UNKNOWN_SIZE = f"{AFTER}; carried where the file declares the shapes; folded where its operands are constant"

SPECIAL = {
    "If": f"read where the condition is constant: the branch taken; else carried, or {AFTER} where sizes vary",
    "ImageDecoder": _OF_UNKNOWN_SIZE,
    "Loop": f"read where the number of steps is constant, up to {UNROLLED} nodes in all; else carried, "
    f"or {AFTER} where sizes vary",
    "NonMaxSuppression": _OF_UNKNOWN_SIZE,
    "NonZero": _OF_UNKNOWN_SIZE,
    "OptionalGetElement": f"{AFTER}; carried {IF_TENSORS}",
    "OptionalHasElement": f"{AFTER}; expanded {IF_TENSORS}",
    "Scan": f"read, one step after another, up to {UNROLLED} nodes in all; else carried",
    "Unique": _OF_UNKNOWN_SIZE,
}


def versions() -> dict[str, list[defs.OpSchema]]:
    """The definitions of every operator of the main domain, oldest first."""
    found: dict[str, list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            found.setdefault(schema.name, []).append(schema)
    return {name: sorted(found[name], key=lambda s: s.since_version) for name in sorted(found)}


def fate(name: str, schemas: list[defs.OpSchema]) -> tuple[str, str]:
    """What becomes of an operator, and since which opset."""
    newest = schemas[-1]
    if name in RANDOM:
        return "refused: random numbers", f"{schemas[0].since_version}"
    if name in ROWS:
        row = ROWS[name]
        apart = [
            s.since_version for s in schemas if s.since_version > min(row.since) and s.since_version not in row.since
        ]
        other = f"; as of opset {', '.join(map(str, apart))} carried" if apart else ""
        return read(row) + other, str(min(row.since))
    if name in SPECIAL:
        return SPECIAL[name], str(schemas[0].since_version)
    if not all(any(map(_is_number, formal.types)) for formal in [*newest.inputs, *newest.outputs]):
        return AFTER, str(schemas[0].since_version)
    # onnx's own stubs leave these two out.
    bodies = [s for s in schemas if s.has_function or s.has_context_dependent_function]  # pyright: ignore[reportAttributeAccessIssue]
    if bodies:
        return "expanded", str(bodies[0].since_version)
    return "carried", str(schemas[0].since_version)


def read(row: Row) -> str:
    return f"read, unless: {row.unless}" if row.unless else "read"


def _is_number(kind: str) -> bool:
    return kind.startswith("tensor(") and "string" not in kind and "complex" not in kind


def table(head: tuple[str, str, str], rows: Iterator[tuple[str, str, str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "| --- | --- | --- |"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def vendor_rows(rows: Mapping[str, Row]) -> Iterator[tuple[str, str, str]]:
    return ((f"`{name}`", read(row), "1") for name, row in sorted(rows.items()))


def text() -> str:
    main = ((f"`{name}`", *fate(name, schemas)) for name, schemas in versions().items())
    unversioned = " and ".join(f"`{name}`" for name in UNVERSIONED)
    return "\n".join(
        [
            HEAD,
            *table(("operator", "what becomes of it", "since opset"), main),
            "",
            f"## Operators of onnxruntime (`{VENDOR}`)",
            "",
            "Others of the domain are carried; onnxruntime runs them and tells their shapes, or else the file",
            f"declares them. {unversioned} are also read where",
            "onnxruntime's optimiser wrote them into the main domain, at any opset.",
            "",
            *table(("operator", "what becomes of it", "since version"), vendor_rows(MICROSOFT)),
            "",
            "## Operators of classical models (`ai.onnx.ml`)",
            "",
            "They are carried, or come after the program where they read or make texts, sequences or maps, such as",
            "`ZipMap`.",
            "",
        ]
    )


def main() -> None:
    TARGET.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
