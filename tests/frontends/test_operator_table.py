"""docs/operators.md agrees with the reader."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from eqsat.errors import InputError
from eqsat.frontends.onnx.file.types import declared
from eqsat.frontends.onnx.read.model import from_onnx, open_dimensions
from support.onnx_cases import cases
from support.onnx_models import FLOAT, INT64, UINT8, model, node, value

DOCS = Path(__file__).parents[2] / "docs"
LISTED_WITH = "1.23.2"
TABLE: dict[str, Any] = runpy.run_path(str(DOCS / "list_operators.py"))
FATES: dict[str, str] = {name: TABLE["fate"](name, schemas)[0] for name, schemas in TABLE["versions"]().items()}


@pytest.mark.skipif(onnx.__version__ != LISTED_WITH, reason=f"the table was made with onnx {LISTED_WITH}")
def test_the_table_is_current() -> None:
    assert (DOCS / "operators.md").read_text(encoding="utf-8") == TABLE["text"](), "run python docs/list_operators.py"


def state(model: onnx.ModelProto) -> str:
    try:
        return "carried" if from_onnx(model).opaque() else "read"
    except InputError:
        return "refused"


@pytest.mark.parametrize("fate", ["carried", "refused", TABLE["AFTER"]])
def test_the_node_tests_of_onnx_fare_as_the_table_says(fate: str) -> None:
    """A refused operator is refused in every case; a carried one, and one after the program, is never read."""
    allowed = {"refused": {"refused"}}.get(fate, {"carried", "refused"})
    for name, told in FATES.items():
        if told.startswith(fate) and TABLE["IF_TENSORS"] not in told:
            for case in cases().get(name, [])[:2]:
                assert state(case.model) in allowed, case.name


PARTS = helper.make_value_info("s", helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [2])))
PLACE = value("i", (), INT64)

SPELLED = {
    "ConcatFromSequence": model([node("ConcatFromSequence", ["s"], ["y"], axis=0)], (PARTS,)),
    "ImageDecoder": model([node("ImageDecoder", ["x"], ["y"])], (value("x", (9,), UINT8),), opset=20),
    "Optional": model([node("Optional", ["x"], ["y"])]),
    "SequenceAt": model([node("SequenceAt", ["s", "i"], ["y"])], (PARTS, PLACE)),
    "SequenceConstruct": model([node("SequenceConstruct", ["x", "x"], ["y"])]),
    "SequenceEmpty": model([node("SequenceEmpty", [], ["y"])]),
    "SequenceErase": model([node("SequenceErase", ["s", "i"], ["y"])], (PARTS, PLACE)),
    "SequenceLength": model([node("SequenceLength", ["s"], ["y"])], (PARTS,)),
}
"""Operators of which onnx has no test of one node."""


def beside_a_program(given: onnx.ModelProto) -> onnx.ModelProto:
    """A model that declares the type of no output, with a program beside it."""
    made = onnx.ModelProto()
    made.CopyFrom(given)
    for output in made.graph.output:
        output.ClearField("type")
    made.graph.node.append(node("Relu", ["own"], ["relu"]))
    made.graph.input.append(value("own"))
    made.graph.output.append(value("relu"))
    return made


AFTER = {name: told for name, told in FATES.items() if told.startswith(TABLE["AFTER"])}


@pytest.mark.parametrize("name", AFTER)
def test_operators_after_the_program_follow_it(name: str) -> None:
    """In all tests of onnx, whatever they declare; but for the uses that the table names."""
    given = [case.model for case in cases().get(name, [])] or [SPELLED[name]]
    for each in map(beside_a_program, given):
        program = from_onnx(each, dict.fromkeys(open_dimensions(each), 2), head=True)
        following = program.header.after
        reads_tensors = all(v.type.HasField("tensor_type") for v in each.graph.input)
        if TABLE["IF_TENSORS"] in AFTER[name] and reads_tensors:
            assert following is None
        else:
            assert following is not None
            assert [op for op, _ in following.operators] == [name]
            assert not program.opaque()


@pytest.mark.parametrize("name", ["Compress", "NonMaxSuppression", "NonZero", "Unique"])
def test_operators_of_declared_sizes_are_carried(name: str) -> None:
    given = [case.model for case in cases()[name]]
    fixed = [each for each in given if all((t := declared(v)) and t.static is not None for v in each.graph.output)]
    assert fixed
    assert all(from_onnx(each).opaque() for each in fixed)
