"""Functions of single elements in kernels, against what NumPy gives at the ends of types and at special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
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
