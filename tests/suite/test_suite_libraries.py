"""Programs run by other array libraries, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.base.numerics import elementwise
from eqsat.frontends.torch.module import graph_module
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.suite.libraries import InRuntime, NotCovered, in_cupy
from support.fake_cupy import FakeCupy
from support.gpu_programs import PROGRAMS, inputs_of


def every_function(x: Any) -> Any:
    for name in ("exp", "log1p", "tanh", "sigmoid", "erf", "rsqrt", "relu", "sin", "round"):
        x = getattr(eqsat, name)(x)
    return x


COVERED: dict[str, Program] = {
    **{name: program for name, program in PROGRAMS.items() if "half" not in name},
    "every function": eqsat.trace(every_function, eqsat.spec((4, 5))),
    "movement": eqsat.trace(
        lambda x: eqsat.concat([eqsat.pad(x, [(1, 0), (0, 1)])[::2, 1:].T, x[:2].T], axis=1), eqsat.spec((4, 5))
    ),
    "choice": eqsat.trace(lambda x, y: eqsat.where(x > y, x, -y) ** 2 / (1 + abs(x)), *(eqsat.spec((4, 5)),) * 2),
}


@pytest.mark.parametrize("name", COVERED)
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_rivals_compute_what_numpy_does(library: str, name: str) -> None:
    program = COVERED[name]
    if library == "torch":
        torch = pytest.importorskip("torch")
        run, taken = graph_module(program, "cpu"), torch.from_numpy
    else:
        run, taken = in_cupy(program, FakeCupy(), lambda x: elementwise("erf", x)), np.asarray
    inputs = inputs_of(program)
    got = run(*(taken(inputs[n].copy()) for n in program.input_names))
    got = got if isinstance(got, tuple) else (got,)
    for array, want in zip(got, program.run(inputs).values(), strict=True):
        np.testing.assert_allclose(np.asarray(array), want, rtol=1e-5, atol=1e-6)


def test_operators_that_a_rival_lacks_are_named() -> None:
    x = ops.input("x", (4,), "float32")
    odd = ops.opaque("Odd", [x], [((4,), "float32")], "odd", lambda a: [a])
    with pytest.raises(NotCovered, match="opaque"):
        in_cupy(Program((x,), {"y": odd[0]}), FakeCupy(), np.abs)


@pytest.mark.parametrize("name", COVERED)
def test_torch_makes_every_tensor_on_the_device_asked_for(name: str) -> None:
    torch = pytest.importorskip("torch")
    program = COVERED[name]
    given = [torch.empty(t.shape, dtype=getattr(torch, t.dtype), device="meta") for t in program.inputs]
    got = graph_module(program, "meta")(*given)
    for tensor, term in zip(got if isinstance(got, tuple) else (got,), program.outputs.values(), strict=True):
        assert (tensor.device.type, tuple(tensor.shape)) == ("meta", term.shape)


@pytest.mark.parametrize("name", COVERED)
def test_onnxruntime_computes_what_numpy_does_where_its_provider_is(name: str) -> None:
    program = COVERED[name]
    inputs = inputs_of(program)
    run = InRuntime(program, "CPUExecutionProvider", "cpu")
    binding = run.bound(inputs)
    run(binding)
    for array, want in zip(binding.copy_outputs_to_cpu(), program.run(inputs).values(), strict=True):
        np.testing.assert_allclose(array, want, rtol=1e-5, atol=1e-6)


def test_onnxruntime_without_the_gpus_provider_has_no_column() -> None:
    with pytest.raises(NotCovered, match="onnxruntime has no NoSuchProvider"):
        InRuntime(COVERED["movement"], "NoSuchProvider")
