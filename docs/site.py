"""A hook of mkdocs: pages of the site that are not files in docs/.

Texts of other folders (the README, the notes in papers/, ...) become pages, and links between files of the repository
become links between pages. The catalogues are made from the tables of rules, devices, kernels, commands and public
names, when the site is built.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import typer.main
from mkdocs.config.defaults import MkDocsConfig  # pyright: ignore[reportMissingImports]
from mkdocs.structure.files import File, Files  # pyright: ignore[reportMissingImports]
from mkdocs.structure.pages import Page  # pyright: ignore[reportMissingImports]
from typer.cli import get_docs_for_click

import eqsat
from eqsat.cli.app import app
from eqsat.cli.commands.kernels import parameters, prices, term_of
from eqsat.extract.device.table import DEVICES, Device
from eqsat.gpu.catalogue import FAMILIES as KERNELS
from eqsat.gpu.families.base import Family
from eqsat.inspection.rule_page import page, page_text
from eqsat.language.rule import AnyRule
from eqsat.rules import EXPLORING, FAMILIES

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 84
"""Columns of blocks of text."""

TEXTS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "papers/README.md": "papers/index.md",
    **{f"papers/{path.name}": f"papers/{path.name}" for path in sorted((ROOT / "papers").glob("[!R]*.md"))},
    **{f"examples/{path.name}": f"examples/{path.name}" for path in sorted((ROOT / "examples").glob("*.*"))},
}
"""Files of the repository outside docs/, and their places on the site."""

RULES: Mapping[str, Sequence[AnyRule]] = {**FAMILIES, "exploring": EXPLORING}

_TRUST = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
BACKING = dict(re.findall(r"^\| `(\S+)` \| [\w-]+ \| ([\w, ]+) \|$", _TRUST, re.MULTILINE))
"""What backs each rule that certificates may name; rules in code have tests."""


def on_config(config: MkDocsConfig) -> None:
    """Fill in the parts of the navigation that follow tables and folders."""
    parts = {
        "RULES": ["rules/index.md", *(f"rules/{name}.md" for name in RULES)],
        "PAPERS": sorted((place for place in TEXTS.values() if place.startswith("papers/")), key=_index_first),
    }
    config.nav = _filled_in(config.nav, parts)


def _index_first(place: str) -> tuple[bool, str]:
    return not place.endswith("/index.md"), place


def _filled_in(nav: Any, parts: Mapping[str, list[str]]) -> Any:
    if isinstance(nav, list):
        return [_filled_in(item, parts) for item in nav]
    if isinstance(nav, dict):
        return {title: _filled_in(item, parts) for title, item in nav.items()}
    return parts.get(nav, nav)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages."""
    for source, place in TEXTS.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    for place, lines in pages():
        files.append(File.generated(config, place, content="\n".join(lines)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between files of the repository as links between pages."""
    here = next((s for s, place in TEXTS.items() if place == page.file.src_uri), f"docs/{page.file.src_uri}")

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), found[1]))
        place = TEXTS.get(target, target.removeprefix("docs/"))
        return f"]({posixpath.relpath(place, posixpath.dirname(page.file.src_uri))}{found[2] or ''})"

    return re.sub(r"\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)", link, markdown)


# --- pages made from tables


def pages() -> Iterator[tuple[str, list[str]]]:
    """(place, lines) of every page that is made from a table."""
    yield "rules/index.md", _rule_families()
    for name, rows in RULES.items():
        yield f"rules/{name}.md", _rules(name, rows)
    yield "devices.md", [DEVICES_HEAD, *chain.from_iterable(map(_device, DEVICES.values()))]
    yield "kernels.md", [KERNELS_HEAD, *chain.from_iterable(map(_family, KERNELS.values()))]
    yield "commands.md", [_commands()]
    yield "reference.md", _reference()


RULES_HEAD = """# Rules

Every rule, as `eqsat rules show NAME` prints it: both sides, what must be proved before it fires, when it pays, its
[class of numerics](../numerics.md), its source, and an example with predicted times of both sides for `mi300x`. An
equation may give several rules: strategies that say in which direction to use it, and when.

| family | equations | rules |
| --- | --- | --- |"""

DEVICES_HEAD = """# Devices

The figures that prices of kernels depend on, each with its source, as `eqsat devices NAME` prints them.
"""

KERNELS_HEAD = """# Kernels

The families of kernels, what they compute, and their tuning parameters; `eqsat kernels show FAMILY` lists the variants
with registers and occupancy, `eqsat kernels source FAMILY` prints the text.
"""


def _rule_families() -> list[str]:
    counts = ((name, {getattr(row, "equation", row.name) for row in rows}, rows) for name, rows in RULES.items())
    return [
        RULES_HEAD,
        *(f"| [{name}]({name}.md) | {len(equations)} | {len(rows)} |" for name, equations, rows in counts),
    ]


def _rules(family: str, rows: Sequence[AnyRule]) -> list[str]:
    lines = [f"# {family}"]
    for row in rows:
        _, *body = page_text(row, page(row, family), WIDTH).splitlines()
        lines += ["", f"## {row.name}", "", *_block(line[2:] for line in body), ""]
        lines += [f"Backed by: [{BACKING.get(row.name, 'tests')}](../trust.md#what-backs-the-rules)"]
    return lines


def _block(lines: Iterable[str]) -> list[str]:
    return ["```text", *lines, "```"]


def _table(*columns: str) -> list[str]:
    """The head of a table."""
    return ["", f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]


def _device(row: Device) -> list[str]:
    figures = [f"| `{name}` | {figure.value:g} | {figure.source} |" for name, figure in row.figures()]
    return ["", f"## {row.name}", "", f"{row.title}, {row.arch}", *_table("figure", "value", "source"), *figures]


def _family(family: Family) -> list[str]:
    name, outputs = next(iter(family.examples(family.sizes[0], "float32").items()))
    lines = ["", f"## {family.name}", "", family.computes, "", f"Example, {name}:", ""]
    lines += [*_block(term_of(outputs).splitlines()), *_table("device", "predicted µs", "kernels")]
    for device, price in prices(outputs).items():
        lines.append(f"| {device} | {price['predicted_us']:.3f} | {', '.join(price['kernels'])} |")
    lines += _table("parameter", "device", "values for float32")
    for device in DEVICES:
        if device != "cpu":
            found = parameters(family, device, "float32")
            lines += [f"| {key} | {device} | {', '.join(values)} |" for key, values in found.items()]
    return lines


def _commands() -> str:
    command = typer.main.get_command(app)
    return get_docs_for_click(obj=command, ctx=typer.Context(command), name="eqsat", title="Commands")


def _reference() -> list[str]:
    homes = [f"{eqsat._HOME[name]}.{name}" for name in eqsat.__all__]
    modules = ("eqsat.tracing.functions", "eqsat.rule", "eqsat.errors", "eqsat.testing")
    head = ["# Python", "", "What `import eqsat` offers, and the modules beside it."]
    return [*head, *(f"\n::: {name}" for name in (*homes, *modules))]
