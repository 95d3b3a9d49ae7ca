"""What notebooks show: fragments that are whole, hold every text escaped, and load nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

import eqsat
from eqsat.explain.explanation import Explanation
from eqsat.inspection.why_not import Answer, Place
from eqsat.pipeline.result import Result
from eqsat.program import ops
from eqsat.program.ir import Program
from support.programs import weight


class _Tree(HTMLParser):
    """The elements of a fragment: what is open, what it loads, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tops: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self.open:
            self.tops.append(tag)
        self.open.append(tag)
        self.loads += [name for name, _ in attrs if name in ("src", "href") or name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def tree(fragment: str) -> _Tree:
    """The fragment, which is one whole element without scripts and loads."""
    found = _Tree(fragment)
    assert found.open == []
    assert found.tops == ["div"]
    assert found.loads == []
    assert "<script" not in fragment
    assert "url(" not in fragment
    return found


@pytest.fixture(scope="module")
def result() -> Result:
    program = eqsat.trace(lambda x: x @ weight(512, 512) @ weight(512, 512), eqsat.spec((256, 512)))
    return eqsat.optimize(program, time_limit=10)


def test_a_result_shows_figures_steps_and_the_program(result: Result):
    text = tree(result._repr_html_()).text
    assert "2 kernels became 1 on mi300x" in text
    for part in ("proven optimal", "predicted µs", *(s["rule"] for s in result.report["steps"])):
        assert part in text
    for _, type_, call in result.program.listing().rows:
        assert f"{type_}{call}" in re.sub(r"\s*\n\s*", "", text)


def test_a_program_shows_its_first_values_and_counts_the_others():
    x = ops.input("<b>&x", (2, 3))
    term = x
    for _ in range(150):
        term = ops.exp(term)
    text = tree(Program((x,), {"y": term})._repr_html_()).text
    assert "1 input, 150 operators, 1 output" in text
    assert 'input("<b>&x")' in text
    assert "and 51 more values" in text


def test_a_proof_shows_its_verdict_and_steps():
    a, b = (eqsat.trace(f, *[eqsat.spec((3, 3))] * 2) for f in (lambda x, y: x * y + x, lambda x, y: x * (1 + y)))
    proof = eqsat.prove(a, b)
    text = tree(proof._repr_html_()).text
    assert text.split()[0] == "proved"
    assert f"{len(proof.steps)} steps" in text


def test_explanations_show_what_they_say(result: Result):
    assert "stands as it was written" in tree(Explanation([], True)._repr_html_()).text
    answer = Answer("some-rule", missed=[Place("at out", "x < y", ("needs a < b",))])
    text = tree(answer._repr_html_()).text
    assert text.strip() == str(answer)
    assert "needs a < b" in text
