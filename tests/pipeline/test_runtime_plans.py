"""Plans for a runtime that executes operators: what no rule gains from comes out as it was."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.onnx.write.model import to_onnx
from eqsat.pipeline.result import Result
from eqsat.program import composites, ops
from eqsat.program.ir import Program
from eqsat.program.term import Term
from support.runtime_models import NODES, runtime_model


def on_cpu(source: onnx.ModelProto) -> Result:
    return eqsat.optimize(from_onnx(source), "cpu", 30, measure=False)


@pytest.mark.parametrize("name", NODES)
def test_a_model_in_which_nothing_pays_comes_out_node_for_node(name: str) -> None:
    source = runtime_model(name)
    written = to_onnx(on_cpu(source).program)
    assert sorted(n.SerializeToString(deterministic=True) for n in written.graph.node) == sorted(
        n.SerializeToString(deterministic=True) for n in source.graph.node
    )


def test_an_operator_may_multiply_by_sums() -> None:
    """An Einsum that sums what its product does not need is an operator with a product of sums of rows."""
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
        for name, dims in (("x", [4, 3]), ("y", [3, 5]), ("z", [4]))
    ]
    node = onnx.helper.make_node("Einsum", ["x", "y"], ["z"], equation="ij,jk->i")
    graph = onnx.helper.make_graph([node], "g", ends[:2], ends[2:])
    found = on_cpu(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=(3, 5)).astype(np.float32)
    np.testing.assert_allclose(found.program.run({"x": x, "y": y})["z"], (x @ y).sum(1), rtol=1e-5)
    assert [kernel.family for kernel in found.plan.kernels] == ["contraction"]


def branches(*kernels: tuple[int, int], identity: bool = True, groups: int = 1) -> Program:
    """Convolutions of x[1, 8, 10, 10] by (window, dilation), and x scaled, each with a bias, added, as in RepVGG."""
    rng = np.random.default_rng(0)

    def constant(*shape: int) -> Term:
        return ops.constant(rng.normal(0, 0.3, shape).astype(np.float32))

    x = ops.input("x", (1, 8, 10, 10), "float32")
    sums = []
    for k, apart in kernels:
        pads = (k // 2 * apart,) * 2
        sums.append(ops.conv(x, constant(8, 8 // groups, k, k), (1, 1), pads, pads, (apart, apart), groups))
    sums += [composites.mul(x, constant(8, 1, 1))] if identity else []
    total = composites.add(sums[0], constant(8, 1, 1))
    for addend in sums[1:]:
        total = ops.add(total, composites.add(addend, constant(8, 1, 1)))
    return Program((x,), {"y": ops.relu(total)})


BRANCHES = {
    "3x3, 1x1 and identity": (branches((3, 1), (1, 1)), ["Conv", "Relu"]),
    "the smaller window first": (branches((1, 1), (3, 1)), ["Conv", "Relu"]),
    "identity alone": (branches((3, 1)), ["Conv", "Relu"]),
    "groups": (branches((3, 1), (1, 1), groups=4), ["Conv", "Relu"]),
    "each channel alone": (branches((3, 1), (1, 1), groups=8), ["Conv", "Relu"]),
    "a dilated window": (branches((3, 2), (1, 1)), ["Conv", "Relu"]),
    "3x3 within 5x5, which is no step": (branches((5, 1), (3, 1), identity=False), ["Conv", "Conv", "Add", "Relu"]),
}


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("device", ["cpu", "mi300x"])
def test_parallel_convolutions_of_one_image_are_one(name: str, device: str) -> None:
    program, operators = BRANCHES[name]
    best = eqsat.optimize(program, device, 30, measure=False)
    assert best.report["check"]["passed"]
    written = [n.op_type for n in to_onnx(best.program).graph.node]
    if device == "cpu" or len(operators) == 2:
        assert sorted(written) == sorted(operators)


def test_convolutions_of_several_images_with_equal_norms() -> None:
    """A product with windows that run over channels is no convolution."""
    x = ops.input("x", (2, 4, 6, 6))
    wide, narrow = (ops.constant(np.random.default_rng(k).normal(size=(4, 4, k, k)).astype(np.float32)) for k in (3, 1))
    one, zero = (ops.constant(np.full(4, value, np.float32)) for value in (1, 0))
    convolutions = ops.conv(x, wide, (1, 1), (1, 1), (1, 1)), ops.conv(x, narrow)
    total = ops.add(*(composites.batchnorm(conv, one, zero, zero, one) for conv in convolutions))
    best = eqsat.optimize(Program((x,), {"y": total}), "cpu", measure=False)
    assert best.report["check"]["passed"]
