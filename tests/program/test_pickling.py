"""Programs, plans, results and proofs travel between processes and threads, however deep they are."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.program import ops
from eqsat.program.core import CoreProgram, lower
from eqsat.program.ir import Program

WEIGHT = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
DEPTH = 10_000


def program(width: int = 8) -> Program:
    return eqsat.trace(lambda x: eqsat.relu(eqsat.softmax(x @ WEIGHT + 1.0, -1) @ WEIGHT), eqsat.spec((width, 8)))


def optimised(width: int) -> eqsat.Result:
    return eqsat.optimize(program(width), time_limit=60)


def travelled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_a_result_runs_after_its_travels():
    result = optimised(8)
    found = travelled(result)
    x = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
    np.testing.assert_array_equal(found.compile()(x), result.compile()(x))
    np.testing.assert_array_equal(travelled(result.compile())(x), result.compile()(x))
    assert found.report == result.report
    assert found.source == result.source


def doubled(sizes: Mapping[str, int]) -> Program:
    return eqsat.trace(lambda x: x + x, eqsat.spec((sizes["n"], 3)))


@eqsat.jit
def tripled(x: Any) -> Any:
    return x * 3


def test_the_package_travels_by_its_name():
    assert travelled(eqsat) is eqsat


def test_a_jitted_function_travels_by_its_name_or_with_its_function():
    assert travelled(tripled) is tripled
    assert copy.deepcopy(tripled) is tripled
    other = eqsat.jit(np.tanh, on="simt", dynamic={"x": ("n",)}, ranges={"n": (1, 2)}, time_limit=1)
    found = travelled(other)
    assert found.__reduce__() == other.__reduce__()
    local = eqsat.jit(lambda x: x + 1, time_limit=1)
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(copy.deepcopy(local)(x), x + 1)


def test_a_result_for_a_range_of_sizes_travels():
    found = travelled(eqsat.optimize_dynamic(doubled, {"n": (2, 9)}, time_limit=1))
    assert found.at({"n": 4}).inputs == doubled({"n": 4}).inputs
    assert found.family.at({"n": 4}) == doubled({"n": 4})


def test_terms_and_nodes_are_interned_again():
    p = program()
    assert travelled(p.outputs["out"]) is p.outputs["out"]
    root = lower(p).roots[0]
    assert travelled(root) is root


def test_a_proof_travels():
    p = program()
    for proof in (eqsat.prove(p, p), eqsat.prove(p, eqsat.trace(lambda x: x @ WEIGHT, eqsat.spec((8, 8))))):
        assert str(travelled(proof)) == str(proof)


def test_deep_programs_travel():
    term = ops.input("x", (2,))
    inputs = (term,)
    for _ in range(DEPTH):
        term = ops.tanh(term)
    assert travelled(term) is term
    assert travelled(Program(inputs, {"y": term})).outputs["y"] is term
    root = lower(Program(inputs, {"y": term})).roots[0]
    assert travelled(root) is root


def chain(length: int) -> CoreProgram:
    """Tanh upon tanh, every hundredth an operator that eqsat does not know."""
    term = ops.input("x", (2,))
    inputs = (term,)
    for i in range(length):
        carried = i % 100 == 99
        term = ops.opaque("own.Op", (term,), [((2,), "float32")], "spec", np.tanh)[0] if carried else ops.tanh(term)
    return lower(Program(inputs, {"y": term}))


def test_the_core_of_a_program_travels_in_time_that_grows_as_it_does() -> None:
    core = chain(DEPTH)
    found = travelled(core)
    assert found == core
    assert found.opaque[next(iter(core.opaque))].results == core.opaque[next(iter(core.opaque))].results
    sizes = [len(pickle.dumps(chain(length))) for length in (1000, 4000)]
    assert sizes[1] < 5 * sizes[0]


def same(a: eqsat.Result, b: eqsat.Result) -> bool:
    return str(a.program) == str(b.program) and a.report["kernels"] == b.report["kernels"]


def test_threads_find_what_one_finds():
    widths = [3, 5, 8, 8]
    alone = [optimised(width) for width in widths]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(optimised, widths))
    assert all(same(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_processes_find_what_one_finds(method: str):
    alone = optimised(5)
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as processes:
        assert same(processes.submit(optimised, 5).result(), alone)
    assert same(optimised(5), alone)
