"""The GPU benchmark with a stand-in for CuPy, and the programs of its rivals against NumPy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.base.numerics import elementwise
from eqsat.gpu.run.cupy_runtime import GpuPlan
from eqsat.program import ops
from eqsat.program.ir import Program
from support.benchmarks import load
from support.fake_cupy import FakeCupy
from support.gpu_programs import PROGRAMS, inputs_of


@pytest.fixture(scope="module")
def rivals() -> Iterator[ModuleType]:
    yield from load("rivals")


@pytest.fixture
def gpu(rivals: ModuleType) -> Iterator[ModuleType]:
    assert rivals is not None
    yield from load("gpu")


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy("sm_90")
    fake.cost_us = lambda code, blocks: 300.0
    special = ModuleType("cupyx.scipy.special")
    vars(special)["erf"] = lambda x: elementwise("erf", x)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "cupyx.scipy.special", special)
    monkeypatch.setitem(sys.modules, "torch", None)
    return fake


@pytest.fixture
def models(tmp_path: Path) -> Path:
    a, b = (np.random.default_rng(i).standard_normal((16, 16)).astype(np.float32) for i in (1, 2))
    eqsat.to_onnx(eqsat.trace(lambda x: eqsat.relu(x @ a @ b), eqsat.spec((8, 16))), tmp_path / "chain.onnx")
    eqsat.to_onnx(eqsat.trace(lambda x: eqsat.softmax(x, axis=-1), eqsat.spec((8, 16))), tmp_path / "softmax.onnx")
    return tmp_path


@pytest.mark.usefixtures("cupy")
def test_programs_are_compared_with_every_rival_at_hand(gpu: ModuleType, models: Path, capsys: Any) -> None:
    assert gpu.main([str(models), "--rounds", "2", "--gemm", "32", "--json", str(models / "out.json")]) == 0
    results = json.loads((models / "out.json").read_text())
    chain, softmax = results["programs"]
    assert (chain["name"], softmax["name"]) == ("chain", "softmax")
    assert set(chain["us"]) == {"eqsat", "unfused", "cupy"}
    assert (chain["launches"], chain["fault"]) == (1, "")
    assert (chain["us"]["eqsat"], chain["us"]["unfused"]) == (300.0, 310.0)  # one kernel; the library and a relu
    assert results["means"]["unfused"] > 1.0
    assert results["product"] == {"eqsat": 300.0, "library": 10.0}
    out, err = capsys.readouterr()
    assert "geometric mean against cupy" in out
    assert "3% of its rate" in out
    assert "no torch" in err


@pytest.mark.usefixtures("cupy")
def test_a_wrong_result_fails_the_benchmark(gpu: ModuleType, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = GpuPlan.__call__
    monkeypatch.setattr(GpuPlan, "__call__", lambda self, inputs: [a + 1 for a in right(self, inputs)])
    assert gpu.main([str(models), "--rounds", "1", "--gemm", "32", "--match", "softmax"]) == 1


def test_without_a_gpu_there_is_one_line(gpu: ModuleType, models: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert gpu.main([str(models)]) == 3
    assert capsys.readouterr().err.startswith("no GPU run without CuPy")


# Rivals


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
def test_rivals_compute_what_numpy_does(library: str, name: str, rivals: ModuleType) -> None:
    if library == "torch":
        torch = pytest.importorskip("torch")
        rival = rivals.torch_library(torch, "cpu")
    else:
        rival = rivals.cupy_library(FakeCupy(), lambda x: elementwise("erf", x))
    program = COVERED[name]
    inputs = inputs_of(program)
    got = rival.run(program)(*(rival.array(inputs[n]) for n in program.input_names))
    for array, want in zip(got, program.run(inputs).values(), strict=True):
        np.testing.assert_allclose(np.asarray(array), want, rtol=1e-5, atol=1e-6)


def test_operators_that_a_rival_lacks_are_named(rivals: ModuleType) -> None:
    x = ops.input("x", (4,), "float32")
    odd = ops.opaque("Odd", [x], [((4,), "float32")], "odd", lambda a: [a])
    with pytest.raises(rivals.NotCovered, match="opaque"):
        rivals.cupy_library(FakeCupy(), np.abs).run(Program((x,), {"y": odd[0]}))


@pytest.fixture
def in_onnxruntime(rivals: ModuleType) -> Iterator[ModuleType]:
    assert rivals is not None
    yield from load("models")


def test_models_are_measured_as_written_and_after_eqsat(in_onnxruntime: ModuleType, models: Path, capsys: Any) -> None:
    short = ["--time-limit", "5", "--span", "0", "--rounds", "8"]
    code = in_onnxruntime.main([str(models), *short, "--json", str(models / "out.json")])
    rows = json.loads((models / "out.json").read_text())
    assert [row["name"] for row in rows] == ["chain", "softmax"]
    assert code == int(any(map(in_onnxruntime.slower, rows)))
    for row in rows:
        assert row["variants"]["as written"]["ratio"] == 1
        assert row["variants"]["eqsat"]["ms"] > 0
        assert row["seconds"] > 0
        if row["chosen"] == "source":
            assert row["variants"]["eqsat"] == row["variants"]["as written"]
    assert "geometric mean of eqsat" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ms", "high", "is_slower"), [(10.3, 0.99, True), (10.1, 0.99, False), (10.3, 1.01, False), (8.0, 1.3, False)]
)
def test_a_model_is_slower_by_two_percent_and_beyond_noise(
    in_onnxruntime: ModuleType, ms: float, high: float, is_slower: bool
) -> None:
    variants = {"as written": {"ms": 10.0}, "eqsat": {"ms": ms, "high": high}}
    assert in_onnxruntime.slower({"variants": variants}) == is_slower
