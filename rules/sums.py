"""Sums of products as one product over a longer axis, the cheapest order of longer chains of products, and products
whose right factor is made by columns."""

from __future__ import annotations

from collections.abc import Callable

from eqsat.egraph.host_terms import Term, Terms
from eqsat.egraph.snapshot import ENode
from eqsat.language.rule import HostRule
from eqsat.layout import arithmetic as lt
from eqsat.layout.arithmetic import Layout

Emit = Callable[[int, Term], None]

# Chains of two products are the business of the association rules.
_SHORTEST_CHAIN = 4
_LONGEST_CHAIN = 64


def _sum_of_products(graph: Terms, emit: Emit) -> None:
    """a1 @ b1 + ... + an @ bn + rest = [a1 ... an] @ [b1; ...; bn] + rest, at the top of each tree of additions."""
    for cls in graph.sums():
        products, rest = _addends(graph, cls)
        for group in _by_shape(products):
            others = rest + [n.cls for n in products if n not in group]
            joined: Term = _join(graph, group)
            for other in others:
                joined = graph.make("Bin", ("add",), (joined, other))
            emit(cls, joined)


def _addends(graph: Terms, top: int) -> tuple[list[ENode], list[int]]:
    """The products and the other addends of a tree of additions, left to right."""

    def product(cls: int) -> ENode | None:
        return None if cls == top else next(graph.of(cls, "MM"), None)

    addends = [(cls, product(cls)) for cls in graph.addends(top, whole=lambda cls: product(cls) is not None)]
    return [node for _, node in addends if node is not None], [cls for cls, node in addends if node is None]


def _by_shape(products: list[ENode]) -> list[list[ENode]]:
    """Products that can be joined along k: one batch, equal rows and columns, no factor common to all."""
    groups: dict[tuple[int, int], list[ENode]] = {}
    for node in products:
        batch, m, _, n = node.attrs
        if batch == 1:
            groups.setdefault((m, n), []).append(node)
    return [
        g for g in groups.values() if len(g) > 1 and all(len({n.args[side] for n in g}) == len(g) for side in (0, 1))
    ]


def _join(graph: Terms, group: list[ENode]) -> Term:
    m, n = group[0].attrs[1], group[0].attrs[3]
    k = sum(node.attrs[2] for node in group)
    left = graph.cat([graph.swapped(node.args[0], 1, m, node.attrs[2]) for node in group])
    return graph.product(graph.swapped(left, 1, k, m), graph.cat([node.args[1] for node in group]), 1, m, k, n)


def _chain_order(graph: Terms, emit: Emit) -> None:
    """The order of a chain of products with the fewest multiplications; products of constants cost nothing."""
    for cls in dict.fromkeys(n.cls for n in graph.nodes("MM")):
        if graph.const(cls):
            continue
        batch, factors, dims = _factors(graph, cls)
        if _SHORTEST_CHAIN <= len(factors) <= _LONGEST_CHAIN:
            emit(cls, _best_order(graph, batch, factors, dims))


def _factors(graph: Terms, cls: int) -> tuple[int, list[int], list[int]]:
    """(batch, factors, the sizes between and around them) of a chain of products."""
    top = next(graph.of(cls, "MM"))
    batch = top.attrs[0]
    factors: list[int] = []
    dims = [top.attrs[1]]
    stack: list[tuple[int, int]] = [(top.args[1], top.attrs[3]), (top.args[0], top.attrs[2])]
    while stack:
        at, columns = stack.pop()
        rows = dims[-1]
        inner = next(
            (n for n in graph.of(at, "MM") if (n.attrs[0], n.attrs[1], n.attrs[3]) == (batch, rows, columns)), None
        )
        if inner is None or len(factors) + len(stack) > _LONGEST_CHAIN:
            factors.append(at)
            dims.append(columns)
        else:
            stack += [(inner.args[1], columns), (inner.args[0], inner.attrs[2])]
    return batch, factors, dims


def _best_order(graph: Terms, batch: int, factors: list[int], dims: list[int]) -> Term:
    """Dynamic programming over all orders (Godbole, 1973)."""
    n = len(factors)
    const = [graph.const(f) for f in factors]
    cost = [[0] * n for _ in range(n)]
    cut = [[0] * n for _ in range(n)]
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            free = all(const[i : j + 1])
            cost[i][j], cut[i][j] = min(
                (cost[i][s] + cost[s + 1][j] + (0 if free else dims[i] * dims[s + 1] * dims[j + 1]), s)
                for s in range(i, j)
            )

    def build(i: int, j: int) -> Term:
        if i == j:
            return factors[i]
        s = cut[i][j]
        return graph.product(build(i, s), build(s + 1, j), batch, dims[i], dims[s + 1], dims[j + 1])

    return build(0, n - 1)


def _by_rows(graph: Terms, emit: Emit) -> None:
    """a @ b = (b.T @ a.T).T, where b is made by columns and the product is not yet written so."""
    for node in graph.nodes("MM"):
        batch, m, k, n = node.attrs
        left, right = node.args
        rows = _rows(graph, right, batch, k, n)
        if rows is not None and not _is_turned(graph, node):
            turned = graph.product(rows, graph.swapped(left, batch, m, k), batch, n, k, m)
            emit(node.cls, graph.swapped(turned, batch, n, m))


def _rows(graph: Terms, factor: int, batch: int, k: int, n: int) -> Term | None:
    """A factor [batch, k, n] transposed, if each of its columns is scaled or shifted by a value of its own that varies:
    other products may multiply these as rows."""
    if graph.const(factor) or k == 1:
        return None
    turned = lt.of_transpose((batch, n, k), (0, 2, 1))
    for view in graph.of(factor, "V"):
        (rows,) = view.args
        if view.attrs[0] == turned and _repeats(graph, rows, lt.strided(0, ((batch * n, 1), (k, 0)))):
            return rows
    by_columns = _repeats(graph, factor, lt.strided(0, ((batch, n), (k, 0), (n, 1))))
    return graph.swapped(factor, batch, k, n) if by_columns else None


def _repeats(graph: Terms, cls: int, layout: Layout) -> bool:
    """Whether a class is made of two operands, one of which varies and repeats its values so."""
    made_of = (a for binary in graph.of(cls, "Bin") for a in binary.args if not graph.const(a))
    return any(view.attrs[0] == layout for a in made_of for view in graph.of(a, "V"))


def _is_turned(graph: Terms, node: ENode) -> bool:
    """Whether a transposed product is in the class of a product."""
    batch, m, _, n = node.attrs
    turned = lt.of_transpose((batch, n, m), (0, 2, 1))
    views = (view.args[0] for view in graph.of(node.cls, "V") if view.attrs[0] == turned)
    return any(next(graph.of(a, "MM"), None) is not None for a in views)


RULES: tuple[HostRule, ...] = (
    HostRule(
        "matmul-with-columns-on-the-right",
        "a @ b => (b.T @ a.T).T",
        _by_rows,
        "exact",
        "DeBERTa: normed rows times weights are queries, and weights times normed columns keys, already transposed",
        "written transposed, the product is one with others of the same rows",
        guard_text="columns of b are scaled or shifted, each by a value of its own that varies",
    ),
    HostRule(
        "sum-of-matmuls",
        "a1 @ b1 + a2 @ b2 => cat(a1, a2, axis=1) @ cat(b1, b2, axis=0)",
        _sum_of_products,
        "reassociating",
        "TENSAT (MLSys 2021), recurrent cells; MIGraphX add-convs",
        "a sum of products is one product over a longer axis",
        guard_text="one batch, equal rows and columns, no shared factor",
        phase="before-groups",
    ),
    HostRule(
        "matmul-chain",
        "((a @ b) @ c) @ d => the order with the fewest multiplications",
        _chain_order,
        "reassociating",
        "S. Godbole, On efficient computation of matrix chain products (1973)",
        "moving one pair at a time can stick where each single step costs more",
        guard_text="four factors or more, one batch",
        phase="before-groups",
    ),
)
