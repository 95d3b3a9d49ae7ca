"""`eqsat rules list | show | check`: the rewrite rules of the optimiser. `discover` is in `eqsat/cli/tasks/`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eqsat.cli.shared.options import JsonFile
from eqsat.errors import InputError

if TYPE_CHECKING:
    from eqsat.evidence.guard_proofs import GuardProof
    from eqsat.evidence.judge import Judgement
    from eqsat.language.rule import AnyRule

LEAST_SECONDS = 5.0
"""A file of rules gets as long however short the time limit is: its rules cannot be used without a check."""

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help="Look at the rules, and check them.")


def find(name: str, own: Sequence[AnyRule] = ()) -> AnyRule:
    """The rule called `name`, ours or one of a user's `own`.

    Raises:
        InputError: no such rule; the message names the nearest ones.
    """
    from eqsat.cli.shared.output import nearest
    from eqsat.rules import ALL, EXPLORING

    by_name = {rule.name: rule for rule in [*ALL, *EXPLORING, *own]}
    if name not in by_name:
        raise InputError(f"no rule is called {name!r}: {nearest(name, list(by_name))} (`eqsat rules list` names all)")
    return by_name[name]


def named(name: str, own: Sequence[AnyRule] = ()) -> list[AnyRule]:
    """The rule called `name`, or all rules of the equation of that name, ours or of a user's `own`.

    Raises:
        InputError: there is neither.
    """
    from eqsat.rules import ALL, EXPLORING

    return [row for row in [*ALL, *EXPLORING, *own] if equation_of(row) == name] or [find(name, own)]


def equation_of(rule: AnyRule) -> str:
    """The name of the equation that a rule orients; its own for a rule of the host."""
    return getattr(rule, "equation", rule.name)


def select(
    only: Sequence[str] | None,
    without: Sequence[str] | None,
    file: Path | None,
    seconds: float,
    exploring: bool = False,
) -> list[AnyRule] | None:
    """The rules that `--only`, `--without` and `--rules` leave and add; None when none is given.

    A rule given by name may be one that otherwise only proofs use.

    Args:
        seconds: how long the rules of the file may take to be checked; they always get `LEAST_SECONDS`.
        exploring: whether rules that only proofs use are among all rules, where no names are given.

    Raises:
        InputError: a name that no rule has; a file whose rules are wrong, with the counterexample, or take too long.
    """
    if not only and not without and file is None and not exploring:
        return None
    from eqsat.evidence import user_rules
    from eqsat.rules import ALL, EXPLORING

    own = user_rules.load(file, max(seconds, LEAST_SECONDS)) if file is not None else []
    every = {rule.name: rule for rule in [*ALL, *EXPLORING, *own]}
    usual = [*ALL, *(EXPLORING if exploring else ())]
    kept = {rule.name for name in only for rule in named(name, own)} if only else {rule.name for rule in usual}
    kept |= {rule.name for rule in own}
    dropped = {rule.name for name in without or () for rule in named(name, own)}
    return [rule for name, rule in every.items() if name in kept - dropped]


def as_row(rule: AnyRule) -> dict[str, Any]:
    """A rule in JSON: name, equation, left and right side, guard, numerics class, source, reason."""
    left, arrow, right = rule.text.partition(" => ")
    return {
        "name": rule.name,
        "equation": equation_of(rule),
        "left": left if arrow else "",
        "right": right if arrow else "",
        "text": rule.text,
        "guard": rule.guard_text,
        "numerics": rule.numerics,
        "source": rule.source,
        "why": rule.why,
    }


@app.command("list")
def list_rules(
    family: Annotated[str | None, typer.Option("--family", help="Only rules of this family.")] = None,
    numerics: Annotated[
        Literal["exact", "reassociating", "range-changing"] | None,
        typer.Option("--class", "--numerics", help="Only rules of this numerics class."),
    ] = None,
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="OP", help="Only rules that mention this operator.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """List the rules by family: equations, the rules that each gives, and when these can pay.

    Operators go by their names in NumPy (`matmul`, `concatenate`, `transpose`) or in the notation (`@`, `cat`).

    Examples: `eqsat rules list`, `eqsat rules list --operator matmul --class exact`
    """
    from eqsat.cli.shared.output import answer, console, nearest, print_table
    from eqsat.language.text import mentions

    families = _families()
    if family is not None and family not in families:
        raise InputError(f"no family of rules is called {family!r}: {nearest(family, list(families))}")
    listed = {
        name: [r for r in rules if numerics in (None, r.numerics) and (not operator or mentions(r, operator))]
        for name, rules in families.items()
        if family in (None, name)
    }
    flat = [{**as_row(rule), "family": name} for name, rows in listed.items() for rule in rows]
    if not answer({"schema": 1, "rules": flat}, json_file):
        return
    terminal = console()
    for name, rows in listed.items():
        if rows:
            equations = len({equation_of(rule) for rule in rows})
            title = f"{name}: {_many(equations, 'equation')}, {_many(len(rows), 'rule')}"
            print_table(terminal, title, ("name", "class", "equation; when a rule pays"), [*_listed(rows)], words=3)


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count > 1 else ''}"


def _listed(rows: Sequence[AnyRule]) -> Iterator[tuple[str, str, str]]:
    """A line for each equation; below it one for each rule, where it gives several or goes by another name."""
    from eqsat.language.rule import Rule
    from eqsat.language.text import written

    by_equation: dict[str, list[AnyRule]] = {}
    for row in rows:
        by_equation.setdefault(equation_of(row), []).append(row)
    for name, group in by_equation.items():
        first = group[0]
        yield name, first.numerics, first.stated if isinstance(first, Rule) else first.text
        for row in group:
            if isinstance(row, Rule) and (len(group) > 1 or row.name != name or row.worth):
                worth = [*map(written, row.worth), *["both sides are there"] * row.meets]
                pays = f"pays when {'; '.join(worth)}" if worth else f"to the {row.direction}"
                yield f"  {row.name}" * (row.name != name or len(group) > 1), "", pays


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="The name of a rule or an equation.", show_default=False)],
    json_file: JsonFile = None,
) -> None:
    """Show one rule: both sides, shapes, what must be proved before it fires, when it pays, why, whence, an example;
    or an equation with its rules.

    Examples: `eqsat rules show matmul-associate-right`, `eqsat rules show matmul-associative`
    """
    from eqsat.cli.shared.output import answer, text_width
    from eqsat.inspection.rule_page import equation_page, equation_text, page, page_text
    from eqsat.language.rule import Rule

    rules = [row for row in named(name) if isinstance(row, Rule)]
    if rules and all(row.name != name for row in rules):
        shown = equation_page(rules, _family(rules[0]))
        if answer({"schema": 1, **shown}, json_file):
            typer.echo(equation_text(rules, shown, text_width()))
        return
    row = find(name)
    shown = page(row, _family(row))
    if answer({"schema": 1, **as_row(row), **shown}, json_file):
        typer.echo(page_text(row, shown, text_width()))


def _families() -> dict[str, Sequence[AnyRule]]:
    from eqsat.rules import EXPLORING, FAMILIES

    return {**FAMILIES, "exploring": EXPLORING}


def _family(rule: AnyRule) -> str:
    """The family of a rule; `own` for one of a user's file."""
    return next((name for name, rows in _families().items() if rule in rows), "own")


@app.command("check")
def check(
    names: Annotated[
        list[str] | None, typer.Argument(help="Rules to check; all by default.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--rules", metavar="FILE.py", help="Check the rules of this file instead.")
    ] = None,
    prove_guards: Annotated[
        bool, typer.Option("--prove-guards", help="Also prove with z3, for all shapes, that both sides read the same.")
    ] = False,
    held: Annotated[int, typer.Option("--held", min=1, help="Instances on which each guard must have held.")] = 40,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Draw other instances.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Check rules: generated instances, both sides evaluated and compared as strictly as the numerics class asks.

    A rule is also at fault when its class is weaker than it deserves, or when a part of its guard is not needed and not
    declared as `worth`. Exit code 1 if any rule is at fault, with the instance that shows it or what to do.

    Examples: `eqsat rules check --prove-guards`, `eqsat rules check divide-by-constant --held 1000`
    """
    from eqsat.base.files import check_outputs
    from eqsat.base.progress_bar import progress_bar
    from eqsat.cli.shared.output import answer, console, print_table
    from eqsat.evidence import user_rules
    from eqsat.evidence.judge import judge
    from eqsat.rules import ALL, EXPLORING

    check_outputs({"--rules": file}, {"--json": json_file})
    if file is not None:
        rows = user_rules.read(file)
    else:
        rows = [row for n in names for row in named(n)] if names else [*ALL, *EXPLORING]
    judged: list[Judgement] = []
    proofs: list[GuardProof] = []
    with progress_bar("checking") as report:
        for i, row in enumerate(rows):
            report(row.name, i / len(rows))
            judged.append(judge(row, held=held, seed=seed))
            if prove_guards:
                from eqsat.evidence.guard_proofs import prove_guard

                proofs.append(prove_guard(row))
    found = [_checked(j, _family(rows[i]), *proofs[i : i + 1]) for i, j in enumerate(judged)]
    faults = [*(j for j in judged if j.remark), *(p for p in proofs if p.status == "refuted")]
    if answer({"schema": 1, "rules": found}, json_file):
        title = f"{len(judged)} rules: {_counted(j.verdict for j in judged)}"
        if proofs:
            title += f"; z3: {_counted(p.status for p in proofs)}"
        shown = {column: key for column, key in _CHECKED.items() if proofs or key != "z3"}
        print_table(
            console(), title, list(shown), [[_cell(row.get(key)) for key in shown.values()] for row in found], words=4
        )
        for fault in faults:
            typer.echo(f"{fault.rule}: {fault.remark}")
    if faults:
        raise typer.Exit(1)


_CHECKED = {
    "name": "rule",
    "family": "family",
    "numerics": "numerics",
    "verdict": "verdict",
    "held": "held",
    "compared by": "methods",
    "guard": "guard",
    "z3": "z3",
    "seconds": "seconds",
}
"""Columns of the check's table, and their keys in a row's JSON."""


def _counted(words: Iterable[str]) -> str:
    """How often each word occurs: `3 sound, 1 unsound`."""
    return ", ".join(f"{n} {word}" for word, n in sorted(Counter(words).items()))


def _checked(judgement: Judgement, family: str, proof: GuardProof | None = None) -> dict[str, Any]:
    """A rule's row of the check in JSON."""
    row = {**judgement.as_json(), "family": family}
    return row if proof is None else {**row, "z3": proof.status, "proof": proof.as_json()}


def _cell(value: Any) -> str:
    """A value of the check's row in the table."""
    if isinstance(value, list):
        return "+".join(value)
    return f"{value:.2f}" if isinstance(value, float) else str(value)
