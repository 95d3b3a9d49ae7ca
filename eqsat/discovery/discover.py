"""Discovery: equations of some operators up to a size, those that rules derive, and rows for what is missing.

    settings of shapes  ->  equations of each  ->  which the rules derive  ->  rows, each judged, none that others imply
    (`equations.py`)        (a task for some)      (a task for some)           (`rows.py`, one after the other)

Tasks run as all tasks do (`eqsat.runs`): in guarded processes, kept as they arrive.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from eqsat.discovery.derived import derived, rules
from eqsat.discovery.equations import Equation, equations, most_general, partial, settings
from eqsat.discovery.expressions import Dim
from eqsat.discovery.rows import Row, Unwritten, both, row
from eqsat.errors import InputError
from eqsat.language.rule import Rule
from eqsat.runs.run import run
from eqsat.runs.store import Store
from eqsat.runs.task import Task, Tell

_SETTINGS = 16
"""Settings of a task: neighbours have many equations in common."""

_TOGETHER = 12
"""Equations that are derived in one e-graph: more grow it out of hand."""

_FINDING, _DERIVING = 0.4, 0.9
"""Shares of the time after which no further equations are looked for, and none derived."""

_SECONDS, _MEMORY = 600.0, 6 << 30

Told = Callable[[str, float], None]

Shapes = tuple[tuple[Dim, Dim], ...]
"""Of variables."""


@dataclass(slots=True)
class Discovery:
    """What was found.

    Attributes:
        settings: how many settings of shapes there are.
        looked: how many of them were looked at.
        equations: how many there are in these, up to names; `general` of them are left without instances of others, and
            only these are derived.
        derived: how many of all equations the rules derive.
        known: the most general ones that they derive.
        rows: rules that are missing, those that save most first.
        implied: equations that the rules derive with these rows.
        refused: equations that are no rules, and why: they hold over the reals, but for no class of numerics, or rules
            cannot write them.
        late: settings and equations that were left for want of time, or as their tasks failed.
    """

    settings: int = 0
    looked: int = 0
    equations: int = 0
    general: int = 0
    derived: int = 0
    known: list[Equation] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    implied: list[Equation] = field(default_factory=list)
    refused: dict[Equation, str] = field(default_factory=dict)
    late: int = 0

    @property
    def share(self) -> float:
        """The share of all equations that the rules derive."""
        return self.derived / self.equations if self.equations else 1.0


def discover(
    operators: Sequence[str],
    size: int,
    store: Store,
    seconds: float,
    without: Sequence[str] = (),
    workers: int = 1,
    on: str | None = None,
    draw: tuple[int, int] | None = None,
    told: Told = lambda stage, share: None,
) -> Discovery:
    """Look for rules that are missing.

    Args:
        operators: names of `eqsat.discovery.expressions.OPERATORS`.
        size: most operators of a side.
        seconds: for all of it. Where the time is up, what was found by then is returned.
        without: rules and equations to do without, by name.
        workers, on: as for `eqsat.runs.run`.
        draw: so many settings of shapes at most, and the seed that picks them among all.
    """
    begun = time.monotonic()
    result = Discovery()

    def in_time(share: float) -> Callable[[Any], bool]:
        return lambda _: time.monotonic() < begun + share * seconds

    def done(tasks: Sequence[Task], share: float, stage: str) -> Iterator[tuple[Task, Any]]:
        """Tasks with their results, as many as there is time for."""
        result.late += sum(map(_amount, tasks))
        for count, (task, outcome, _) in enumerate(run(takewhile(in_time(share), tasks), store, workers, on), 1):
            told(f"{stage}, {count} of {len(tasks)}", count / len(tasks))
            if outcome.value is not None:
                result.late -= _amount(task)
                yield task, outcome.result

    names = sorted(operators)
    found: dict[str, str] = {}
    every = settings(names, size)
    result.settings = len(every)
    for task, general in done(_finding(names, size, _drawn(every, draw)), _FINDING, "looking for equations"):
        result.looked += _amount(task)
        found.update(general)
    instances = Counter(found.values())
    result.equations, result.general = len(found), len(instances)
    missing: list[Equation] = []
    waiting = sorted(map(Equation.read, instances), key=_order)
    for task, flags in done(_deriving(waiting, without), _DERIVING, "deriving"):
        for text, flag in zip(task.given["equations"], flags, strict=True):
            result.derived += instances[text] * flag
            (result.known if flag else missing).append(Equation.read(text))
    _judge(sorted(missing, key=_order), without, result, in_time(1.0), told)
    result.rows.sort(key=lambda r: (-r.saved, _order(r.equation)))
    return result


def _order(equation: Equation) -> tuple[int, int, int, str]:
    """Small ones first, and of equal sizes those of more variables: they imply others."""
    sides = equation.left, equation.right
    variables = {name for side in sides for name in side.variables()}
    return sum(side.size for side in sides), -len(variables), equation.left.size, str(equation)


def _drawn(every: Sequence[Shapes], draw: tuple[int, int] | None) -> Sequence[Shapes]:
    """So many of all settings, picked by a seed."""
    if draw is None or draw[0] >= len(every):
        return every
    return random.Random(draw[1]).sample(every, draw[0])


def _finding(operators: Sequence[str], size: int, chosen: Sequence[Shapes]) -> list[Task]:
    given = {"operators": list(operators), "size": size}
    return [
        Task(
            f"equations {some[0]}",
            "eqsat.discovery.discover:find",
            given | {"settings": some},
            _SECONDS,
            _MEMORY,
        )
        for some in _split(chosen, _SETTINGS)
    ]


def _deriving(waiting: Iterable[Equation], without: Sequence[str]) -> list[Task]:
    every = [str(equation) for equation in waiting]
    return [
        Task(
            f"derive {texts[0]}",
            "eqsat.discovery.discover:derive",
            {"equations": texts, "without": sorted(without)},
            _SECONDS,
            _MEMORY,
        )
        for texts in _split(every, _TOGETHER)
    ]


def _split(every: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    return (every[i : i + most] for i in range(0, len(every), most))


def _amount(task: Task) -> int:
    """The settings or equations of a task."""
    return len(task.given.get("settings") or task.given["equations"])


def find(given: Mapping[str, Any], tell: Tell) -> dict[str, str]:
    """Work of a task: the equations over variables of some shapes, each with one of which it is an instance."""
    operators, size = given["operators"], given["size"]
    found: set[Equation] = set()
    for setting in given["settings"]:
        shapes = [(_dim(rows), _dim(columns)) for rows, columns in setting]
        for positive in (False, True) if partial(operators) else (False,):
            found.update(equations(shapes, operators, size, positive))
    return {str(e): str(most_general(e)) for e in found}


def _dim(dim: Any) -> Dim:
    return dim if isinstance(dim, str) else (_dim(dim[0]), _dim(dim[1]))


def derive(given: Mapping[str, Any], tell: Tell) -> list[bool]:
    """Work of a task: whether the rules derive each of some equations."""
    return derived([Equation.read(text) for text in given["equations"]], rules(given["without"]))


def _judge(
    missing: Sequence[Equation], without: Sequence[str], result: Discovery, in_time: Callable[[Any], bool], told: Told
) -> None:
    """Rows for equations that neither the rules nor the rows before them derive."""
    given, further = rules(without), list[Rule]()
    for i, equation in enumerate(missing):
        if not in_time(None):
            result.late += len(missing) - i
            return
        told(f"judging, {i} of {len(missing)}", i / len(missing))
        if further and derived([equation], given, further)[0]:
            result.implied.append(equation)
            continue
        try:
            made = row(equation, {r.rule.name for r in result.rows})
        except (Unwritten, InputError) as error:
            result.refused[equation] = str(error)
            continue
        result.rows.append(made)
        further += both(made)
