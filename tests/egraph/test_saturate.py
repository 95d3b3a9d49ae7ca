"""Saturation: every e-node has the value of its class; limits are kept; the result is deterministic."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from itertools import pairwise
from math import nan
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.base.worker import Worker
from eqsat.egraph.host_terms import Term, Terms
from eqsat.egraph.saturate import Growing, Limits, Saturation, saturate, warm_up
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import EqsatError
from eqsat.evidence.reference import apply, class_values, close, term_value
from eqsat.language.equation import rule
from eqsat.language.rule import HostRule, Policy
from eqsat.layout.arithmetic import strided
from eqsat.program import composites, ops
from eqsat.program.core import lower
from eqsat.program.ir import Program
from eqsat.program.node import make
from eqsat.program.term import Term as ShapedTerm
from eqsat.rules import ALL, allowed
from eqsat.testing import programs
from support.programs import weight, wide_sum

spec = eqsat.spec
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def snapshot_of(program: Program) -> Snapshot:
    return Snapshot.from_core(lower(program).roots)


def leaves_of(snapshot: Snapshot, seed: int = 0) -> dict[str, np.ndarray]:
    """Small whole numbers for inputs and constants alike: sums and products of them are exact."""
    rng = np.random.default_rng(seed)
    found = {n.attrs[0]: n.attrs for n in snapshot.nodes if n.op in ("In", "Const")}
    return {name: rng.integers(-3, 4, size).astype(np.float64) for name, (_, size, _) in sorted(found.items())}


def towers(widths: list[int], count: int, join: bool):
    weights = [[(weight(a, b) + t, weight(b) + t) for a, b in pairwise(widths)] for t in range(count)]

    def function(x):
        outs = []
        for t, layers in enumerate(weights):
            h = x[:, t * widths[0] : (t + 1) * widths[0]]
            for w, b in layers:
                h = eqsat.relu(h @ w + b)
            outs.append(h)
        return eqsat.concat(outs, 1) if join else tuple(outs)

    return eqsat.trace(function, spec((3, widths[0] * count)))


def low_rank(x: Any, width: int, to: int) -> Any:
    """A layer with an adapter of rank 2, scaled."""
    return x @ weight(width, to) + (x @ weight(width, 2)) @ weight(2, to) * 2.0


PROGRAMS = {
    "chain with constants": lambda: eqsat.trace(
        lambda x: ((x @ weight(4, 6)) @ weight(6, 3)) @ weight(3, 5), spec((7, 4))
    ),
    "chain of inputs": lambda: eqsat.trace(
        lambda a, b, c, d: a @ b @ c @ d, spec((2, 7)), spec((7, 3)), spec((3, 8)), spec((8, 4))
    ),
    "bias behind a product": lambda: eqsat.trace(
        lambda x, y: (x @ (y @ weight(3, 4) + weight(4))) @ weight(4, 5), spec((2, 6)), spec((6, 3))
    ),
    "heads": lambda: eqsat.trace(
        lambda x: (x @ weight(6, 12)).reshape(4, 3, 4).transpose((1, 0, 2))[1:2] * 0.5, spec((4, 6))
    ),
    "towers joined": lambda: towers([4, 3, 2], 3, join=True),
    "towers apart": lambda: towers([4, 3, 2], 3, join=False),
    "wide sum of equal nets": lambda: eqsat.trace(wide_sum(4, 5, [3, 3, 3]), spec((3, 4))),
    "wide sum of unequal nets": lambda: eqsat.trace(wide_sum(4, 5, [2, 3, 4]), spec((3, 4))),
    "three widths on one input": lambda: eqsat.trace(
        lambda x: (eqsat.relu(x @ weight(4, 2)), eqsat.relu(x @ weight(4, 3)), eqsat.relu(x @ weight(4, 5))),
        spec((3, 4)),
    ),
    "sums of a product": lambda: eqsat.trace(
        lambda a, b: ((a @ b).sum((0, 1)), (a @ b).sum(0), (a @ b).sum(-1), (a @ b + 1.0).mean(1)),
        spec((2, 3, 4)),
        spec((2, 4, 5)),
    ),
    "low rank": lambda: eqsat.trace(lambda x: x @ weight(4, 5) + (x @ weight(4, 2)) @ weight(2, 5) * 2.0, spec((3, 4))),
    "low rank behind a scale": lambda: eqsat.trace(
        lambda x: low_rank(eqsat.relu(low_rank(x, 6, 8)) * 0.5, 8, 6),
        spec((5, 6)),
    ),
    "units that must not breed": lambda: eqsat.trace(
        lambda x: (
            x
            + eqsat.gelu(eqsat.layernorm(x, np.ones(4, np.float32), np.zeros(4, np.float32)) @ weight(4, 6))
            @ weight(6, 4)
        ),
        spec((3, 4)),
    ),
    "convolutions": lambda: eqsat.trace(
        lambda x, w, v: eqsat.concat(
            [eqsat.conv(x, w, pads_lo=(1, 1), pads_hi=(1, 1)), eqsat.conv(x, v, pads_lo=(1, 1), pads_hi=(1, 1))], 1
        ),
        spec((2, 3, 4, 4)),
        spec((2, 3, 3, 3)),
        spec((4, 3, 3, 3)),
    ),
}


def check_every_e_node_evaluates_to_its_class(snapshot: Snapshot, leaves: dict[str, Any]) -> None:
    """Up to the rounding of numbers to the class's own dtype, whatever that of the leaves."""
    values = class_values(snapshot, leaves)
    for node in snapshot.nodes:
        own = term_value((node.op, node.attrs, node.args), values, leaves)
        assert close(own, values[node.cls], snapshot.dtype[node.cls]), f"{node} gives {own}, not {values[node.cls]}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_e_node_evaluates_to_its_class(name: str):
    found = Saturation(snapshot_of(PROGRAMS[name]()), ALL, Limits(seconds=20)).run()
    assert found.stats["stop"] == "saturated"
    check_every_e_node_evaluates_to_its_class(found, leaves_of(found))


def normed_heads(x: Any) -> Any:
    """Heads of products that read one norm: groups of them repeat its reciprocal root in many shapes."""
    h = eqsat.rmsnorm(x)
    q, k, v = ((h @ (weight(16, 16) + i)).reshape(16, 4, 4).transpose((1, 0, 2)) for i in range(3))
    return eqsat.softmax(q @ k.transpose((0, 2, 1)) + 1.0) @ v


def test_no_value_is_read_from_what_repeats_it():
    found = Saturation(snapshot_of(eqsat.trace(normed_heads, spec((16, 16)))), ALL, Limits(seconds=20)).run()
    assert found.stats["stop"] == "saturated"
    assert "group-siblings" in found.stats["matches"]
    views = [n for n in found.nodes if n.op == "V"]
    bases: dict[int, set[int]] = {}
    for node in views:
        bases.setdefault(node.cls, set()).add(node.args[0])
    numbers = {n.cls for n in found.nodes if n.op == "Full"}
    for node in (n for n in views if n.rule):
        (base,) = node.args
        smaller = {a for a in bases.get(base, ()) if found.size[a] < found.size[base]}
        assert not smaller & (bases[node.cls] | {node.cls}), f"{node} has another form"
        assert node.cls not in numbers, f"{node} is a number"
        assert node.cls != base, f"{node} says nothing"


@given(program=programs(dtypes=("float64",), max_ops=8), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=SLOW)
def test_random_programs_stay_sound(program: Program, seed: int):
    source = snapshot_of(program)
    if any(n.op in ("Opaque", "Gather") for n in source.nodes):
        return
    found = Saturation(source, [r for r in ALL if r.numerics == "exact"], Limits(seconds=5, nodes=2000)).run()
    leaves = {
        n.attrs[0]: np.random.default_rng(seed).integers(-3, 4, n.attrs[1]).astype(n.attrs[2])
        for n in source.nodes
        if n.op in ("In", "Const")
    }
    check_every_e_node_evaluates_to_its_class(found, leaves)


HOST_RULE_PROGRAMS = [
    PROGRAMS[name] for name in ("towers apart", "wide sum of unequal nets", "chain of inputs", "low rank")
]


def test_host_rules_emit_only_equal_terms():
    fired = set()
    for make_program in [*HOST_RULE_PROGRAMS, PROGRAMS["towers joined"], PROGRAMS["three widths on one input"]]:
        found = Saturation(snapshot_of(make_program()), ALL, Limits(seconds=20)).run()
        leaves = leaves_of(found)
        values = class_values(found, leaves)
        for row in ALL:
            if not isinstance(row, HostRule):
                continue
            emitted: list[tuple[int, Term]] = []
            row.apply(Terms(found), lambda cls, term, into=emitted: into.append((cls, term)))
            for cls, term in emitted:
                fired.add(row.name)
                np.testing.assert_allclose(term_value(term, values, leaves), values[cls], err_msg=row.name)
    assert len(fired) >= 5, fired


def test_a_result_is_the_same_every_time():
    source = snapshot_of(PROGRAMS["towers apart"]())
    first, second = (saturate(source, ALL) for _ in range(2))
    assert first.nodes == second.nodes
    assert first.roots == second.roots


def test_an_iteration_derives_its_classes_once(monkeypatch: pytest.MonkeyPatch):
    source = snapshot_of(PROGRAMS["towers apart"]())
    derived: list[Snapshot] = []
    derive = Snapshot._derive
    monkeypatch.setattr(Snapshot, "_derive", lambda self: (derived.append(self), derive(self)))
    found = Saturation(source, ALL, Limits(seconds=30)).run()
    assert found.stats["stop"] == "saturated"
    assert len(derived) == found.stats["iterations"]


def exploding() -> Program:
    return eqsat.trace(lambda *xs: sum(xs[1:], xs[0]), *[spec((4,)) for _ in range(14)])


EXPLODING_RULES = [
    rule("commute", "a + b == b + a", numerics="reassociating", source="test", why="test"),
    rule("associate", "(a + b) + c == a + (b + c)", numerics="reassociating", source="test", why="test"),
]


def test_an_e_graph_goes_on_with_what_else_is_equal(monkeypatch: pytest.MonkeyPatch):
    """It is made once: the worker is sent pairs of classes alone, unless it has another e-graph by then."""
    sent: list[Any] = []
    send = Worker.send
    monkeypatch.setattr(Worker, "send", lambda self, request: (sent.append(request.source), send(self, request)))
    x, *named = (make("In", (name, 4, "float32")) for name in "xabc")
    a, *others = (make("Un", ("tanh",), (each,)) for each in named)
    source = Snapshot.from_core([make("Bin", ("add",), args) for args in ((a, x), *((x, each) for each in others))])
    limits, goals = Limits(seconds=30), [(0, 1), (0, 2)]

    def pair(found: Snapshot, *args: str) -> tuple[int, int]:
        one, other = (found.find("In", (name, 4, "float32"), ()) for name in args)
        assert one is not None
        assert other is not None
        return one, other

    with Growing(EXPLODING_RULES) as live:
        first = live.saturate(source, (), limits, goals)
        second = live.saturate(first, [pair(first, "a", "b")], limits, goals)
        third = live.saturate(second, [pair(second, "b", "c")], limits, goals)
        again = live.saturate(first, [pair(first, "a", "b"), pair(first, "a", "c")], limits, goals)
    assert [found.stats["stop"] for found in (first, second, third, again)] == [
        "saturated",
        "saturated",
        "goal",
        "goal",
    ]
    assert len({*second.roots}) == 2
    made = [source for source in sent if source is not None]
    assert [len(source.roots) for source in made] == [3, 3]
    assert len(set(third.nodes)) == len(third.nodes) == len(again.nodes)


def test_the_time_limit_is_kept():
    begun = time.monotonic()
    found = saturate(snapshot_of(exploding()), EXPLODING_RULES, Limits(seconds=1.0, nodes=10**9))
    assert found.stats["stop"] == "time"
    assert time.monotonic() - begun < 2.5
    assert len(found.nodes) >= 27


@pytest.mark.parametrize("seconds", [1.0, 2.0, 3.0, 4.5])
def test_no_iteration_begins_that_would_end_after_the_limit(seconds: float, monkeypatch: pytest.MonkeyPatch):
    class Counting:
        """A clock by which whatever is timed takes as long as there are e-nodes."""

        now = 0.0

        def monotonic(self) -> float:
            self.now += 1e-4 * max((len(x.nodes) for x in sent), default=1)
            return self.now

    sent: list[Snapshot] = []
    clock = Counting()
    monkeypatch.setattr("eqsat.egraph.saturate.time", clock)
    run = Saturation(
        snapshot_of(exploding()),
        EXPLODING_RULES,
        Limits(seconds=seconds, nodes=10**9),
        lambda kind, content: sent.append(content) if kind == "checkpoint" else None,
    )
    found = run.run()
    assert found.stats["stop"] == "time"
    assert len(found.nodes) > 27
    assert clock.now <= seconds


def test_the_node_limit_is_kept():
    found = saturate(snapshot_of(exploding()), EXPLODING_RULES, Limits(seconds=20, nodes=300))
    assert found.stats["stop"] == "nodes"


def test_a_strict_limit_on_nodes_is_not_exceeded():
    source = snapshot_of(exploding())
    beyond, within = (
        saturate(source, EXPLODING_RULES, Limits(seconds=20, nodes=300, strict=strict)) for strict in (False, True)
    )
    assert len(source.nodes) < len(within.nodes) <= 300 < len(beyond.nodes)
    assert within.stats["stop"] == "nodes"
    assert within.stats["growth"] == beyond.stats["growth"][:-1]
    assert within.stats["growth"][-1][1] == len(within.nodes)
    assert within.stats["iterations"] == beyond.stats["iterations"] - 1
    assert within.stats["matches"] == dict(sum(map(Counter, within.stats["new_matches"]), Counter()))


def test_a_strict_limit_on_nodes_holds_for_groups_too():
    """Products of one value are joined once nothing else is found: that is the step which exceeds the limit here."""
    program = eqsat.trace(lambda x: tuple(x @ weight(8, 4, seed=i) for i in range(4)), spec((8, 8)))
    source = snapshot_of(program)
    rules = allowed(list(ALL), "reassociate")
    whole = saturate(source, rules)
    assert whole.stats["stop"] == "saturated"
    for nodes in range(len(source.nodes), len(whole.nodes)):
        found = saturate(source, rules, Limits(nodes=nodes, strict=True))
        assert found.stats["stop"] == "nodes"
        assert len(found.nodes) <= nodes or found.stats["iterations"] == 1
        assert found.stats["growth"][-1][1] == len(found.nodes)


def test_the_memory_limit_leaves_a_result():
    limits = Limits(seconds=30, nodes=10**9, memory=500 << 20)
    found = saturate(snapshot_of(exploding()), EXPLODING_RULES, limits)
    assert found.stats["stop"] in ("memory", "time")
    assert found.roots


def test_ctrl_c_returns_the_best_so_far():
    timer = threading.Timer(1.0, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    begun = time.monotonic()
    found = saturate(snapshot_of(exploding()), EXPLODING_RULES, Limits(seconds=30, nodes=10**9))
    assert found.stats["stop"] == "interrupted"
    assert time.monotonic() - begun < 2.5


def test_ctrl_c_while_a_message_is_sent_does_not_spoil_the_next_one(monkeypatch: pytest.MonkeyPatch):
    source = snapshot_of(PROGRAMS["low rank"]())

    def half(pipe: Any, number: int, data: bytes) -> None:
        pipe.write(b"\xff" * 4)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("eqsat.base.worker._write", half)
        with pytest.raises(KeyboardInterrupt):
            warm_up(EXPLODING_RULES)
    assert saturate(source, ALL).stats["stop"] == "saturated"


@pytest.mark.parametrize("times", [2, 3, 4, 5])
def test_what_undoes_itself_keeps_a_derivation(times: int):
    """Rules that drop what they match leave every class something to compute it by."""
    x = ops.input("x", (2, 3))

    def turned(t: ShapedTerm) -> ShapedTerm:
        return ops.slice_(t, [None], [None], None, [-1])

    for turn in (ops.neg, ops.abs_, turned):
        value = ops.exp(x)
        for _ in range(times):
            value = turn(value)
        found = saturate(Snapshot.from_core(lower(Program((x,), {"y": ops.sqrt(value)})).roots), ALL)
        assert all(best >= 0 for best in found.best)


def test_an_unsound_rule_that_changes_a_size_is_an_error_that_names_saturation():
    unsound = rule("unsound", "sum(a) == a", numerics="reassociating", source="test", why="test")
    with pytest.raises(EqsatError, match="saturation failed"):
        saturate(snapshot_of(eqsat.trace(lambda x: x.sum(0), spec((3, 4)))), [unsound])


def test_the_next_request_works_after_a_failure():
    found = saturate(snapshot_of(PROGRAMS["low rank"]()), ALL)
    assert found.stats["stop"] == "saturated"


SUMS_OF_CONSTANTS = {
    "in any order": lambda x, a, b, c, d: (((x + a) + b) + c) + d,
    "around other addends": lambda x, a, b, c, d: ((((x + a) + eqsat.relu(x)) + b) + eqsat.exp(x) + c) + d,
    "scaled": lambda x, a, b, c, d: (((x + a) * d + b) * c + a) * d,
    "added up": lambda x, a, b, c, d: ((x + a) + b).sum(1) * 0.25 + (((x + c) + d) + a).sum(1),
}


@pytest.mark.parametrize("name", SUMS_OF_CONSTANTS)
def test_equal_sums_of_constants_are_one_class(name: str):
    rng = np.random.default_rng(5)
    weights = [rng.standard_normal((6, 7)).astype(np.float32) for _ in range(4)]
    program = eqsat.trace(lambda x: SUMS_OF_CONSTANTS[name](x, *weights), eqsat.spec((6, 7)))
    core = lower(program)
    found = saturate(Snapshot.from_core(core.roots), allowed(ALL, "reassociate"))
    assert found.stats["stop"] == "saturated"
    assert found.stats["matches"].get("equal-sums-of-constants", 0) > 0
    leaves = {n.attrs[0]: rng.standard_normal(n.attrs[1]) for n in found.nodes if n.op == "Const"}
    values: dict[int, np.ndarray] = {}
    for cls in sorted((c for c in range(found.n_classes) if found.const[c]), key=lambda c: found.depth[c]):
        node = found.nodes[found.best[cls]]
        attrs = (*node.attrs[:2], "float64") if node.op == "Full" else node.attrs
        held = leaves[node.attrs[0]] if node.op == "Const" else apply(node.op, attrs, [values[a] for a in node.args])
        values[cls] = np.asarray(held, np.float64)
    sums = [v for c, v in values.items() if any(n.op == "Bin" for n in found.of_class(c))]
    for i, value in enumerate(sums):
        assert not any(v.size == value.size and np.allclose(v, value, rtol=1e-9) for v in sums[:i])


def second_moment(x: Any, axis: int) -> Any:
    return (x * x).mean(axis, keepdims=True)


def less_its_mean(x: Any, axis: int) -> Any:
    return x - x.mean(axis, keepdims=True)


OF_REPEATED = {
    "layernorm": eqsat.layernorm,
    "softmax": eqsat.softmax,
    "rmsnorm": lambda x: x / eqsat.sqrt(second_moment(x, -1) + 1e-5),
    "variance": lambda x: second_moment(less_its_mean(x, -1), -1),
    "less the mean of rows": lambda x: less_its_mean(x, -1),
    "instance norm": lambda x: less_its_mean(x, 0) / eqsat.sqrt(second_moment(less_its_mean(x, 0), 0) + 1e-5),
    "softmax of layernorm": lambda x: eqsat.softmax(eqsat.layernorm(x)),
    "layernorm twice": lambda x: eqsat.layernorm(eqsat.layernorm(x)),
    "log_softmax, then softmax": lambda x: eqsat.softmax(eqsat.log_softmax(x)),
}


@pytest.mark.parametrize("shape", [(4, 1), (1, 3), (3,), (1, 1)])
@pytest.mark.parametrize("name", OF_REPEATED)
def test_multiples_of_what_is_repeated_come_to_an_end(name: str, shape: tuple[int, ...]):
    """x - x is any multiple of itself, and the mean of x repeated is x: a third, rounded, of three times x."""
    for dtype in ("float32", "float16"):
        program = eqsat.trace(lambda x: OF_REPEATED[name](eqsat.broadcast_to(x, (4, 3))), spec(shape, dtype))
        found = saturate(snapshot_of(program), allowed(ALL, "reassociate"), Limits(nodes=1000))
        assert found.stats["stop"] == "saturated"
        assert len(found.nodes) < 150
        assert all(best >= 0 for best in found.best), "every class keeps a derivation"


def test_multiples_of_nothing_come_to_an_end_where_they_are_written():
    program = eqsat.trace(lambda x: (x - x) * 3.0 * (1 / 3) * 0.1 + (x - x) * 7.0, spec((4,)))
    found = saturate(snapshot_of(program), ALL, Limits(nodes=1000))
    assert found.stats["stop"] == "saturated"
    assert all(best >= 0 for best in found.best)


@pytest.mark.parametrize(("held", "asked", "there"), [(nan, -nan, True), (0.0, 0.0, True), (0.0, -0.0, False)])
def test_an_e_node_is_found_by_the_value_of_its_attributes(held: float, asked: float, there: bool):
    made = Snapshot.from_core([make("Full", (held, 4, "float32"))])
    assert (made.find("Full", (asked, 4, "float32"), ()) == 0) == there


def test_kernels_beside_a_nan_are_found_again_in_the_e_graph():
    x = ops.input("x", (4, 3))
    program = Program(
        (x,), {"y": ops.min_(ops.reduce("sum", ops.matmul(x, ops.transpose(x)), (1,)), ops.full(nan, (4,)))}
    )
    assert "fallback" not in eqsat.optimize(program, time_limit=5.0).report


def test_every_class_keeps_a_derivation_where_rules_subsume_what_others_made():
    x = ops.input("x", (1, 1), "float64")
    repeated = ops.broadcast(ops.sub(x, ops.full(1 / 3, (1, 1), "float64")), (2, 4, 3))
    program = Program((x,), {"y": composites.layernorm(repeated)})
    found = saturate(snapshot_of(program), allowed(ALL, "reassociate"), Limits(seconds=60.0))
    assert found.stats["stop"] == "saturated"  # a class without derivation had been taken for another
    assert -1 not in found.best


def test_sizes_beyond_64_bits_are_no_answer():
    """A table may compute the layout of an array that no program could have; the rule that asked does not fire."""
    through = rule(
        "through", "sum(a)[L] == sum(a[W].reshape(..., C))", when="W = widen(L, C)",
        numerics="reassociating", source="test", why="test",
    )  # fmt: skip
    sums = make("Red", ("sum", 1 << 18), (make("In", ("x", 1 << 20, "float32")),))
    for times, fires in ((2, True), (1 << 44, False)):
        repeated = make("V", (strided(0, [(4, 1), (times, 0)]),), (sums,))
        found = Saturation(Snapshot.from_core([repeated]), [through], Limits(iterations=4)).run()
        assert found.stats["stop"] == "saturated"
        assert bool(found.stats["matches"]) == fires


@pytest.mark.parametrize("policy", ["exact", "reassociate"])
@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["max", "min", "log_softmax"])
def test_what_is_joined_with_itself_is_not_joined_again_and_again(name: str, axis: int, times: int, policy: Policy):
    def function(x):
        joined = eqsat.concat([x] * times, axis)
        if name == "log_softmax":
            return eqsat.log_softmax(joined, axis)
        return joined - getattr(eqsat, name)(joined, axis, keepdims=True)

    source = snapshot_of(eqsat.trace(function, spec((4, 1), "float64")))
    found = saturate(source, allowed(ALL, policy), Limits(seconds=20))
    assert found.stats["stop"] == "saturated"
    assert max(found.size) <= 2 * times * max(source.size)
