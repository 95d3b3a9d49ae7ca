"""Equations as rows of rules: written in their notation, judged as every rule is, priced, and printed for a table."""

from __future__ import annotations

import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from typing import Any, get_args

from eqsat.discovery.derived import program
from eqsat.discovery.equations import Equation
from eqsat.discovery.expressions import OPERATORS, Dim, Expr, Typing, typing
from eqsat.errors import InputError
from eqsat.evidence.judge import judge
from eqsat.language.equation import rule
from eqsat.language.rule import Numerics, Rule
from eqsat.pipeline.optimize import optimize
from eqsat.program.ir import Program

PRICED = (512, 768, 1024, 384, 1536, 256, 640, 896)
"""Sizes at which both sides are priced: those of layers of transformers."""

DEVICE = "mi300x"


GUARDS = ("", "floating(dtype(a))")
"""Conditions on an equation, the weakest first: integers wrap around, and their division truncates."""

VIEW_GUARDS = ("", "keeps_sums(L)", "plain(L)")
"""Conditions on a view L, the weakest first, of equations that hold for more views than transposes."""

_SAME = 0.01
"""Prices that differ by at most this share are the same: no rule is wanted for it."""


class Unwritten(Exception):
    """The notation of rules cannot write an equation."""


@dataclass(frozen=True, slots=True)
class Row:
    """A rule that is missing.

    Attributes:
        rule: from the dearer side to the cheaper one.
        when: what must be proved: the weakest of `GUARDS` with which no instance refutes it.
        before_us, after_us: their prices, in microseconds.
        example: both sides at these sizes as NumPy expressions.
        z3: what it says of all shapes (`eqsat.evidence.guard_proofs`); empty where it is not installed.
    """

    equation: Equation
    rule: Rule
    when: str
    before_us: float
    after_us: float
    example: str
    z3: str

    @property
    def saved(self) -> float:
        """The share of the time that it saves."""
        return 1 - self.after_us / self.before_us if self.before_us else 0.0

    def text(self, source: str) -> str:
        """The row as `rules/` has it."""
        lines = [
            "*rules(",
            f'    "{self.rule.name}",',
            f"    {_quoted(self.rule.stated)},",
            *([f'    when="{self.when}",'] if self.when else []),
            f'    numerics="{self.rule.numerics}",',
            f'    source="{source}",',
            f'    why="{self.before_us:.3g} us become {self.after_us:.3g} us",',
            f"),  # {self.example}",
        ]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The row in JSON."""
        return {
            "name": self.rule.name,
            "text": self.rule.stated,
            "when": self.when,
            "numerics": self.rule.numerics,
            "before_us": self.before_us,
            "after_us": self.after_us,
            "example": self.example,
            "z3": self.z3,
        }


def _quoted(text: str) -> str:
    return f"'{text}'" if '"' in text else f'"{text}"'


def written(equation: Equation, viewed: bool = False) -> tuple[str, str]:
    """Both sides in the notation of rules; `viewed`: with any view L in the place of every transpose.

    Raises:
        Unwritten: it has no sign for an operator, or no letter for a size.
    """
    shapes = typing(equation.left, equation.right)
    return _written(equation.left, shapes, viewed), _written(equation.right, shapes, viewed)


def _written(expr: Expr, shapes: Typing, viewed: bool) -> str:
    text = _inner(expr, shapes, viewed)
    return text[1:-1] if text.startswith("(") and text.endswith(")") and _closes_last(text) else text


def _closes_last(text: str) -> bool:
    """Whether the first bracket is closed by the last one."""
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return i == len(text) - 1
    return False


def _inner(expr: Expr, shapes: Typing, viewed: bool) -> str:
    if not expr.args:
        return expr.op
    if viewed and expr.op == "transpose" and "transpose" in str(expr.args[0]):
        raise Unwritten("one view of another: the sizes that they read differ")
    form = "{0}[L]" if viewed and expr.op == "transpose" else OPERATORS[expr.op].text
    if not form:
        raise Unwritten(f"rules have no sign for {expr.op}")
    used = {name for _, name, _, _ in string.Formatter().parse(form) if name and not name.isdigit()}
    sizes = shapes.sizes(expr)
    letters = {name: _letter(sizes[name]) for name in used}
    inner = _inner if form.startswith(("(", "{")) else _written  # what is called has brackets of its own
    return form.format(*(inner(arg, shapes, viewed) for arg in expr.args), **letters)


def _letter(dim: Dim) -> str:
    if isinstance(dim, tuple):
        raise Unwritten("rules have no letter for a sum of sizes")
    return dim


def row(equation: Equation, taken: Collection[str] = ()) -> Row:
    """The row of an equation, with the strictest class that it deserves, under a name that is not taken.

    Raises:
        Unwritten: rules cannot write it.
        InputError: no class is right, with the counterexample; or it can be matched in neither direction.
    """
    prices = _prices(equation)
    before, after = max(prices), min(prices)
    name = _free(f"{_name(equation.left)}-is-{_name(equation.right)}", taken)
    said: InputError | None = None
    for viewed in (False, True) if "transpose" in str(equation) else (False,):
        try:
            left, right = written(equation, viewed)
        except Unwritten:
            if said is None:
                raise
            break
        sides = [(left, right)] if prices[0] >= (1 - _SAME) * prices[1] else []  # else it would make things dearer
        sides += [(right, left)] if prices[1] >= (1 - _SAME) * prices[0] else []
        for first, second in sides:
            try:
                made, when, proved = _judged(name, first, second, VIEW_GUARDS if viewed else GUARDS)
            except InputError as error:
                said = said or error
                continue
            return Row(equation, made, when, before, after, _example(equation), proved)
    assert said is not None
    raise said


def _judged(name: str, left: str, right: str, guards: Sequence[str]) -> tuple[Rule, str, str]:
    """The rule under the weakest guard, in the strictest class, that neither an instance nor a proof refutes; that
    guard, and what the proof says.

    Raises:
        InputError: there is none, with what the first guard has against it; or the rule cannot be matched.
    """
    said = ""
    for when in guards:
        against = ""
        for numerics in get_args(Numerics):
            made = rule(name, f"{left} == {right}", numerics=numerics, when=when)
            seen = judge(made)
            proved, reason = _proved(made) if seen.verdict == "sound" else ("refuted", seen.remark)
            if proved != "refuted":
                return made, when, proved
            if seen.verdict != "over-classed":  # what a stricter class had against it stands
                against = f"{numerics}: {reason}"
        said = said or against
    raise InputError(f"{left} == {right}: {said}")


def both(found: Row) -> list[Rule]:
    """The rule, and the same from right to left where that can be matched."""
    left, _, right = found.rule.stated.partition(" == ")
    row = found.rule
    try:
        return [row, rule(f"{row.name}-back", f"{right} == {left}", numerics=row.numerics, when=found.when)]
    except InputError:
        return [row]


def _name(expr: Expr) -> str:
    """A name from the operators, from the outermost on."""
    if not expr.args:
        return expr.op
    inner = [_name(arg) for arg in expr.args if arg.args]
    return expr.op.replace("_", "-") + ("-of-" + "-and-".join(inner) if inner else "")


def _free(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it if it is taken."""
    if name not in taken:
        return name
    return next(free for n in count(2) if (free := f"{name}-{n}") not in taken)


def _prices(equation: Equation) -> tuple[float, float]:
    """Microseconds of both sides as they are written, in kernels of their own."""
    whole = program(equation, PRICED)
    found = []
    for side, term in whole.outputs.items():
        used = set(Program(whole.inputs, {side: term}).terms())
        alone = Program(tuple(t for t in whole.inputs if t in used), {side: term})
        report = optimize(alone, DEVICE, rules=[], explain_time=0.0, measure=False).report
        found.append(report["source"]["predicted_us"])
    return found[0], found[1]


def _example(equation: Equation) -> str:
    """The shapes of the variables of the example."""
    whole = program(equation, PRICED)
    return ", ".join(f"{t.attr('name')}: {'x'.join(map(str, t.shape))}" for t in whole.inputs)


def _proved(made: Rule) -> tuple[str, str]:
    """What z3 says of all shapes, and why; empty where it is not installed."""
    if find_spec("z3") is None:
        return "", ""
    from eqsat.evidence.guard_proofs import prove_guard

    proof = prove_guard(made)
    return proof.status, proof.reason
