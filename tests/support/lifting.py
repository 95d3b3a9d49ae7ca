"""Lifts core programs to terms, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat.lift.lift import lift
from eqsat.program import ops
from eqsat.program.core import CoreProgram, Node, evaluate, make
from eqsat.program.term import Term


def arg(name: str, *shape: int) -> Term:
    return ops.input(name, shape)


def node(term: Term) -> Node:
    return make("In", (term.attr("name"), term.size, term.dtype))


def lines(inputs: Sequence[Term], root: Node, *shape: int, exact: bool = False) -> list[str]:
    """The lifted program's operators, as printed, with %0, %1, ... for the inputs."""
    known = {node(term): term for term in inputs}
    program = CoreProgram((root,), ("y",), (shape,), tuple(known), {}, source_term=dict(known))
    lifted = lift(program, program, exact)
    values = {t.attr("name"): np.random.default_rng(0).standard_normal(t.shape).astype(np.float32) for t in inputs}
    flat = {name: value.reshape(-1) for name, value in values.items()}
    (expected,) = evaluate([root], flat, {}, precision="float64")
    got = lifted.run(values, "float64")["y"]
    np.testing.assert_allclose(got, expected.reshape(shape), rtol=1e-9, atol=1e-9)
    text = str(lifted).splitlines()[:-1]
    return [line.split(" = ", 1)[1] for line in text if "= input(" not in line]
