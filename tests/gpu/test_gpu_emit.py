"""Emitted folders: complete, strict JSON, run by a launcher that reads only the manifest, compiled as in the README."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import eqsat
from eqsat.errors import InputError
from eqsat.extract.device.table import DEVICES
from eqsat.gpu import simt
from eqsat.gpu.build.compilers import amd_compiler
from eqsat.gpu.build.nvrtc import nvidia_code
from eqsat.gpu.emit import emit, manifest, readme
from eqsat.gpu.families.base import Choice
from eqsat.gpu.launch.lower import lower
from eqsat.gpu.table.targets import TARGETS
from eqsat.language.rule import Policy
from eqsat.program import ops
from eqsat.program.core import make
from eqsat.program.ir import Program
from support.gpu_programs import PROGRAMS, assert_program_results, inputs_of, one_kernel_each, opaque_program, plan_of

GPUS = tuple(name for name in DEVICES if name != "cpu")


def maxima(x: Any, w: Any) -> Any:
    """The maximum over a product's rows: several blocks share a row, and start from minus infinity."""
    return eqsat.relu(x @ w).max(axis=1)


WEIGHTS = np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32)
EMITTED = {
    **PROGRAMS,
    "maxima": eqsat.trace(maxima, eqsat.spec((20, 16)), eqsat.spec((16, 400))),
    "constants": eqsat.trace(lambda x: x @ (WEIGHTS * 2.0), eqsat.spec((4, 12))),
    "bfloat16": eqsat.trace(lambda x: x @ WEIGHTS.astype(ml_dtypes.bfloat16), eqsat.spec((4, 12), "bfloat16")),
}


# An outside launcher: it knows docs/json.md and nothing of the package but the checker, which is its GPU.


def launch(folder: Path, inputs: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Run the steps of a manifest; the outputs by name, flat."""
    manifest = json.loads((folder / "manifest.json").read_text(), parse_constant=refuse)
    constants = np.load(folder / "constants.npz")
    memory = {}
    arena = poisoned(manifest["memory"]["arena"])
    for name, buffer in manifest["buffers"].items():
        dtype = element_type(buffer["dtype"])
        size = int(np.prod(buffer["shape"], dtype=int)) * dtype.itemsize
        match buffer["kind"]:
            case "input":
                raw = np.ascontiguousarray(inputs[name]).reshape(-1).view(np.uint8)
            case "constant":
                raw = constants[name].reshape(-1).view(np.uint8)
            case "temporary":
                raw = arena[buffer["arena_offset"] : buffer["arena_offset"] + size]
            case _:
                raw = poisoned(size)
        assert raw.size == size
        memory[name] = raw.view(dtype)
    for step in manifest["steps"]:
        if "fill" in step:
            memory[step["fill"]].fill(step["value"])
            continue
        arguments = tuple(simt.Argument(memory[a["buffer"]], a["offset"]) for a in step["args"])
        assert step["grid"][1:] == step["block"][1:] == [1, 1]
        call = simt.Call(step["kernel"], step["grid"][0], step["block"][0], arguments)
        simt.run((folder / step["source"]).read_text(), TARGETS[manifest["arch"]], [call])
    return {b["name"]: memory[name] for name, b in manifest["buffers"].items() if b["kind"] == "output"}


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def poisoned(size: int) -> np.ndarray[Any, Any]:
    return np.full(size, 0xFF, np.uint8)


def element_type(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def emitted(name: str, device: str, folder: Path) -> tuple[Program, dict[str, Any]]:
    program = EMITTED[name]
    return program, emit(plan_of(program, device), device, folder, program)


@pytest.mark.parametrize("device", ["mi300x", "rx9070xt", "h100"])
@pytest.mark.parametrize("name", EMITTED)
def test_a_folder_runs_from_its_manifest_alone(name: str, device: str, tmp_path: Path) -> None:
    program, manifest = emitted(name, device, tmp_path)
    assert manifest == json.loads((tmp_path / "manifest.json").read_text())
    inputs = inputs_of(program)
    got = launch(tmp_path, inputs)
    assert_program_results([got[name] for name in program.outputs], program, inputs)


@pytest.mark.parametrize("device", GPUS)
def test_sources_compile_as_the_readme_says(device: str, tmp_path: Path) -> None:
    _, manifest = emitted("maxima", device, tmp_path)
    readme = (tmp_path / "README.md").read_text()
    source = next(step["source"] for step in manifest["steps"] if step["family"] == "contraction+reduction")
    if manifest["arch"].startswith("sm_"):
        assert f"--gpu-architecture={manifest['arch']}" in readme
        assert nvidia_code((tmp_path / source).read_text(), TARGETS[manifest["arch"]]).ptx
        return
    (line,) = [line.strip() for line in readme.splitlines() if "--offload-arch" in line]
    compiler, *flags = line.split()
    assert compiler == "clang-19"
    flags = [{"KERNEL.hip": source, "KERNEL.hsaco": "out.s"}.get(f, f) for f in flags]
    command = [*amd_compiler(manifest["arch"]).command, *flags, "-S"]  # assembly, so that no linker is needed
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ".amdgpu_metadata" in (tmp_path / "out.s").read_text()


def test_starting_values_that_json_cannot_write_are_launches(tmp_path: Path) -> None:
    _, manifest = emitted("maxima", "mi300x", tmp_path)
    assert "Infinity" not in (tmp_path / "manifest.json").read_text()
    start, reduction = manifest["steps"]
    assert (start["family"], start["args"]) == ("pointwise", [reduction["args"][-1]])


@pytest.mark.parametrize("numerics", ["exact", "reassociate"])
def test_exact_results_are_emitted_without_atomics(numerics: Policy, tmp_path: Path) -> None:
    program = eqsat.trace(lambda x, w: eqsat.relu(x @ w).sum(axis=1), eqsat.spec((64, 48)), eqsat.spec((48, 400)))
    best = eqsat.optimize(program, numerics=numerics, measure=False)
    _ = emit(best.plan, "mi300x", tmp_path, best.program)
    texts = [path.read_text() for path in tmp_path.glob("*.hip")]
    assert any("eq_atomic" in text for text in texts) == (numerics == "reassociate")


def test_a_manifest_says_all_that_a_launcher_needs(tmp_path: Path) -> None:
    _, manifest = emitted("mlp", "mi300x", tmp_path)
    assert (manifest["schema"], manifest["device"], manifest["arch"]) == (1, "mi300x", "gfx942")
    assert (manifest["wave"], manifest["defines"]) == (64, [])
    assert manifest["buffers"]["x"] == {"shape": [10, 12], "dtype": "float32", "kind": "input"}
    assert manifest["buffers"]["hidden"] == {"shape": [20, 10], "dtype": "float32", "kind": "output", "name": "hidden"}
    for step in manifest["steps"]:
        text = (tmp_path / step["source"]).read_text()
        assert f"EQ_KERNEL({step['block'][0]}) {step['kernel']}(" in text
        assert '#include "prelude.h"' in text
        assert set(step) == {"kernel", "source", "family", "grid", "block", "shared_bytes", "args"}
        assert all(argument["buffer"] in manifest["buffers"] for argument in step["args"])
    readme = (tmp_path / "README.md").read_text()
    assert "--offload-arch=gfx942" in readme
    assert "`hidden`: output, float32[20, 10]" in readme


def test_a_manifest_gives_the_lds_that_a_launch_needs() -> None:
    product = make(
        "MM", (1, 96, 72, 136), (make("In", ("x", 96 * 72, "float16")), make("In", ("w", 72 * 136, "float16")))
    )
    plan = one_kernel_each(("kernel", product), roots=(product,))
    choices = {kernel.body: Choice(tile="matrix_wgmma_64x64x64") for kernel in plan.kernels}
    launches = lower(plan, "h100", choices=choices)
    (step,) = manifest(launches, ".cu")["steps"]
    assert step["shared_bytes"] == 64 << 10
    assert "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES" in readme(launches, ".cu")
    assert "CU_FUNC_ATTRIBUTE" not in readme(lower(plan, "h100"), ".cu")


def test_every_output_is_named_though_buffers_of_others_have_its_name(tmp_path: Path) -> None:
    x = ops.input("x", (3,), "float32")
    named = {
        "x": ops.exp(x),
        "x_1": ops.sin(x),
        "t0": x,
        "c0": ops.constant(np.arange(3.0)),
        "yes": ops.full(True, (2,)),
    }
    program = Program((x,), named)
    manifest = emit(plan_of(program), "mi300x", tmp_path, program)
    assert [step["value"] for step in manifest["steps"] if "fill" in step] == [1]
    inputs = inputs_of(program)
    got = launch(tmp_path, inputs)
    assert_program_results([got[name] for name in named], program, inputs)
    assert "`x_2`: output `x`, float32[3]" in (tmp_path / "README.md").read_text()


def test_a_program_that_is_not_the_plans_is_refused(tmp_path: Path) -> None:
    for other in ("statistics", "towers"):
        with pytest.raises(InputError, match="the plan is of another program"):
            emit(plan_of(PROGRAMS["mlp"]), "mi300x", tmp_path, PROGRAMS[other])


def test_memory_is_counted(tmp_path: Path) -> None:
    _, manifest = emitted("mlp", "mi300x", tmp_path)
    memory = manifest["memory"]
    assert memory["inputs"] == 4 * (10 * 12 + 12 * 20 + 20 + 20 * 7)
    assert memory["outputs"] == 4 * (10 * 7 + 10 * 20)
    assert memory["peak"] == sum(memory[part] for part in ("inputs", "constants", "outputs", "arena"))
    assert f"takes {memory['peak']} bytes at once" in (tmp_path / "README.md").read_text()


def test_constants_are_emitted_folded(tmp_path: Path) -> None:
    _, manifest = emitted("constants", "mi300x", tmp_path)
    (name,) = [n for n, b in manifest["buffers"].items() if b["kind"] == "constant"]
    np.testing.assert_array_equal(np.load(tmp_path / "constants.npz")[name].reshape(12, 5), WEIGHTS * 2)


def test_bfloat16_constants_are_their_bits(tmp_path: Path) -> None:
    _, manifest = emitted("bfloat16", "mi300x", tmp_path)
    ((name, buffer),) = [(n, b) for n, b in manifest["buffers"].items() if b["kind"] == "constant"]
    bits = np.load(tmp_path / "constants.npz")[name]
    assert (bits.dtype, buffer["dtype"]) == (np.uint16, "bfloat16")
    np.testing.assert_array_equal(bits.view(ml_dtypes.bfloat16).reshape(12, 5), WEIGHTS.astype(ml_dtypes.bfloat16))


def test_opaque_operators_cannot_be_emitted(tmp_path: Path) -> None:
    program = opaque_program()
    with pytest.raises(InputError, match="operator Split is opaque: it has no kernel to emit"):
        emit(plan_of(program), "mi300x", tmp_path, program)
