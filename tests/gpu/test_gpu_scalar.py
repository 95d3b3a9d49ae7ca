"""Functions of single elements in kernels, against what NumPy gives at the ends of types and at special values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.base.numerics import BINARY, UNARY
from eqsat.errors import InputError
from eqsat.gpu.build.compilers import amd_assembly
from eqsat.gpu.build.nvrtc import nvidia_code
from eqsat.gpu.launch.lower import lower
from eqsat.gpu.run.run import run_simt
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term
from support.gpu_programs import plan_of

Array = np.ndarray[Any, Any]


def both(outputs: dict[str, Term], inputs: dict[str, Array]) -> dict[str, tuple[Array, Array]]:
    """(what the kernels give, what NumPy gives) of each output; equal inputs make one kernel of many outputs."""
    leaves = tuple(ops.input(name, array.shape, str(array.dtype)) for name, array in inputs.items())
    program = Program(leaves, outputs)
    got = run_simt(plan_of(program), inputs)
    with np.errstate(all="ignore"):
        wanted = program.run(inputs)
    return {name: (a, wanted[name]) for name, a in zip(outputs, got, strict=True)}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_wrap_around_and_divide_by_everything_as_in_numpy(dtype: str) -> None:
    least, greatest = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = np.array([0, 1, -1, 2, -3, 7, 46341, greatest, least], dtype)
    a, b = (grid.reshape(-1) for grid in np.meshgrid(values, values))
    x, y = ops.input("x", a.shape, dtype), ops.input("y", a.shape, dtype)
    outputs = {name: ops.elementwise(name, x, y) for name in ("add", "sub", "mul", "div", "mod", "pow", "min", "max")}
    outputs |= {name: ops.elementwise(name, x) for name in ("neg", "abs", "relu", "sign")}
    outputs |= {f"power {n}": ops.pow_(x, ops.full(n, a.shape, dtype)) for n in range(6)}
    for name, (got, wanted) in both(outputs, {"x": a, "y": b}).items():
        np.testing.assert_array_equal(got, wanted, name)


SPECIAL = (0.0, 1.0, 0.5, 1 / 3, 2.5, 3.0, 0.7495, 1e-3, 1e-40, 7.3, 88.0, 1e5, 1e9, 2.0**30, 1e12, 1e19, 1e38, np.inf)
HUGE = (*SPECIAL, 6381956970095103.0 * 2.0**797, 1e-310, 1e17, 1e30, 1.7e308)  # the first is next to a multiple of pi/2


def signed(values: Sequence[float], dtype: str) -> Array:
    return np.array([*values, *(-x for x in values), np.nan]).astype(dtype)


@pytest.mark.parametrize(("dtype", "size", "tolerance"), [("float32", SPECIAL, 1e-6), ("float64", HUGE, 1e-13)])
def test_functions_of_floats_give_what_numpy_gives(dtype: str, size: Sequence[float], tolerance: float) -> None:
    values = signed(size, dtype)
    a, b = (grid.reshape(-1) for grid in np.meshgrid(values, values))
    x, y = ops.input("x", a.shape, dtype), ops.input("y", a.shape, dtype)
    outputs = {name: ops.elementwise(name, x, y) for name in ("mod", "pow", "div")}
    outputs |= {name: ops.elementwise(name, x) for name in ("sin", "cos", "tanh", "erf", "sign", "log1p", "sigmoid")}
    outputs |= {f"power {n}": ops.pow_(x, ops.full(n, a.shape, dtype)) for n in (0.5, -0.5, -1.0, 3.0)}
    for name, (got, wanted) in both(outputs, {"x": a, "y": b}).items():
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=float(np.finfo(dtype).tiny), err_msg=name)
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]), name)


def test_float64_is_rounded_to_float16_once() -> None:
    values = signed(
        (
            65519.9999,
            65520.0,
            1 + 2**-11,
            1 + 2**-11 + 2**-40,
            1 + 3 * 2**-11 - 2**-40,
            3e-8,
            2.0**-25,
            2.0**-25 + 1e-20,
            1e308,
            np.inf,
        ),
        "float64",
    )
    x = ops.input("x", values.shape, "float64")
    ((got, wanted),) = both({"half": ops.cast(x, "float16")}, {"x": values}).values()
    np.testing.assert_array_equal(got, wanted)


def compiled(program: Program, device: str) -> str:
    """What the device's compiler makes of the kernel of a program."""
    launches = lower(plan_of(program, device), device)
    (kernel,) = launches.kernels.values()
    try:
        if launches.target.maker == "amd":
            return amd_assembly(kernel.source, launches.target)
        return nvidia_code(kernel.source, launches.target).ptx
    except InputError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(("device", "load"), [("mi300x", "global_load"), ("h100", "ld.global")])
def test_no_compiler_takes_it_that_integers_never_overflow(device: str, load: str) -> None:
    program = eqsat.trace(lambda x: x + 1 > x, eqsat.spec((256,), "int32"))  # false of the greatest
    assert load in compiled(program, device)


@pytest.mark.parametrize("device", ["mi250x", "mi300x", "rx7900xtx", "rx9070xt", "h100"])
def test_every_function_compiles_for_every_kind_of_device(device: str) -> None:
    leaves = [ops.input(name, (256,), "float64") for name in ("x", "y")]
    made = [
        ops.elementwise(f, *leaves[:n])
        for n, rows in ((1, UNARY), (2, BINARY))
        for f, row in rows.items()
        if "float" in row.kinds
    ]
    assert compiled(Program(tuple(leaves), {"y": ops.concat(made, 0)}), device)
