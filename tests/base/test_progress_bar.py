"""Progress bars show in terminals, with safe text, and nowhere else."""

from __future__ import annotations

import io

import pytest

from eqsat.base.progress_bar import progress_bar


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "shows"), [(_Terminal(), True), (io.StringIO(), False)])
def test_a_bar_shows_in_a_terminal(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, shows: bool) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", stream)
    with progress_bar("reading") as bar:
        bar("a\x07b", 0.5)
    assert ("reading: a\\x07b" in stream.getvalue()) == shows
    assert bool(stream.getvalue()) == shows
