"""Sums of a few terms that whatever reads them computes on the way: windows of depthwise convolutions and pooling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.base.numerics import np_dtype
from eqsat.errors import InputError
from eqsat.gpu.build.gates import gate
from eqsat.gpu.launch.lower import Launch
from eqsat.gpu.launch.lower import lower as lower_plan
from eqsat.gpu.run.run import run_simt
from eqsat.program import ops
from eqsat.program.core import make
from eqsat.program.ir import Program
from support.gpu_programs import assert_program_results, inputs_of, plan_of

DEVICES = ("mi250x", "mi300x", "mi355x", "rx7900xtx", "rx9070xt", "h100")


def _depthwise(x: Any, taps: Any, mix: Any) -> Any:
    own = eqsat.relu(eqsat.conv(x, taps, pads_lo=(1, 1), pads_hi=(1, 1), groups=x.shape[1]))
    return eqsat.relu(eqsat.conv(own, mix))


def _strided(x: Any, taps: Any, mix: Any) -> Any:
    return eqsat.conv(eqsat.conv(eqsat.exp(x), taps, strides=(2, 2), groups=x.shape[1]), mix)


def _pooled(x: Any, taps: Any, mix: Any) -> Any:
    return eqsat.conv(eqsat.max_pool(eqsat.tanh(x), (3, 3), (2, 2), (1, 1), (0, 1)), mix) + taps[0, 0, 0, 0]


def _beside(x: Any, taps: Any, mix: Any) -> Any:
    """The window is added to a product, which comes first."""
    return eqsat.conv(eqsat.conv(x, taps, pads_lo=(1, 1), pads_hi=(1, 1), groups=x.shape[1]), mix) + eqsat.max_pool(
        x, (2, 2), (1, 1), (0, 0), (1, 1)
    )


def _map(x: Any, taps: Any, mix: Any) -> Any:
    return eqsat.avg_pool(x * 2.0, (2, 3)) - eqsat.max_pool(x, (2, 3)) + mix[0, 0, 0, 0] * taps[0, 0, 0, 0]


def _normed(x: Any, taps: Any, mix: Any) -> Any:
    """The rows of a norm are sums of windows."""
    own = eqsat.conv(x, taps, pads_lo=(1, 1), pads_hi=(1, 1), groups=x.shape[1])
    return eqsat.layernorm(own) * mix[0, 0, 0, 0]


FORMS = {f.__name__.strip("_"): f for f in (_depthwise, _strided, _pooled, _beside, _map, _normed)}


def _program(form: str, channels: int, height: int, width: int, outputs: int, dtype: str = "float32") -> Program:
    shapes = (1, channels, height, width), (channels, 1, 3, 3), (outputs, channels, 1, 1)
    return eqsat.trace(FORMS[form], *(eqsat.spec(shape, dtype) for shape in shapes))


def _any_size(form: str, seed: int, dtype: str = "float32") -> Program:
    rng = np.random.default_rng(seed)
    channels, height, width = (int(n) for n in rng.integers((3, 4, 10), (24, 11, 14)))
    return _program(form, channels, height, width, channels if form == "beside" else int(rng.integers(2, 40)), dtype)


@pytest.mark.parametrize(
    ("form", "device"), [(form, DEVICES[(i + j) % len(DEVICES)]) for i, form in enumerate(FORMS) for j in (0, 3)]
)
def test_one_launch_computes_the_windows_and_what_reads_them(form: str, device: str) -> None:
    program = _any_size(form, seed=DEVICES.index(device))
    plan = plan_of(program, device)
    assert len(plan.kernels) == 1
    inputs = inputs_of(program)
    assert_program_results(run_simt(plan, inputs, device, order=3), program, inputs)
    assert_program_results(plan.run_numpy({k: v.reshape(-1) for k, v in inputs.items()}), program, inputs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_windows_of_halves(dtype: str) -> None:
    program = _any_size("depthwise", 7, dtype)
    plan = plan_of(program)
    assert len(plan.kernels) == 1
    inputs = inputs_of(program)
    assert_program_results(run_simt(plan, inputs, "mi300x"), program, inputs)


def test_a_term_left_out_is_noticed() -> None:
    program = _any_size("depthwise", 1)
    plan = plan_of(program)
    (kernel,) = plan.kernels
    inputs = inputs_of(program)
    short = replace(plan, kernels=(replace(kernel, body=tuple(map(_without_a_term, kernel.body))),))
    with pytest.raises(AssertionError):
        assert_program_results(run_simt(short, inputs, "mi300x"), program, inputs)


def _without_a_term(node: Any) -> Any:
    """The same expression with the first sum of a product and what was added up before it replaced by the latter."""
    if node.op == "Bin" and node.attrs == ("add",) and node.args[1].op == "Bin" and node.args[1].attrs == ("mul",):
        return node.args[0]
    return make(node.op, node.attrs, tuple(map(_without_a_term, node.args))) if node.args else node


def _widened(x: Any, taps: Any, mix: Any) -> Any:
    """Every tile of outputs would compute the windows once more."""
    return eqsat.conv(eqsat.exp(eqsat.conv(x, taps, groups=x.shape[1])), mix)


@pytest.mark.parametrize(
    ("taps", "outputs", "kernels"),
    [(3, 64, 1), (5, 64, 2), (3, 8192, 2)],
    ids=["few terms", "25 terms", "dearer to compute in each of many tiles"],
)
def test_windows_are_computed_on_the_way_where_that_pays(taps: int, outputs: int, kernels: int) -> None:
    shapes = (1, 64, 66, 66), (64, 1, taps, taps), (outputs, 64, 1, 1)
    program = eqsat.trace(_widened, *map(eqsat.spec, shapes))
    assert len(plan_of(program).kernels) == kernels


def test_a_window_may_lie_outside_of_what_it_reads() -> None:
    """A padded concatenation of whole numbers, of which the first term reads nothing."""
    x, y = ops.input("x", (2,), "int32"), ops.input("y", (1,), "int32")
    row = ops.reshape(ops.concat([x, y, x], 0), (1, 1, 5))
    window = ops.conv(row, ops.full(-2, (1, 1, 2), "int32"), strides=(2,), pads_lo=(1,), pads_hi=(0,))
    mix = ops.constant(np.array([[[3, 3, -1], [-3, 1, -1]]], np.int32))
    program = Program((x, y), {"z": ops.matmul(mix, ops.transpose(window, (0, 2, 1)))})
    inputs = {"x": np.array([3, 5], np.int32), "y": np.array([7], np.int32)}
    found = eqsat.optimize(program, device="mi355x", numerics="fast").compile(on="simt")(inputs)
    np.testing.assert_array_equal(found["z"], program.run(inputs)["z"])


@pytest.mark.parametrize("device", DEVICES)
def test_windows_before_products_pass_their_gates(device: str) -> None:
    launches = lower_plan(plan_of(_program("depthwise", 96, 28, 28, 64), device), device)
    kernels = [step.kernel for step in launches.steps if isinstance(step, Launch)]
    try:
        found = [gate(kernel.source, [kernel], launches.target)[0] for kernel in kernels]
    except InputError as missing:
        pytest.skip(str(missing))
    assert [verdict.faults for verdict in found] == [()]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_few_terms_of_halves_are_added_up_in_float32(dtype: str) -> None:
    """The first sum has terms beyond float16, the second needs more digits than bfloat16 has."""
    x = ops.input("x", (1, 3), dtype)
    w = ops.constant(np.array([[400, 256], [-396, 1], [0, -256]]).astype(np_dtype(dtype)))
    program = Program((x,), {"y": ops.abs_(ops.matmul(ops.add(x, x), w))})
    plan = plan_of(program)
    assert [k.name for k in plan.kernels] == ["gemv_add_abs_2"]
    inputs = {"x": np.full((1, 3), 100, np_dtype(dtype))}
    for found in (plan.run_numpy({"x": inputs["x"].reshape(-1)}), run_simt(plan, inputs, "mi300x")):
        np.testing.assert_array_equal(np.asarray(found[0]).reshape(-1), np.array([800, 200], np_dtype(dtype)))


@pytest.mark.parametrize("terms", [1, 2])
def test_products_of_negative_zeros_are_zero(terms: int) -> None:
    """They begin at zero, as all products do; the quotient shows its sign."""
    x, w = ops.input("x", (4, terms), "float32"), ops.input("w", (4, 1), "float32")
    product = ops.matmul(x, ops.full(0.0, (terms, 1), "float32"))
    program = Program((x, w), {"y": ops.div(w, product)})
    inputs = {"x": -np.ones((4, terms), np.float32), "w": np.ones((4, 1), np.float32)}
    found = eqsat.optimize(program, numerics="exact").compile()(inputs)
    np.testing.assert_array_equal(found["y"], np.full((4, 1), np.inf, np.float32))
