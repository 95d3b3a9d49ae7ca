"""Which inputs and outputs of two programs belong together."""

from __future__ import annotations

from eqsat.errors import InputError
from eqsat.program.core import CoreProgram, lower
from eqsat.program.ir import Program
from eqsat.program.term import Term
from eqsat.verify.decided import decided_ahead


def matched(left: Program, right: Program) -> dict[str, str]:
    """The input of `left` that each input of `right` is: by name where one program has all names of the other, else by
    position. Both programs must agree in types, of outputs too.

    Raises:
        InputError: they do not.
    """
    mine, theirs = list(left.input_names), list(right.input_names)
    if set(theirs) <= set(mine) or set(mine) <= set(theirs):
        names = {n: n for n in theirs}
    elif len(mine) == len(theirs):
        names = dict(zip(theirs, mine, strict=True))
    else:
        raise InputError(
            f"the programs take {len(mine)} inputs ({', '.join(mine)}) and {len(theirs)} ({', '.join(theirs)}); "
            "give them the same names, or the same number"
        )
    of_left = {t.attr("name"): t for t in left.inputs}
    for term in right.inputs:
        other = of_left.get(names[term.attr("name")])
        if other is not None and (other.shape, other.dtype) != (term.shape, term.dtype):
            raise InputError(f"input {term.attr('name')!r} is {other.spec} in the first, {term.spec} in the second")
    if len(left.outputs) != len(right.outputs):
        raise InputError(f"the programs have {len(left.outputs)} and {len(right.outputs)} outputs")
    for (name, a), b in zip(left.outputs.items(), ordered(left, right).values(), strict=True):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise InputError(f"output {name!r} is {a.spec} in the first, {b.spec} in the second")
    return names


def ordered(left: Program, right: Program) -> dict[str, Term]:
    """The outputs of `right` in the order of those of `left`: by name, else by position."""
    if set(left.outputs) == set(right.outputs):
        return {name: right.outputs[name] for name in left.outputs}
    return dict(right.outputs)


def lowered(left: Program, right: Program) -> tuple[CoreProgram, CoreProgram]:
    """Both programs in the core, `right` over the inputs of `left`, its outputs in the same order. What floats decide
    without any input is a constant (`eqsat.verify.decided`).

    Raises:
        InputError: inputs or outputs cannot be matched.
    """
    names = matched(left, right)
    other = lower(Program(right.inputs, ordered(left, right))).with_inputs(names)
    return decided_ahead(lower(left)), decided_ahead(other)
