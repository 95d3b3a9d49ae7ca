"""The imports of the source tree, read with `ast`, agree with the tables of rooms in docs/architecture.md."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("eqsat", "rules", "extract", "gpu")
"""Source folders at the top level; the last three are imported through links in `eqsat/`."""

PAGE = ROOT / "docs" / "architecture.md"

MOST_MODULES = 15
"""A room with more is hard to take in."""

HEAVY = ("egglog", "highspy", "jinja2", "onnx", "rich", "typer", "scipy", "torch", "cupy", "z3")
"""Libraries that `import eqsat` must not load: it answers in under half a second."""


@dataclass(frozen=True)
class Room:
    """A row of the table: the modules of a folder, and the rooms whose modules they may import."""

    modules: tuple[str, ...]
    knows: tuple[str, ...]


def rows(text: str, columns: int) -> list[list[str]]:
    """The rows of the tables with so many columns whose first cell is code, cell by cell."""
    found = re.findall(r"^\| (`.*) \|$", text, re.MULTILINE)
    return [cells for row in found if len(cells := row.split(" | ")) == columns]


def listed(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))


def package_of(folder: str) -> str:
    """`extract/solver/` is `eqsat.extract.solver`, `eqsat/base/` is `eqsat.base`, `eqsat/` is `eqsat`."""
    name = folder.removesuffix(".py").strip("/").replace("/", ".")
    return name if name.partition(".")[0] == "eqsat" else f"eqsat.{name}"


TEXT = PAGE.read_text(encoding="utf-8")
ROOMS = {
    package_of(folder.strip("`")): Room(listed(modules), tuple(map(package_of, listed(knows))))
    for folder, _, modules, knows in rows(TEXT, 4)
}
LIBRARIES = {library.strip("`"): listed(where) for library, where in rows(TEXT, 2)}


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


def room_of(module: str) -> str:
    """The room whose folder, or a folder below it that is no room, holds a module; or the module that is one itself."""
    place = module if FILES[module].name == "__init__.py" or module in ROOMS else module.rpartition(".")[0]
    while place not in ROOMS and "." in place:
        place = place.rpartition(".")[0]
    return place


def imports(tree: ast.AST, known: Mapping[str, object]) -> Iterator[str]:
    """Modules that a file imports, wherever the import stands: in functions and for types alone as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute here"
            assert node.module is not None
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in known else node.module


IMPORTED = {name: set(imports(ast.parse(path.read_text(encoding="utf-8")), FILES)) for name, path in FILES.items()}


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of one cycle, none if there is no cycle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_the_table_says(room: str) -> None:
    used = set()
    for module in (m for m in FILES if room_of(m) == room):
        for other in IMPORTED[module] & FILES.keys():
            if (place := room_of(other)) != room:
                assert place in ROOMS[room].knows, f"{module} imports {other}: {room} does not know {place}"
                used.add(place)
    assert used == set(ROOMS[room].knows), f"{room}: the table lists rooms that nothing imports"


@pytest.mark.parametrize("room", ROOMS)
def test_the_table_lists_the_modules_of_a_room(room: str) -> None:
    held = [m.removeprefix(f"{room}.") for m, path in FILES.items() if room_of(m) == room and m != room]
    own = {name.partition(".")[0] for name in held}
    assert own == set(ROOMS[room].modules)
    assert len(own) <= MOST_MODULES


def test_rooms_stand_below_what_uses_them() -> None:
    order = list(ROOMS)
    for room, row in ROOMS.items():
        for known in row.knows:
            assert order.index(known) < order.index(room), f"{room} stands above {known}"


def test_no_imports_go_in_a_circle() -> None:
    found = circle({module: IMPORTED[module] & FILES.keys() - {module} for module in FILES})
    assert not found, f"import cycle: {' -> '.join(found)}"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_imported_where_the_table_says(library: str) -> None:
    places = tuple(package_of(place) for place in LIBRARIES[library])
    users = [m for m, names in IMPORTED.items() if any(n.partition(".")[0] == library for n in names)]
    assert users
    for user in users:
        assert any(user == p or user.startswith(f"{p}.") for p in places), f"{user} imports {library}"


def test_importing_eqsat_loads_nothing_heavy() -> None:
    script = "import sys, eqsat; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not set(HEAVY) & set(loaded)


def test_a_worker_loads_no_more_of_egglog_than_its_compiled_module() -> None:
    """All of it takes longer than all else that a worker loads, and finds this module as its own."""
    script = (
        "import sys; from eqsat.egraph.saturate import Saturations; made = Saturations(); print(*sys.modules); "
        "from eqsat.egraph.bindings import egg; from egglog import bindings, EGraph; assert bindings is egg"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in loaded if name.startswith("egglog")] == ["egglog.bindings"]


def test_the_check_sees_an_import_wherever_it_stands() -> None:
    text = (
        "import egglog\n"
        "if TYPE_CHECKING:\n    from eqsat.base import files\n"
        "def f():\n    from eqsat.layout.form import canonical\n"
        "class A:\n    import cupy.cuda\n"
    )
    assert set(imports(ast.parse(text), FILES)) == {"egglog", "eqsat.base.files", "eqsat.layout.form", "cupy.cuda"}


def test_the_check_sees_a_circle() -> None:
    assert not circle({"a": {"b"}, "b": set()})
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


@pytest.mark.parametrize("name", ["rules", "extract", "gpu"])
def test_generic_folder_names_are_reached_through_relative_links(name: str) -> None:
    link = ROOT / "eqsat" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name


def test_tests_stand_in_folders_named_after_rooms_and_share_through_support_alone() -> None:
    tests = Path(__file__).parent
    parts = {part for room in ROOMS for part in room.split(".")}
    for path in tests.rglob("*.py"):
        folder = path.relative_to(tests).parts[0]
        assert folder.endswith(".py") or folder == "support" or folder in parts, f"{folder}/ is named after no room"
        assert not re.search(r"^\s*(from|import) test_", path.read_text(), re.MULTILINE), f"{path.name} imports a test"
