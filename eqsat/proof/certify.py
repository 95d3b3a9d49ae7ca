"""Certificates: what proves two programs equal, for `eqsat.verify.checker` to check.

A sweep has proved values equal one after the other, each in a small e-graph over a cut (`eqsat.proof.sweep`). Each such
proof becomes a lemma over leaves, stated once, and is used where it was. Congruence picks what the outputs need.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from eqsat.errors import CheckFailed
from eqsat.program.core import CoreProgram, Node, make, topological
from eqsat.proof.attempt import Local
from eqsat.proof.derived import Lemma, Named, Statements
from eqsat.proof.sweep import Cut, Swept
from eqsat.rules import CHECKABLE, PROVING
from eqsat.verify.checker import Numbered, sealed
from eqsat.verify.terms import Terms

_LEAST_SECONDS = 2.0
"""What writing down the steps gets, whatever is left."""


def certificate(first: CoreProgram, second: CoreProgram, swept: Swept, deadline: float) -> str:
    """The certificate that two programs are equal, which a sweep has proved; it was verified.

    Args:
        deadline: until when steps are looked for (`time.monotonic`), or for `_LEAST_SECONDS`; to verify takes longer.

    Raises:
        CheckFailed: the steps of some proof were not found, or cannot be stated.
    """
    deadline = max(deadline, time.monotonic() + _LEAST_SECONDS)
    return sealed(first, second, _Writer(Numbered(first, second), swept, deadline).text(), CHECKABLE)


class _Writer:
    """The lines of a certificate."""

    def __init__(self, pair: Numbered, swept: Swept, deadline: float) -> None:
        self._pair, self._deadline = pair, deadline
        self._statements = Statements(pair.terms, PROVING)
        self._lines = [json.dumps(pair.head())]
        self._called = {i: i for i in range(len(pair.terms.rows))}
        self._lemmas: dict[Local, int] = {}
        self._state(swept)

    def text(self) -> str:
        """The certificate without its seal. Raises CheckFailed if there is none."""
        for a, b in self._pair.outputs:
            if not self._statements.equal(a, b):
                raise CheckFailed("no certificate: what was swept does not make the outputs equal")
        for statement in self._statements.needed(self._pair.outputs):
            line = statement.line(self._named)
            self._lines.append(json.dumps(line))
        return "\n".join(self._lines) + "\n"

    def _state(self, swept: Swept) -> None:
        """State what the sweep found, and how the values of the second program come to be what it was found of."""
        terms, said = self._pair.terms, self._statements
        equal: dict[Node, Node] = {}
        for left, right in swept.constants:
            equal[right] = left
            said.values(*terms.add_nodes([right, left]))
        for cut in swept.cuts:
            equal[cut.right] = cut.left
            right, left = terms.add_nodes([cut.right, cut.left])
            if cut.proof is None:
                said.moves(right, left)
            else:
                left, right = self._instance(cut.proof.sides, cut.leaves)
                said.state(right, left, partial(self._use, cut))
                if cut.back is not None:  # it undoes the view of both, which is seen once it is written down
                    for side in (right, left):
                        terms.add("V", (cut.back,), [side])
        meant: dict[Node, Node] = {}
        for node in topological(self._pair.programs[1].roots):
            args = [meant[a] for a in node.args]
            value = make(node.op, node.attrs, args) if args else node
            terms.add(node.op, node.attrs, terms.add_nodes(args))  # as it is before it is simplified
            terms.add_nodes([value])
            meant[node] = equal.get(value, value)
        said.simplify()

    def _instance(self, sides: Iterable[Node], leaves: Mapping[Node, Node]) -> list[int]:
        """What a lemma says of the values of its leaves: numbers stand in it for what is computed from constants."""
        lemma = Terms()
        stands_for = dict(zip(lemma.add_nodes(leaves), self._pair.terms.add_nodes(leaves.values()), strict=True))
        numbers = lemma.add_nodes(sides)
        self._pair.terms.copy(lemma, numbers, stands_for)
        return [stands_for[number] for number in numbers]

    def _use(self, cut: Cut, named: Named) -> dict[str, Any]:
        """The line that uses a proof at a cut."""
        assert cut.proof is not None
        number = self._lemmas.get(cut.proof)
        if number is None:
            number = self._lemmas[cut.proof] = len(self._lemmas)
            self._lines += self._lemma(number, cut.proof, list(cut.leaves))
        return {"use": number, "on": [named(at) for at in self._pair.terms.add_nodes(cut.leaves.values())]}

    def _lemma(self, number: int, proof: Local, leaves: Sequence[Node]) -> list[str]:
        """The lines that prove a lemma. Raises CheckFailed where no steps are found."""
        lemma = Lemma(proof, leaves, PROVING, self._deadline)
        if not lemma.holds():
            operators = sorted({n.op for n in topological(proof.sides) if n.args})
            late = " in time" if time.monotonic() > self._deadline else ""
            raise CheckFailed(f"no certificate: the steps of a proof over {', '.join(operators)} were not found{late}")
        terms = lemma.statements.terms
        lines = [{"lemma": number}, *({"leaf": [leaf.size, leaf.dtype]} for leaf in leaves)]
        said = [json.dumps(line) for line in lines]
        called = {at: i for i, at in enumerate(lemma.leaves)}

        def named(at: int) -> int:
            return terms.name(at, called, said)

        for statement in lemma.statements.needed([lemma.sides]):
            line = statement.line(named)
            said.append(json.dumps(line))
        proves = [named(side) for side in lemma.sides]
        return [*said, json.dumps({"proves": proves})]

    def _named(self, at: int) -> int:
        return self._pair.terms.name(at, self._called, self._lines)
