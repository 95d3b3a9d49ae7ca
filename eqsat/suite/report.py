"""The report of a run: one document, and the tables that the page and the terminal show."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Any

from eqsat.extract.plan.calibrate import Calibration, spearman
from eqsat.suite.checks import SANITIZER, has_hypothesis, has_sanitizer
from eqsat.suite.run import Done, PartDone, State, failure_file

FILE, PAGE = "report.json", "report.html"

WORST = 10
"""Kernels shown whose predictions are off most."""

_CLOCKS = 5
"""Readings of the clocks that are shown."""

PROGRAMS = ("streams", "motivating programs", "models")
"""Tables of programs."""

_LEFT_OUT = {
    "calibration": "no row is fitted: times are predicted by the row itself",
    "tuning": "nothing is tuned: times are predicted, and those of variants are not",
}
"""Why a part that measures is left out where nothing is measured."""


@dataclass(frozen=True)
class Table:
    """A table as shown; its first `words` columns hold words, the others figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default_factory=tuple)
    words: int = 1


def document(state: State) -> dict[str, Any]:
    """The whole run as JSON holds it."""
    results = [_result(part, done) for part in state.parts for done in part.done]
    correlation = rank_correlation(state)
    regrets = list(_regrets(state))
    return {
        "schema": 1,
        "suite": state.asked.size,
        "date": time.strftime("%Y-%m-%d"),
        "times": "measured" if state.asked.place.measures else "predicted",
        **state.facts,
        "parts": [_part(part) for part in state.parts],
        "calibration": None if state.calibration is None else _calibration(state.calibration),
        "rank_correlation": correlation,
        "regret": [{"name": name, "chosen_us": chosen, "best_us": best} for name, chosen, best in regrets],
        "failed": [r["name"] for r in results if "failure" in r],
        "results": results,
    }


def _part(part: PartDone) -> dict[str, Any]:
    counts = {"planned": part.planned, "done": len(part.done), "known": part.known}
    return {"name": part.name, **counts, "late": list(part.late)}


def _result(part: PartDone, done: Done) -> dict[str, Any]:
    outcome = done.outcome
    row = {"name": done.task.name, "part": part.name, "table": done.table, "seconds": round(outcome.seconds, 3)}
    if outcome.value is None:
        return row | {"failure": outcome.failure, "stage": outcome.stage, "file": failure_file(done.task)}
    return row | {"result": outcome.result}


def _calibration(found: Calibration) -> dict[str, Any]:
    return {"device": found.row.name, "figures": {name: each._asdict() for name, each in found.figures.items()}}


def tables(state: State) -> list[Table]:
    """Everything that is known, as tables."""
    made = [_overview(state), *_checks(state)]
    if state.calibration is not None:
        made.append(_calibrated(state.calibration, _results(state, "calibration")))
    made += _tuning(_results(state, "tuning"))
    made += _products(_results(state, "products"))
    for name in PROGRAMS:
        made += _programs(name, _results(state, name))
    return [*made, *_kernels(state), *_regret(state), *_failures(state)]


def _done(state: State, *names: str) -> list[Done]:
    return [d for part in state.parts for d in part.done if not names or d.table in names]


def _results(state: State, *names: str) -> dict[str, Any]:
    """The results of tables by the names of tasks, failed ones left out."""
    return {d.task.name: d.outcome.result for d in _done(state, *names) if d.outcome.value is not None}


def _overview(state: State) -> Table:
    rows = []
    for part in state.parts:
        failed = sum(d.outcome.value is None for d in part.done)
        rows.append((part.name, *map(str, (part.planned, len(part.done), part.known, failed, len(part.late)))))
    measured = state.asked.place.measures
    notes = [] if measured else [f"{name}: {_LEFT_OUT[name]}" for name, *_ in rows if name in _LEFT_OUT]
    if not has_hypothesis():
        notes.append("checks: no random programs, because Hypothesis is not installed")
    if measured and not has_sanitizer():
        notes.append(f"checks: nothing ran under {SANITIZER}, because it is not on the PATH")
    clocks = dict.fromkeys(" ".join(text.split()) for each in _results(state).values() if (text := each.get("clocks")))
    notes += [f"Clocks seen: {text}" for text in list(clocks)[:_CLOCKS]]
    return Table("Parts", ("part", "tasks", "done", "known before", "failed", "no time"), rows, notes)


def _checks(state: State) -> Iterator[Table]:
    done = [d for part in state.parts if part.name == "checks" for d in part.done]
    counts = Counter(d.table for d in done)
    wrong = Counter(d.table for d in done if d.outcome.value is None)
    rows = [(name, str(count), str(count - wrong[name]), str(wrong[name])) for name, count in counts.items()]
    if rows:
        yield Table("Checked against NumPy in float64", ("what", "checked", "right", "failed"), rows)


def _calibrated(found: Calibration, results: Mapping[str, Any]) -> Table:
    spread = {name.removeprefix("calibrate "): each["measured"]["spread"] for name, each in results.items()}
    rows = [
        (name, _us(us), f"{spread[name]:.1%}", _us(found.before[name]), _us(found.after[name]))
        for name, us in found.measured.items()
    ]
    ranks, factors = found.rank_correlation, found.typical_factor
    notes = [
        f"Rank correlation {ranks[0]:.3f} before, {ranks[1]:.3f} after; "
        f"a prediction is typically off by {factors[0]:.2f} before, {factors[1]:.2f} after."
    ]
    return Table("Calibration", ("kernel", "measured", "spread", "predicted before", "after"), rows, notes)


def _tuning(results: Mapping[str, Any]) -> Iterator[Table]:
    rows, notes = [], []
    for name, each in results.items():
        both = [(k["untuned_us"], k["us"]) for k in each["kernels"] if k["untuned_us"] and k["us"]]
        gain = f"{sum(a for a, _ in both) / sum(b for _, b in both):.2f}x" if both else "-"
        rows.append((name.removeprefix("tune "), str(len(each["kernels"])), gain, each["stop"]))
        notes += [f"{k['name']}: {reason}" for k in each["kernels"] for reason in k["refused"]]
    if rows:
        yield Table("Tuned kernels of the best plans", ("program", "kernels", "faster", "ended by"), rows, notes)


def _products(results: Mapping[str, Any]) -> Iterator[Table]:
    rows = []
    for name, each in results.items():
        times = each["times"]
        library = times.get("library")
        share = f"{library['us'] / times['eqsat']['us']:.0%}" if library else "-"
        limit = f"{each['limit_us'] / times['eqsat']['us']:.0%}"
        rows.append((name, _time(times["eqsat"]), _time(library), share, _us(each["limit_us"]), limit))
    if rows:
        columns = ("product", "eqsat", "library", "of its rate", "limit", "of the limit")
        yield Table("Products against the vendor's library", columns, rows, _missing(results))


def _programs(title: str, results: Mapping[str, Any]) -> Iterator[Table]:
    if not results:
        return
    who = list(dict.fromkeys(name for each in results.values() for name in each["times"]))
    rows = []
    for name, each in results.items():
        times = each["times"]
        limit = f"{each['limit_us'] / times['eqsat']['us']:.0%}"
        rows.append((name, *(_time(times.get(w)) for w in who), _us(each["limit_us"]), limit))
    notes = []
    for other in who:
        ratios = [t[other]["us"] / t["eqsat"]["us"] for t in (e["times"] for e in results.values()) if other in t]
        if other != "eqsat":
            notes.append(f"Geometric mean against {other}: {geometric_mean(ratios):.2f}x over {len(ratios)}.")
    yield Table(title.capitalize(), ("program", *who, "limit", "of the limit"), rows, notes + _missing(results))


def _missing(results: Mapping[str, Any]) -> list[str]:
    """Why columns are empty, each reason once, with the number of rows."""
    found = Counter(f"No {who}: {why}" for each in results.values() for who, why in each["missing"].items())
    return [f"{reason} ({count} rows)." for reason, count in found.items()]


def _pairs(state: State) -> list[tuple[str, float, float]]:
    """(kernel, predicted, measured microseconds) of every kernel that was timed alone."""
    found = []
    for name, each in _results(state, "products", *PROGRAMS).items():
        found += [(f"{name}: {k['name']}", k["predicted_us"], k["measured"]["us"]) for k in each["kernels"]]
    return found


def rank_correlation(state: State) -> float | None:
    """Spearman's coefficient between predicted and measured times of kernels; None where nothing was measured."""
    pairs = _pairs(state)
    if not state.asked.place.measures or len(pairs) < 2:
        return None
    found = spearman([p for _, p, _ in pairs], [m for *_, m in pairs])
    return None if math.isnan(found) else found


def _kernels(state: State) -> Iterator[Table]:
    correlation = rank_correlation(state)
    if correlation is None:
        return
    pairs = sorted(_pairs(state), key=lambda row: -abs(math.log(row[2] / max(row[1], 1e-9))))
    rows = [(name, _us(p), _us(m), f"{m / max(p, 1e-9):.2f}x") for name, p, m in pairs[:WORST]]
    notes = [f"Rank correlation {correlation:.3f} over {len(pairs)} kernels; the {len(rows)} furthest off are shown."]
    yield Table("Predicted against measured", ("kernel", "predicted", "measured", "times"), rows, notes)


def _regrets(state: State) -> Iterator[tuple[str, float, float]]:
    """(program, microseconds of the plan that was chosen, of the fastest plan that was measured)."""
    if state.asked.place.measures:
        for name, each in _results(state, *PROGRAMS).items():
            if len(each["plans"]) > 1:
                yield name, each["plans"]["eqsat"]["us"], min(p["us"] for p in each["plans"].values())


def _regret(state: State) -> Iterator[Table]:
    found = list(_regrets(state))
    if found:
        rows = [(name, _us(chosen), _us(best), f"{chosen / best - 1:.1%}") for name, chosen, best in found]
        notes = [f"In the geometric mean {geometric_mean([c / b for _, c, b in found]) - 1:.1%}."]
        columns = ("program", "chosen by price", "best measured", "lost")
        yield Table("What choosing by price lost", columns, rows, notes)


def _failures(state: State) -> Iterator[Table]:
    done = [d for d in _done(state) if d.outcome.value is None]
    if done:
        rows = [(d.task.name, d.outcome.failure, failure_file(d.task)) for d in done]
        yield Table("Failed", ("what", "why", "run this again"), rows, words=3)


def _us(us: float) -> str:
    return f"{us:.4g}"


def _time(found: Mapping[str, float] | None) -> str:
    if found is None:
        return "-"
    return f"{found['us']:.4g} ±{found['spread'] / 2:.1%}" if found["spread"] else f"{found['us']:.4g}"
