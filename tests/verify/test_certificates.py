"""Certificates verify for the programs that they are about, and no corrupted one does."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import CheckFailed, InputError
from eqsat.layout.arithmetic import strided, windows
from eqsat.program.core import evaluate, make
from eqsat.program.ir import Program
from eqsat.rules import CHECKABLE
from eqsat.verify.checker import NotSealed, Numbered, sealed, verify
from eqsat.verify.congruence import Congruence
from eqsat.verify.joins import inside, picked, split
from eqsat.verify.pairing import lowered
from eqsat.verify.terms import Terms
from support.benchmarks import load
from support.cli import eqsat as command
from support.cli import printed, refusal
from support.proof_pairs import MATMUL, Row, build

W = np.arange(35.0).reshape(5, 7) / 10 - 1
LAYERS = [np.random.default_rng(i).standard_normal((2, 6, 6)) / 2 for i in range(3)]


def layered(x: Any) -> Any:
    """Layers as exporters write them, and as they are written below: the scale in the weights, products transposed."""
    for a, b in LAYERS:
        x = x + (eqsat.tanh(x @ a) * 0.5) @ b
    return x


def folded_layers(x: Any) -> Any:
    for a, b in LAYERS:
        x = ((b.T * 0.5) @ eqsat.tanh(a.T @ x.T)).T + x
    return x


TABLES = [np.random.default_rng(n).standard_normal((n, 4)) for n in (5, 3, 6)]


def looked_up(*indices: Any) -> Any:
    return eqsat.concat([eqsat.take(t, i.astype("int64"), 0) for t, i in zip(TABLES, indices, strict=True)], 0)


def looked_up_at_once(i: Any, j: Any, k: Any) -> Any:
    at = [i.astype("int64") % 5, j.astype("int64") % 3 + 5, k.astype("int64") % 6 + 8]
    return eqsat.take(np.concatenate(TABLES), eqsat.concat(at, 0), 0)


LARGE, SMALL, SCALE = (np.random.default_rng(9).standard_normal(shape) for shape in ((3, 3, 3, 3), (3, 3), (3, 1, 1)))


def branches(x: Any) -> Any:
    """Parallel convolutions of one image, as RepVGG trains them."""
    return eqsat.conv(x, LARGE, pads_lo=(1, 1), pads_hi=(1, 1)) + eqsat.conv(x, SMALL[:, :, None, None]) + x * SCALE


def merged_branches(x: Any) -> Any:
    weights = LARGE.copy()
    weights[:, :, 1, 1] += SMALL + np.diag(SCALE.reshape(-1))
    return eqsat.conv(x, weights, pads_lo=(1, 1), pads_hi=(1, 1))


BIASES = [np.random.default_rng(n).standard_normal((3, 1)) for n in range(5)]


def residual(*xs: Any) -> Any:
    """Blocks that are added up, each with a bias, and read by a product."""
    total = xs[0] + BIASES[0]
    for x, bias in zip(xs[1:], BIASES[1:], strict=True):
        total = total + (x + bias)
    return W[:, :3] @ total + W[:, 3:4]


def residual_with_one_bias(*xs: Any) -> Any:
    """Two of the biases beside the sum, all others behind the product."""
    total = sum(xs[1:], start=xs[0]) + (BIASES[3] + BIASES[1])
    return W[:, :3] @ total + (W[:, 3:4] + W[:, :3] @ (BIASES[0] + BIASES[2] + BIASES[4]))


NEAR, FAR = (np.random.default_rng(n).standard_normal((5, n, 1, 1)) for n in (4, 6))
NEAR_BIAS, FAR_BIAS = (np.random.default_rng(n).standard_normal((5, 1, 1)) for n in (1, 2))


def strided_branches(x: Any, y: Any) -> Any:
    """The end of a block of a residual network: one branch, and every other place of its input."""
    return eqsat.conv(x, NEAR) + NEAR_BIAS + (eqsat.conv(y, FAR, strides=(2, 2)) + FAR_BIAS)


def joined_branches(order: int) -> Any:
    def joined(x: Any, y: Any) -> Any:
        weights, parts = [NEAR, FAR][::order], [x, y[:, :, ::2, ::2]][::order]
        return eqsat.conv(eqsat.concat(parts, 1), np.concatenate(weights, 1)) + (NEAR_BIAS + FAR_BIAS)

    return joined


def windows_by_number(x: Any) -> Any:
    """The windows of a padded image as a file without padded views says them: by their places, and a mask."""
    places = np.pad(np.arange(24).reshape(4, 6), 1, constant_values=-1)
    index = np.lib.stride_tricks.sliding_window_view(places, (3, 3))[::2, ::2]
    read = eqsat.take(x.reshape(24), np.maximum(index, 0).reshape(-1), 0)
    rows = eqsat.where((index >= 0).reshape(-1), read, 0.0).reshape(6, 9)
    return (rows @ LARGE[:1, 0].reshape(9, 1)).reshape(1, 1, 2, 3)


def biased_windows(x: Any) -> Any:
    """The windows of a padded image that was computed with its channels last."""
    image = eqsat.relu((x @ LARGE[:3, 0, 0, :3]).T + NEAR_BIAS.reshape(-1)[:3].reshape(3, 1))
    return eqsat.conv(image.reshape(1, 3, 4, 6), LARGE[:3, :1], pads_lo=(1, 1), pads_hi=(1, 1), groups=3)


def biased_windows_by_number(x: Any, turned: int = 0) -> Any:
    """The same by places and a mask, of the channels last."""
    image = eqsat.relu(x @ LARGE[:3, 0, 0, :3] + NEAR_BIAS.reshape(-1)[:3])
    places = np.pad(np.arange(72).reshape(4, 6, 3).transpose(2, 0, 1), ((0, 0), (1, 1), (1, 1)), constant_values=-1)
    index = np.roll(np.lib.stride_tricks.sliding_window_view(places, (3, 3), (1, 2)).reshape(-1), turned)
    read = eqsat.where(index >= 0, eqsat.take(image.reshape(72), np.maximum(index, 0), 0), 0.0)
    return (read.reshape(3, 24, 9) @ LARGE[:3, 0].reshape(3, 9, 1)).reshape(1, 3, 4, 6)


def pooled(x: Any) -> Any:
    """Sums over squares of two rows and two columns of a convolution."""
    found = eqsat.conv(x, LARGE[:2, :1], pads_lo=(1, 1), pads_hi=(1, 1))
    return found.reshape(1, 2, 2, 2, 3, 2).sum((3, 5))


def pooled_windows_by_number(x: Any, turned: int = 0) -> Any:
    """The same of windows that are added up before the product, and said by their places and a mask."""
    places = np.pad(np.arange(24).reshape(4, 6), 1, constant_values=-1)
    windows = np.lib.stride_tricks.sliding_window_view(places, (3, 3)).reshape(2, 2, 3, 2, 3, 3)
    index = np.roll(windows.transpose(0, 2, 4, 5, 1, 3).reshape(-1), turned)
    read = eqsat.where(index >= 0, eqsat.take(x.reshape(24), np.maximum(index, 0), 0), 0.0)
    return (read.reshape(6, 9, 4).sum(2) @ LARGE[:2, 0].reshape(2, 9).T).T.reshape(1, 2, 2, 3)


def stacked(*parts: Any) -> Any:
    return eqsat.concat(list(parts), 0)


def block_diagonal(a: Any, b: Any) -> Any:
    right, left = (eqsat.full((x.shape[0], y.shape[1]), 0.0, "float64") for x, y in ((a, b), (b, a)))
    return stacked(eqsat.concat([a, right], 1), eqsat.concat([left, b], 1))


PAIRS: dict[str, Row] = {
    **MATMUL,
    "join along k beside a bias": (
        lambda a, b, x, y, w: (w + a @ x) + b @ y,
        lambda a, b, x, y, w: eqsat.concat([a, b], 1) @ eqsat.concat([x, y], 0) + w,
        ((3, 5), (3, 7), (5, 2), (7, 2), (3, 2)),
    ),
    "chain": (
        lambda a, b, c, d, e: (((a @ b) @ c) @ d) @ e,
        lambda a, b, c, d, e: a @ (b @ ((c @ d) @ e)),
        ((3, 9), (9, 4), (4, 8), (8, 2), (2, 7)),
    ),
    "branches": (branches, merged_branches, ((1, 3, 4, 5),)),
    "sums with biases": (residual, residual_with_one_bias, ((3, 4),) * 5),
    "joined branches": (strided_branches, joined_branches(1), ((1, 4, 1, 1), (1, 6, 2, 2))),
    "branches joined in reverse": (strided_branches, joined_branches(-1), ((1, 4, 3, 2), (1, 6, 6, 4))),
    "windows": (
        lambda x: eqsat.conv(x, LARGE[:1, :1], strides=(2, 2), pads_lo=(1, 1), pads_hi=(1, 1)),
        windows_by_number,
        ((1, 1, 4, 6),),
    ),
    "pooled windows": (pooled, pooled_windows_by_number, ((1, 1, 4, 6),)),
    "windows of channels last": (biased_windows, biased_windows_by_number, ((24, 3),)),
    "gathers": (looked_up, looked_up_at_once, ((2,), (2,), (2,))),
    "number computed": (
        lambda x: eqsat.tanh(x) * eqsat.exp(eqsat.full((3, 5), 0.0, "float64")) + x,
        lambda x: x + eqsat.tanh(x),
        ((3, 5),),
    ),
    "sums of rows joined both ways": (
        lambda a, b, c: stacked(a, eqsat.concat([b, c], 1)).sum(1),
        lambda a, b, c: stacked(a, eqsat.concat([c, b], 1)).sum(1),
        ((2, 7), (3, 3), (3, 4)),
    ),
    "maxima of columns joined both ways": (
        lambda a, b, c: eqsat.max(eqsat.concat([a, stacked(b, c)], 1), 0),
        lambda a, b, c: eqsat.max(eqsat.concat([a, stacked(c, b)], 1), 0),
        ((7, 2), (3, 3), (4, 3)),
    ),
    "sums of sums joined in another order": (
        lambda a, b: stacked(a.sum(1, keepdims=True), b.sum(1, keepdims=True)).sum(0),
        lambda a, b: stacked(b.sum(1, keepdims=True), a.sum(1, keepdims=True)).sum(0),
        ((2, 7), (3, 7)),
    ),
    "sums of joined values": (
        lambda a, b, c, d, e: (a + stacked(b, c)) + stacked(d, e),
        lambda a, b, c, d, e: a + (stacked(d, c) + stacked(b, e)),
        ((5, 2), (2, 2), (3, 2), (2, 2), (3, 2)),
    ),
    "block-diagonal product": (
        lambda a, b, x, y: block_diagonal(a, b) @ stacked(x, y),
        lambda a, b, x, y: stacked(a @ x, b @ y),
        ((2, 5), (4, 3), (5, 6), (3, 6)),
    ),
    "sums of joined columns": (lambda a, b: stacked(a, b).sum(0), lambda a, b: b.sum(0) + a.sum(0), ((2, 7), (3, 7))),
    "folded": (lambda a: (a @ W).sum(1), lambda a: a @ W.sum(1), ((3, 5),)),
    "layers": (layered, folded_layers, ((4, 6),)),
}


@cache
def certified(name: str) -> tuple[Program, Program, str]:
    left, right, shapes = PAIRS[name]
    first, second = build(left, shapes), build(right, shapes)
    proof = eqsat.prove(first, second, time_limit=20.0, certify=True)
    assert proof.certificate is not None, proof.uncertified
    return first, second, proof.certificate


@pytest.mark.parametrize("name", PAIRS)
def test_certificates_verify(name: str) -> None:
    first, second, text = certified(name)
    found = verify(first, second, text, CHECKABLE)
    kinds = [next(iter(json.loads(line))) for line in text.splitlines()]
    assert (found.lemmas, found.uses, found.rules) == tuple(map(kinds.count, ("lemma", "use", "rule")))


def test_what_repeats_is_proved_once() -> None:
    found = verify(*certified("layers"), CHECKABLE)
    assert found.lemmas < found.uses


def test_a_folded_constant_is_computed_again() -> None:
    assert verify(*certified("folded"), CHECKABLE).values == 1
    left, _, shapes = PAIRS["folded"]
    other = W.sum(1) * (1 + 1e-9)
    proof = eqsat.prove(build(left, shapes), build(lambda a: a @ other, shapes), time_limit=3.0, certify=True)
    assert proof.certificate is None
    assert proof.uncertified or proof.verdict != "proved"


def test_names_may_differ() -> None:
    left, right, shapes = PAIRS["associate"]
    second = build(right, shapes)
    renamed = Program(second.inputs, dict(zip(["other"], second.outputs.values(), strict=True)))
    assert eqsat.prove(build(left, shapes), renamed, certify=True).certificate


def test_each_use_of_a_lemma_sees_where_constants_steer() -> None:
    first, _, text = certified("pooled windows")
    head, *lines = text.splitlines()
    assert any("moves" in json.loads(line) for line in lines)
    other = build(lambda x: pooled_windows_by_number(x, 1), ((1, 1, 4, 6),))
    head = json.dumps(Numbered(*lowered(first, other)).head())
    with pytest.raises(CheckFailed, match="move the same"):
        verify(first, other, "\n".join([head, *lines]), CHECKABLE)


def test_other_places_are_not_proved() -> None:
    first = build(biased_windows, ((24, 3),))
    proof = eqsat.prove(first, build(lambda x: biased_windows_by_number(x, 1), ((24, 3),)), 5.0, certify=True)
    assert (proof.verdict, proof.certificate) == ("refuted", None)


@pytest.fixture(scope="module")
def corruptions() -> Iterator[ModuleType]:
    yield from load("corruptions")


@pytest.mark.parametrize("seed", range(120))
def test_no_corrupted_certificate_verifies(corruptions: ModuleType, seed: int) -> None:
    first, second, text = certified(list(PAIRS)[seed % len(PAIRS)])
    change = corruptions.corrupted(text, random.Random(seed))
    assert corruptions.fate(lowered(first, second), change.of(text)) != corruptions.HOLDS, change


@pytest.mark.parametrize("name", ["associate", "folded", "number computed"])
def test_no_change_of_any_word_verifies(corruptions: ModuleType, name: str) -> None:
    first, second, text = certified(name)
    programs = lowered(first, second)
    assert corruptions.fate(programs, text) == corruptions.HOLDS
    changes = list(corruptions.changes(text))
    assert all(change.of(text) != text for change in changes)
    fates = [(change, corruptions.fate(programs, change.of(text))) for change in changes]
    assert [change for change, fate in fates if fate == corruptions.HOLDS] == []
    stated = "another word", "another layout", "another number"
    assert [c for c, fate in fates if c.name in stated and fate != corruptions.LINE] == [], "the lines do not say so"


SAID_OTHERWISE = {
    "a twin of the rule": ("associate", "matmul-associate-right", "matmul-any-bracket-right"),
    "the sides exchanged": ("associate", '{"proves": [4, 6]}', '{"proves": [6, 4]}'),
    "an operand of the same value": ("folded", '[{"layout": "0|15,1"}], [0]', '[{"layout": "0|15,1"}], [4]'),
    "a space": ("associate", '"use": 0', '"use":  0'),
    "another seal": ("associate", '{"seal": "', '{"seal": "0'),
}


@pytest.mark.parametrize("change", SAID_OTHERWISE)
def test_what_proves_the_same_in_other_words_is_not_what_was_sealed(change: str) -> None:
    name, said, other = SAID_OTHERWISE[change]
    first, second, text = certified(name)
    assert said in text
    with pytest.raises(NotSealed):
        verify(first, second, text.replace(said, other), CHECKABLE)


def test_a_rule_that_says_something_else_is_not_what_was_sealed() -> None:
    program = build(lambda x, y: x + y, ((3,), (3,)))
    programs = lowered(program, program)
    lines = [Numbered(*programs).head(), {"rule": "commute-sum", "at": 2}]
    text = sealed(*programs, "".join(json.dumps(line) + "\n" for line in lines), CHECKABLE)
    assert verify(program, program, text, CHECKABLE).rules == 1
    with pytest.raises(NotSealed):
        verify(program, program, text, [replace(r, right=r.left) for r in CHECKABLE if r.name == "commute-sum"])


@pytest.mark.parametrize("text", ["", "{}", "[]", "no JSON", '{"certificate": 99}', "[" * 100_000, '{"a":' * 100_000])
def test_what_is_no_certificate_is_bad_input(text: str) -> None:
    first, second, _ = certified("associate")
    with pytest.raises(InputError):
        verify(first, second, text, CHECKABLE)


HOSTILE: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a term that comes later": ([{"rule": "commute-sum", "at": 99}], "there is no term 99"),
    "a rule that is none": ([{"rule": "x" * 1000, "at": 2}], "there is no rule 'xxx"),
    "a lemma that comes later": ([{"use": 0, "on": [0]}], "there is no lemma 0"),
    "a long attribute": ([{"term": ["V", [{"layout": 1, "x": "y" * 1000}], [0]]}], "is no layout"),
    "more elements than memory holds": (
        [{"term": ["Full", [value, 10**13, "float32"], []]} for value in (0.5, 0.25)] + [{"values": [3, 4]}],
        "10000000000000 elements, which takes more memory",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_nobody_writes_is_refused_in_a_short_line(name: str) -> None:
    lines, expected = HOSTILE[name]
    program = build(lambda x, y: x + y, ((3,), (3,)))
    programs = lowered(program, program)
    text = "".join(json.dumps(line) + "\n" for line in [Numbered(*programs).head(), *lines])
    with pytest.raises(CheckFailed, match=expected) as error:
        sealed(*programs, text, CHECKABLE)
    assert len(str(error.value)) < 200


def test_what_a_law_says_is_so() -> None:
    rng = np.random.default_rng(0)
    x, y, table, other = (
        make("In", (name, n, "float64"), ()) for name, n in (("x", 24), ("y", 36), ("t", 6), ("u", 4))
    )
    i, j = (make("In", (name, 3, "int64"), ()) for name in "ij")
    moved = make("Bin", ("mod",), (j, make("Full", (2, 3, "int64"), ())))
    moved = make("Bin", ("add",), (moved, make("Full", (3, 3, "int64"), ())))
    tables = make("Cat", (), (table, other))
    nodes = [
        make("MM", (2, 3, 4, 4), (x, make("V", (strided(0, [(32, 1)]),), (y,)))),
        make("Gather", (1, 3, 2), (table, make("Cat", (), (i, j)))),
        make("Gather", (1, 5, 2), (tables, moved)),
        make("Gather", (1, 5, 2), (tables, i)),
    ]
    nodes += [make("Red", (fn, 6), (x,)) for fn in ("sum", "prod", "max", "min")]
    terms = Terms()
    product, twice, behind, anywhere, *reduced = terms.add_nodes(nodes)
    pairs = [(product, split(terms, product, (1, 3))), (twice, picked(terms, twice)), (behind, picked(terms, behind))]
    pairs += [(at, split(terms, at, (1, 3, 2))) for at in reduced]
    assert picked(terms, anywhere) is None
    values = {n.attrs[0]: rng.standard_normal(n.attrs[1]) for n in (x, y, table, other)}
    values |= {"i": np.array([0, -1, 2]), "j": np.array([1, -2, -1])}
    for left, right in pairs:
        assert right is not None
        one, two = evaluate([terms.node(left), terms.node(right)], values, {})
        np.testing.assert_allclose(one, two, rtol=1e-12)
    for sizes in ((1, 2), (0, 4), ()):
        with pytest.raises(CheckFailed):
            split(terms, product, sizes)
        with pytest.raises(CheckFailed):
            split(terms, reduced[0], sizes)
    with pytest.raises(CheckFailed, match="no reduction"):
        split(terms, twice, (2, 2))


@pytest.mark.parametrize("fill", [0.0, -np.inf])
@pytest.mark.parametrize("channels", [1, 2])
def test_windows_of_joined_arrays_are_windows_of_those_that_they_read(channels: int, fill: float) -> None:
    members = [make("In", (name, size, "float64")) for name, size in (("a", 24), ("b", 12), ("c", 24))]
    starts, joined = (0, 24, 36), make("Cat", (), members)
    rng = np.random.default_rng(0)
    values = {member.attrs[0]: rng.standard_normal(member.size) for member in members}
    padded = windows((1, channels, 3, 4), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), fill)
    read = set()
    for begin in range(60 - 12 * channels + 1):
        terms = Terms()
        [at] = terms.add_nodes([make("V", (padded.moved(-begin),), (joined,))])
        right = inside(terms, at)
        if right is not None:
            one, two = evaluate([terms.node(at), terms.node(right)], values, {})
            np.testing.assert_array_equal(one, two)
            read.add((begin, terms.node(right)))
    for member, start in zip(members, starts, strict=True):
        assert ((start, make("V", (padded,), (member,))) in read) == (member.size >= 12 * channels)


def test_congruence_follows_operands_upward() -> None:
    x, y = (make("In", (name, 4, "float32")) for name in "xy")
    terms = Terms()
    numbers = terms.add_nodes([x, y, *(make("Un", ("exp",), (make("Un", ("neg",), (a,)),)) for a in (x, y))])
    assert not Congruence(terms, []).equal(*numbers[2:])
    assert Congruence(terms, [(numbers[0], numbers[1])]).equal(*numbers[2:])


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    first, second, _ = certified("folded")
    paths = tmp_path / "a.onnx", tmp_path / "b.onnx"
    for program, path in zip((first, second), paths, strict=True):
        eqsat.to_onnx(program, path)
    return paths


def test_prove_writes_a_certificate_that_verifies(models: tuple[Path, Path]) -> None:
    a, b = models
    proof = a.with_suffix(".proof")
    assert printed("prove", a, b, "--certificate", proof, "--time-limit", "20").startswith("proved")
    assert printed("verify", a, b, proof).startswith("verified")
    assert json.loads(printed("verify", a, b, proof, "--json", "-"))["verdict"] == "verified"
    assert "not about" in refusal("verify", b, a, proof, code=1)
    assert command("verify", a, b, a).exit_code == 3


def test_optimize_writes_a_certificate_that_verifies(models: tuple[Path, Path]) -> None:
    a, _ = models
    out, proof = a.with_suffix(".out.onnx"), a.with_suffix(".proof")
    printed("optimize", a, "-o", out, "--certificate", proof, "--time-limit", "20")
    assert printed("verify", a, out, proof).startswith("verified")
    assert "--output" in refusal("optimize", a, "--certificate", proof)
