"""Running generated kernels in the SIMT checker against NumPy in float64."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import settings

from eqsat.base.numerics import np_dtype, random_array
from eqsat.gpu import simt
from eqsat.gpu.families.base import Choice, Job, Kernel
from eqsat.gpu.families.expressions import *  # noqa: F403  (tests write their expressions as families do)
from eqsat.gpu.launch.generate import Chain, chain
from eqsat.gpu.table.targets import TARGETS
from eqsat.program.core import Node, evaluate, topological

TOLERANCE = {"float64": 1e-12, "float32": 1e-4, "float16": 2e-3, "bfloat16": 2e-2}
"""Largest error, as a share of the largest result."""

Arrays = Mapping[Node, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Case:
    """Outputs to compute, and the launches that do; by default those that a plan would get."""

    name: str
    outputs: tuple[Node, ...]
    chain: Chain

    @property
    def inputs(self) -> tuple[Node, ...]:
        return inputs_of(self.outputs)


def inputs_of(outputs: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(n for n in topological(outputs) if n.op == "In")


def random_choices(name: str) -> random.Random:
    """A generator for the test of this name: in CI the same on every run."""
    return random.Random(name if settings().derandomize else None)


def job_of(*outputs: Node, units: int = 4) -> Job:
    return Job(outputs, inputs_of(outputs), units=units)


def case(
    name: str,
    *outputs: Node,
    arch: str = "gfx942",
    units: int = 4,
    exact: bool = False,
    choice: Choice = Choice(),
) -> Case:
    return Case(name, outputs, chain("", outputs, inputs_of(outputs), TARGETS[arch], units, exact, choice))


def case_of(name: str, kernel: Kernel, *outputs: Node) -> Case:
    """A case of one kernel that a family generated."""
    return Case(name, outputs, Chain((kernel,)))


def check(cases: Sequence[Case], arch: str, order: int = simt.FORWARD, seed: int = 0) -> None:
    """Compile all kernels as one text, run each case on random inputs, and compare."""
    source = source_of(cases)
    for each in cases:
        values = random_values(each.inputs, seed)
        expected = expected_of(each.outputs, values)
        got = run(each, values, arch, source, order)
        for node, reference in zip(each.outputs, expected, strict=True):
            assert_close(got[node], reference, node.dtype, f"{each.name} on {arch}, order {order}")


def source_of(cases: Iterable[Case]) -> str:
    kernels = {k.entry: k for each in cases for k in each.chain.kernels}
    return "\n".join(k.source for k in kernels.values())


def random_values(inputs: Iterable[Node], seed: int = 0) -> dict[Node, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {n: random_array((n.size,), n.dtype, rng) for n in inputs}


def expected_of(outputs: Sequence[Node], values: Arrays) -> list[np.ndarray[Any, Any]]:
    env = {n.attrs[0]: a.astype(np.float64) if n.dtype in TOLERANCE else a for n, a in values.items()}
    return evaluate(outputs, env, {}, precision="float64")


def memory_of(each: Case, values: Arrays) -> dict[Node, np.ndarray[Any, Any]]:
    """Inputs, and outputs and temporaries full of NaN."""
    memory = dict(values)
    written = {n: n.dtype for n in each.outputs} | dict(each.chain.temporaries)
    for node, dtype in written.items():
        memory[node] = np.full(node.size * np_dtype(dtype).itemsize, 0xFF, np.uint8).view(np_dtype(dtype))
    counters = [node for kernel in each.chain.kernels for node in kernel.counters]
    return memory | {node: np.zeros(node.size, np.int32) for node in counters}


def call_of(kernel: Kernel, memory: Arrays) -> simt.Call:
    arguments = tuple(simt.Argument(memory[n]) for n in kernel.arguments)
    return simt.Call(kernel.entry, kernel.blocks, kernel.threads, arguments)


def run(each: Case, values: Arrays, arch: str, source: str, order: int = simt.FORWARD) -> Arrays:
    memory = memory_of(each, values)
    for kernel in each.chain.kernels:
        for node, value in kernel.fills.items():
            memory[node].fill(value)
        simt.run(source, TARGETS[arch], [call_of(kernel, memory)], order)
        for node in kernel.counters:
            np.testing.assert_array_equal(memory[node], 0, "a counter is left as it was found")
    return memory


def assert_close(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], dtype: str, what: str) -> None:
    if dtype not in TOLERANCE:
        np.testing.assert_array_equal(got, expected, err_msg=what)
        return
    scale = max(float(np.nanmax(np.abs(expected), initial=0.0)), 1e-30)
    np.testing.assert_allclose(
        got.astype(np.float64), expected, rtol=0, atol=TOLERANCE[dtype] * scale, err_msg=what, equal_nan=True
    )


def combined(choice: Choice, dtype: str) -> str:
    """How blocks combine a reduced product of a type for which `choice.combine` was chosen: halves have no atomics."""
    return choice.combine if dtype == "float32" and choice.combine else "two-pass"
