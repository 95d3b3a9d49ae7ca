"""What the suite does, as parts of tasks: checks, calibration, tuning, tables."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from eqsat.base.files import read_bytes
from eqsat.extract.plan.calibrate import MICRO
from eqsat.gpu.table.targets import target
from eqsat.runs.task import Task
from eqsat.suite import checks, motivating, streaming
from eqsat.suite.place import Place
from eqsat.suite.programs import PRODUCT_DTYPES, PRODUCT_EDGES, product_name

Size = Literal["quick", "full"]

MEMORY = 1 << 46
"""Bytes of address space: drivers map far more than they use."""

MEASURED_SEARCH, PREDICTED_SEARCH = 15.0, 10.0
"""Seconds for the search of a program's plan, whose times are measured or only predicted."""

_SANITIZED_EVERY = 29


@dataclass(frozen=True)
class Extent:
    """How much is done.

    Attributes:
        rounds: samples of each time.
        random: random programs that are checked.
        sanitized: kernels that run under compute-sanitizer.
        large: whether kernels are also checked at sizes that fill many blocks.
        tuning: seconds for the kernels of a program.
        compile: the mode of torch.compile.
    """

    rounds: int
    random: int
    sanitized: int
    large: bool
    tuning: float
    compile: str


EXTENTS: dict[Size, Extent] = {
    "quick": Extent(rounds=15, random=8, sanitized=2, large=False, tuning=20.0, compile="default"),
    "full": Extent(rounds=40, random=60, sanitized=12, large=True, tuning=60.0, compile="max-autotune-no-cudagraphs"),
}


@dataclass(frozen=True)
class Asked:
    """What a user asked for.

    Attributes:
        models: ONNX files to measure; `sizes` are those of their open dimensions by name.
        match: patterns for the names of what is done; everything without.
    """

    place: Place
    size: Size = "quick"
    models: tuple[Path, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    match: tuple[str, ...] = ()

    @property
    def extent(self) -> Extent:
        """How much is done."""
        return EXTENTS[self.size]

    def wants(self, name: str) -> bool:
        """Whether something of this name is to be done."""
        return not self.match or any(fnmatch(name, pattern) for pattern in self.match)

    def common(self, figures: Mapping[str, Any]) -> dict[str, Any]:
        """What every task is given; `figures` are those of a fitted row."""
        on = "gpu" if self.place.measures else "checker"
        machine = self.place.facts()["card"]
        search = MEASURED_SEARCH if self.place.measures else PREDICTED_SEARCH
        figures = dict(figures)
        return {"on": on, "device": self.place.row.name, "machine": machine, "figures": figures, "search": search}


Made = Iterator[tuple[Task, str]]
"""Tasks, each with the table that its result stands in."""


@dataclass(frozen=True)
class Part:
    """A part of the suite.

    Attributes:
        share: of the time, in proportion to those of the parts that are still to come.
        tasks: its tasks, the most important ones first, given what all have in common.
        measures: whether it makes no sense without measured times.
    """

    name: str
    share: float
    tasks: Callable[[Asked, dict[str, Any]], Made]
    measures: bool = False

    def chosen(self, asked: Asked, figures: Mapping[str, Any]) -> list[tuple[Task, str]]:
        """The tasks that were asked for, with their tables."""
        return list(self._asked(asked, figures))

    def empty(self, asked: Asked) -> bool:
        """Whether nothing of it was asked for."""
        return next(self._asked(asked, {}), None) is None

    def _asked(self, asked: Asked, figures: Mapping[str, Any]) -> Made:
        if not self.measures or asked.place.measures:
            made = self.tasks(asked, asked.common(figures))
            yield from ((task, table) for task, table in made if asked.wants(task.name))


def _task(name: str, work: str, given: dict[str, Any], seconds: float, places: Mapping[str, Any] = {}) -> Task:
    return Task(name, f"eqsat.suite.{work}", given, seconds, MEMORY, places)


def _checks(asked: Asked, common: dict[str, Any]) -> Made:
    extent = asked.extent
    variants = list(checks.kernels(target(asked.place.row.arch), extent.large and asked.place.measures))
    kernels = [_task(name, "checks:kernel", common | given, 30.0) for name, given in variants]
    for name in motivating.PROGRAMS:
        yield _task(f"check {name}", "checks:whole_program", common | {"program": name}, 100.0), "programs"
    if checks.has_hypothesis():
        for seed in range(extent.random):
            given = common | {"seed": seed}
            yield _task(f"random plan {seed}", "checks:random_program", given, 100.0), "random plans"
    if asked.place.measures and checks.has_sanitizer():
        for task in islice(kernels[::_SANITIZED_EVERY], extent.sanitized):
            for tool in checks.TOOLS:
                given = {"script": script(task), "tool": tool}
                seconds = checks.SANITIZER_SECONDS + 20
                yield _task(f"{tool} of {task.name}", "checks:sanitized", given, seconds), "sanitizer"
    for task in kernels:
        yield task, f"kernels, {task.given['family']}"


def _products() -> dict[str, tuple[int, str]]:
    """The edges and types of products, by name."""
    return {product_name(edge, dtype): (edge, dtype) for edge in PRODUCT_EDGES for dtype in PRODUCT_DTYPES}


def _calibration(asked: Asked, common: dict[str, Any]) -> Made:
    for name in MICRO:
        given = common | {"name": name, "rounds": asked.extent.rounds}
        yield _task(f"calibrate {name}", "figures:micro_kernel", given, 60.0), "calibration"


def _tuning(asked: Asked, common: dict[str, Any]) -> Made:
    seconds = asked.extent.tuning
    for name in (*_products(), *motivating.PROGRAMS, *streaming.ROWS):
        given = common | {"program": name, "seconds": seconds}
        yield _task(f"tune {name}", "figures:tuned", given, seconds + 100.0), "tuning"
    for path in asked.models:
        given, places = _of_model(path, asked)
        given |= common | {"seconds": seconds}
        yield _task(f"tune {path.stem}", "figures:tuned", given, seconds + 100.0, places), "tuning"


def _tables(asked: Asked, common: dict[str, Any]) -> Made:
    extent = asked.extent
    common = common | {"rounds": extent.rounds}
    for name, (edge, dtype) in _products().items():
        given = common | {"edge": edge, "dtype": dtype}
        yield _task(name, "figures:vendors_product", given, 100.0), "products"
    common |= {"compile": extent.compile, "compared": asked.place.measures}
    for table, names in (("streams", streaming.ROWS), ("motivating programs", motivating.PROGRAMS)):
        for name in names:
            yield _task(name, "figures:whole_program", common | {"program": name}, 300.0), table
    for path in asked.models:
        given, places = _of_model(path, asked)
        yield _task(f"model {path.stem}", "figures:whole_program", common | given, 600.0, places), "models"


_MOST_BYTES = (1 << 31) - 1
"""Of a model's file."""


def _of_model(path: Path, asked: Asked) -> tuple[dict[str, Any], dict[str, str]]:
    """What the tasks of a model are given, and where it lies."""
    digest = hashlib.sha256(read_bytes(path, _MOST_BYTES, "the .onnx file")).hexdigest()
    return {"sizes": dict(asked.sizes), "digest": digest}, {"model": str(path.resolve())}


PARTS = (
    Part("checks", 0.35, _checks),
    Part("calibration", 0.1, _calibration, measures=True),
    Part("tuning", 0.2, _tuning, measures=True),
    Part("tables", 0.35, _tables),
)
"""The parts, in order: what is wrong need not be measured, and prices are fitted before plans are chosen by them."""


def script(task: Task) -> str:
    """A Python program that does one task."""
    module, _, function = task.work.partition(":")
    given = {**task.given, **task.places}
    return f"from {module} import {function}\n\nprint({function}({given!r}, print))\n"
