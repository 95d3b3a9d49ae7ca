"""Lifting: core programs become programs with the same values, written as a person would write them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from eqsat.layout.arithmetic import (
    Axis,
    masked,
    of_broadcast,
    of_pad,
    of_slice,
    of_transpose,
    strided,
)
from eqsat.lift.choice import Choice
from eqsat.lift.lift import lift
from eqsat.lift.shaped import Shaper
from eqsat.pipeline.optimize import optimize
from eqsat.program import composites, core, ops
from eqsat.program.constants import constant_node
from eqsat.program.core import CoreProgram, Node, evaluate, make
from eqsat.program.ir import Program
from eqsat.program.term import ConstArray, Term, topological
from eqsat.testing import assert_equivalent, programs
from support.core_programs import mm, view
from support.layouts import FAMILIES, factors
from support.lifting import arg, lines, node

# --- programs of many kinds ------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)


def weights(*shape: int) -> Term:
    return ops.constant(RNG.standard_normal(shape).astype(np.float32))


def add(x: Term, bias: Term) -> Term:
    return composites.broadcasting("add", x, bias)


def linear(x: Term, n: int, bias: bool = True) -> Term:
    y = composites.matmul(x, weights(x.shape[-1], n))
    return add(y, weights(n)) if bias else y


def attention(x: Term, heads: int = 4) -> Term:
    *batch, tokens, width = x.shape
    last = len(batch)

    def split(y: Term) -> Term:
        y = ops.reshape(y, (*batch, tokens, heads, width // heads))
        return ops.transpose(y, (*range(last), last + 1, last, last + 2))

    q, k, v = (split(linear(x, width)) for _ in range(3))
    scores = composites.scaled(ops.matmul(q, ops.swap_last(k)), 0.5)
    mixed = ops.transpose(ops.matmul(composites.softmax(scores), v), (*range(last), last + 1, last, last + 2))
    return linear(ops.reshape(mixed, x.shape), width)


def layer(x: Term) -> Term:
    width = x.shape[-1]
    x = composites.layernorm(ops.add(x, attention(x)), weights(width), weights(width))
    hidden = composites.gelu(linear(x, 2 * width))
    return composites.layernorm(ops.add(x, linear(hidden, width)), weights(width), weights(width))


def conv(
    x: Term, channels: int, kernel: int = 3, stride: int = 1, pad: int = 1, dilation: int = 1, groups: int = 1
) -> Term:
    rank = x.ndim - 2
    w = weights(channels, x.shape[1] // groups, *[kernel] * rank)
    y = ops.conv(x, w, [stride] * rank, [pad] * rank, [pad] * rank, [dilation] * rank, groups)
    return ops.relu(add(y, weights(channels, *[1] * rank)))


def small_convnet(x: Term) -> Term:
    y = ops.pool("max", conv(conv(x, 8), 8, stride=2), (2, 2), (2, 2))
    y = conv(conv(y, 16, kernel=1, pad=0), 16, groups=4)
    return linear(ops.reshape(ops.reduce("sum", y, (2, 3)), (x.shape[0], 16)), 10)


def inception(x: Term) -> Term:
    y = conv(x, 8, pad=2, dilation=2)
    y = ops.pool("max", y, (3, 3), (2, 2), (1, 1), (1, 1))
    return ops.concat([y, ops.pool("sum", y, (3, 3), (1, 1), (1, 1), (1, 1)), conv(y, 6)], 1)


def residual(x: Term) -> Term:
    return conv(ops.add(x, conv(conv(x, 8, kernel=1, pad=0), x.shape[1])), 8, stride=2)


def towers(x: Term) -> Term:
    return ops.concat([ops.tanh(linear(linear(part, 6), 5)) for part in ops.split(x, [8, 8], 1)], 1)


def joined_attention(x: Term) -> Term:
    q, k, v = ops.split(linear(x, 48, bias=False), [16] * 3, 1)
    return ops.matmul(composites.softmax(ops.matmul(q, ops.swap_last(k))), v)


PROGRAMS: dict[str, tuple[Callable[[Term], Term], tuple[int, ...]]] = {
    "mlp": (lambda x: linear(ops.relu(linear(x, 32)), 5), (8, 16)),
    "mlp-of-a-batch": (lambda x: linear(ops.relu(linear(x, 32)), 5), (2, 8, 16)),
    "attention": (attention, (6, 16)),
    "attention-of-a-batch": (attention, (2, 6, 16)),
    "transformer": (lambda x: layer(layer(x)), (1, 6, 16)),
    "joined-attention": (joined_attention, (5, 16)),
    "towers": (towers, (5, 16)),
    "stack": (lambda x: ops.stack([linear(x, 7) for _ in range(3)]), (5, 16)),
    "convnet": (small_convnet, (1, 3, 12, 12)),
    "convnet-of-a-batch": (small_convnet, (2, 3, 12, 12)),
    "inception": (inception, (2, 4, 9, 7)),
    "residual": (residual, (2, 4, 9, 8)),
    "conv-1d": (lambda x: conv(conv(x, 8, kernel=5, pad=0), 8, stride=2, groups=8), (2, 4, 20)),
    "conv-3d": (lambda x: conv(conv(x, 4), 4, stride=2), (1, 2, 5, 6, 7)),
    "middle-axis": (lambda x: ops.reduce("max", ops.neg(x), 1), (3, 5, 4)),
    "pad": (lambda x: ops.pad(ops.exp(x), (1, 0), (0, 2), 1.5), (4, 5)),
    "gather": (lambda x: ops.gather(ops.exp(x), ops.cast(ops.constant(np.array([[3, 0, 2]])), "int64"), 0), (4, 5)),
}

MOVES = ("reshape", "transpose")
WHOLE = ("conv", "pool", "matmul", "reduce", "concat", "gather", "slice", "pad")


def traced(name: str) -> Program:
    build, shape = PROGRAMS[name]
    x = ops.input("x", shape)
    return Program((x,), {"y": build(x)})


def counted(program: Program) -> Counter[str]:
    return Counter(term.op for term in program.terms())


def forgetting(program: CoreProgram, keep: Sequence[str]) -> CoreProgram:
    """The source that remembers terms of these core operators alone: everything else is written anew."""
    known = {node: term for node, term in program.source_term.items() if node.op in keep}
    return replace(program, source_term=known)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_did_not_change_comes_back_as_it_was(name: str) -> None:
    source = traced(name)
    lowered = core.lower(source)
    assert lift(lowered, lowered).outputs["y"] is source.outputs["y"]


@pytest.mark.parametrize("keep", [("In", "Const"), ("In",)], ids=["constants-known", "constants-new"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_round_trip_adds_no_moves_and_finds_conv_and_pool_again(name: str, keep: tuple[str, ...]) -> None:
    source = traced(name)
    lowered = core.lower(source)
    lifted = lift(lowered, forgetting(lowered, keep))
    assert_equivalent(source, lifted)
    before, after = counted(source), counted(lifted)
    assert sum(after[op] for op in MOVES) <= sum(before[op] for op in MOVES), f"{lifted}"
    assert {op: after[op] for op in WHOLE} == {op: before[op] for op in WHOLE}, f"{lifted}"
    assert lifted.outputs["y"].shape == source.outputs["y"].shape


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_round_trip_of_any_program(program: Program) -> None:
    lowered = core.lower(program)
    assert_equivalent(program, lift(lowered, lowered))
    assert_equivalent(program, lift(lowered, forgetting(lowered, ("In", "Opaque"))))


def test_windows_with_more_padding_than_image_are_no_reduction_of_it_in_place() -> None:
    """Each window has one row of the image and one of padding: as many elements as the image has, but not its own."""
    x = ops.input("x", (1, 2, 2, 2), "float32")
    y = ops.pool("max", x, (2, 2), (1, 1), (0, 0), (1, 0), (2, 1))
    program = Program((x,), {"y": y})
    lowered = core.lower(program)
    assert_equivalent(program, lift(lowered, forgetting(lowered, ("In", "Opaque"))))


# --- rewritten nodes: what they become -------------------------------------------------------------------------


X, W = arg("x", 6, 16), arg("w", 16, 16)
Q, K = arg("q", 4, 6, 8), arg("k", 4, 5, 8)
IMAGE, FILTERS = arg("x", 2, 4, 9, 8), arg("w", 6, 2, 3, 3)
A, B = arg("a", 3, 4), arg("b", 5, 4)


def test_a_transposed_operand_is_one_transpose() -> None:
    keys = view(node(K), of_transpose((4, 5, 8), (0, 2, 1)))
    assert lines([Q, K], mm(node(Q), keys, 6, 8, 5, batch=4), 4, 6, 5) == [
        "transpose(%1, perm=(0, 2, 1))",
        "matmul(%0, %2)",
    ]


def test_batch_axes_of_the_neighbours_are_kept() -> None:
    q, k = arg("q", 2, 2, 6, 8), arg("k", 2, 2, 8, 5)
    assert lines([q, k], mm(node(q), node(k), 6, 8, 5, batch=4), 2, 2, 6, 5) == ["matmul(%0, %1)"]


def test_heads_are_a_reshape_and_a_transpose() -> None:
    heads = view(mm(node(X), node(W), 6, 16, 16), of_transpose((6, 4, 4), (1, 0, 2)))
    assert lines([X, W], heads, 4, 6, 4) == [
        "matmul(%0, %1)",
        "reshape(%2, shape=(6, 4, 4))",
        "transpose(%3, perm=(1, 0, 2))",
    ]


def test_a_bias_is_a_plain_broadcast() -> None:
    bias = arg("b", 16)
    sum_ = make("Bin", ("add",), (mm(node(X), node(W), 6, 16, 16), view(node(bias), of_broadcast((16,), (6, 16)))))
    assert lines([X, W, bias], sum_, 6, 16) == ["matmul(%0, %1)", "broadcast(%2, shape=(6, 16))", "add(%3, %4)"]


def test_a_product_written_the_other_way_round_is_turned_back() -> None:
    turned = mm(view(node(W), of_transpose((16, 16), (1, 0))), view(node(X), of_transpose((6, 16), (1, 0))), 16, 16, 6)
    assert lines([X, W], view(turned, of_transpose((16, 6), (1, 0))), 6, 16) == ["matmul(%0, %1)"]


def test_rows_of_a_batch_share_a_matrix() -> None:
    x = arg("x", 2, 3, 16)
    assert lines([x, W], mm(node(x), node(W), 6, 16, 16), 2, 3, 16) == [
        "broadcast(%1, shape=(2, 16, 16))",
        "matmul(%0, %2)",
    ]


def test_a_member_of_a_group_is_a_slice_along_its_axis() -> None:
    member = view(mm(node(Q), node(arg("v", 4, 8, 5)), 6, 8, 5, batch=4), of_slice((4, 30), (2, 0), (3, 30), (1, 1)))
    assert lines([Q, arg("v", 4, 8, 5)], member, 1, 6, 5) == [
        "matmul(%0, %1)",
        "slice(%2, starts=(2, 0, 0), stops=(3, 6, 5), steps=(1, 1, 1))",
    ]


def test_columns_of_a_product_are_one_slice() -> None:
    columns = view(mm(node(X), node(W), 6, 16, 16), of_slice((6, 16), (0, 4), (6, 8), (1, 1)))
    assert lines([X, W], columns, 6, 4) == [
        "matmul(%0, %1)",
        "slice(%2, starts=(0, 4), stops=(6, 8), steps=(1, 1))",
    ]


def test_a_flat_cat_is_a_concatenation_of_rows() -> None:
    assert lines([A, B], make("Cat", (), (node(A), node(B))), 8, 4) == ["concat(%0, %1, axis=0)"]


def test_a_stack_is_a_reshape_of_a_concatenation() -> None:
    pair = make("Cat", (), (node(A), make("Un", ("neg",), (node(A),))))
    assert lines([A], pair, 2, 3, 4) == ["neg(%0)", "concat(%0, %1, axis=0)", "reshape(%2, shape=(2, 3, 4))"]


def test_a_slice_of_a_cat_that_is_one_operand_is_that_operand() -> None:
    joined = make("Cat", (), (make("Un", ("exp",), (node(A),)), make("Un", ("neg",), (node(A),))))
    second_row = view(joined, of_slice((6, 4), (4, 0), (5, 4), (1, 1)))
    assert lines([A], second_row, 1, 4) == ["neg(%0)", "slice(%1, starts=(1, 0), stops=(2, 4), steps=(1, 1))"]


def test_slices_put_together_again_are_one_view() -> None:
    blocks = [view(node(X), of_slice((6, 16), (0, 4 * i), (6, 4 * i + 4), (1, 1))) for i in range(4)]
    assert lines([X], make("Un", ("exp",), (make("Cat", (), blocks),)), 4, 6, 4) == [
        "reshape(%0, shape=(6, 4, 4))",
        "transpose(%1, perm=(1, 0, 2))",
        "exp(%2)",
    ]


def test_one_array_many_times_is_a_broadcast() -> None:
    assert lines([A], make("Cat", (), [node(A)] * 3), 3, 3, 4) == ["broadcast(%0, shape=(3, 3, 4))"]


def test_a_constant_that_repeats_is_a_broadcast() -> None:
    values = np.tile(np.arange(4, dtype=np.float32), (3, 1))
    constants: dict[str, np.ndarray] = {}
    bias = constant_node(ConstArray(values.reshape(-1)), constants)
    known = {node(A): A}
    root = make("Bin", ("add",), (node(A), bias))
    program = CoreProgram((root,), ("y",), ((3, 4),), (node(A),), constants, source_term=known)
    assert [t.spec for t in lift(program, program).terms()] == ["f32[3,4]", "f32[4]", "f32[3,4]", "f32[3,4]"]


def test_a_concatenation_of_columns_needs_no_transposes() -> None:
    left, right = arg("l", 4, 3), arg("r", 4, 5)
    parts = [view(node(t), of_transpose(t.shape, (1, 0))) for t in (left, right)]
    joined = view(make("Cat", (), parts), of_transpose((8, 4), (1, 0)))
    assert lines([left, right], make("Un", ("exp",), (joined,)), 4, 8) == ["concat(%0, %1, axis=1)", "exp(%2)"]


def test_a_reduction_keeps_its_axis() -> None:
    x = arg("x", 3, 5, 4)
    summed = make("Red", ("sum", 5), (view(node(x), of_transpose(x.shape, (0, 2, 1))),))
    assert lines([x], summed, 3, 4) == ["sum(%0, axes=(1,))"]


def test_a_reduction_over_two_axes_is_one_reduction() -> None:
    x = arg("x", 2, 3, 4, 5)
    summed = make("Red", ("max", 20), (node(x),))
    assert lines([x], summed, 2, 3, 1, 1) == ["max(%0, axes=(2, 3), keepdims)"]


def test_statistics_keep_their_dim_for_the_broadcast() -> None:
    mean = make("Red", ("sum", 16), (node(X),))
    rows = view(make("Un", ("neg",), (mean,)), strided(0, ((6, 1), (16, 0))))
    assert lines([X], make("Bin", ("add",), (node(X), rows)), 6, 16) == [
        "sum(%0, axes=(1,), keepdims)",
        "neg(%1)",
        "broadcast(%2, shape=(6, 16))",
        "add(%0, %3)",
    ]


def test_a_triangle_is_a_where() -> None:
    lower = masked(0, [(5, 5), (5, 1)], [Axis(5, 0, 0, (1, -1))], -1.0)
    square = arg("s", 5, 5)
    found = lines([square], view(node(square), lower), 5, 5)
    assert [line.split("(")[0] for line in found] == ["constant", "full", "where"]


def test_a_mask_along_an_axis_is_a_pad() -> None:
    assert lines([A], view(node(A), of_pad((3, 4), (0, 1), (2, 0), 0.5)), 5, 5) == [
        "pad(%0, lo=(0, 1), hi=(2, 0), value=0.5)"
    ]


def test_a_flip_is_a_slice() -> None:
    flipped = view(node(A), of_slice((3, 4), (0, 3), (3, -1), (1, -1)))
    assert lines([A], flipped, 3, 4) == ["slice(%0, starts=(0, 3), stops=(3, -1), steps=(1, -1))"]


def test_elementwise_operators_share_a_shape() -> None:
    a = make("Bin", ("mul",), (make("Un", ("exp",), (node(A),)), make("Full", (2.0, 12, "float32"))))
    rows = arg("r", 12)
    found = lines([A, rows], make("Bin", ("add",), (make("Un", ("neg",), (a,)), node(rows))), 3, 4)
    assert [line.split("(")[0] for line in found] == ["exp", "full", "mul", "neg", "reshape", "add"]


# --- random core programs --------------------------------------------------------------------------------------


class RandomCore:
    """A random program over the core: any operators, layouts of one family, sizes up to some hundreds."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.family = FAMILIES[self.rng.choice(list(FAMILIES))]
        self.constants: dict[str, np.ndarray] = {}
        sizes = [math.prod(self.rng.choice([(4, 6), (2, 3, 4), (12,), (8,), (8, 3)])) for _ in range(3)]
        self.inputs = [make("In", (f"x{i}", n, "float32")) for i, n in enumerate(sizes)]
        self.nodes = [*self.inputs, self.constant(24)]
        for _ in range(self.rng.randint(2, 9)):
            found = self.rng.choice(self.MAKERS)(self, self.rng.choice(self.nodes[-4:]))
            if 0 < found.size <= 2000:
                self.nodes.append(found)

    def program(self) -> CoreProgram:
        roots = tuple(dict.fromkeys([self.nodes[-1], self.rng.choice(self.nodes)]))
        shapes = tuple(tuple(factors(self.rng, root.size)) for root in roots)
        return CoreProgram(roots, tuple(f"y{i}" for i in range(len(roots))), shapes, tuple(self.inputs), self.constants)

    def constant(self, n: int, dtype: str = "float32", bound: int = 0) -> Node:
        values = [self.rng.randrange(-bound, bound) if bound else self.rng.gauss(0, 1) for _ in range(n)]
        return constant_node(ConstArray(np.array(values, dtype)), self.constants)

    def divisor(self, n: int) -> int:
        return self.rng.choice([q for q in range(1, n + 1) if n % q == 0])

    def view(self, a: Node) -> Node:
        x = np.arange(a.size).reshape(factors(self.rng, a.size))
        return make("V", (self.rng.choice(self.family)(self.rng, x)[1],), (a,))

    def unary(self, a: Node) -> Node:
        return make("Un", (self.rng.choice(["neg", "tanh", "abs"]),), (a,))

    def binary(self, a: Node) -> Node:
        others = [b for b in self.nodes if b.size == a.size] + [make("Full", (0.5, a.size, "float32"))]
        return make("Bin", (self.rng.choice(["add", "mul", "max"]),), (a, self.rng.choice(others)))

    def product(self, a: Node) -> Node:
        batch = self.divisor(a.size) if self.rng.random() < 0.3 else 1
        k = self.divisor(a.size // batch)
        fitting = [b for b in self.nodes if b.size % (batch * k) == 0 and b.size // (batch * k) <= 16]
        b = self.rng.choice(fitting) if fitting else self.constant(3 * batch * k)
        return make("MM", (batch, a.size // batch // k, k, b.size // batch // k), (a, b))

    def reduction(self, a: Node) -> Node:
        return make("Red", (self.rng.choice(["sum", "max", "min", "prod"]), self.divisor(a.size)), (a,))

    def cat(self, a: Node) -> Node:
        return make("Cat", (), [a, *(self.rng.choice(self.nodes) for _ in range(self.rng.randint(1, 2)))])

    def gather(self, a: Node) -> Node:
        n = self.divisor(a.size)
        outer = self.divisor(a.size // n)
        return make("Gather", (outer, n, a.size // n // outer), (a, self.constant(self.rng.randint(1, 4), "int64", n)))

    MAKERS = (*[view] * 6, *[unary] * 2, *[binary] * 2, *[product] * 3, *[reduction] * 2, cat, gather)


@pytest.mark.parametrize("block", range(8))
def test_random_core_programs_keep_their_values(block: int) -> None:
    for seed in range(block * 150, (block + 1) * 150):
        program = RandomCore(seed).program()
        rng = np.random.default_rng(seed)
        values = {n.attrs[0]: rng.standard_normal(n.size).astype(np.float32) for n in program.inputs}
        expected = evaluate(program.roots, values, program.constants, precision="float64")
        got = lift(program, program).run(values, "float64")
        for name, flat, shape in zip(program.root_names, expected, program.root_shapes, strict=True):
            np.testing.assert_allclose(got[name], flat.reshape(shape), rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")


def test_an_opaque_operator_may_read_what_hangs_on_no_input() -> None:
    """Of an input without elements only the pad around it is left, and no term of the source says that."""
    x = ops.input("x", (2, 0))
    padded = ops.transpose(ops.pad(x, (1, 2), (2, 2), 0))
    _, back = ops.opaque("Reverse", [padded], [((4, 5), "float32")] * 2, "both ways", lambda a: (a, a[::-1]))
    best = optimize(Program((x,), {"y": back}))
    assert [t.op for t in best.program.terms() if t.op != "input"] == ["full", "opaque"]


def test_an_opaque_operator_comes_back_with_new_operands() -> None:
    x = ops.input("x", (2, 3))
    values, order = ops.opaque(
        "sort",
        [ops.relu(x)],
        [((2, 3), "float32"), ((2, 3), "int64")],
        "last axis",
        lambda a: (np.sort(a), np.argsort(a)),
    )
    lowered = core.lower(Program((x,), {"values": values, "order": order}))
    again = make("Un", ("relu",), (make("Un", ("abs",), (lowered.inputs[0],)),))
    roots = tuple(make("Opaque", root.attrs, (again,)) for root in lowered.roots)
    lifted = lift(replace(lowered, roots=roots), lowered)
    assert [t.op for t in topological(lifted.outputs.values())] == ["input", "abs", "relu", "opaque", "opaque"]
    given_ = np.array([[3, -1, 2], [0, 5, -4]], np.float32)
    np.testing.assert_array_equal(lifted.run({"x": given_})["values"], np.sort(abs(given_)))
    np.testing.assert_array_equal(lifted.run({"x": given_})["order"], np.argsort(abs(given_)))


def test_the_moves_between_two_forms_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one program they are wanted many times, and a derivation lifts each of its steps."""
    lowered = core.lower(traced("transformer"))
    source = forgetting(lowered, ("In", "Const"))
    first = lift(lowered, source)
    monkeypatch.delattr("eqsat.lift.choice.through")
    assert lift(lowered, source).outputs["y"] is first.outputs["y"]


def test_what_a_value_serves_is_found_once_for_all_the_ways_to_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls_in_a_lift("_reading", monkeypatch) < 500


def test_a_reader_that_has_not_chosen_is_asked_until_one_of_its_ways_takes_no_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert calls_in_a_lift("_moves", monkeypatch) < 1000


def calls_in_a_lift(name: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a method of `Choice` is called for a net with many views; at least once."""
    called = 0
    own = getattr(Choice, name)

    def counting(self: Choice, *given: Any) -> Any:
        nonlocal called
        called += 1
        return own(self, *given)

    monkeypatch.setattr(Choice, name, counting)
    lowered = core.lower(traced("inception"))
    lift(lowered, forgetting(lowered, ("In", "Const")))
    assert called
    return called


def test_an_opaque_operator_that_a_step_shows_may_read_what_the_program_does_not_have() -> None:
    x = ops.input("x", (2, 3), "float32")
    (back,) = ops.opaque(
        "Reverse", [ops.add(x, ops.full(0, (2, 3), "float32"))], [((3, 2), "float32")], "T", lambda a: (a.T,)
    )
    program = core.lower(Program((x,), {"y": back}))
    (node,) = program.roots
    (held,) = program.inputs
    (shown,) = Shaper(program.source_term).terms([make("Opaque", node.attrs, (held,))])
    assert (shown.op, shown.shape, shown.args) == ("opaque", (3, 2), (x,))
