"""Short names for core nodes and parts of networks, so that tests read like programs."""

from __future__ import annotations

from eqsat.egraph.snapshot import SOURCE, ENode, Snapshot
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node, make, topological
from eqsat.program.core_table import CoreOp

F = "float32"

CUMSUM = CoreOp(
    "CumSum",
    "C:int",
    "t[R C] -> t[R C]",
    lambda alg, at, attrs, args: alg.fold("sum", at[1] + 1, lambda k: args[0][at[0], k]),
    "a cumulative sum",
    "cumulative sums",
    work="R C",
    kinds="float int",
)
"""An operator that the core has not: a test may add it to the table."""


def x_(name: str, size: int) -> Node:
    return make("In", (name, size, F))


def c_(name: str, size: int) -> Node:
    return make("Const", (name, size, F))


def full(value: float, size: int) -> Node:
    return make("Full", (value, size, F))


def un(f: str, a: Node) -> Node:
    return make("Un", (f,), (a,))


def bin_(f: str, a: Node, b: Node) -> Node:
    return make("Bin", (f,), (a, b))


def mm(a: Node, b: Node, m: int, k: int, n: int, batch: int = 1) -> Node:
    return make("MM", (batch, m, k, n), (a, b))


def view(a: Node, layout: lay.Layout) -> Node:
    return make("V", (layout,), (a,))


def red(f: str, a: Node, width: int) -> Node:
    return make("Red", (f, width), (a,))


def by_row(a: Node, width: int) -> Node:
    """One value a row, read by every element of it."""
    return view(a, lay.strided(0, ((a.size, 1), (width, 0))))


def softmax(a: Node, width: int) -> Node:
    e = un("exp", bin_("sub", a, by_row(red("max", a, width), width)))
    return bin_("div", e, by_row(red("sum", e, width), width))


def layernorm(a: Node, width: int) -> Node:
    rows = a.size // width
    share = full(1 / width, rows)
    d = bin_("sub", a, by_row(bin_("mul", red("sum", a, width), share), width))
    variance = bin_("mul", red("sum", bin_("mul", d, d), width), share)
    return bin_("div", d, by_row(un("sqrt", bin_("add", variance, full(1e-5, rows))), width))


HEADS = lay.of_transpose((128, 4, 16), (1, 0, 2))
BACK = lay.of_transpose((4, 128, 16), (1, 0, 2))


def linear(a: Node, name: str, n: int = 64, m: int = 128) -> Node:
    k = a.size // m
    bias = view(c_(f"b{name}", n), lay.strided(0, ((m, 0), (n, 1))))
    return bin_("add", mm(a, c_(f"w{name}", k * n), m, k, n), bias)


def silu(a: Node) -> Node:
    return bin_("mul", a, un("sigmoid", a))


def attention(a: Node) -> Node:
    q, k, v = (view(linear(a, name), HEADS) for name in "qkv")
    scores = mm(q, view(k, lay.of_transpose((4, 128, 16), (0, 2, 1))), 128, 16, 128, batch=4)
    mixed = mm(softmax(scores, 128), v, 128, 128, 16, batch=4)
    return layernorm(bin_("add", linear(view(mixed, BACK), "o"), a), 64)


def snapshot_of(roots: list[Node], equal: list[tuple[Node, Node]]) -> Snapshot:
    """The roots, with the second node of each pair as another way to compute the first."""
    every = [*roots, *(n for pair in equal for n in pair)]
    snapshot, own = Snapshot.from_core(every), set(topological(roots))
    rules = [SOURCE if n in own else "given" for n in topological(every)]
    ids = snapshot.roots
    merged = {ids[len(roots) + 2 * i + 1]: ids[len(roots) + 2 * i] for i in range(len(equal))}
    final = [merged.get(c, c) for c in range(snapshot.n_classes)]
    kept = sorted(set(final))
    number = {c: i for i, c in enumerate(kept)}
    new = [number[c] for c in final]
    nodes = [
        ENode(n.op, n.attrs, tuple(new[a] for a in n.args), new[n.cls], rule)
        for n, rule in zip(snapshot.nodes, rules, strict=True)
    ]
    const = [snapshot.const[c] for c in kept]
    return Snapshot(nodes, len(kept), const, [new[c] for c in ids[: len(roots)]])
