"""Pages for a terminal. A rule: both sides, what must be proved, when and why it pays, its source, and an example. An
equation: the rules that it gives."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.inspection.rule_example import example
from eqsat.language import text as rule_text
from eqsat.language.rule import AnyRule, Rule

_TITLE = 10
"""Width of the titles on the left, in columns."""

CLASSES = {
    "exact": "exact: bitwise the same",
    "reassociating": "reassociating: equal over the reals, rounding differs",
    "range-changing": "range-changing: may turn a finite result infinite, or hide a NaN or an infinity",
}


def page(row: AnyRule, family: str) -> dict[str, Any]:
    """Everything about a rule, as `eqsat rules show --json` writes it beside its row."""
    before, after = rule_text.sides(row)
    worked = example(row)
    language = isinstance(row, Rule)
    return {
        "family": family,
        **({"equation": row.equation, "stated": row.stated, "direction": row.direction} if language else {}),
        "before": before,
        "after": after,
        "shapes": rule_text.shapes(row) if language else {},
        "needs": _needs(row),
        "pays": rule_text.pays(row) if language else [],
        "example": worked.as_json() if worked is not None else None,
    }


def _needs(row: AnyRule) -> list[str]:
    """What must be proved before the rule fires."""
    if isinstance(row, Rule):
        return rule_text.needs(row)
    return [row.guard_text] if row.guard_text else []


def page_text(row: AnyRule, shown: Mapping[str, Any], width: int) -> str:
    """A page as lines for a terminal."""
    shapes = ", ".join(f"{name}{shape}" for name, shape in shown["shapes"].items())
    lines = [f"{row.name} ({shown['family']})"]
    stated = f"{shown['stated']}  ({shown['equation']})" if shown.get("equation", row.name) != row.name else ""
    return _laid_out(
        lines,
        ("equal", [shown["before"], f"= {shown['after']}"]),
        ("equation", [stated] * bool(stated)),
        ("shapes", [shapes] * bool(shapes)),
        ("needs", shown["needs"] or ["nothing: it always holds"]),
        ("pays when", shown["pays"]),
        ("numerics", [CLASSES[row.numerics]]),
        ("why", [row.why] * bool(row.why)),
        ("source", [row.source] * bool(row.source)),
        ("example", _example(shown["example"])),
        width=width,
    )


def equation_page(rows: Sequence[Rule], family: str) -> dict[str, Any]:
    """An equation and the rules that it gives, as `eqsat rules show --json` writes it."""
    first = rows[0]
    return {
        "name": first.equation,
        "text": first.stated,
        "family": family,
        "numerics": first.numerics,
        "source": "; ".join(dict.fromkeys(row.source for row in rows if row.source)),
        "rules": [
            {
                "name": row.name,
                "direction": row.direction,
                "text": row.text,
                "needs": rule_text.needs(row),
                "pays": rule_text.pays(row),
                "why": row.why,
            }
            for row in rows
        ],
    }


def equation_text(rows: Sequence[Rule], shown: Mapping[str, Any], width: int) -> str:
    """The page of an equation as lines for a terminal."""
    first = rows[0]
    lines = [f"{shown['name']} ({shown['family']})"]
    rules = [(row["name"], [row["text"], *(f"pays when {part}" for part in row["pays"])]) for row in shown["rules"]]
    page = _laid_out(
        lines,
        ("equation", [shown["text"]]),
        ("numerics", [CLASSES[first.numerics]]),
        ("source", [shown["source"]] * bool(shown["source"])),
        width=width,
    )
    return "\n".join([page, *(_laid_out([f"  {name}"], ("", texts), width=width) for name, texts in rules)])


def _laid_out(lines: list[str], *titled: tuple[str, Sequence[str]], width: int) -> str:
    """Lines, and below them texts with their titles on the left."""
    for title, texts in titled:
        for i, text in enumerate(texts):
            start = f"  {title if i == 0 else '':{_TITLE}}"
            lines += textwrap.wrap(
                text, width, initial_indent=start, subsequent_indent=" " * (_TITLE + 4), break_on_hyphens=False
            )
    return "\n".join(lines)


def _example(worked: Mapping[str, Any] | None) -> list[str]:
    if worked is None:
        return []
    before, after = worked["before"], worked["after"]
    names = ", ".join(f"{name}: {type_}" for name, type_ in worked["names"].items())
    typed = f"{worked['type']}; {names}" if names else worked["type"]
    cost = f"{before['flops']} -> {after['flops']} FLOP, {before['predicted_us']:.3f} -> {after['predicted_us']:.3f} us"
    return [
        before["expression"],
        f"= {after['expression']}",
        typed,
        f"{cost} on mi300x",
    ]
