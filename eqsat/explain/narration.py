"""Explanations as text for a terminal: steps, the meaning of each name, and which kernels became which."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.errors import escaped

WIDTH = 100
"""Width of the text, in columns."""

_MISSING = "time was short, or the e-graph no longer holds one of them"
"""Why steps are not complete: an e-node that a simpler one replaced (`Rule.subsumes`) is no longer there."""

_INDENT = "     "
_MOST_PLACES = 12
"""Most places shown for a rule that did not fire."""

Report = Mapping[str, Any]


def narration(report: Report, width: int = WIDTH) -> str:
    """A report of `eqsat.optimize` as text: each step once, merged kernels, and kernels that stream."""
    report = escaped(report)
    steps = report["steps"]
    parts = [_step(group, width) for group in alike(steps)]
    parts.append("\n".join(_filled(closing(report), width, "", "")))
    parts += [_merges(report["merges"], width)] if report["merges"] and steps else []
    why = streams(report)
    parts += [_streams(why, width)] if why else []
    return "\n\n".join(parts)


def streams(report: Report) -> dict[str, list[str]]:
    """The kernels of a report that stream, by name, with the lines that say how."""
    return {k["name"]: k["why"] for k in report["kernels"] if "why" in k}


def _streams(why: Mapping[str, Sequence[str]], width: int) -> str:
    lines = ["Kernels that stream:"]
    for name, parts in why.items():
        lines += [f"  {name}", *(line for part in parts for line in _filled(part, width, "    ", "      "))]
    return "\n".join(lines)


def alike(steps: Sequence[Mapping[str, Any]]) -> list[dict[int, Mapping[str, Any]]]:
    """Steps by number, in groups: similar rewrites of values of one type, used equally often."""
    groups: dict[tuple[Any, ...], dict[int, Mapping[str, Any]]] = {}
    for number, step in enumerate(steps, 1):
        groups.setdefault((step["alike"], step["type"], step["times"]), {})[number] = step
    return list(groups.values())


def _step(group: Mapping[int, Mapping[str, Any]], width: int) -> str:
    number, *others = group
    step = group[number]
    title = f"{number}. {step['rule']}{' (right to left)' if step['backwards'] else ''}"
    title += " (assumed)" if step["assumed"] else ""
    if step["times"] > 1:
        title += f" x{step['times']} (layers 1-{step['times']})"
    if others:
        title += f", and so step{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}"
    whole = f"{title}, {step['where']}"
    lines = [whole] if len(whole) <= width else [*_filled(title, width, "", _INDENT), f"{_INDENT}{step['where']}"]
    lines += _side("  ", step["before"], width)
    lines += _side("= ", step["after"], width)
    lines += _filled("; ".join([step["type"], *_legend(step["names"])]), width, _INDENT, f"{_INDENT}  ")
    if not step["replayed"] and step["rule"] != "fold-constants":
        lines.append(f"{_INDENT}not replayed: too much work, or values that are not finite")
    return "\n".join(lines)


def _legend(names: Mapping[str, str]) -> list[str]:
    """The meaning of each name; names of the same kind together."""
    alike: dict[str, list[str]] = {}
    for name, text in names.items():
        alike.setdefault(text, []).append(name)
    return [f"{', '.join(group)}: {text}" for text, group in alike.items()]


def _side(sign: str, text: str, width: int) -> list[str]:
    return _filled(text, width, _INDENT + sign, f"{_INDENT}    ")


def _filled(text: str, width: int, first: str, then: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False)


def why_not_text(answer: Mapping[str, Any], width: int = WIDTH) -> str:
    """An answer of `eqsat.inspection.why_not` as a few paragraphs."""
    answer = escaped(answer)
    lines = [f"{answer['rule']}: {answer['barred']}."] if answer["barred"] else []
    held, steps = answer["held"], answer["steps"]
    places = f"{held} place{'s' if held != 1 else ''}"
    if steps:
        lines.append(f"{answer['rule']} fired at {places}, and the result uses it: step {', '.join(map(str, steps))}.")
    elif held:
        lines.append(f"{answer['rule']} {'would fire' if answer['barred'] else 'fired'} at {places} of the e-graph.")
    elif answer["missed"]:
        lines.append(f"{answer['rule']} holds nowhere; its left side matches at {len(answer['missed'])}.")
    else:
        lines.append(f"{answer['rule']} finds no place: its left side matches nowhere.")
    for place in answer["dearer"]:
        lines += [*_place(place, width), *_filled(place["reason"], width, "      ", "        ")]
    for place in answer["missed"][:_MOST_PLACES]:
        lines += _place(place, width)
        for reason in place["reasons"]:
            lines += _filled(reason, width, "      ", "        ")
    if len(answer["missed"]) > _MOST_PLACES:
        lines.append(f"  and {len(answer['missed']) - _MOST_PLACES} more places (`--json` has all)")
    for text in answer["nearest"]:
        lines += _filled(text, width, "  ", "    ")
    return "\n".join(lines)


def apart_text(answer: Mapping[str, Any], width: int = WIDTH) -> str:
    """An answer of `eqsat.inspection.why_apart` as a few lines."""
    answer = escaped(answer)
    first, second = answer["kernels"]
    if answer["walks"]:
        said = f"One kernel could compute {first} and {second}, but {answer['reason']}:"
        parts = [_filled(said, width, "", "  "), *(_filled(part, width, "  ", "    ") for part in answer["walks"])]
        return "\n".join(line for part in parts for line in part)
    return "\n".join(_filled(f"{first} and {second} are not one stream: {answer['reason']}.", width, "", "  "))


def _place(place: Mapping[str, Any], width: int) -> list[str]:
    return [f"  {place['where']}", *_filled(place["term"], width, "    ", "      ")]


def closing(report: Report) -> str:
    """One line of summary: steps, replays, the largest error, and whether a step is missing."""
    if not report["steps"]:
        stands = "The program stands as it was written: nothing cheaper was found."
        is_source = report["derived"] or report.get("left_out")
        return stands if is_source else f"No steps are shown: {_MISSING}."
    steps = [s for s in report["steps"] if s["rule"] != "fold-constants"]
    replayed = [s for s in steps if s["replayed"]]
    line = f"{len(report['steps'])} steps, {len(replayed)} of {len(steps)} rewrites replayed by evaluation"
    if replayed:
        line += f", largest error {max(s['error'] for s in replayed):.0e}"
    if report["derived"]:
        return f"{line}. They make the source equal to the result, with nothing left out."
    return f"{line}. They say what each rule contributed, not every step between: {_MISSING}."


def _merges(merges: Sequence[Mapping[str, Any]], width: int) -> str:
    lines = ["Kernels as written, and what they became (the others stay as they are):"]
    for merge in merges:
        before, after = (" + ".join(_counted(merge[side])) or "nothing" for side in ("before", "after"))
        lines += _filled(before, width, "  ", "    ")
        times = f", x{merge['times']}" if merge["times"] > 1 else ""
        lines += _filled(f"-> {after}{times}", width, "    ", "       ")
    return "\n".join(lines)


def _counted(names: Sequence[str]) -> list[str]:
    """Runs of equal names shown once, with their count."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [name if n == 1 else f"{n} x {name}" for name, n in counts.items()]
