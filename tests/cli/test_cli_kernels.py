"""`eqsat kernels` lists and shows every family, and prints the source of every kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.gpu.build.compilers import simt_library
from eqsat.gpu.catalogue import FAMILIES, samples
from eqsat.gpu.table.targets import TARGETS
from support.cli import document, printed, refusal


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kernels: a product with a relu, and a softmax."""
    w = np.random.default_rng(0).standard_normal((24, 40)).astype(np.float32)
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    program = eqsat.trace(lambda x: eqsat.softmax(eqsat.relu(x @ w), axis=-1), eqsat.spec((32, 24)))
    eqsat.to_onnx(program, path)
    return path


def test_the_list_holds_every_variant_once() -> None:
    rows = document("kernels", "list", "--device", "h100", "--dtype", "float16")["kernels"]
    listed = [f"{row['family']} {row['variant']}" for row in rows]
    assert len(set(listed)) == len(listed)
    assert set(listed) == {name for name, _ in samples(TARGETS["sm_90"], "float16")}
    tile = next(row for row in rows if row["variant"] == "matrix_64x64x32")
    assert (tile["dtype"], tile["threads"]) == ("float16", 256)
    assert tile["registers"] > 0 < tile["waves"] <= tile["most_waves"]


def test_the_list_is_filtered() -> None:
    rows = document("kernels", "list", "--family", "pointwise")["kernels"]
    assert {row["family"] for row in rows} == {"pointwise"}
    assert {row["dtype"] for row in rows} == {"float32", "float16", "bfloat16"}
    assert "width4" in printed("kernels", "list", "--family", "pointwise", "--dtype", "float32")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_shown(name: str) -> None:
    facts = document("kernels", "show", name)
    family = FAMILIES[name]
    assert facts["computes"] == family.computes
    assert facts["examples"] == list(family.examples(family.sizes[0], "float32"))
    assert set(facts["parameters"]) == {"mi250x", "mi300x", "mi355x", "rx7900xtx", "rx9070xt", "h100", "h200"}
    assert facts["parameters"]["mi300x"] == family.parameters(TARGETS["gfx942"], "float32")
    price = facts["example"]["prices"]["mi300x"]
    assert price["bytes"] > 0 < price["predicted_us"]
    assert "out0 = " in facts["example"]["term"]


def test_a_variant_of_an_example_is_shown_in_words() -> None:
    text = printed("kernels", "show", "contraction", "vector_64x64x16", "--example", "left transposed")
    assert "product[b, m, n] = sum_k" in text
    assert "%1 = MM(1, 1024, 1024, 1024)" in text
    assert "left transposed:" in text
    (row,) = [line for line in text.splitlines() if line.strip().startswith("vector_64x64x16 ")]
    assert row.count("/") == 6  # waves of the most on each instruction set


@pytest.mark.parametrize("device", ["mi300x", "h100"])
def test_a_variant_has_a_text(device: str) -> None:
    text = printed("kernels", "source", "contraction", "matrix_64x64x32", "--dtype", "float16", "--device", device)
    assert text.startswith("// Contraction, tile matrix_64x64x32:")
    assert '#include "prelude.h"' in text


def test_a_whole_text_compiles_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "kernel.hip"
    assert printed("kernels", "source", "row", "--whole", "-o", file) == ""
    text = file.read_text()
    assert '#include "prelude.h"' not in text
    simt_library(text, TARGETS["gfx942"])


def test_the_kernels_of_a_program_have_texts(model: Path, tmp_path: Path) -> None:
    texts = document("kernels", "source", model, "--device", "mi250x")["texts"]
    assert [t["kernels"] for t in texts] == [[0], [1]]
    assert [t["family"] for t in texts] == ["contraction", "row"]
    assert printed("kernels", "source", model, "--device", "mi250x", "--kernel", "1") == texts[1]["source"]
    printed("emit", model, "-o", tmp_path, "--device", "mi250x")
    emitted = {step["source"] for step in json.loads((tmp_path / "manifest.json").read_text())["steps"]}
    assert {(tmp_path / name).read_text() for name in emitted} == {t["source"] for t in texts}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "contractoin"), "unknown kernel family 'contractoin': did you mean contraction"),
        (("show", "row", "threads7"), "unknown row variant 'threads7'"),
        (("show", "row", "--example", "softmux"), "unknown row example 'softmux': did you mean softmax"),
        (("source", "pointwise", "width3"), "unknown pointwise variant 'width3'"),
        (("source", "pointwise", "--kernel", "1"), "--kernel 1 counts kernels of a program: name an .onnx file"),
        (("source", "row", "--device", "cpu"), "device cpu runs no GPU kernels: name a GPU"),
        (("source", "none.onnx"), "none.onnx"),
        (("list", "--device", "mi300"), "device: there is no 'mi300'; the nearest are mi300x"),
        (("list", "--dtype", "int8"), "kernels are made for operands of float32, float16, bfloat16, got 'int8'"),
    ],
)
def test_what_there_is_not_is_answered_with_what_there_is(arguments: tuple[str, ...], message: str) -> None:
    assert message in refusal("kernels", *arguments)


def test_a_kernel_that_a_plan_has_not_is_refused(model: Path) -> None:
    assert refusal("kernels", "source", model, "--kernel", "9") == "--kernel 9: the plan has 2 kernels, the last is 1"


def test_products_that_share_a_launch_share_a_text(tmp_path: Path) -> None:
    weights = [np.random.default_rng(n).standard_normal((24, n)).astype(np.float32) for n in (8, 20)]

    def towers(x: Any, y: Any) -> Any:
        return eqsat.relu(x @ weights[0]), eqsat.tanh(y @ weights[1])

    eqsat.to_onnx(eqsat.trace(towers, eqsat.spec((32, 24)), eqsat.spec((16, 24))), tmp_path / "towers.onnx")
    (text,) = document("kernels", "source", tmp_path / "towers.onnx")["texts"]
    assert text["kernels"] == [0, 1]
    for number in ("0", "1"):
        assert printed("kernels", "source", tmp_path / "towers.onnx", "--kernel", number) == text["source"]
