"""Graphs of torch.compile run by eqsat's own kernels, with a stand-in for CuPy whose GPU is the SIMT checker.

Tensors of the CPU stand for those of a GPU: they say that they lie on one, and the stand-in reads them there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eqsat.frontends.torch import kernels
from support.fake_cupy import FakeArray, FakeCupy

torch = pytest.importorskip("torch")

STREAM = 77
"""The stream that torch works on."""


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Dynamo remembers what it compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(fake, "from_dlpack", lambda x: np.from_dlpack(x).view(FakeArray), raising=False)
    monkeypatch.setattr(torch.Tensor, "__dlpack_device__", lambda x: (10, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=STREAM))
    return fake


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend="eqsat", options={"codegen": "eqsat", **options})


class Layers(torch.nn.Module):
    """Two layers, with something in between that programs do not have; the results lie in several ways."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(16, 24), torch.nn.Linear(24, 8)

    def forward(self, x: Any) -> Any:
        y = torch.sort(self.b(torch.relu(self.a(x))), -1).values
        return (y @ y.T).softmax(-1), y.T * 2, x * 1.0, x.sum() > 0


def agree(found: Any, wanted: Any) -> None:
    for x, y in zip(found, wanted, strict=True):
        torch.testing.assert_close(x, y)
        assert x.stride() == y.stride()


@pytest.mark.parametrize("freeze", [False, True])
def test_graphs_run_by_kernels_on_the_stream_of_torch(cupy: FakeCupy, freeze: bool) -> None:
    module, inputs = Layers(), [torch.randn(12, 16) for _ in range(3)]
    with torch.no_grad():
        run = compiled(module, freeze=freeze)
        found = [run(x) for x in inputs]  # kept: a later call must not write over an earlier result
        for x, results in zip(inputs, found, strict=True):
            agree(results, module(x))
            assert len({y.data_ptr() for y in (x, *results)}) == 5
    assert cupy.launches
    assert set(cupy.streams) == {STREAM, 1, 0}  # torch's, the one of recording, and none


def test_weights_are_read_where_they_lie(cupy: FakeCupy) -> None:
    module, x = Layers(), torch.randn(12, 16)
    with torch.no_grad():
        run = compiled(module)
        run(x)
        module.a.weight.mul_(2)  # changed in place
        agree(run(x), module(x))
        module.b.weight.data = torch.randn(8, 24) / 5  # somewhere else; larger ones make the softmax magnify rounding
        agree(run(x), module(x))
    assert cupy.launches


def test_kernels_are_launched_where_a_driver_records_no_graphs(cupy: FakeCupy) -> None:
    cupy.records = False
    module, x = Layers(), torch.randn(12, 16)
    with torch.no_grad():
        run = compiled(module)
        agree(run(x), module(x))
        agree(run(2 * x), module(2 * x))
    assert cupy.launches


@pytest.mark.usefixtures("cupy")
def test_equal_and_unchanged_results_have_memory_of_their_own() -> None:
    def function(x: Any, w: Any) -> Any:
        return x + 0.0, torch.relu(x @ w), torch.relu(x @ w).clone()

    x, w = torch.randn(8, 8), torch.randn(8, 8)
    with torch.no_grad():
        found = compiled(function)(x, w)
        agree(found, function(x, w))
    assert len({y.data_ptr() for y in (x, w, *found)}) == 5


def test_what_torch_differentiates_is_left_to_torch(cupy: FakeCupy) -> None:
    module, x = torch.nn.Linear(16, 24), torch.randn(12, 16)
    compiled(module)(x).sum().backward()
    assert module.weight.grad is not None
    assert not cupy.launches


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda patch: patch.setattr(kernels, "on_gpu", lambda x: False), "all tensors lie in host memory"),
        (lambda patch: patch.setitem(sys.modules, "cupy", FakeCupy(devices=0)), "CuPy finds no GPU"),
        (lambda patch: patch.setitem(sys.modules, "cupy", None), "no GPU run without CuPy: pip install"),
    ],
)
def test_kernels_that_cannot_run_are_refused(monkeypatch: pytest.MonkeyPatch, change: Any, message: str) -> None:
    change(monkeypatch)
    with torch.no_grad(), pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=message):
        compiled(Layers())(torch.randn(12, 16))


@pytest.mark.usefixtures("cupy")
def test_a_row_of_another_instruction_set_is_refused() -> None:
    message = r"a plan for h100 \(sm_90\) does not run on this GPU \(gfx942\)"
    with torch.no_grad(), pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=message):
        compiled(Layers(), device="h100")(torch.randn(12, 16))
