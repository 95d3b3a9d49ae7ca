"""Pieces of real models with random operators behind them, as programs: judged like those of `programs`."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from onnx import ModelProto

from eqsat.errors import InputError
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.fuzzing import programs
from eqsat.fuzzing.corpus import corpus, pieces
from eqsat.fuzzing.programs import Case, Drawn
from eqsat.runs.task import Tell

SECONDS, BYTES = programs.SECONDS, programs.BYTES

_LARGEST = 1 << 14
"""Elements of a term of a piece: with more, a case takes too long."""


def steps(seed: int) -> int:
    """How many operators are tried behind the piece."""
    return seed % 5


def case(seed: int, kept: Sequence[int] | None, models: Sequence[str]) -> Case | None:
    """A piece of the models, or of onnx's node tests without any; None where eqsat refuses it, or where it is large."""
    rng = random.Random(f"piece {seed}")
    try:
        piece = from_onnx(ModelProto.FromString(rng.choice(pieces(tuple(models)) or corpus(models))))
    except InputError:
        return None
    terms = piece.terms()
    if any(term.op == "opaque" or term.size > _LARGEST for term in (*piece.inputs, *terms)):
        return None
    if any(re.fullmatch(r"x\d+", name) for name in piece.input_names):
        return None  # as new inputs are called
    maker = Drawn(rng, sorted({term.dtype for term in terms} & set(programs.DTYPES)) or ["float32"], 1)
    maker.inputs = list(piece.inputs)
    maker.terms = list(terms)
    maker.take(seed, range(steps(seed)) if kept is None else kept)
    return Case(seed, maker.program(), programs.policy(seed), programs.device_of(seed))


def files(made: Case | None) -> dict[str, bytes]:
    """As `programs.files`."""
    return {} if made is None else programs.files(made)


def judge(made: Case | None, tell: Tell) -> str:
    """As `programs.judge`."""
    return "refused" if made is None else programs.judge(made, tell)
