"""Large programs, in small: bundles with a few of the sizes lowered from which large programs go other ways.

Programs here have some ten operators and arrays of some hundred elements, so that they would never be cut into parts,
checked by samples or written in blocks. One row of `LOWERED` is lowered for each seed. A bundle has programs of
`programs`, nets of convolutions, and of each a copy with other constants: layers of one form with weights of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from eqsat.base.numerics import is_float
from eqsat.extract.kernels.cuts import Limits
from eqsat.fuzzing import bundles
from eqsat.fuzzing.bundles import Bundle
from eqsat.fuzzing.programs import Case
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term, rebuilt
from eqsat.runs.task import Tell
from eqsat.search.limits import Together

SECONDS, BYTES = bundles.SECONDS, bundles.BYTES

COPIES, NETS = 1 << 40, 1 << 41
"""Added to the seed of a program for that of its copy, and of a net beside it."""

CHANNELS, IMAGE = 4, (1, 4, 5, 5)
"""Of each value of a net."""

_SMALL = partial(Limits, leaves=3, operators=6, per_kind=2, joins=2, pairs=2, copies=2, members=2, fold_elements=8)
_PARTS = {"parts.segments.LARGE": 8, "parts.pieces.HUGE": 8, "parts.pieces.PIECE": 6, "parts.repeats.LEAST": 3}

LOWERED: Mapping[str, Mapping[str, Any]] = {
    "parts": _PARTS,
    "towers": _PARTS | {"parts.pieces.TOWER": 2},
    "natural parts": {"parts.segments.LARGE": 1, "parts.cuts.CROWDED": 1},
    "processes": _PARTS | {"search.limits.TOGETHER": Together(nodes=1, seconds=0.1)},
    "samples": {"check.check.CHEAP": 2000, "check.part.OVERHEAD": 50, "check.part.SPEED": 2000},
    "fewest samples": {"check.check.CHEAP": 0, "check.part.OVERHEAD": 1, "check.part.SPEED": 1},
    "probes": {"check.folded.BLOCK": 8, "check.folded.MOVED": 8, "check.folded.DEAR": 20},
    "random numbers": {"check.inputs.DRAWN": 37},
    "blocks": {
        "base.mapped.BLOCK_BYTES": 64,
        "base.numerics._WINDOW_BYTES": 128,
        "check.overflow._BLOCK": 16,
        "check.wanted.BLOCK_BYTES": 64,
        "program.constants.RUN": 8,
        "program.term._LARGE_BYTES": 16,
        "program.term._TOGETHER_BYTES": 64,
    },
    "kernels": {f"{module}.Limits": _SMALL for module in ("extract.kernels.candidates", "extract.cover")}
    | {"search.form.QUICK": _SMALL()},
    "solver": {
        "extract.solver.solve.LARGE": 1,
        "extract.solver.solve.CUT_ENTRIES": 10,
        "extract.solver.solve.ASCENT_STEPS": 50,
        "extract.solver.relax.PRESOLVE_ROWS": 1,
        "extract.solver.reduce.COMPARISONS": 30,
        "extract.solver.reduce.REQ_BYTES": 10,
        "extract.solver.blocking.EXACT_COLUMNS": 1,
    },
    "covers": {"extract.cover.MOST_SHARING": 0, "extract.cover.NEAREST": 2, "extract.near.MOST_CANDIDATES": 5},
    "e-graphs": {"egraph.saturate._SMALL": 1, "rules.groups._MOST_GROUPS": 2},
    "layouts": {"layout.arithmetic._COUNTED_LENGTH": 8, "layout.recognise._MOST_PLACES": 64},
    "lifting": {"lift.choice._MAX_CLUSTER": 2, "lift.segments._DIGITS": 2, "lift.view_chain.MOST_BLOCKS": 2},
    "launches": {"gpu.table.sharing.MOST_ARRAYS": 3, "gpu.table.sharing.MOST_TILES": 2},
}
"""For each row, attributes of modules of eqsat and their values."""


@dataclass(frozen=True, slots=True)
class Large:
    """A bundle, and the row of `LOWERED` under which it is optimised."""

    row: str
    bundle: Bundle


def steps(seed: int) -> int:
    """How many programs there are, half of them copies."""
    return bundles.steps(seed)


def case(seed: int, kept: Sequence[int] | None, models: Sequence[str] = ()) -> Large:
    """The programs of half a block and their copies; `kept` picks among them."""
    half = bundles.case(seed, range(bundles.steps(seed) // 2)).cases
    half = [_net(made) if i % 3 == 2 else made for i, made in enumerate(half)]
    cases = [*half, *map(_copy, half)]
    picked = cases if kept is None else [cases[i] for i in kept]
    return Large(list(LOWERED)[seed % len(LOWERED)], Bundle(picked, singly=False))


def judge(large: Large, tell: Tell) -> Counter[str]:
    """As `bundles.judge`."""
    with lowered(large.row):
        return bundles.judge(large.bundle, tell)


def files(large: Large) -> dict[str, bytes]:
    """As `bundles.files`."""
    return bundles.files(large.bundle)


@contextmanager
def lowered(row: str) -> Iterator[None]:
    """While the block runs, the sizes of a row are as small as it says."""
    with ExitStack() as stack:
        for attribute, value in LOWERED[row].items():
            stack.enter_context(patch(f"eqsat.{attribute}", value))
        yield


def _net(made: Case) -> Case:
    """A net of convolutions instead of a program."""
    rng = np.random.default_rng(made.seed)
    terms = [ops.input("x", IMAGE)]
    for _ in range(rng.integers(2, 7)):
        x = terms[-1] if rng.random() < 0.7 else terms[rng.integers(len(terms))]
        terms.append(NET[rng.integers(len(NET))](rng, x, terms[rng.integers(len(terms))]))
    outputs = {"y": terms[-1]} if rng.random() < 0.5 else {"y": terms[-1], "z": terms[len(terms) // 2]}
    return replace(made, seed=made.seed + NETS, program=Program((terms[0],), outputs))


def _mixed(rng: np.random.Generator, x: Term, y: Term) -> Term:
    return ops.conv(x, _weights(rng, CHANNELS, CHANNELS, 1, 1))


def _blurred(rng: np.random.Generator, x: Term, y: Term) -> Term:
    weights = _weights(rng, CHANNELS, 1, 3, 3)
    return ops.conv(x, weights, pads_lo=(1, 1), pads_hi=(1, 1), groups=CHANNELS)


def _weights(rng: np.random.Generator, *shape: int) -> Term:
    return ops.constant((rng.standard_normal(shape) / 3).astype(np.float32))


NET: tuple[Callable[[np.random.Generator, Term, Term], Term], ...] = (
    *(_mixed, _mixed, _blurred, _blurred),
    lambda rng, x, y: ops.tanh(x),
    lambda rng, x, y: ops.relu(x),
    lambda rng, x, y: ops.add(x, y),
    lambda rng, x, y: ops.conv(ops.concat([x, y], 1), _weights(rng, CHANNELS, 2 * CHANNELS, 1, 1)),
    lambda rng, x, y: ops.relu(ops.add(_mixed(rng, _blurred(rng, x, y), y), x)),
)
"""What makes the next value of a net, of a value and another one."""


def _copy(made: Case) -> Case:
    """The same program with the elements of its constants in another order."""
    rng = np.random.default_rng(made.seed)
    found: dict[Term, Term] = {}
    for term in made.program.terms():
        if term.op == "constant" and is_float(term.dtype):
            array = term.attr("value").array
            found[term] = ops.constant(array.reshape(-1)[rng.permutation(array.size)].reshape(array.shape))
        else:
            found[term] = rebuilt(term, [found[a] for a in term.args]) if term.args else term
    outputs = {name: found[term] for name, term in made.program.outputs.items()}
    return replace(made, seed=made.seed + COPIES, program=Program(made.program.inputs, outputs))
