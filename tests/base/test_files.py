"""Files are written whole or not at all; if writing fails, the previous file stays."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from eqsat.base import files
from eqsat.errors import InputError


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    files.write_text(target, "one")
    target.chmod(0o640)
    files.write_text(target, "two")
    assert target.read_text() == "two"
    assert target.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    files.write_text(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_an_error_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("old")

    def write_half() -> None:
        with files.replacing(target) as file:
            file.write(b"new")
            raise RuntimeError("half of it")

    with pytest.raises(RuntimeError, match="half"):
        write_half()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(InputError, match=r"a: cannot be written \(File too large\)"):
            files.write_bytes(target, bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing/a", "no such folder"),
        ("folder", "Is a directory"),
        ("new/", "Is a directory"),
        ("file/a", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("a\0b", "a NUL in the name"),
    ],
    ids=["missing", "folder", "slash", "file", "long", "nul"],
)
def test_what_cannot_be_written_is_named(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=said):
        files.write_text(f"{tmp_path}/{name}", "text")


def test_a_pipe_and_a_device_are_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    files.write_bytes(pipe, b"data")
    reader.join(10)
    assert read == [b"data"]
    files.write_bytes("/dev/null", b"data")


@pytest.mark.parametrize("target", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_stdout_goes_on_where_it_was(tmp_path: Path, target: str) -> None:
    code = f"from eqsat.base import files; print('a'); files.write_text({target!r}, 'b\\n'); print('c')"
    out = tmp_path / "out"
    with out.open("w") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert out.read_text() == "a\nb\nc\n"


@pytest.mark.parametrize(("append", "left"), [(0, b"new"), (os.O_APPEND, b"a longer text" + b"new")])
def test_a_descriptor_of_a_file_is_cut_where_writing_ends(tmp_path: Path, append: int, left: bytes) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"a longer text")
    descriptor = os.open(out, os.O_RDWR | append)
    files.write_bytes(f"/dev/fd/{descriptor}", b"new")
    os.close(descriptor)
    assert out.read_bytes() == left


def test_in_a_folder_that_is_gone_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(InputError, match="out: cannot be written"):
        files.check_outputs({}, {"-o": "out"})
    with pytest.raises(InputError, match="in: no such file"):
        files.check_outputs({"the model": "in"}, {"--json": "-"})
    files.check_outputs({}, {"--json": "-"})


def test_a_descriptor_of_an_input_is_no_output(tmp_path: Path) -> None:
    (tmp_path / "in").touch()
    descriptor = os.open(tmp_path / "in", os.O_RDWR)
    for named in ({"in": tmp_path / "in"}, {"in": f"/dev/fd/{descriptor}"}):
        for output in (tmp_path / "in", f"/dev/fd/{descriptor}"):
            with pytest.raises(InputError, match="would overwrite in"):
                files.check_outputs(named, {"-o": output})
    os.close(descriptor)


def test_a_folder_comes_whole_and_keeps_what_was_there(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "manifest").write_text("m")
        (folder / "a").write_text("a")

    def fail(folder: Path) -> None:
        (folder / "a").write_text("half")
        raise OSError(28, os.strerror(28))

    target = tmp_path / "x" / "y"
    with pytest.raises(InputError, match="No space left"):
        files.write_folder(target, fail, "manifest")
    assert os.listdir(tmp_path) == []
    files.write_folder(target, fill, "manifest")
    (target / "own").write_text("kept")
    files.write_folder(target, fill, "manifest")
    with pytest.raises(InputError, match="No space left"):
        files.write_folder(target, fail, "manifest")
    assert sorted(os.listdir(target)) == ["a", "manifest", "own"]
    assert (target / "a").read_text() == "a"
    with pytest.raises(InputError, match="cannot be written"):
        files.write_folder(target / "own", fill, "manifest")


def test_one_file_under_two_names_is_found(tmp_path: Path) -> None:
    source, hard, soft = tmp_path / "in", tmp_path / "hard", tmp_path / "soft"
    source.touch()
    hard.hardlink_to(source)
    soft.symlink_to("in")
    for other in (source, hard, soft, tmp_path / "." / "in"):
        with pytest.raises(InputError, match=r"--json .* would overwrite the model"):
            files.check_outputs({"the model": source}, {"--json": other})
    with pytest.raises(InputError, match=r"--html .* is also the file of --json"):
        files.check_outputs({}, {"--json": tmp_path / "new", "--html": f"{tmp_path}/./new"})
    with pytest.raises(InputError, match="is also"):
        files.check_outputs({}, {"--json": "-", "--html": "/dev/stdout"})
    files.check_outputs({"the model": source}, {"-o": None, "--json": tmp_path / "IN.json", "--html": "/dev/null"})
    files.check_outputs({}, {"-o": "/dev/null", "--html": "/dev/null"})
    with pytest.raises(InputError, match="no such folder"):
        files.check_outputs({}, {"-o": tmp_path / "missing" / "a"})


def test_a_place_for_a_file_is_reserved(tmp_path: Path) -> None:
    with files.replacing(tmp_path / "a") as file:
        file.write(b"a")
        files.reserve(file, 1 << 20)
        assert os.fstat(file.fileno()).st_blocks * 512 >= 1 << 20
        file.write(bytes(1 << 20))
    assert (tmp_path / "a").stat().st_size == 1 + (1 << 20)
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "wb", 0) as pipe:
        files.reserve(pipe, 10)  # has no place on a disk


def test_pipes_and_descriptors_are_written_directly(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not any(map(files.replaces, ("-", "/dev/stdout", "/dev/fd/1", "/dev/null", tmp_path / "pipe", tmp_path)))
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert all(map(files.replaces, (tmp_path / "file", tmp_path / "link", tmp_path / "none")))


def test_a_small_file_takes_little_memory_to_read(tmp_path: Path) -> None:
    """A read takes memory for all that it asks for."""
    file = tmp_path / "small"
    file.write_bytes(b"abc")
    script = f"""
import resource
from pathlib import Path
from eqsat.base.files import read_bytes
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
assert read_bytes(Path({str(file)!r}), 1 << 31, "the file") == b"abc"
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) + 1, 3 << 20])
def test_a_pipe_is_read_in_chunks_up_to_its_limit(size: int) -> None:
    for most in (size, size - 1):
        reading, writing = os.pipe()
        feeder = threading.Thread(target=lambda end=writing: fed(end, bytes(size)))
        feeder.start()
        path = Path(f"/dev/fd/{reading}")
        try:
            if most == size:
                assert files.read_bytes(path, most, "the file") == bytes(size)
            else:
                with pytest.raises(InputError, match="has more than"):
                    files.read_bytes(path, most, "the file")
        finally:
            os.close(reading)
            feeder.join()


def fed(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as pipe:
        pipe.write(data)


def test_a_pipe_that_is_kept_can_be_read_twice(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    feeder = threading.Thread(target=lambda: fed(writing, b"abc" * 100_000))
    feeder.start()
    path = Path(f"/dev/fd/{reading}")
    files.keep_pipe(path)
    feeder.join()
    assert path.is_file()
    assert path.read_bytes() == path.read_bytes() == b"abc" * 100_000
    os.close(reading)
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path, tmp_path / "pipe", tmp_path / "nothing", Path("-"), Path(os.devnull)):
        files.keep_pipe(other)
