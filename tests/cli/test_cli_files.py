"""The files that commands write: complete or not at all, named in errors, and never one of the input files."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest

from support.cli import chain, eqsat, printed, refusal


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(chain(), path)
    np.savez(tmp_path / "x.npz", x=np.ones((2, 3), np.float32))
    return path


@contextmanager
def full_disk(largest: int) -> Iterator[None]:
    """No file may grow beyond `largest` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


COMMANDS = {
    "optimize -o": ("optimize", "{model}", "-o", "{out}"),
    "optimize --html": ("optimize", "{model}", "--html", "{out}"),
    "optimize --json": ("optimize", "{model}", "--json", "{out}"),
    "explain --html": ("explain", "{model}", "--html", "{out}"),
    "run -o": ("run", "{model}", "-o", "{out}"),
    "run --json": ("run", "{model}", "--json", "{out}"),
    "emit --json": ("emit", "{model}", "-o", "{folder}/kernels", "--json", "{out}"),
    "prove --json": ("prove", "{model}", "{model}", "--json", "{out}"),
    "explore --dot": ("explore", "a + b", "--let", "a=f32[4]", "--let", "b=f32[4]", "--dot", "{out}"),
    "kernels -o": ("kernels", "source", "pointwise", "--output", "{out}"),
}


_SUITE = ("bench", "--suite", "quick", "--on", "checker", "--minutes", "0")


READS = {
    "optimize": ("optimize", "{out}"),
    "optimize --device": ("optimize", "{model}", "--device", "{out}.json"),
    "prove": ("prove", "{model}", "{out}"),
    "verify": ("verify", "{model}", "{model}", "{out}"),
    "run --inputs": ("run", "{model}", "--inputs", "{out}"),
    "extract": ("extract", "{out}"),
    "sweep": ("sweep", "{out}", "-o", "{folder}/sweep"),
    "sweep --against": ("sweep", "{model}", "-o", "{folder}/sweep", "--against", "{out}.folder"),
    "fuzz": ("fuzz", "{out}", "--kind", "mutants", "--minutes", "0.1"),
    "calibrate --from": ("calibrate", "--from", "{out}.folder"),
    "suite": (*_SUITE, "--models", "{out}.models", "-o", "{folder}/kept"),
}


@pytest.mark.parametrize("command", READS.values(), ids=READS)
def test_a_pipe_that_nobody_writes_to_is_refused(model: Path, command: tuple[str, ...]) -> None:
    out = model.parent / "pipe"
    os.mkfifo(out)
    os.mkfifo(f"{out}.json")
    folder = model.parent / "pipe.folder"
    folder.mkdir()
    for name in ("sweep.json", "report.json"):
        os.mkfifo(folder / name)
    models = model.parent / "pipe.models"
    models.mkdir()
    os.mkfifo(models / "a.onnx")
    assert "is a pipe or a device; give" in refusal(*filled(command, model, out))


def filled(command: tuple[str, ...], model: Path, out: Path) -> list[str]:
    return [part.format(model=model, out=out, folder=model.parent) for part in command]


WRITES = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


@WRITES
def test_a_missing_folder_is_said_before_any_work(model: Path, command: tuple[str, ...]) -> None:
    out = model.parent / "missing" / "out"
    line = refusal(*filled(command, model, out))
    assert line == f"{out}: cannot be written (no such folder); choose another path"


LONG = {
    "sweep": ("sweep", "{model}", "-o", "{folder}/kept"),
    "fuzz": ("fuzz", "{model}", "--kind", "mutants", "--minutes", "0", "-o", "{folder}/kept"),
    "suite": (*_SUITE, "--models", "{folder}", "-o", "{folder}/kept"),
    "discover": ("rules", "discover", "--minutes", "0", "-o", "{folder}/kept"),
}
"""Commands that keep results in a folder."""


@pytest.mark.parametrize("command", [*LONG.values(), ("demo",), ("rules", "check"), ("calibrate",)])
def test_a_document_without_a_place_is_refused_before_any_work(model: Path, command: tuple[str, ...]) -> None:
    out = model.parent / "missing" / "out"
    assert refusal(*filled(command, model, out), "--json", out).startswith(f"{out}: cannot be written (no such folder)")
    assert not (model.parent / "kept").exists()


@pytest.mark.parametrize("command", LONG.values(), ids=LONG)
def test_a_document_takes_the_place_of_no_result(model: Path, command: tuple[str, ...]) -> None:
    out = model.parent / "kept" / "results.sqlite"
    out.parent.mkdir()
    line = refusal(*filled(command, model, out), "--json", out)
    assert line == f"--json {out} is also the file of results.sqlite in --output; choose another file"


@pytest.mark.parametrize("name", ["sweep", "fuzz", "suite"])
def test_a_document_overwrites_no_model(model: Path, name: str) -> None:
    before = model.read_bytes()
    link = model.parent / "link"
    os.link(model, link)
    line = refusal(*filled(LONG[name], model, link), "--json", link)
    assert line == f"--json {link} would overwrite a file of {model}, {model.name!r}; choose another file"
    assert model.read_bytes() == before


def test_a_document_overwrites_no_fault(model: Path) -> None:
    fault = model.parent / "programs-1.json"
    fault.write_text("{}")
    line = refusal("fuzz", "--again", fault, "--json", fault)
    assert line == f"--json {fault} would overwrite --again; choose another file"


def test_a_file_in_the_place_of_a_folder_is_named(model: Path) -> None:
    line = refusal("fuzz", "--kind", "mutants", "--minutes", "0", "-o", model)
    assert line == f"{model}: cannot be written (File exists); choose another path"


@WRITES
def test_a_folder_in_the_place_of_a_file_is_named(model: Path, command: tuple[str, ...]) -> None:
    out = model.parent / "out"
    out.mkdir()
    line = refusal(*filled(command, model, out))
    assert line == f"{out}: cannot be written (Is a directory); choose another path"


SLASHED = {
    "prove --counterexample": ("prove", "{model}", "{model}", "--counterexample", "{out}"),
    "prove --certificate": ("prove", "{model}", "{model}", "--certificate", "{out}"),
    "explore --egraph": ("explore", "a + b", "--let", "a=f32[4]", "--let", "b=f32[4]", "--egraph", "{out}"),
    "calibrate -o": ("calibrate", "-o", "{out}"),
}


@pytest.mark.parametrize("command", [*COMMANDS.values(), *SLASHED.values()], ids=[*COMMANDS, *SLASHED])
def test_the_name_of_a_folder_is_not_that_of_a_file(model: Path, command: tuple[str, ...]) -> None:
    out = model.parent / "out"
    line = refusal(*(part.format(model=model, out=f"{out}/", folder=model.parent) for part in command))
    assert line == f"{out}/: cannot be written (Is a directory); choose another path"
    assert not out.exists()


@WRITES
def test_a_full_disk_leaves_what_was_there(model: Path, command: tuple[str, ...]) -> None:
    out = model.parent / "out"
    out.write_text("old")
    with full_disk(20):
        line = refusal(*filled(command, model, out)) if "emit" not in command else ""
    assert not line or line == f"{out}: cannot be written (File too large); choose another path"
    assert out.read_text() == "old"


def test_a_full_disk_leaves_no_half_of_a_folder(model: Path) -> None:
    before = sorted(os.listdir(model.parent))
    with full_disk(1000):
        line = refusal("emit", model, "-o", model.parent / "kernels")
    assert line == f"{model.parent}/kernels: cannot be written (File too large); choose another path"
    assert sorted(os.listdir(model.parent)) == before


@pytest.mark.parametrize(
    "command",
    [
        ("optimize", "{model}", "-o", "{model}"),
        ("optimize", "{model}", "--json", "{hard}"),
        ("optimize", "{model}", "--html", "{soft}"),
        ("optimize", "{model}", "--json", "{new}", "--html", "{new}"),
        ("optimize", "{model}", "-o", "{model}2", "--json", "{model}2"),
        ("optimize", "{model}", "--inputs", "{x}", "--json", "{x}"),
        ("optimize", "{model}", "-o", "{plan}.onnx", "--top", "2", "--json", "{plan}.2.onnx"),
        ("optimize", "{bucket}", "--shape", "rows=1..64", "--buckets", "-o", "{folder}/b.onnx"),
        ("optimize", "{bucket}", "--shape", "rows=1..64", "--buckets", "--html", "{folder}/b.onnx"),
        ("optimize", "{bucket}", "--shape", "rows=1..64", "--buckets", "-o", "{plan}", "--json", "{plan}.rows9-64"),
        ("run", "{model}", "-o", "{soft}"),
        ("run", "{model}", "--inputs", "{x}", "-o", "{x}"),
        ("prove", "{model}", "{model}", "--counterexample", "{model}"),
        ("emit", "{model}", "-o", "{folder}/k", "--json", "{hard}"),
        ("explain", "{model}", "--json", "{model}"),
        ("bench", "{model}", "--json", "{model}"),
    ],
)
def test_one_file_is_not_read_and_written(model: Path, command: tuple[str, ...]) -> None:
    folder = model.parent
    bucket = folder / "b.rows1-8.onnx"
    onnx.save(chain("rows"), bucket)
    (folder / "hard").hardlink_to(model)
    (folder / "soft").symlink_to(model)
    paths = {name: folder / name for name in ("hard", "soft", "new", "plan")} | {"model": model, "folder": folder}
    held = model.read_bytes(), bucket.read_bytes()
    line = refusal(*[part.format(x=folder / "x.npz", bucket=bucket, **paths) for part in command])
    assert "would overwrite" in line or "is also the file of" in line
    assert (model.read_bytes(), bucket.read_bytes()) == held


@pytest.mark.parametrize(
    "command",
    [
        ("optimize", "{model}", "-o", "{data}"),
        ("optimize", "{model}", "--html", "{data}"),
        ("optimize", "{model}", "-o", "{folder}/w.onnx", "--top", "2"),
        ("run", "{model}", "--json", "{data}"),
        ("prove", "{plain}", "{model}", "--counterexample", "{data}"),
        ("explain", "{model}", "--html", "{data}"),
        ("bench", "{model}", "--json", "{data}"),
        ("emit", "{model}", "-o", "{folder}/kernels", "--json", "{data}"),
        ("emit", "{constants}", "-o", "{folder}"),
        ("kernels", "source", "{model}", "--kernel", "0", "--output", "{data}"),
    ],
)
def test_the_external_data_of_a_model_is_not_written_over(model: Path, command: tuple[str, ...]) -> None:
    folder = model.parent
    paths = {"plain": model, "model": folder / "a.onnx", "constants": folder / "b.onnx", "data": folder / "w.2.onnx"}
    for name, location in (("model", "w.2.onnx"), ("constants", "constants.npz")):
        onnx.save(chain(), paths[name], save_as_external_data=True, location=location, size_threshold=0)
    held = [(folder / name).read_bytes() for name in ("w.2.onnx", "constants.npz")]
    line = refusal(*[part.format(folder=folder, **paths) for part in command])
    assert "would overwrite the data of" in line
    assert [(folder / name).read_bytes() for name in ("w.2.onnx", "constants.npz")] == held


@pytest.mark.parametrize("kept", ["kernel.hip", "prelude.h", "constants.npz", "warpgroups.h"])
def test_kernels_are_not_written_over_what_was_read(model: Path, kept: str) -> None:
    folder, plain = model.parent / "kernels", model.parent / "plain"
    assert eqsat("emit", model, "-o", plain, "--as-written").exit_code == 0
    name = next(path.name for path in plain.glob("*.hip")) if kept == "kernel.hip" else kept
    folder.mkdir()
    (folder / name).hardlink_to(model)
    before = model.read_bytes()
    for read in (model, folder / name):
        assert f"{name} in --output" in refusal("emit", read, "-o", folder, "--as-written")
    onnx.save(chain(), folder / "b.onnx", save_as_external_data=True, location=f"{name}2", size_threshold=0)
    (folder / f"{name}2").rename(folder / name)
    held = onnx.load(folder / "b.onnx", load_external_data=False)
    for tensor in held.graph.initializer:
        tensor.external_data[0].value = name
    onnx.save(held, folder / "b.onnx")
    data = (folder / name).read_bytes()
    assert "would overwrite the data of" in refusal("emit", folder / "b.onnx", "-o", folder, "--as-written")
    assert (model.read_bytes(), (folder / name).read_bytes()) == (before, data)
    (folder / name).unlink()
    said = refusal("emit", model, "-o", folder, "--as-written", "--json", folder / name)
    assert said.endswith("choose another file")
    assert not list(folder.glob("*.hip"))


@pytest.mark.parametrize(
    "command",
    [
        ("optimize", "{model}", "-o", "{folder}/out.onnx"),
        ("optimize", "{model}", "-o", "{folder}/out", "--top", "2"),
        ("optimize", "{model}", "--json", "{device}", "--device", "{device}"),
        ("explain", "{model}", "--html", "{device}", "--device", "{device}"),
        ("run", "{model}", "--json", "{device}", "--device", "{device}"),
        ("emit", "{model}", "-o", "{folder}/kernels", "--json", "{device}", "--device", "{device}"),
        ("kernels", "source", "pointwise", "-o", "{device}", "--device", "{device}"),
        ("bench", "{model}", "--json", "{device}", "--device", "{device}"),
        ("demo", "--json", "{device}", "--device", "{device}"),
        ("demo", "towers", "--save", "{folder}", "--json", "{folder}/towers-optimised.onnx"),
        ("explore", "a + a", "--let", "a=f32[4]", "--json", "{device}", "--device", "{device}"),
        ("sweep", "{model}", "-o", "{folder}/s", "--devices", "{device}", "--json", "{device}"),
        ("sweep", "{model}", "-o", "{folder}/s", "--against", "{folder}", "--json", "{folder}/sweep.json"),
        ("rules", "check", "--rules", "{device}", "--json", "{device}"),
        ("calibrate", "--from", "{folder}", "--json", "{folder}/report.json"),
        ("calibrate", "--report", "{folder}", "--json", "{model}"),
    ],
)
def test_all_files_that_are_read_are_kept(model: Path, command: tuple[str, ...]) -> None:
    folder = model.parent
    device = folder / "mine.json"
    device.write_text('{"schema": 1, "base": "mi300x", "figures": {}}')
    (folder / "sweep.json").write_text('{"rows": []}')
    (folder / "report.json").write_text("{}")
    location = "out.2.data" if "--top" in command else "out.onnx.data"
    onnx.save(chain(), model, save_as_external_data=True, location=location, size_threshold=0)
    held = {path: path.read_bytes() for path in folder.iterdir()}
    line = refusal(*[part.format(model=model, folder=folder, device=device) for part in command])
    assert "would overwrite" in line or "is also the file of" in line
    assert {path: path.read_bytes() for path in held} == held


def test_outputs_may_go_to_a_device_or_through_a_link(model: Path) -> None:
    printed("optimize", model, "--html", "/dev/null", "--json", "/dev/null")
    target, link = model.parent / "target", model.parent / "link"
    link.symlink_to(target)
    printed("run", model, "--json", link)
    assert link.is_symlink()
    assert target.read_text().startswith("{")


def test_a_model_that_goes_to_a_pipe_is_not_read_again(model: Path) -> None:
    pipe, command = model.parent / "pipe", [sys.executable, "-m", "eqsat", "optimize", model, "-o"]
    os.mkfifo(pipe)
    with subprocess.Popen([*command, pipe], stdout=subprocess.PIPE, text=True) as process:
        try:
            onnx.load_from_string(pipe.read_bytes())
            told, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "WARNING" not in told + printed("optimize", model, "-o", os.devnull)


def test_an_output_that_cannot_be_read_again_gets_no_certificate(model: Path) -> None:
    certificate = model.parent / "c.proof"
    line = refusal("optimize", model, "-o", os.devnull, "--certificate", certificate)
    assert line == "--certificate: a pipe or a device is not read again; give --output a file, not /dev/null"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("optimize {model}", "--output"),
        ("optimize {model}", "--html"),
        ("explain {model}", "--html"),
        ("run {model}", "--output"),
        ("prove {model} {model}", "--certificate"),
    ],
)
def test_stdout_is_for_the_report(model: Path, command: str, option: str) -> None:
    said = refusal(*command.format(model=model).split(), option, "-")
    assert said == f"{option} -: stdout is for the report; give a file"


def test_empty_paths_are_refused(model: Path) -> None:
    assert refusal("optimize", model, "--json", "") == "--json: the path is empty; give a file"
    result = eqsat("emit", model, "-o", "")
    assert result.exit_code == 2
    assert "the path is empty" in result.stderr


def test_a_file_in_the_folder_of_kernels_is_named_by_its_option(model: Path) -> None:
    folder = model.parent / "kernels"
    assert eqsat("emit", model, "-o", folder).exit_code == 0
    assert eqsat("emit", model, "-o", folder).exit_code == 0
    json_file = folder / "manifest.json"
    said = f"--json {json_file} is also the file of manifest.json in --output; choose another file"
    assert refusal("emit", model, "-o", folder, "--json", json_file) == said
    (folder / "README.md").write_text("mine")
    assert "would be overwritten" in refusal("emit", model, "-o", folder)
    assert (folder / "README.md").read_text() == "mine"


def test_an_operator_without_a_kernel_is_named_with_its_file(model: Path) -> None:
    carried = onnx.load(model)
    carried.graph.node.add(op_type="Acos", input=[carried.graph.output[0].name], output=["angle"])
    carried.graph.output[0].name = "angle"
    onnx.save(carried, model)
    said = f"{model}: no kernel computes Acos (angle); replace it in the model"
    assert refusal("emit", model, "-o", model.parent / "kernels") == said
    ran = subprocess.run([sys.executable, "-m", "eqsat", "run", model], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_certificate_is_no_place_for_json(model: Path) -> None:
    certificate = model.parent / "c.proof"
    certificate.write_text("text")
    said = f"--json {certificate} would overwrite the certificate; choose another file"
    assert refusal("verify", model, model, certificate, "--json", certificate) == said


@pytest.mark.parametrize("place", [".", "/", "", os.devnull])
def test_several_files_are_named_after_a_file_only(model: Path, place: str) -> None:
    onnx.save(chain("rows"), model.parent / "dynamic.onnx")
    said = f"{Path(place)}: several files are named after it; give a file"
    assert refusal("optimize", model, "-o", place, "--top", "2") == f"--output {said}"
    buckets = ("optimize", model.parent / "dynamic.onnx", "--shape", "rows=1..64", "--buckets")
    assert refusal(*buckets, "-o", place).endswith(
        "Is a directory); choose another path" if place != os.devnull else said
    )
    assert (
        refusal(*buckets, "--html", os.devnull) == f"--html {os.devnull}: several files are named after it; give a file"
    )


def test_there_is_a_most_number_of_plans(model: Path) -> None:
    assert eqsat("optimize", model, "--top", "1001").exit_code == 2


@pytest.mark.parametrize(
    "line",
    [
        "$E prove <(cat $M) <(cat $M)",
        "cat $M | $E optimize /dev/stdin -o $F/out.onnx --time-limit 0 && $E prove $F/out.onnx $M",
        "cat $M | $E optimize /dev/stdin -o $F/out.onnx | grep 'on the file read and the file written'",
        "cat $F/dynamic.onnx | $E optimize /dev/stdin -o $F/out.onnx --shape rows=1..4",
        "$E optimize $M -o $F/out.onnx --certificate $F/c && $E verify <(cat $M) <(cat $F/out.onnx) <(cat $F/c)",
        "$E run <(cat $M) --inputs <(cat $F/x.npz)",
        "cat $M | $E bench /dev/stdin --rounds 1 --time-limit 0",
    ],
)
def test_models_come_through_pipes(model: Path, line: str) -> None:
    onnx.save(chain("rows"), model.parent / "dynamic.onnx")
    given = {**os.environ, "E": f"{sys.executable} -m eqsat", "M": str(model), "F": str(model.parent)}
    ran = subprocess.run(["bash", "-c", line], env=given, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("command", ["sweep /dev/stdin -o $F/sweep", "fuzz /dev/stdin --kind mutants --minutes 0"])
@pytest.mark.parametrize("source", ["cat $M |", "< $M"])
def test_what_other_processes_read_is_a_file_with_a_name(model: Path, command: str, source: str) -> None:
    given = {**os.environ, "M": str(model), "F": str(model.parent)}
    line = f"{source} {sys.executable} -m eqsat {command}"
    ran = subprocess.run(["bash", "-c", line], env=given, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr.count("\n")) == (3, 1)
    assert "/dev/stdin: is a pipe or a device" in ran.stderr
