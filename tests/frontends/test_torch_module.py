"""torch modules into programs. torch is optional: without it only its absence is tested."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from eqsat.errors import InputError
from eqsat.frontends.torch.module import from_torch, to_torch
from eqsat.frontends.torch.operators.tensors import refusing
from eqsat.pipeline.optimize import optimize
from eqsat.program import ops
from eqsat.program.ir import Program


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


def test_a_product_and_a_bias_are_one_operator_of_torch(torch: Any) -> None:
    x, w, b = ops.input("x", (2, 4)), ops.input("w", (4, 3)), ops.input("b", (1, 3))
    product = ops.matmul(x, w)
    both = ops.add(ops.broadcast(b, (2, 3)), product)
    arrays = [torch.randn(term.shape) for term in (x, w, b)]
    alone = to_torch(Program((x, w, b), {"y": both}))
    shared = to_torch(Program((x, w, b), {"y": both, "product": product}))
    torch.testing.assert_close(alone(*arrays), arrays[0] @ arrays[1] + arrays[2])
    called = [
        [str(node.target) for node in module.graph.nodes if "mm" in str(node.target)] for module in (alone, shared)
    ]
    assert called == [["aten.addmm.default"], ["aten.mm.default"]]


@pytest.mark.parametrize("columns", [1, 3])
def test_a_product_and_a_number_are_a_sum(torch: Any, columns: int) -> None:
    x, w, b = ops.input("x", (2, 4)), ops.input("w", (4, columns)), ops.input("b", ())
    module = to_torch(Program((x, w, b), {"y": ops.add(ops.matmul(x, w), ops.broadcast(b, (2, columns)))}))
    arrays = [torch.randn(term.shape) for term in (x, w, b)]
    torch.testing.assert_close(module(*arrays), arrays[0] @ arrays[1] + arrays[2])


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


def test_arguments_of_every_kind_and_results_in_any_structure(torch: Any) -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: Any, mask: Any = None, scale: float = 1.0, extra: Any = None) -> Any:
            y = x * scale + extra["a"] + extra["b"][0]
            return {"y": y if mask is None else y * mask, "pair": (y.sum(-1), y.max()), "nothing": None}

    x = np.ones((2, 3), np.float32)
    program = from_torch(Scaled(), x, scale=2.0, extra={"a": torch.ones(3), "b": [x]})
    assert program.input_names == ["x", "extra_a", "extra_b_0"]
    assert list(program.outputs) == ["y", "pair.0", "pair.1"]
    got = program.run({"x": x, "extra_a": np.ones(3, np.float32), "extra_b_0": x})
    np.testing.assert_array_equal(got["y"], 4 * x)
    np.testing.assert_array_equal(got["pair.0"], [12, 12])


def test_a_dataclass_of_results_has_its_fields(torch: Any) -> None:
    @dataclass
    class Found:
        hidden: Any
        total: Any

    torch.export.register_dataclass(Found, serialized_type_name="eqsat_tests.Found")
    program = from_torch(lambda x: Found(x + 1, x.sum()), torch.ones(3))
    assert list(program.outputs) == ["hidden", "total"]


def test_functions_and_exported_programs(torch: Any) -> None:
    def double(left: Any, right: Any) -> Any:
        return left @ right * 2

    examples = torch.ones(2, 3), torch.ones(3, 4)
    program = from_torch(double, *examples)
    again = from_torch(torch.export.export(torch.nn.Linear(3, 2), examples[:1]))
    assert program.input_names == ["left", "right"]
    assert [term.shape for term in again.outputs.values()] == [(2, 2)]


def test_functions_that_are_not_written_in_python(torch: Any) -> None:
    x = torch.randn(2, 4)
    chosen = from_torch(torch.where, x > 0, x, other=2 * x)
    softmax = from_torch(partial(torch.softmax, dim=-1), x)
    assert chosen.input_names == ["args_0", "args_1", "other"]
    [found] = softmax.run({"args_0": x.numpy()}).values()
    np.testing.assert_allclose(found, x.softmax(-1).numpy(), rtol=1e-6)


def test_attention_may_lie_otherwise_than_it_is_viewed(torch: Any) -> None:
    def attention(x: Any) -> Any:
        heads = x.view(2, 7, 2, 8).transpose(1, 2)
        mixed = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return mixed.transpose(1, 2).reshape(2, 7, 16).view(-1, 16)

    x = torch.randn(2, 7, 16)
    whole = type("Attention", (torch.nn.Module,), {"forward": staticmethod(attention)})()
    exported = torch.export.export(whole, (x,))
    before = str(exported.graph)
    [got] = from_torch(exported, input_names=["x"]).run({"x": x.numpy()}).values()
    np.testing.assert_allclose(got, attention(x).numpy(), rtol=1e-4, atol=1e-6)
    assert str(exported.graph) == before


def test_a_convolution_of_more_axes_than_torch_has_is_a_product(torch: Any) -> None:
    x, w = ops.input("x", (2, 4, 6, 3, 5, 4)), ops.input("w", (6, 2, 2, 1, 3, 2))
    y = ops.conv(x, w, (2, 1, 1, 1), (0, 1, 2, 0), (1, 1, 0, 0), (2, 1, 1, 3), groups=2)
    program = Program((x, w), {"y": y})
    tensors = [torch.randn(term.shape) for term in (x, w)]
    wanted = program.run(dict(zip("xw", map(np.asarray, tensors), strict=True)))["y"]
    np.testing.assert_allclose(to_torch(program)(*tensors).numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_the_sign_of_nan_is_zero_in_torch_and_nan_in_programs(torch: Any) -> None:
    values = torch.tensor([torch.nan, -2.0, -0.0, torch.inf])
    x = ops.input("x", (4,))
    [read] = from_torch(lambda x: torch.sign(x), values, input_names=["x"]).run({"x": values.numpy()}).values()
    written = to_torch(Program((x,), {"y": ops.sign(x)}))(values)
    np.testing.assert_array_equal(read, [0, -1, 0, 1])
    np.testing.assert_array_equal(written.numpy(), [np.nan, -1, 0, 1])


def test_an_operator_without_a_row_is_carried_and_run_by_torch(torch: Any) -> None:
    x = torch.tensor([[3.0, 1.0, 2.0]])
    program = from_torch(lambda x: torch.sort(x * 2), x)
    assert program.opaque() == ["aten.sort.default"]
    np.testing.assert_array_equal(program.run({"x": x.numpy()})["output_0"], [[2, 4, 6]])
    values, order = to_torch(program)(x)
    assert torch.equal(values, torch.tensor([[2.0, 4.0, 6.0]]))
    assert torch.equal(order, torch.tensor([[1, 2, 0]]))


def test_an_optimised_program_is_a_module_again(torch: Any) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Softmax(-1))
    x = torch.randn(5, 8)
    best = optimize(from_torch(layers, x), device="cpu", measure=False)
    torch.testing.assert_close(to_torch(best.program)(x), layers(x).detach())


def branching(x: Any) -> Any:
    return x if x.sum() > 0 else -x


REFUSED = [
    ("no-module", lambda torch, x: from_torch(0, x), "takes a torch.nn.Module, a function"),
    ("no-tensor", lambda torch, x: from_torch(torch.nn.Linear(3, 2), "abc"), "torch cannot export Linear"),
    ("name", lambda torch, x: from_torch(torch.nn.Linear(3, 2), x, input_names="x"), "expected a list of strings"),
    ("names", lambda torch, x: from_torch(torch.nn.Linear(3, 2), x, output_names=["y", "z"]), "2 output names for 1"),
    ("branch", lambda torch, x: from_torch(branching, x), "torch cannot export branching"),
    ("own-error", lambda torch, x: from_torch(lambda y: y / {}["a"], x), "torch cannot export <lambda>"),
    ("in-place", lambda torch, x: from_torch(lambda y: y.add_(1), x), "changes y in place"),
    ("random", lambda torch, x: from_torch(lambda y: y + torch.rand(3), x), "draws random numbers"),
    ("complex", lambda torch, x: from_torch(lambda y: torch.fft.fft(y).real, x), "no element type torch.complex64"),
    ("nothing", lambda torch, x: from_torch(lambda y: 3, x), "returns no tensor"),
    ("examples", lambda torch, x: from_torch(torch.export.export(torch.nn.ReLU(), (x,)), x), "takes no examples"),
    ("no-program", lambda torch, x: to_torch(x), "takes a Program"),
]


@pytest.mark.parametrize(("call", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_cannot_be_converted_is_refused_in_one_line(torch: Any, call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        call(torch, torch.ones(1, 3))
    assert "\n" not in str(caught.value)


def test_a_failure_closes_the_levels_that_it_leaves_open(torch: Any) -> None:
    def fail_within() -> None:
        torch._C._functorch._jvp_increment_nesting()
        torch._C._enter_dual_level()
        raise ValueError("no more")

    x = torch.randn(2, 4)
    with pytest.raises(InputError, match="torch cannot trace this: no more"), refusing("torch cannot trace this"):
        fail_within()
    from_torch(lambda x: x.softmax(-1), x)
    torch.testing.assert_close(torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1], torch.cos(x))
