"""The disk cache of compiled kernels: damaged entries are built again, and kernels compile without the folder."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from eqsat.errors import InputError
from eqsat.extract.device import files as device_files
from eqsat.extract.plan.plan import Kernel
from eqsat.gpu.build.compilers import failed
from eqsat.gpu.code import cache
from eqsat.gpu.families.base import Choice
from eqsat.gpu.run.choices import Chooser, Record
from eqsat.gpu.table.targets import TARGETS
from eqsat.program.core import make


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Builder:
    """Writes a text and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, out: Path) -> None:
        self.times += 1
        out.write_text("kernel")


@pytest.mark.parametrize("damage", [b"", b"ker", b"another", None], ids=["empty", "cut", "foreign", "whole"])
def test_a_damaged_file_is_built_again(damage: bytes | None) -> None:
    build = Builder()
    path = cache.cached("kind", "key", ".so", build)
    if damage is not None:
        path.write_bytes(damage)
    assert cache.cached("kind", "key", ".so", build).read_text() == "kernel"
    assert build.times == (1 if damage is None else 2)


def _special(path: Path, kind: str) -> None:
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
def test_nothing_but_a_file_is_read(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with tempfile.TemporaryDirectory() as short:  # the names of sockets are limited
        monkeypatch.setenv("EQSAT_CACHE_DIR", short)
        build = Builder()
        path = cache.cached("k", "key", ".so", build)
        path.unlink()
        _special(path, kind)
        assert cache.cached("k", "key", ".so", build).read_text() == "kernel"
        assert build.times == 2
        cache.keep_text("t", "a", "text").unlink()
        _special(Path(short, "t", "a"), kind)
        assert cache.kept_text("t", "a") is None
        assert cache.keep_text("t", "a", "other").read_text() == "other"
        assert cache.kept_text("t", "a") == "other"


def test_a_full_disk_of_the_cache_spoils_no_kernel(home: Path) -> None:
    build = Builder()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = cache._put

    def put(path: Path, content: bytes, mode: int | None) -> Path:
        if path.is_relative_to(home):
            resource.setrlimit(resource.RLIMIT_FSIZE, (3, hard))
        try:
            return kept(path, content, mode)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cache, "_put", put)
        path = cache.cached("kind", "full", ".so", build)
    assert path.read_text() == "kernel"
    assert not path.is_relative_to(home)
    assert cache.cached("kind", "full", ".so", build) == path
    assert not list((home / "kind").iterdir())


def test_a_full_disk_of_temporary_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InputError, match="no room to compile a kernel"):
        cache.cached("kind", "no room", ".so", full)
    monkeypatch.setattr(cache, "_put", lambda path, content, mode: full(path))
    with pytest.raises(InputError, match="no room to compile a kernel"):
        cache.cached("kind", "no room", ".so", Builder())


def test_a_compiler_without_room_is_quoted() -> None:
    said = str(failed("text", ".cpp", "ld: final link failed: No space left on device\ncollect2: error: ld returned 1"))
    assert said.startswith("a kernel does not compile: ld: final link failed: No space left on device (source ")


def test_a_kernel_is_not_built_in_the_cache(home: Path) -> None:
    built: list[Path] = []

    def build(out: Path) -> None:
        built.append(out)
        out.write_text("kernel")

    assert cache.cached("kind", "key", ".so", build).is_relative_to(home)
    assert not built[0].is_relative_to(home)


def test_a_folder_that_cannot_be_written_is_done_without(home: Path) -> None:
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file where the folder should be")
    build = Builder()
    for _ in range(2):
        path = cache.cached("kind", "read-only", ".so", build)
        assert path.read_text() == "kernel"
    assert build.times == 1
    assert home.read_text() == "a file where the folder should be"
    cache.keep_text("tuned", "a.json", "text")
    assert cache.kept_text("tuned", "a.json") == "text"


def test_no_folder_is_made_that_nothing_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is stopped would leave it behind."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(cache.tempfile, "tempdir", str(scratch))
    cache._without_cache.cache_clear()
    cache.cached("kind", "key", ".so", Builder())
    assert cache.kept_text("tuned", "none.json") is None
    assert not list(scratch.iterdir())


def test_several_builders_of_one_file_agree() -> None:
    build, paths = Builder(), []
    threads = [threading.Thread(target=lambda: paths.append(cache.cached("k", "many", ".s", build))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 8
    assert {path.read_text() for path in paths} == {"kernel"}


def test_what_a_builder_raises_is_raised() -> None:
    def fail(out: Path) -> None:
        raise FileNotFoundError("no compiler")

    with pytest.raises(FileNotFoundError, match="no compiler"):
        cache.cached("kind", "failing", ".so", fail)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"record": 3}', '{"record": {"choice": {"no": 1}}}', "[" * 100_000])
def test_a_damaged_tuning_record_counts_as_none(home: Path, text: str) -> None:
    x = make("In", ("x", 64, "float32"))
    out = make("Un", ("exp",), [x])
    kernel = Kernel("kernel", "pointwise", (out,), (x,), (x,), (out,), 64, 512, 1.0)
    chooser = Chooser("machine", TARGETS["gfx942"], 304)
    chooser.remember(kernel, Record(Choice(), 1.0, 2.0, 3))
    assert chooser.record(kernel) == Record(Choice(), 1.0, 2.0, 3)
    (file,) = (home / "tuned").iterdir()
    file.write_text(text)
    assert chooser.record(kernel) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, json.dumps({"schema": 1, "base": "mi300x"})])
def test_a_damaged_device_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "device.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"device\.json: not? "):
        device_files.read(file)
    with pytest.raises(InputError, match="is a folder"):
        device_files.read(tmp_path)
