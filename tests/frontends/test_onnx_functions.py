"""Local functions of ONNX models: their defaults, names, results, and opsets that are not the model's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, helper

from eqsat import from_onnx
from eqsat.errors import InputError
from eqsat.frontends.onnx.file.checks import MOST_CALLS
from eqsat.frontends.onnx.read.inline import inlined
from eqsat.frontends.onnx.write.model import to_onnx
from eqsat.program import ops
from support.onnx_models import tensor, value

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any) -> onnx.NodeProto:
    """A node; an attribute `name="@other"` is a reference to an attribute of the function around it."""
    given = {name: each for name, each in attributes.items() if not isinstance(each, str)}
    made = helper.make_node(op, inputs, outputs, domain=domain, **given)
    for name in attributes.keys() - given:
        referred = attributes[name].removeprefix("@")
        made.attribute.append(AttributeProto(name=name, ref_attr_name=referred, type=AttributeProto.FLOAT))
    return made


def function(
    name: str, nodes: Sequence[onnx.NodeProto], inputs: str = "a", outputs: str = "o", opset: int = 17, **defaults: Any
) -> onnx.FunctionProto:
    known = [helper.make_attribute(name, each) for name, each in defaults.items() if each is not None]
    open_ = [name for name, each in defaults.items() if each is None]
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, inputs.split(), outputs.split(), nodes, opsets, open_, known)


def calling(
    nodes: Sequence[onnx.NodeProto], functions: Sequence[onnx.FunctionProto], outputs: str = "y", opset: int = 17
) -> onnx.ModelProto:
    made = [value(name, None) for name in outputs.split()]
    graph = helper.make_graph(nodes, "g", [value("x", (2, 3))], made, [tensor("yes", np.array(True))])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, functions=list(functions), opset_imports=opsets, ir_version=8)


def elu(alpha: float) -> np.ndarray:
    return np.where(X < 0, np.float32(alpha) * np.expm1(X), X)


INNER = function("I", [node("Elu", ["a"], ["o"], alpha="@alpha")], alpha=0.25)
OPEN = function("I", [node("Elu", ["a"], ["o"], alpha="@alpha")], alpha=None)


@pytest.mark.parametrize(
    ("functions", "given", "alpha"),
    [
        ([function("L", [node("Elu", ["a"], ["o"], alpha="@alpha")], alpha=0.25)], {}, 0.25),
        ([function("L", [node("Elu", ["a"], ["o"], alpha="@alpha")], alpha=0.25)], {"alpha": 0.5}, 0.5),
        ([function("L", [node("Elu", ["a"], ["o"], alpha="@alpha")], alpha=None)], {}, 1.0),
        ([INNER, function("L", [node("I", ["a"], ["o"], "own")])], {}, 0.25),
        ([OPEN, function("L", [node("I", ["a"], ["o"], "own", alpha="@beta")], beta=0.75)], {}, 0.75),
        ([OPEN, function("L", [node("I", ["a"], ["o"], "own", alpha="@beta")], beta=None)], {"beta": 0.5}, 0.5),
        ([INNER, function("L", [node("I", ["a"], ["o"], "own", alpha="@beta")], beta=None)], {}, 0.25),
    ],
)
@pytest.mark.parametrize("opset", [17, 21])
def test_attributes_that_a_call_leaves_out_have_the_functions_defaults(
    functions: list[onnx.FunctionProto], given: dict[str, float], alpha: float, opset: int
) -> None:
    made = calling([node("L", ["x"], ["y"], "own", **given)], functions, opset=opset)
    np.testing.assert_allclose(from_onnx(made).run({"x": X})["y"], elu(alpha), rtol=1e-6)


def test_defaults_hold_in_calls_in_bodies() -> None:
    branch = helper.make_graph([node("I", ["x"], ["z"], "own")], "b", [], [value("z", None)])
    made = calling([node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)], [INNER])
    np.testing.assert_allclose(from_onnx(made).run({"x": X})["y"], elu(0.25), rtol=1e-6)


MEAN = node("ReduceMean", ["a"], ["o"], axes=[1])  # the axes are an input since opset 18
SUM = node("ReduceL1", ["a", "axis"], ["o"])  # and were an attribute before
ABSOLUTE = [node("Constant", [], ["axis"], value_ints=[1]), SUM]


@pytest.mark.parametrize(
    ("body", "own", "opset", "wanted"),
    [([MEAN], 13, 18, X.mean(1, keepdims=True)), (ABSOLUTE, 18, 13, np.abs(X).sum(1, keepdims=True))],
)
def test_functions_are_read_at_their_own_opset(
    body: list[onnx.NodeProto], own: int, opset: int, wanted: np.ndarray
) -> None:
    outer = function("L", [node("F", ["a"], ["o"], "own")], opset=opset)
    made = calling([node("L", ["x"], ["y"], "own")], [function("F", body, opset=own), outer], opset=opset)
    program = from_onnx(made)
    assert not program.opaque()
    np.testing.assert_allclose(program.run({"x": X})["y"], wanted, rtol=1e-6)
    file = to_onnx(program)
    assert {each.domain for each in file.graph.node} == {""}
    np.testing.assert_allclose(from_onnx(file).run({"x": X})["y"], wanted, rtol=1e-6)


def test_a_function_of_another_opset_in_a_body_that_is_carried_is_refused() -> None:
    branch = helper.make_graph([node("F", ["x"], ["z"], "own")], "b", [], [value("z", None)])
    choice = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Cast", ["most"], ["c"], to=onnx.TensorProto.BOOL),
        node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
    ]
    with pytest.raises(InputError, match="calls the local function 'F', which is written for another opset"):
        from_onnx(calling(choice, [function("F", [MEAN], opset=13)], opset=18))


def test_names_inside_functions_are_apart_from_names_around_them() -> None:
    twice = function("F", [node("Add", ["a", "a"], ["t"]), node("Mul", ["t", "t"], ["o"])])
    calls = [node("F", ["x"], ["t"], "own"), node("F", ["t"], ["t_0"], "own"), node("Neg", ["t_0"], ["y"])]
    x = ops.input("x", (2, 3))
    inner = ops.mul(ops.add(x, x), ops.add(x, x))
    outer = ops.mul(ops.add(inner, inner), ops.add(inner, inner))
    assert from_onnx(calling(calls, [twice])).outputs["y"] is ops.elementwise("neg", outer)


def test_nodes_of_two_calls_have_two_names() -> None:
    body = node("Softmax", ["a"], ["o"])
    body.name = "n"
    calls = [node("F", ["x"], ["t"], "own"), node("F", ["t"], ["y"], "own")]
    made = inlined(calling(calls, []).graph, {("own", "F", ""): function("F", [body])})
    first, second = (each.name for each in made.node)
    assert first != second


def test_names_around_a_function_are_unknown_in_it() -> None:
    with pytest.raises(InputError, match="which nothing defines"):
        from_onnx(calling([node("F", ["x"], ["y"], "own")], [function("F", [node("Add", ["a", "x"], ["o"])])]))


@pytest.mark.parametrize("opset", [17, 18])
def test_a_result_that_a_function_does_not_make_is_refused(opset: int) -> None:
    body = node("ReduceMax", ["a"], ["o"], axes=[0])  # the axes are an input since opset 18
    calls = [node("F", ["x"], ["", "h"], "own"), node("Neg", ["h"], ["y"])]
    with pytest.raises(InputError, match=r"'h', which nothing defines|makes no value for output 'h'"):
        from_onnx(calling(calls, [function("F", [body])], opset=opset))


@pytest.mark.parametrize("opset", [17, 18])
def test_functions_may_pass_on_an_input_and_give_a_value_twice(opset: int) -> None:
    several = function("F", [node("ReduceMax", ["a"], ["t"], axes=[0])], outputs="t a t")
    program = from_onnx(calling([node("F", ["x"], ["p", "q", "r"], "own")], [several], "p q r", opset))
    x = ops.input("x", (2, 3))
    assert program.outputs["q"] is x
    assert program.outputs["p"] is program.outputs["r"] is ops.reduce("max", x, (0,), True)


def test_long_chains_of_calls_are_refused() -> None:
    chain = [function("F0", [node("Relu", ["a"], ["o"])], opset=13)]
    chain += [function(f"F{i}", [node(f"F{i - 1}", ["a"], ["o"], "own")], opset=13) for i in range(1, MOST_CALLS)]
    assert from_onnx(calling([node(f"F{MOST_CALLS - 1}", ["x"], ["y"], "own")], chain)).run({"x": X})["y"].min() == 0
    chain.append(function("G", [node(f"F{MOST_CALLS - 1}", ["a"], ["o"], "own")]))
    with pytest.raises(InputError, match="calls of local functions are nested more than"):
        from_onnx(calling([node("G", ["x"], ["y"], "own")], chain))
