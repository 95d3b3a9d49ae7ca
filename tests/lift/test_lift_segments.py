"""Lifting of a program in parts: each is written over values of the others, once for all parts of one form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import eqsat
from eqsat.layout.arithmetic import strided
from eqsat.lift.part import Part
from eqsat.lift.segments import _Instance, lift_parts
from eqsat.parts.segments import Segment
from eqsat.program import ops
from eqsat.program.constants import constant_node, view_node
from eqsat.program.core import lower_terms
from eqsat.program.ir import Program
from eqsat.program.node import Node, make, substitute
from eqsat.program.term import ConstArray
from support.programs import weight

CHANNELS = 4


def _mixed(x, seed: int):
    return eqsat.conv(x, weight(CHANNELS, CHANNELS, 1, 1, seed=seed))


def _blurred(x, seed: int):
    return eqsat.conv(x, weight(CHANNELS, 1, 3, 3, seed=seed), pads_lo=(1, 1), pads_hi=(1, 1), groups=CHANNELS)


OPERATORS: dict[str, Callable] = {
    "mix": _mixed,
    "tanh": lambda x, seed: np.tanh(x),
    "blur": _blurred,
    "rest": lambda x, seed: eqsat.relu(_blurred(x, seed) + x),
    "mix and tanh": lambda x, seed: _mixed(x, seed) + np.tanh(x),
    "separable": lambda x, seed: _mixed(_blurred(x, seed), seed + 1) + x,
}


def _blocks(operators: Sequence[str], count: int) -> Program:
    """Blocks of these operators, each with weights of its own."""

    def function(x):
        for i in range(count):
            for j, name in enumerate(operators):
                x = OPERATORS[name](x, 10 * (len(operators) * i + j))
        return x

    return eqsat.trace(function, eqsat.spec((1, CHANNELS, 5, 5)))


def _in_parts(monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    """Cut every program of more nodes into parts of so many."""
    for name in ("segments.LARGE", "pieces.HUGE", "pieces.PIECE"):
        monkeypatch.setattr(f"eqsat.parts.{name}", nodes)


def _assert_right(best: eqsat.Result, source: Program) -> None:
    assert best.report.get("fallback") is None
    inputs = {t.attr("name"): np.random.default_rng(1).standard_normal(t.shape).astype("f") for t in source.inputs}
    wanted = source.run(inputs)
    for found in (best.program.run(inputs), best.compile()(inputs)):
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * np.abs(value).max())


@pytest.mark.parametrize(
    ("operators", "count", "nodes"),
    [
        (["rest", "mix", "tanh", "mix and tanh", "rest"], 3, 3),
        (["mix and tanh", "mix", "tanh"], 2, 4),
        (["separable", "tanh", "separable", "separable"], 2, 6),
        (["mix and tanh", "mix and tanh", "mix", "blur", "tanh"], 2, 3),
        (["blur", "separable", "separable"], 2, 4),
    ],
)
def test_parts_cut_within_convolutions_are_right_and_compute_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, operators: list[str], count: int, nodes: int
) -> None:
    """A part may read the product of a convolution in the order of its kernel, for which the source has no term."""
    _in_parts(monkeypatch, nodes)
    source = _blocks(operators, count)
    best = eqsat.optimize(source, time_limit=60.0, explain_time=0.0)
    _assert_right(best, source)
    convolutions = [Counter(t.op for t in program.terms())["conv"] for program in (source, best.program)]
    assert convolutions[1] <= convolutions[0]


def test_an_output_that_is_a_constant_may_be_read_by_other_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    _in_parts(monkeypatch, 3)
    shift = weight(6, 6)

    def function(x):
        for _ in range(4):
            x = np.tanh(x + shift) @ shift
        return x, shift

    source = eqsat.trace(function, eqsat.spec((6, 6)))
    _assert_right(eqsat.optimize(source, time_limit=60.0, explain_time=0.0), source)


def test_parts_that_stay_as_written_are_not_lifted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    _in_parts(monkeypatch, 6)
    shift = weight(6, 6)

    def function(x):
        for _ in range(6):
            x = np.tanh(x @ shift) + x
        return x

    source = eqsat.trace(function, eqsat.spec((6, 6)))

    def lifted(*given: object, **named: object) -> None:
        raise AssertionError("a part was lifted")

    monkeypatch.setattr("eqsat.lift.segments._Instance", lifted)
    best = eqsat.optimize(source, rules=[], time_limit=60.0)
    assert best.program.outputs == source.outputs
    assert best.report["check"]["parts"]["same"] > 3


def test_parts_behind_one_that_changes_stay_as_written_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One product of two constants is computed ahead of time; all that is before and behind it keeps its terms."""
    _in_parts(monkeypatch, 3)
    first, second = weight(6, 6), weight(6, 6, seed=1)

    def function(x):
        for i in range(6):
            x = np.tanh(x) @ first
            x = x @ second if i == 2 else np.exp(x)
        return x

    source = eqsat.trace(function, eqsat.spec((6, 6)))
    best = eqsat.optimize(source, time_limit=60.0, explain_time=0.0)
    _assert_right(best, source)
    before, after = (Counter(t.op for t in program.terms()) for program in (source, best.program))
    assert after == before - Counter(["matmul"])


def _as_written(root: Node, *leaves: Node) -> Part:
    """A part of one value that is as written."""
    stand_in = {leaf: make("In", (f"%{i}", leaf.size, leaf.dtype)) for i, leaf in enumerate(leaves)}
    form, named = tuple(substitute((root,), stand_in)), {made: leaf for leaf, made in stand_in.items()}
    return Part(Segment((root,), form, named), form, named, {})


def test_a_part_that_stays_as_written_computes_no_value_of_another_anew() -> None:
    """The source has two terms for one value: one is that of its part, the other one is read here."""
    x = ops.input("x", (6, 6))
    below = ops.tanh(x)
    flat, square = ops.exp(ops.reshape(below, (36,))), ops.exp(below)
    last = ops.add(ops.neg(square), below)
    core, node = lower_terms(Program((x,), {"flat": flat, "last": last}))
    assert node[flat] is node[square]
    parts = [
        _as_written(node[below], node[x]),
        _as_written(node[flat], node[below]),
        _as_written(node[last], node[flat], node[below]),
    ]
    found = lift_parts(parts, core, exact=False).program
    assert Counter(term.op for term in found.terms())["exp"] == 1


def test_weights_that_a_kernel_turns_round_are_not_copied_where_the_result_turns_them_back() -> None:
    """Two products of one value are one; those of the last one read their weights in another order."""
    source = eqsat.trace(_pairs_of_products, eqsat.spec((1, 128, 8, 8)))
    best = eqsat.optimize(source, time_limit=60.0, explain_time=0.0)
    _assert_right(best, source)
    before, after = (_weights(program) for program in (source, best.program))
    assert len(after) < len(before), "two products became one"
    assert sum(any(np.shares_memory(a, b) for b in before) for a in after) == 2


def _pairs_of_products(x):
    for i in range(2):
        a, b = (eqsat.conv(x, weight(128, 128, 1, 1, seed=2 * i + j)) for j in range(2))
        x = eqsat.relu(a) + np.tanh(b)
    return x


def _weights(program: Program) -> list[np.ndarray]:
    return [term.attr("value").view for term in program.terms() if term.op == "constant"]


@pytest.mark.parametrize("anonymous", [False, True])
@pytest.mark.parametrize("shape", [(128, 192), (192, 128), (192 * 128,), (64, 384)])
def test_weights_in_another_order_are_right_in_every_shape(shape: tuple[int, ...], anonymous: bool) -> None:
    """The first shape is that of the view; for the others the elements are copied, once."""
    held, constants = ConstArray(weight(192, 128)), {}
    turned = view_node(constant_node(held, constants), strided(0, ((128, 1), (192, 128))), constants)
    x = ops.input("x", (turned.size,))
    core, node = lower_terms(Program((x,), {"y": x}))
    root = make("Bin", ("add",), (node[x], turned))
    part = Part(Segment((root,), (root,), {}), (root,), {}, constants)
    instance = _Instance(part, core, anonymous)
    term = instance.constant(turned, shape)
    assert instance.constant(turned, shape) is term
    value = term.attr("value")
    np.testing.assert_array_equal(value.view, held.array.T.reshape(shape))
    assert ops.constant(value.array) is term, "it has one digest"
    assert np.shares_memory(value.view, held.array) == (shape == (128, 192))
