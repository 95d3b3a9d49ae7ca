"""Benchmarks of models in onnxruntime, of models with named dims, and of the growth of e-graphs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.egraph.saturate import Limits, saturate
from eqsat.egraph.snapshot import Snapshot
from eqsat.program.core import lower
from eqsat.rules import ALL, allowed
from support.benchmarks import load


@pytest.fixture
def models(tmp_path: Path) -> Path:
    a, b = (np.random.default_rng(i).standard_normal((16, 16)).astype(np.float32) for i in (1, 2))
    eqsat.to_onnx(eqsat.trace(lambda x: eqsat.relu(x @ a @ b), eqsat.spec((8, 16))), tmp_path / "chain.onnx")
    eqsat.to_onnx(eqsat.trace(lambda x: eqsat.softmax(x, axis=-1), eqsat.spec((8, 16))), tmp_path / "softmax.onnx")
    return tmp_path


@pytest.fixture
def in_onnxruntime() -> Iterator[ModuleType]:
    yield from load("models")


def test_models_are_measured_as_written_and_after_eqsat(in_onnxruntime: ModuleType, models: Path, capsys: Any) -> None:
    short = ["--time-limit", "5", "--span", "0", "--rounds", "8", "--loads", "2"]
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


def test_rows_are_kept_and_a_later_run_goes_on_from_them(
    in_onnxruntime: ModuleType, models: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    measured: list[tuple[str, int]] = []

    def row(model: Path, threads: int, asked: Any) -> dict[str, Any]:
        measured.append((model.stem, threads))
        times = {"ms": 2.0, "spread": 0.0, "ratio": 1.0, "low": 1.0, "high": 1.0}
        named = {"name": model.stem, "threads": threads, "seconds": 1.0, "chosen": "source"}
        return {**named, "nodes": {"as written": 1, "eqsat": 1}, "variants": {"as written": times, "eqsat": times}}

    monkeypatch.setattr(in_onnxruntime, "measure", row)
    kept = ["--json", str(models / "rows.json")]
    assert in_onnxruntime.main([str(models), "--match", "chain", *kept]) == 0
    assert in_onnxruntime.main([str(models), "--threads", "1,2", *kept]) == 0
    assert measured == [("chain", 1), ("softmax", 1), ("chain", 2), ("softmax", 2)]
    assert capsys.readouterr().out.count("2 threads") == 1
    assert in_onnxruntime.main([str(models), "--threads", "3", "--minutes", "-1", *kept]) == 0
    assert len(measured) == 4


@pytest.mark.parametrize(
    ("ms", "high", "is_slower"), [(10.3, 0.99, True), (10.1, 0.99, False), (10.3, 1.01, False), (8.0, 1.3, False)]
)
def test_a_model_is_slower_by_two_percent_and_beyond_noise(
    in_onnxruntime: ModuleType, ms: float, high: float, is_slower: bool
) -> None:
    variants = {"as written": {"ms": 10.0}, "eqsat": {"ms": ms, "high": high}}
    assert in_onnxruntime.slower({"variants": variants}) == is_slower


def test_named_dims_have_the_kernels_of_one_size(capsys: Any) -> None:
    for dynamic in load("dynamic"):
        assert dynamic.main(["--match", "sum*", "--time-limit", "10"]) == 0
    assert "rows=504" in capsys.readouterr().out


def test_growth_counts_what_a_search_matches(models: Path) -> None:
    rules = allowed(list(ALL), "reassociate")
    source = Snapshot.from_core(lower(eqsat.from_onnx(models / "chain.onnx")).roots)
    searched = saturate(source, rules, Limits(seconds=60.0))
    for growth in load("growth"):
        found = growth.grow(models / "chain.onnx", rules, 60.0)
        assert found.matches == searched.stats["matches"]
        assert (found.before, found.after) == (len(source.nodes), len(searched.nodes))
        assert found.matches["matmul-of-constants-right"]
