"""ONNX models with something wrong in them: attributes, dims, names, types, wiring, bytes.

They start from onnx's own node tests and from pieces of given models. If onnxruntime accepts a mutant, our result must
agree with its result; otherwise any result, or an InputError of one line, is right.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from google.protobuf.message import DecodeError
from onnx import ModelProto

from eqsat.fuzzing.corpus import corpus
from eqsat.fuzzing.kinds import Fault, as_model
from eqsat.fuzzing.mutations import STRUCTURAL, flip
from eqsat.fuzzing.oracle import LARGEST, by_onnxruntime, compare_all, optimised, reference_agrees, whole_files_agree
from eqsat.runs.task import Tell

SECONDS = 60.0
BYTES = 6_000_000_000

files = as_model

SEARCH_SECONDS = 10.0
"""Enough for nearly all, on a busy machine too: an abandoned search ends its worker, and another has to start."""


def steps(seed: int) -> int:
    """How many mutations the case has."""
    return random.Random(seed).choice((1, 1, 1, 2, 2, 3, 4))


def case(seed: int, kept: Sequence[int] | None, models: Sequence[str] = ()) -> bytes:
    """The bytes of a file."""
    rng = random.Random(f"base {seed}")
    data = rng.choice(corpus(models))
    for step in range(steps(seed)) if kept is None else kept:
        rng = random.Random(f"{seed} {step}")
        if rng.random() < 0.12:
            data = flip(rng, data)
            continue
        try:
            model = ModelProto.FromString(data)
            rng.choice(STRUCTURAL)(rng, model)
            data = model.SerializeToString()
        except (DecodeError, ValueError):  # bytes that no longer parse, numbers and texts that a field cannot hold
            data = flip(rng, data)
    return data


def judge(data: bytes, tell: Tell) -> str:
    """Read, optimise and compare one model."""
    from eqsat.check.inputs import random_inputs
    from eqsat.errors import InputError

    best = optimised(data, SEARCH_SECONDS)
    if best is None:
        return "refused"
    program = best.source
    if not str(program):
        raise Fault("an empty program")
    if sum(term.size for term in program.inputs) > LARGEST:
        return "result, no runtime"
    tell("foreign")
    if program.header.after is not None:
        agrees = whole_files_agree(data, best)
        tell("")
        if agrees is False:
            raise Fault("the whole file of the result differs from the source in onnxruntime")
        return "result, no runtime" if agrees is None else "result, followed by others"
    inputs = next(random_inputs(program, 1, 0))
    wanted = by_onnxruntime(data, program, inputs)
    tell("")
    if wanted is None:
        return "result, no runtime"
    if program.opaque():
        return "result, carried"
    for name, one in (("as read", program), ("optimised", best.program)):
        try:
            got = one.run(inputs)
        except InputError as error:
            raise Fault(f"{name}: refused in a run: {error}") from error
        try:
            compare_all(name, got, wanted, one)
        except Fault:
            if not reference_agrees(data, one, inputs, got):
                raise
            return "result, onnxruntime wrong"
    return "result, right"
