"""Plans lowered for a device, and run in the checker."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import InputError
from eqsat.extract.plan.memory import ALIGNMENT
from eqsat.extract.plan.plan import Plan, Result
from eqsat.gpu import simt
from eqsat.gpu.launch.lower import Fill, Launch, LibraryProduct, Signature
from eqsat.gpu.launch.lower import lower as lower_plan
from eqsat.gpu.run.run import run_launches, run_simt, runner
from eqsat.layout import arithmetic as lay
from eqsat.program.core import make
from support.gpu_programs import (
    PROGRAMS,
    assert_program_results,
    env_of,
    inputs_of,
    one_kernel_each,
    opaque_program,
    plan_of,
)
from support.gpu_support import (
    TOLERANCE,
    array,
    assert_close,
    bin_,
    product,
    reduced,
    transposed,
    un,
    with_bias_and_relu,
)

DEVICES = ("mi250x", "mi300x", "rx7900xtx", "h100")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_in_the_checker(name: str, device: str) -> None:
    program = PROGRAMS[name]
    inputs = inputs_of(program)
    assert_program_results(run_simt(plan_of(program, device), inputs, device, order=4), program, inputs)


def test_optimised_programs_run_in_the_checker() -> None:
    program = PROGRAMS["mlp"]
    best = eqsat.optimize(program, device="mi300x", time_limit=3)
    inputs = inputs_of(program)
    got = best.compile(on="simt")(inputs)
    expected = program.run(inputs, precision="float64")
    for name, values in got.items():
        assert_close(values, expected[name], "float32", name)


def test_launches_are_those_of_the_plan() -> None:
    for program in PROGRAMS.values():
        plan = plan_of(program)
        launches = lower_plan(plan, "mi300x")
        assert sum(isinstance(step, Launch) for step in launches.steps) <= len(plan.kernels)


def test_a_value_in_a_register_may_be_read_at_another_place() -> None:
    """A row kernel holds what it computes of its row; an output reads the same values reversed, by another thread."""

    def function(x: Any, y: Any) -> Any:
        return x[::-1] + y, (x[:, ::-1] * y).sum(1), x * y, (x * y).sum(1), (x - y).sum(0)

    source = eqsat.trace(function, eqsat.spec((33, 33)), eqsat.spec((33, 33)))
    best = eqsat.optimize(source, "h100", time_limit=10, measure=False)
    launches = lower_plan(best.plan, "h100", Signature.of(source), own_outputs=True)
    assert sum(isinstance(step, Launch) for step in launches.steps) == best.report["result"]["launches"]
    inputs = inputs_of(source)
    assert_program_results(run_simt(best.plan, inputs, "h100", order=4), source, inputs)


def test_opaque_operators_run_in_the_checker() -> None:
    program = opaque_program()
    plan, inputs = plan_of(program), inputs_of(program)
    for values, expected in zip(run_simt(plan, inputs), program.run(inputs).values(), strict=True):
        np.testing.assert_allclose(values, expected.reshape(-1), rtol=1e-6)


# Buffers


def assert_runs(plan: Plan, **options: Any) -> Any:
    launches = lower_plan(plan, "mi300x", **options)
    env = env_of(plan)
    for got, expected in zip(run_launches(launches, env), plan.run_numpy(env), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE["float32"] * np.abs(expected).max())
    return launches


def test_concatenations_of_results_are_written_in_place() -> None:
    x = array("x", 64)
    parts = [un("exp", x), un("relu", x), un("neg", x)]
    joined = make("Cat", (), parts)
    plan = one_kernel_each(*(("pointwise", p) for p in parts), ("copy", joined), roots=(joined,))
    launches = assert_runs(plan)
    assert len(launches.steps) == 3
    assert [step.arguments[-1].offset for step in launches.steps] == [0, 64, 128]


@pytest.mark.parametrize("size", [6, 64])
def test_parts_that_vectors_could_not_reach_are_copied(size: int) -> None:
    x = array("x", size)
    parts = [un("exp", x), un("relu", x)]
    joined = make("Cat", (), parts)
    plan = one_kernel_each(
        *(("pointwise", p) for p in parts), ("copy", joined), roots=(joined, parts[0])[: 1 + (size > 6)]
    )
    assert len(assert_runs(plan).steps) == 3


def test_temporaries_share_the_arena_when_they_are_not_in_use_at_once() -> None:
    x = array("x", 4096)
    chain = [un(f, x) for f in ("exp",)]
    for f in ("neg", "abs", "tanh", "relu", "sqrt"):
        chain.append(un(f, chain[-1]))
    plan = one_kernel_each(*(("pointwise", n) for n in chain), roots=(chain[-1],))
    launches = assert_runs(plan)
    temporaries = [b for b in launches.buffers.values() if b.kind == "temporary"]
    assert len(temporaries) == 5
    assert launches.arena_bytes == 2 * 4096 * 4
    one = 4096 * 4
    assert launches.memory == {"inputs": one, "constants": 0, "outputs": one, "arena": 2 * one, "peak": 4 * one}
    assert all(b.offset % ALIGNMENT == 0 for b in temporaries)


def test_reductions_by_atomics_fill_their_output_first() -> None:
    p = with_bias_and_relu(product(1, 300, 8, 400))
    total = reduced("sum", p, 400)
    plan = one_kernel_each(("contraction+reduction", total), roots=(total,))
    assert isinstance(assert_runs(plan).steps[0], Fill)
    exact = assert_runs(replace(plan, exact=True))
    assert not any(isinstance(step, Fill) for step in exact.steps)


def test_roots_that_are_inputs_constants_or_parts_of_others_get_buffers_of_their_own() -> None:
    x = array("x", 24)
    y = un("exp", x)
    part = make("V", (lay.strided(8, ((8, 1),)),), (y,))
    plan = Plan(
        one_kernel_each(("pointwise", y), roots=(y,)).kernels,
        (y, x, part, y, make("Full", (2.0, 5, "float32"))),
        (
            Result(y, lay.identity(24)),
            Result(x, lay.identity(24)),
            Result(y, lay.strided(8, ((8, 1),))),
            Result(y, lay.identity(24)),
            Result(make("Full", (2.0, 5, "float32")), lay.identity(5)),
        ),
        {},
    )
    shared, owned = assert_runs(plan), assert_runs(plan, own_outputs=True)
    assert len({place.buffer for place in owned.results}) == 5
    assert all(place.offset == 0 for place in owned.results)
    assert shared.results[2].buffer == shared.results[0].buffer
    assert shared.results[2].offset == 8


def test_products_that_the_plan_gives_to_the_library_go_there() -> None:
    x, w = array("x", 12 * 20), array("w", 16 * 20)
    out = make("MM", (1, 12, 20, 16), (x, transposed(w, (16, 20), (1, 0))))
    plan = one_kernel_each(("library-gemm", out), roots=(out,))
    (step,) = lower_plan(plan, "mi300x", library=True).steps
    assert isinstance(step, LibraryProduct)
    assert step.strides == ((0, 20, 1), (0, 1, 20))
    assert isinstance(assert_runs(plan).steps[0], Launch)


def test_equal_kernels_are_one_text() -> None:
    x = array("x", 4096)
    first = un("exp", x)
    second = un("exp", first)
    launches = assert_runs(one_kernel_each(("pointwise", first), ("pointwise", second), roots=(second,)))
    assert len(launches.steps) == 2
    assert len(launches.kernels) == 1


def test_empty_arrays_are_no_launch() -> None:
    empty = make("In", ("x", 0, "float32"))
    out = un("exp", empty)
    launches = lower_plan(one_kernel_each(("pointwise", out), roots=(out,)), "mi300x")
    assert launches.steps == ()
    assert run_launches(launches, {"x": np.zeros(0, np.float32)})[0].size == 0


def test_inputs_that_vectors_could_not_reach_are_copied() -> None:
    x = array("x", 64)
    out = un("neg", x)
    launches = lower_plan(one_kernel_each(("pointwise", out), roots=(out,)), "mi300x")
    odd = np.arange(65, dtype=np.float32)[1:]
    np.testing.assert_array_equal(run_launches(launches, {"x": odd})[0], -odd)


# Bad input


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'x' is missing"),
        ({"x": np.zeros(3, np.float32)}, r"input 'x' takes 24 elements, got shape \(3,\)"),
        ({"x": np.zeros(24)}, "input 'x' takes float32, got float64: convert it first"),
    ],
)
def test_wrong_inputs_are_named(inputs: dict[str, Any], message: str) -> None:
    x = array("x", 24)
    out = bin_("add", x, x)
    launches = lower_plan(one_kernel_each(("pointwise", out), roots=(out,)), "mi300x")
    with pytest.raises(InputError, match=message):
        run_launches(launches, inputs)


def test_devices_that_run_no_kernels_are_refused() -> None:
    plan = plan_of(PROGRAMS["mlp"])
    with pytest.raises(InputError, match="device cpu runs no GPU kernels"):
        lower_plan(plan, "cpu")
    with pytest.raises(InputError, match="nothing runs plans on 'tpu'"):
        runner(plan, "tpu", "mi300x")


def test_without_cupy_a_gpu_run_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(InputError, match=r"no GPU run without CuPy: pip install 'eqsat\[rocm\]'"):
        runner(plan_of(PROGRAMS["mlp"]), "gpu", "mi300x")


def test_without_a_compiler_the_checker_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from eqsat.gpu.build import compilers

    for found in (compilers.host_compiler, compilers.amd_compiler):
        found.cache_clear()
    monkeypatch.setattr(compilers, "_tool", lambda command: None)
    with pytest.raises(InputError, match=r"needs a C\+\+ compiler: install g\+\+ or clang\+\+"):
        compilers.host_compiler()
    with pytest.raises(InputError, match="no compiler for gfx950: install clang-20 or later"):
        compilers.amd_compiler("gfx950")


def test_signatures_of_programs_and_of_bare_plans() -> None:
    program = PROGRAMS["statistics"]
    assert Signature.of(program).inputs == {"x": ((9, 33), "float32")}
    assert dict(Signature.flat(plan_of(program)).outputs) == {"out0": (9,), "out1": (33,), "out2": (9,)}


def test_ctrl_c_does_not_wait_for_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def long(*given: object) -> None:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 4_000_000)  # seconds in compiled code, as a kernel

    monkeypatch.setattr(simt, "run", long)
    program = eqsat.trace(lambda x: x + 1, eqsat.spec(3))
    run = eqsat.optimize(program, rules=[], explain_time=0.0).compile("simt")
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(np.zeros(3, np.float32))
    assert time.monotonic() - begun < 1.5
