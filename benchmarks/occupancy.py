"""Resources of every kernel variant on every target: registers, LDS, and the waves that a SIMD then holds.

    python benchmarks/occupancy.py        # compiles every variant, and rewrites the table and its page

The table is `gpu/table/occupancy.json`, which the cost model reads; `papers/kernels.md` shows it.
"""

from __future__ import annotations

import json
from pathlib import Path

from eqsat.gpu.catalogue import verdicts
from eqsat.gpu.table.occupancy import MEASURED, TABLE, Table, table
from eqsat.gpu.table.targets import TARGETS, Target

PAGE = Path(__file__).resolve().parent.parent / "papers" / "kernels.md"
_BEGIN, _END = "<!-- occupancy: begin -->\n", "<!-- occupancy: end -->\n"
_SHOWN_ROWS = ("threads1_", "threads16_", "threads64_", "threads256_", "threads1024_", "across")


def measured(target: Target, dtype: str) -> dict[str, list[int]]:
    """The table's entries for a target and type: registers, bytes of LDS, waves, most waves."""
    found = {name: verdict.resources for name, (_, verdict) in verdicts(target, dtype).items()}
    return {name: [r.registers, r.lds, r.waves, r.most_waves] for name, r in found.items()}


def page(entries: Table) -> str:
    """The table as Markdown: registers per lane, LDS per block, waves of the maximum."""
    lines = [
        "| kernel | type | " + " | ".join(TARGETS) + " |",
        "| --- | --- | " + " | ".join("---" for _ in TARGETS) + " |",
    ]
    for dtype in MEASURED:
        names = dict.fromkeys(name for arch in TARGETS for name in entries[arch][dtype] if _shown(name))
        for name in sorted(names):
            cells = [_cell(entries[arch][dtype].get(name)) for arch in TARGETS]
            lines.append(f"| {name} | {dtype} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _shown(name: str) -> bool:
    return not name.startswith("row") or any(text in name for text in _SHOWN_ROWS)


def _cell(entry: list[int] | None) -> str:
    if entry is None:
        return ""
    registers, lds, waves, most = entry
    return f"{registers}, {lds / 1024:.0f}K, {waves}/{most}"


def with_table(text: str, entries: Table) -> str:
    """The page with its table replaced."""
    head, rest = text.split(_BEGIN)
    return head + _BEGIN + page(entries) + _END + rest.split(_END)[1]


def main() -> None:
    """Measure everything, and write the table and its page."""
    entries = {arch: {dtype: measured(target, dtype) for dtype in MEASURED} for arch, target in TARGETS.items()}
    lines = [
        f' "{arch}": {{\n'
        + ",\n".join(
            f'  "{dtype}": {{\n'
            + ",\n".join(f"   {json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(found.items()))
            + "\n  }"
            for dtype, found in by_dtype.items()
        )
        + "\n }"
        for arch, by_dtype in entries.items()
    ]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    table.cache_clear()
    PAGE.write_text(with_table(PAGE.read_text(), entries))


if __name__ == "__main__":
    main()
