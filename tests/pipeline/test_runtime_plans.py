"""Plans for a runtime that executes operators: what no rule gains from comes out as it was."""

from __future__ import annotations

import onnx
import pytest

import eqsat
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.onnx.write.model import to_onnx
from eqsat.pipeline.result import Result
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
