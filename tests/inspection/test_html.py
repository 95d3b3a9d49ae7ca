"""The page of a result: its content, that it loads nothing, and its layout in a real browser, wide and narrow."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

import eqsat
from eqsat.extract import cover
from eqsat.extract.device.table import device
from eqsat.inspection.html import Box, Drawing, draw, page
from eqsat.pipeline.result import Result
from eqsat.program.core import lower
from support.programs import weight
from support.towers import towers

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MEASURE = """<script>
document.documentElement.dataset.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
document.documentElement.dataset.arrows = document.querySelectorAll(".drawing path").length;
const first = document.querySelector(".kernel");
first.focus();
document.documentElement.dataset.facts = getComputedStyle(first.querySelector(".facts")).display;
</script></body>"""


def layers(x):
    for _ in range(5):
        x = eqsat.softmax(x @ weight(64, 64) + weight(64))
    return x


@pytest.fixture(scope="module", params=[towers, layers], ids=lambda f: f.__name__)
def result(request: pytest.FixtureRequest) -> Result:
    shape = (16, 192) if request.param is towers else (16, 64)
    return eqsat.optimize(eqsat.trace(request.param, eqsat.spec(shape)), time_limit=10)


class _Outline(HTMLParser):
    """Classes of a page's elements, and what it loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.classes: Counter[str] = Counter()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.classes.update((given.get("class") or "").split())
        self.loads += [str(value) for name, value in attrs if name in ("src", "href") and value != "data:,"]


def outline(text: str) -> _Outline:
    found = _Outline()
    found.feed(text)
    return found


def boxes_of(drawing: Drawing) -> list[Box]:
    return [box for section in drawing.sections for layer in section.layers for box in layer]


def test_the_page_draws_both_sides_and_loads_nothing(result: Result):
    text = page(result)
    found = outline(text)
    core = lower(result.source)
    boxes = [len(boxes_of(draw(plan, core, device("mi300x")))) for plan in (result.written, result.plan)]
    assert found.classes["drawing"] == 2
    assert found.classes["kernel"] == sum(boxes) > 0
    assert found.loads == []
    assert "url(" not in text
    for step in result.report["steps"]:
        assert step["rule"] in text


def test_the_page_searches_nothing(result: Result, monkeypatch: pytest.MonkeyPatch):
    """It draws the plans of the search, whose kernels its merges count, and takes no time of its own."""
    monkeypatch.setattr(cover, "cover", None)
    text = page(result)
    assert text.count('<div class="drawing"') == 2
    assert len(result.written.kernels) == result.report["source"]["kernels"]


def test_equal_layers_are_drawn_once():
    best = eqsat.optimize(eqsat.trace(layers, eqsat.spec((16, 64))), time_limit=10)
    core = lower(best.source)
    drawing = draw(best.plan, core, device("mi300x"))
    assert len(boxes_of(drawing)) < len(best.plan.kernels)
    assert sum(s.times * sum(map(len, s.layers)) for s in drawing.sections) == len(best.plan.kernels)


def test_every_box_stands_below_what_it_reads(result: Result):
    drawing = draw(result.plan, lower(result.source), device("mi300x"))
    place: dict[int, tuple[int, int]] = {}
    for i, section in enumerate(drawing.sections):
        for j, layer in enumerate(section.layers):
            place |= {box.number: (i, j) for box in layer}
    for box in boxes_of(drawing):
        assert all(place[source] < place[box.number] for source in box.reads)


@pytest.mark.skipif(BROWSER is None, reason="no chromium here: the page was not looked at by a browser")
@pytest.mark.parametrize("width", [1300, 400])
def test_a_browser_shows_it(result: Result, width: int, tmp_path: Path):
    assert BROWSER is not None
    file = tmp_path / "page.html"
    file.write_text(page(result).replace("</body>", MEASURE), encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    ran = subprocess.run(
        [*command, f"--window-size={width},900", f"--user-data-dir={tmp_path}", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert not re.findall(r"CONSOLE.*", ran.stderr)
    measured = dict(re.findall(r'data-(overflow|arrows|facts)="([^"]*)"', ran.stdout))
    assert measured["overflow"] == "0"
    assert int(measured["arrows"]) == sum(
        len(re.findall(r"\d+", reads)) for reads in re.findall(r'data-reads="([^"]*)"', ran.stdout)
    )
    assert measured["facts"] == "block"
