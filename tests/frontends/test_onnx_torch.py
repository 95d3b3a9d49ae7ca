"""torch modules into programs. torch is optional: without it only its absence is tested."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from eqsat.errors import InputError
from eqsat.frontends.torch import from_torch
from eqsat.program import ops


def test_without_torch_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"torch is not installed; pip install 'eqsat\[torch\]'"):
        from_torch(object())


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def test_a_linear_layer_is_a_product_and_a_bias(torch: Any) -> None:
    layer = torch.nn.Linear(4, 3)
    program = from_torch(layer, np.zeros((2, 4), np.float32), input_names=["x"], output_names=["y"])
    x = ops.input("x", (2, 4))
    weight, bias = (ops.constant(p.detach().numpy()) for p in (layer.weight, layer.bias))
    got = program.run({"x": np.ones((2, 4), np.float32)})["y"]
    assert program.inputs == (x,)
    np.testing.assert_allclose(got, layer(torch.ones(2, 4)).detach().numpy(), rtol=1e-6)
    assert {weight, bias} <= set(program.terms())


def test_a_network_computes_what_torch_computes_at_inference(torch: Any) -> None:
    layers = torch.nn
    network = layers.Sequential(
        layers.Conv2d(3, 8, 3, padding=1, stride=2),
        layers.BatchNorm2d(8),
        layers.GELU(),
        layers.MaxPool2d(2),
        layers.Dropout(0.5),
        layers.Flatten(),
        layers.Linear(8 * 16, 8),
        layers.LayerNorm(8),
        layers.Softmax(-1),
    ).train()
    image = torch.randn(2, 3, 16, 16)
    program = from_torch(network, image)
    assert network.training
    assert program.opaque() == []
    [got] = program.run({program.input_names[0]: image.numpy()}).values()
    np.testing.assert_allclose(got, network.eval()(image).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_module_that_torch_cannot_export_is_refused_in_one_line(torch: Any) -> None:
    class Unexportable(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.eigvals(x).real

    with pytest.raises(InputError, match="torch cannot export Unexportable to ONNX") as caught:
        from_torch(Unexportable(), torch.eye(3))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "names", "message"),
    [
        ((0, np.ones(3, np.float32)), None, "takes a torch.nn.Module"),
        ((None, "abc"), None, "an example is no tensor"),
        ((None, np.ones((1, 3), np.float32)), "xy", "expected a list of strings"),
    ],
)
def test_wrong_arguments_are_refused(torch: Any, arguments: tuple[Any, ...], names: Any, message: str) -> None:
    module, *examples = arguments
    with pytest.raises(InputError, match=message):
        from_torch(torch.nn.Linear(3, 2) if module is None else module, *examples, input_names=names)
