"""The import graph of the source tree, read with `ast`, against the table of layers in docs/architecture.md."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("eqsat", "rules", "extract", "gpu")
"""Source folders at the top level; the last three are imported through links in `eqsat/`."""

LAYERS: dict[str, tuple[str, ...]] = {
    "rules": ("eqsat.rules",),
    "saturation": ("eqsat.egraph", "eqsat.saturate"),
    "extraction": ("eqsat.extract",),
    "kernels": ("eqsat.gpu",),
    "top": (
        "eqsat",  # the package's own face
        "eqsat.__main__",
        "eqsat.optimize",
        "eqsat.stitch",
        "eqsat.ranking",
        "eqsat.report",
        "eqsat.jit",
        "eqsat.prove",
        "eqsat.explain",
        "eqsat.derivation",
        "eqsat.merges",
        "eqsat.why_not",
        "eqsat.rule_example",
        "eqsat.rule_page",
        "eqsat.budget",
        "eqsat.failures",
        "eqsat.explore",
        "eqsat.evidence",
        "eqsat.host_evidence",
        "eqsat.explore",
        "eqsat.expression",
        "eqsat.user_rules",
        "eqsat.html",
        "eqsat.frontends",
        "eqsat.cli",
        "eqsat.testing",
    ),
}
"""Each layer's modules (a package stands for all it holds). Every other module is of the layer "programs"."""

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "programs": ("programs",),
    "rules": ("programs", "rules"),
    "saturation": ("programs", "rules", "saturation"),
    "extraction": ("programs", "extraction"),
    "kernels": ("programs", "kernels"),
    "top": ("programs", "rules", "saturation", "extraction", "kernels", "top"),
}

ALSO: dict[str, tuple[str, ...]] = {
    "kernels": ("eqsat.extract.devices", "eqsat.extract.memory", "eqsat.extract.plan", "eqsat.extract.occupancy")
}
"""Single modules of another layer that a layer may import."""

ONLY_IN: dict[str, tuple[str, ...]] = {
    "egglog": ("eqsat.egraph", "eqsat.saturate"),
    "cupy": ("eqsat.gpu",),
    "highspy": ("eqsat.extract",),
    "ortools": ("eqsat.extract",),
    "onnx": ("eqsat.frontends",),
    "typer": ("eqsat.cli",),
    "rich": ("eqsat.cli",),
    "z3": ("eqsat.index_facts", "eqsat.index_proofs", "eqsat.index_terms"),
}
"""Libraries, and the only places that may import them."""

HEAVY = ("egglog", "highspy", "jinja2", "onnx", "rich", "typer", "scipy", "torch", "cupy", "z3")
"""Libraries that `import eqsat` must not load: it answers in under half a second."""


def module_of(path: Path) -> str:
    """`extract/cover.py` is `eqsat.extract.cover`, `eqsat/cli/__init__.py` is `eqsat.cli`."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] != "eqsat":
        parts.insert(0, "eqsat")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def source_files() -> list[Path]:
    """Python files of the source folders, each once, through its real path."""
    return sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py") if p.resolve() == p)


FILES = {module_of(path): path for path in source_files()}


def within(module: str, places: tuple[str, ...]) -> bool:
    """Whether `module` is one of `places` or lies in one of them; `eqsat` itself holds only its own face."""
    return any(module == place or (place != "eqsat" and module.startswith(place + ".")) for place in places)


def layer_of(module: str) -> str:
    return next((layer for layer, places in LAYERS.items() if within(module, places)), "programs")


def is_typing_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(tree: ast.AST, everywhere: bool) -> Iterator[str]:
    """Modules that a file imports; with `everywhere` False only those that importing the file loads at once."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute here"
            assert node.module is not None
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in FILES else node.module
        elif everywhere or not (isinstance(node, ast.FunctionDef | ast.Lambda) or is_typing_guard(node)):
            yield from imports(node, everywhere)


def imported(module: str, everywhere: bool = True) -> set[str]:
    return set(imports(ast.parse(FILES[module].read_text(encoding="utf-8")), everywhere))


@pytest.mark.parametrize("module", FILES)
def test_a_module_imports_only_what_its_layer_may_know(module: str) -> None:
    layer = layer_of(module)
    for name in sorted(imported(module)):
        if name in FILES:
            allowed = layer_of(name) in MAY_IMPORT[layer] or within(name, ALSO.get(layer, ()))
            assert allowed, f"{module} ({layer}) imports {name} ({layer_of(name)})"
        package = name.partition(".")[0]
        if package in ONLY_IN:
            assert within(module, ONLY_IN[package]), f"{module} imports {package}: only {ONLY_IN[package]} may"


def test_modules_do_not_load_each_other_in_a_circle() -> None:
    graph = {module: imported(module, everywhere=False) & set(FILES) - {module} for module in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_importing_eqsat_loads_nothing_heavy() -> None:
    script = "import sys, eqsat; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not set(HEAVY) & set(loaded)


def test_the_check_sees_an_import_wherever_it_stands() -> None:
    text = "import egglog\ndef f():\n    from eqsat.layout import Layout\nclass A:\n    import cupy.cuda\n"
    tree = ast.parse(text)
    assert set(imports(tree, everywhere=True)) == {"egglog", "eqsat.layout", "cupy.cuda"}
    assert set(imports(tree, everywhere=False)) == {"egglog", "cupy.cuda"}


@pytest.mark.parametrize("name", ["rules", "extract", "gpu"])
def test_generic_folder_names_are_reached_through_relative_links(name: str) -> None:
    link = ROOT / "eqsat" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name
