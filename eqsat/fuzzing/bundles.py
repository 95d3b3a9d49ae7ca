"""Bundles: the programs of one block of seeds as one, which costs a third of optimising each by itself.

They share no inputs, and each is compared with its own source, as in `programs`. What only a program alone can show is
asked of every 32nd block: there each is judged by itself, as in `programs`. So is a bundle that reaches a limit of the
search. Its limits are those of one program: nearly all bundles take a thirtieth of the time. Where a bundle has a
fault, its programs are judged alone to tell which of them has it (`parts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.fuzzing import programs
from eqsat.fuzzing.kinds import Fault
from eqsat.fuzzing.programs import BLOCK, EVERY, Case
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term, rebuilt, topological
from eqsat.runs.task import Tell
from eqsat.testing import random_inputs

SECONDS, BYTES = BLOCK * programs.SECONDS, 2 * programs.BYTES

SINGLY = 32
"""The programs of one of this many blocks are judged one by one."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Programs of one policy and one device; `singly`: each is optimised by itself."""

    cases: Sequence[Case]
    singly: bool


def steps(seed: int) -> int:
    """How many programs there are."""
    return BLOCK


def parts(seed: int) -> list[tuple[str, int]]:
    """The programs, as cases of their own."""
    return [("programs", BLOCK * seed + i) for i in range(BLOCK)]


def case(seed: int, kept: Sequence[int] | None, models: Sequence[str] = ()) -> Bundle:
    """The programs of a block; `kept` picks among them."""
    picked = range(BLOCK) if kept is None else kept
    return Bundle([programs.case(BLOCK * seed + i, None) for i in picked], seed % SINGLY == 0)


def judge(bundle: Bundle, tell: Tell) -> Counter[str]:
    """Optimise programs as one, and compare each with its source.

    Where the result was refused, programs of which nobody can tell whether a result is right are judged by themselves.
    """
    if bundle.singly:
        return _one_by_one(bundle.cases, tell)
    asked = []
    for made in bundle.cases:
        inputs = random_inputs(made.program, made.seed)
        wanted = programs.values(made.program, inputs)
        if wanted is not None:
            asked.append((made, inputs, wanted))
    words = Counter({"refused": len(bundle.cases) - len(asked)})
    if not asked:
        return words
    try:
        best = programs.optimized(joined([made for made, _, _ in asked]))
    except Fault:
        vague = [made for made, _, _ in asked if programs.says_nothing(made)]
        if not vague:
            raise
        rest = [made for made, _, _ in asked if made not in vague]
        return words + _one_by_one(vague, tell) + judge(Bundle(rest, singly=False), tell)
    if best.report["egraph"]["stop"] != "saturated":
        return words + _one_by_one([made for made, _, _ in asked], tell)
    given = {_named(made, name): array for made, inputs, _ in asked for name, array in inputs.items()}
    for how, found in (("program", best.program.run(given)), ("plan", best.compile()(given))):
        for made, inputs, wanted in asked:
            own = {name: found[_named(made, name)] for name in wanted}
            programs.compare(made.program, made.policy, how, inputs, wanted, own)
    for made, inputs, wanted in asked:
        part = _part(best.program, made) if made.seed % EVERY == 0 else None
        if part is not None:
            programs.compare_with_onnxruntime(made, part, inputs, wanted, tell)
    return words + Counter({"result": len(asked)})


def _one_by_one(cases: Sequence[Case], tell: Tell) -> Counter[str]:
    return Counter(programs.judge(made, tell) for made in cases)


def joined(cases: Sequence[Case]) -> Case:
    """Programs as one, with the inputs and the outputs of all under names of their own."""
    inputs: list[Term] = []
    outputs: dict[str, Term] = {}
    for made in cases:
        own = {t: ops.input(_named(made, t.attr("name")), t.shape, t.dtype) for t in made.program.inputs}
        inputs += own.values()
        outputs |= {_named(made, name): term for name, term in _over(made.program, own).items()}
    first = cases[0]
    return Case(first.seed, Program(tuple(inputs), outputs), first.policy, first.device)


def _part(whole: Program, made: Case) -> Program | None:
    """One of the joined programs, or its part of their result, with its own names; None where it shares a product with
    another one."""
    own = {_named(made, t.attr("name")): t for t in made.program.inputs}
    terms = {t: own[name] for t in whole.inputs if (name := t.attr("name")) in own}
    outputs = {name: whole.outputs[_named(made, name)] for name in made.program.outputs}
    if any(term.op == "input" and term not in terms for term in topological(outputs.values())):
        return None
    return Program(made.program.inputs, _over(Program(tuple(terms), outputs), terms))


def _over(program: Program, made: Mapping[Term, Term]) -> dict[str, Term]:
    """The outputs of a program over other inputs."""
    done = dict(made)
    for term in program.terms():
        if term not in done:
            done[term] = rebuilt(term, [done[a] for a in term.args])
    return {name: done[term] for name, term in program.outputs.items()}


def _named(made: Case, name: str) -> str:
    """An input or an output of a program in the whole."""
    return f"p{made.seed}_{name}"


def files(bundle: Bundle) -> dict[str, bytes]:
    """The programs as one, as `programs.files`."""
    return programs.files(joined(bundle.cases))
