"""`eqsat rules list | show | check`: the rows that the optimiser rewrites with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eqsat.cli.shared.options import JsonFile
from eqsat.errors import InputError

if TYPE_CHECKING:
    from eqsat.evidence.guard_proofs import GuardProof
    from eqsat.evidence.judge import Judgement
    from eqsat.language.rule import AnyRule

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help="Look at the rules, and check them.")


def find(name: str) -> AnyRule:
    """The rule called `name`.

    Raises:
        InputError: no such rule; the message names the nearest ones.
    """
    from eqsat.cli.shared.output import nearest
    from eqsat.rules import ALL, EXPLORING

    by_name = {rule.name: rule for rule in [*ALL, *EXPLORING]}
    if name not in by_name:
        raise InputError(f"no rule is called {name!r}: {nearest(name, list(by_name))} (`eqsat rules list` names all)")
    return by_name[name]


def select(only: Sequence[str] | None, without: Sequence[str] | None, file: Path | None = None) -> list[AnyRule] | None:
    """The rules that `--only`, `--without` and `--rules` leave and add; None when none is given.

    Raises:
        InputError: a name that no rule has; a file whose rules are wrong, with the counterexample.
    """
    if not only and not without and file is None:
        return None
    from eqsat.evidence import user_rules
    from eqsat.rules import ALL

    dropped = {find(name).name for name in without or ()}
    kept = {find(name).name for name in only} if only else {rule.name for rule in ALL}
    own = user_rules.load(file) if file is not None else []
    return [*(rule for rule in ALL if rule.name in kept - dropped), *own]


def as_row(rule: AnyRule) -> dict[str, Any]:
    """A rule as it stands in JSON: name, left and right side, guard, numerics class, source, reason."""
    left, arrow, right = rule.text.partition(" => ")
    return {
        "name": rule.name,
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
    """List the rules by family: name, numerics class, and what equals what.

    Operators go by their names in NumPy (`matmul`, `concatenate`, `transpose`) or in the rule language (`mm`, `cat`).

    Examples: `eqsat rules list`, `eqsat rules list --operator matmul --class exact`
    """
    from eqsat.cli.shared.output import console, nearest, print_table, write_json
    from eqsat.language.text import mentions, sides
    from eqsat.rules import EXPLORING, FAMILIES

    families = {**FAMILIES, "exploring": EXPLORING}
    if family is not None and family not in families:
        raise InputError(f"no family of rules is called {family!r}: {nearest(family, list(families))}")
    listed = {
        name: [r for r in rules if numerics in (None, r.numerics) and (not operator or mentions(r, operator))]
        for name, rules in families.items()
        if family in (None, name)
    }
    if json_file is not None:
        flat = [{**as_row(rule), "family": name} for name, rows in listed.items() for rule in rows]
        write_json({"schema": 1, "rules": flat}, json_file)
    if json_file == "-":
        return
    terminal = console()
    for name, rows in listed.items():
        if rows:
            cells = [(rule.name, rule.numerics, " => ".join(sides(rule))) for rule in rows]
            title = f"{name}, {len(rows)} rule{'s' if len(rows) > 1 else ''}"
            print_table(terminal, title, ("name", "class", "left => right"), cells, words=3)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A rule's name.", show_default=False)], json_file: JsonFile = None
) -> None:
    """Show one rule: both sides, shapes, what must be proved before it fires, when it pays, why, whence, an example.

    Example: `eqsat rules show matmul-associate-right`
    """
    from eqsat.cli.shared.output import text_width, write_json
    from eqsat.inspection.rule_page import page, page_text
    from eqsat.rules import EXPLORING, FAMILIES

    row = find(name)
    families = {**FAMILIES, "exploring": EXPLORING}
    shown = page(row, next(family for family, rows in families.items() if row in rows))
    if json_file is not None:
        write_json({"schema": 1, **as_row(row), **shown}, json_file)
    if json_file != "-":
        typer.echo(page_text(row, shown, text_width()))


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
    seed: Annotated[int, typer.Option("--seed", help="Draw other instances.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Check rules: generated instances, both sides evaluated and compared as strictly as the numerics class asks.

    A rule is also at fault when its class is weaker than it deserves, or when a part of its guard is not needed and not
    declared as `worth`. Exit code 1 if any rule is at fault, with the instance that shows it or what to do.

    Examples: `eqsat rules check --prove-guards`, `eqsat rules check divide-by-constant --held 1000`
    """
    from eqsat.cli.shared.output import console, print_table, progress, write_json
    from eqsat.evidence import user_rules
    from eqsat.evidence.judge import judge
    from eqsat.rules import ALL, EXPLORING, FAMILIES

    rows = user_rules.read(file) if file is not None else [find(n) for n in names] if names else [*ALL, *EXPLORING]
    families = {rule.name: name for name, rules in {**FAMILIES, "exploring": EXPLORING}.items() for rule in rules}
    judged: list[Judgement] = []
    proofs: list[GuardProof] = []
    with progress("checking") as report:
        for i, row in enumerate(rows):
            report(row.name, i / len(rows))
            judged.append(judge(row, held=held, seed=seed))
            if prove_guards:
                from eqsat.evidence.guard_proofs import prove_guard

                proofs.append(prove_guard(row))
    found = [_checked(j, families.get(j.rule, "own"), *proofs[i : i + 1]) for i, j in enumerate(judged)]
    faults = [*(j for j in judged if j.remark), *(p for p in proofs if p.status == "refuted")]
    if json_file is not None:
        write_json({"schema": 1, "rules": found}, json_file)
    if json_file != "-":
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
"""Columns of the check's table, and where they come from in a row's JSON."""


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
