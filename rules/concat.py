"""Rules over all members of an n-ary `Cat`: stack, concat and batch at once.

`Cat` joins flat arrays, so `Cat(MM_i) = MM(Cat a_i, Cat b_i; n*B)` turns a concatenation of products into one batched
product, and towers that end in a concat become batched towers with no rule of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial, reduce
from itertools import accumulate, pairwise

from eqsat.egraph.host_terms import Term, Terms
from eqsat.egraph.snapshot import ENode
from eqsat.language.rule import HostRule
from eqsat.layout import arithmetic as lt
from eqsat.layout.arithmetic import Layout
from eqsat.program.node import STEPS, is_elementwise

Emit = Callable[[int, Term], None]

_TOWERS = "MIGraphX PR 4723: horizontal fusion of MLP towers"


def _cat_of_one(graph: Terms, emit: Emit) -> None:
    for node in graph.nodes("Cat"):
        if len(node.args) == 1:
            emit(node.cls, node.args[0])


def _cat_of_equals(graph: Terms, emit: Emit) -> None:
    for node in graph.nodes("Cat"):
        if len(node.args) > 1 and len(set(node.args)) == 1:
            member = node.args[0]
            emit(node.cls, graph.view(member, lt.strided(0, [(len(node.args), 0), (graph.size(member), 1)])))


def _flatten(graph: Terms, emit: Emit) -> None:
    for node in graph.nodes("Cat"):
        finest = [graph.finest_cat(a) for a in node.args]
        if any(f is not None and f.cls != node.cls for f in finest):
            members = [m for a, f in zip(node.args, finest, strict=True) for m in ((a,) if f is None else f.args)]
            emit(node.cls, graph.cat(members))


def _views_of(graph: Terms, cls: int) -> list[tuple[int, Layout]]:
    """(base, layout) for every way in which a class is a plain view; itself included."""
    views = [(n.args[0], n.attrs[0]) for n in graph.of(cls, "V") if not n.attrs[0].masked]
    return [*views, (cls, lt.identity(graph.size(cls)))]


def _cat_of_views(graph: Terms, emit: Emit) -> None:
    """Views of one base that differ by a constant step are one view; runs that follow each other are one run."""
    for node in graph.nodes("Cat"):
        if len(node.args) < 2 or len(set(node.args)) == 1:
            continue
        views = [_views_of(graph, a) for a in node.args]
        shared = set.intersection(*({base for base, _ in v} for v in views))
        for base, layout in views[0]:
            if base in shared:
                joined = _join(base, layout, views[1:])
                if joined is not None:
                    emit(node.cls, graph.view(base, joined))


def _join(base: int, first: Layout, others: list[list[tuple[int, Layout]]]) -> Layout | None:
    if first.contiguous:
        end = first.offset + first.size
        for views in others:
            step = next((v for b, v in views if b == base and v.contiguous and v.offset == end), None)
            if step is None:
                break
            end += step.size
        else:
            return lt.strided(first.offset, [(end - first.offset, 1)])
    offsets = [first.offset]
    for views in others:
        step = next((v for b, v in views if b == base and v.dims == first.dims), None)
        if step is None:
            return None
        offsets.append(step.offset)
    pitch = offsets[1] - offsets[0]
    if pitch < 0 or any(b - a != pitch for a, b in pairwise(offsets)):
        return None
    return lt.strided(first.offset, [(len(offsets), pitch), *first.dims])


def _cat_of_equal_views(graph: Terms, emit: Emit) -> None:
    """Cat_i(V(x_i, L)) = V(Cat x_i, L') where the view does not shrink what it reads. Of constants it must repeat
    elements: they are joined before they are repeated, but not moved to and fro."""
    for node in graph.nodes("Cat"):
        if len(node.args) < 2:
            continue
        size = graph.size(node.args[0]) - graph.const(node.cls)
        keyed = [
            {
                (n.attrs[0], graph.size(n.args[0])): n.args[0]
                for n in graph.of(a, "V")
                if not n.attrs[0].masked and graph.size(n.args[0]) <= size
            }
            for a in node.args
        ]
        for (layout, base_size), first in keyed[0].items():
            bases = [k.get((layout, base_size)) for k in keyed]
            if None in bases or all(b == first for b in bases):
                continue
            whole = lt.strided(layout.offset, [(len(bases), base_size), *layout.dims])
            emit(node.cls, graph.view(graph.cat([b for b in bases if b is not None]), whole))


def _cat_of_operator(graph: Terms, emit: Emit) -> None:
    """Cat_i(f(x_i, ...)) = f(Cat x_i, ...) for elementwise operators, reductions and equal products."""
    for node in graph.nodes("Cat"):
        if graph.const(node.cls) or len(set(node.args)) < 2:
            continue  # equal members are one repeated view: joined again and again, maxima of these would never end
        keyed = [_operators(graph, a) for a in node.args]
        common = [k for k in keyed[0] if all(k in other for other in keyed[1:])]
        aligned = {k[:2] for k in common if k[2] is not None}
        for key in common:
            op, attrs, alike = key
            if alike is None and (op, attrs) in aligned:
                continue  # members with several operators each: pair those that are alike
            members = [k[key] for k in keyed]
            columns = [[m.args[i] for m in members] for i in range(len(members[0].args))]
            if any(len({graph.snapshot.dtype[a] for a in column}) > 1 for column in columns):
                continue
            operands = [graph.cat(column) for column in columns]
            if op == "MM":
                attrs = (attrs[0] * len(members), *attrs[1:])
            emit(node.cls, graph.make(op, attrs, operands))


def _operators(graph: Terms, cls: int) -> dict[tuple[str, tuple, tuple[str, int] | None], ENode]:
    """The e-nodes of a class that join with their like, keyed by operator, attributes and what makes them alike: an
    operand of products, or a constant that is the last operand, so that biases meet whatever side each was written. It
    may be added to a product (2): then biases meet however many constants follow each other."""
    found: dict[tuple[str, tuple, tuple[str, int] | None], ENode] = {}
    for i in graph.snapshot.members[cls]:
        node = graph.snapshot.nodes[i]
        if is_elementwise(node.op) or node.op in ("Red", "MM"):
            found.setdefault((node.op, node.attrs, None), node)
        if node.op == "MM":
            found[("MM", node.attrs, ("left", node.args[0]))] = node
            found[("MM", node.attrs, ("right", node.args[1]))] = node
        elif _constant_last(graph, node):
            found.setdefault((node.op, node.attrs, ("constant", 1)), node)
            if any(graph.of(node.args[0], "MM")):
                found.setdefault((node.op, node.attrs, ("constant", 2)), node)
    return found


def _constant_last(graph: Terms, node: ENode) -> bool:
    return node.op == "Bin" and [graph.const(a) for a in node.args] == [False, True]


def _cat_of_permuted_operators(graph: Terms, emit: Emit) -> None:
    """Cat_i(V(f(x_i), L_i)) = f(Cat_i V(x_i, L_i)) where each L_i only permutes: unequal members join too."""
    for node in graph.nodes("Cat"):
        if graph.const(node.cls) or len(set(node.args)) < 2:
            continue
        keyed = [_permuted_operators(graph, a) for a in node.args]
        for op, function in keyed[0]:
            if not all((op, function) in k for k in keyed[1:]):
                continue
            members = [k[op, function] for k in keyed]
            columns = [[(n.args[i], layout) for n, layout in members] for i in range(len(members[0][0].args))]
            if all(len({graph.snapshot.dtype[a] for a, _ in column}) == 1 for column in columns):
                operands = [graph.cat([graph.view(a, layout) for a, layout in column]) for column in columns]
                emit(node.cls, graph.make(op, (function,), operands))


def _permuted_operators(graph: Terms, cls: int) -> dict[tuple[str, str], tuple[ENode, Layout]]:
    """The elementwise operators whose results a class permutes, keyed by operator and function."""
    found: dict[tuple[str, str], tuple[ENode, Layout]] = {}
    for view in graph.of(cls, "V"):
        base, layout = view.args[0], view.attrs[0]
        if not lt.is_bijective(layout, graph.size(base)):
            continue
        for inner in (graph.snapshot.nodes[i] for i in graph.snapshot.members[base]):
            if inner.op in ("Un", "Bin"):
                key = inner.op, inner.attrs[0]
                if key not in found or (_constant_last(graph, inner) and not _constant_last(graph, found[key][0])):
                    found[key] = inner, layout
    return found


def _cat_of_tall_products(graph: Terms, emit: Emit) -> None:
    """Cat_i(MM(a_i, b)) = MM(Cat a_i, b): products of any heights with one right factor are one tall product."""
    for node in graph.nodes("Cat"):
        if graph.const(node.cls) or len(node.args) < 2:
            continue
        keyed = [
            {(n.attrs[2], n.attrs[3], n.args[1]): n for n in graph.of(a, "MM") if n.attrs[0] == 1} for a in node.args
        ]
        for key, first in keyed[0].items():
            members = [k.get(key) for k in keyed]
            found = [m for m in members if m is not None]
            if len(found) < len(members):
                continue
            k, n, right = key
            rows = sum(m.attrs[1] for m in found)
            if all(m.args[0] == first.args[0] for m in found):
                continue
            emit(node.cls, graph.product(graph.cat([m.args[0] for m in found]), right, 1, rows, k, n))


def _cat_of_gathers(graph: Terms, emit: Emit) -> None:
    """Cat_i(Gather(t_i, j_i)) = Gather(Cat t_i, Cat (j_i mod n_i + start_i)): constant tables, rows of one length."""
    for node in graph.nodes("Cat"):
        found = [next(graph.of(a, "Gather"), None) for a in node.args]
        gathers = [g for g in found if g is not None]
        if len(node.args) < 2 or len(gathers) < len(found) or any(not graph.const(g.args[0]) for g in gathers):
            continue
        tables, indices = zip(*(g.args for g in gathers), strict=True)
        rows = [g.attrs[1] for g in gathers]
        same_rows = len({(g.attrs[0], g.attrs[2]) for g in gathers}) == 1 and gathers[0].attrs[0] == 1
        types = {graph.snapshot.dtype[i] for i in indices}
        if not same_rows or len(types) > 1:
            continue
        inner = gathers[0].attrs[2]
        if len(set(tables)) == 1:
            emit(node.cls, graph.make("Gather", (1, rows[0], inner), (tables[0], graph.cat(indices))))
            continue
        dtype = types.pop()
        starts = accumulate(rows, initial=0)
        moved = [_moved(graph, i, n, start, dtype) for i, n, start in zip(indices, rows, starts, strict=False)]
        emit(node.cls, graph.make("Gather", (1, sum(rows), inner), (graph.cat(tables), graph.cat(moved))))


def _moved(graph: Terms, index: int, n: int, start: int, dtype: str) -> Term:
    """An index into [-n, n) counted from the front, then from `start`."""
    size = graph.size(index)
    counted = graph.make("Bin", ("mod",), (index, graph.make("Full", (n, size, dtype), ())))
    return graph.make("Bin", ("add",), (counted, graph.make("Full", (start, size, dtype), ()))) if start else counted


def _view_of_cat(graph: Terms, emit: Emit) -> None:
    """A view that stays inside some members reads only those."""
    for node in graph.nodes("V"):
        layout: Layout = node.attrs[0]
        cat = graph.finest_cat(node.args[0])
        if cat is None or layout.size == 0 or layout.all_filled:
            continue
        low, high = layout.reach
        ends = list(accumulate(graph.size(a) for a in cat.args))
        if low < 0 or high >= ends[-1]:
            continue  # masks keep it inside
        first = next(i for i, e in enumerate(ends) if low < e)
        last = next(i for i, e in enumerate(ends) if high < e)
        start = ends[first] - graph.size(cat.args[first])
        if first == last:
            emit(node.cls, graph.view(cat.args[first], layout.moved(start)))
        elif last - first + 1 < len(cat.args):
            inner = graph.snapshot.find("Cat", (), cat.args[first : last + 1])
            if inner is not None:
                emit(node.cls, graph.view(inner, layout.moved(start)))


def _members(graph: Terms, cls: int) -> tuple[int, ...]:
    """The members of the finest Cat of a class; none where it has no Cat."""
    cat = graph.finest_cat(cls)
    return () if cat is None else cat.args


def _operator_of_cats(graph: Terms, emit: Emit) -> None:
    """f(Cat x_i, Cat y_i) = Cat_i(f(x_i, y_i)) where both operands are joined; x_i and y_i end at the same places."""
    for node in graph.nodes("Bin"):
        columns = [_members(graph, a) for a in node.args]
        ends = set.intersection(*(set(accumulate(map(graph.size, column))) for column in columns))
        if len(ends) > 1 and not graph.const(node.cls):
            runs = [_runs(graph, column, ends) for column in columns]
            emit(node.cls, graph.cat([graph.make("Bin", node.attrs, pair) for pair in zip(*runs, strict=True)]))


def _runs(graph: Terms, members: Sequence[int], ends: Collection[int]) -> list[Term]:
    """Members joined up to each of these ends."""
    runs: list[Term] = []
    run: list[int] = []
    for member, end in zip(members, accumulate(map(graph.size, members)), strict=True):
        run.append(member)
        if end in ends:
            runs.append(graph.cat(run))
            run = []
    return runs


def _reduction_over_cat(graph: Terms, emit: Emit) -> None:
    """f.reduce([a b]) = f(f.reduce(a), f.reduce(b)): rows that are joined from the rows of several arrays."""
    for node in graph.nodes("Red"):
        fn, columns = node.attrs
        rows = graph.size(node.cls)
        members = _stack(graph, node.args[0], columns, 1)
        widths = _heights(graph, members, rows)
        if not widths or graph.const(node.cls) or fn not in STEPS:
            continue
        parts = [
            graph.make("Red", (fn, width), (graph.view(x, _exchange(width, rows, 1)),))
            for x, width in zip(members, widths, strict=True)
        ]
        emit(node.cls, reduce(lambda one, other: graph.make("Bin", (STEPS[fn],), (one, other)), parts))


def _reduction_of_stack(graph: Terms, emit: Emit) -> None:
    """f.reduce([a; b]) = [f.reduce(a); f.reduce(b)]: rows of several arrays below each other."""
    for node in graph.nodes("Red"):
        _, columns = node.attrs
        members = _members(graph, node.args[0])
        ends = {end for end in accumulate(map(graph.size, members)) if end % columns == 0}
        if len(ends) > 1 and not graph.const(node.cls):
            emit(node.cls, graph.cat([graph.make("Red", node.attrs, (rows,)) for rows in _runs(graph, members, ends)]))


def _product_over_cat(graph: Terms, emit: Emit) -> None:
    """MM(a, Cat b_i) = MM(a_1, b_1) + ... + MM(a_n, b_n), where a_i are the columns of `a` that meet the rows b_i."""
    for node in graph.nodes("MM"):
        batch, m, k, n = node.attrs
        left, right = node.args
        members = _members(graph, right)
        heights = _heights(graph, members, n)
        if batch > 1 or not heights or graph.const(node.cls):
            continue
        starts = accumulate(heights, initial=0)
        columns = [
            graph.view(left, lt.strided(start, [(m, k), (rows, 1)]))
            for start, rows in zip(starts, heights, strict=False)
        ]
        products = [graph.product(a, b, 1, m, rows, n) for a, b, rows in zip(columns, members, heights, strict=True)]
        emit(node.cls, reduce(lambda total, product: graph.make("Bin", ("add",), (total, product)), products))


def _product_of_blocks(graph: Terms, emit: Emit) -> None:
    """MM([a; b], c) = [MM(a, c); MM(b, c)] and MM(a, [b c]) = [MM(a, b) MM(a, c)]: blocks of rows, and of columns."""
    for node in graph.nodes("MM"):
        batch, m, k, n = node.attrs
        left, right = node.args
        if batch > 1 or graph.const(node.cls):
            continue
        above = _members(graph, left)
        heights = _heights(graph, above, k)
        if len(heights) > 1:
            rows = [graph.product(x, right, 1, height, k, n) for x, height in zip(above, heights, strict=True)]
            emit(node.cls, graph.cat(rows))
        beside = _stack(graph, right, n, 1)
        widths = _heights(graph, beside, k)
        if len(widths) > 1:
            columns = [
                graph.product(left, graph.view(x, _exchange(width, k, 1)), 1, m, k, width)
                for x, width in zip(beside, widths, strict=True)
            ]
            emit(node.cls, _beside(graph, columns, m, widths, 1))


def _exchange(rows: int, columns: int, inner: int) -> Layout:
    """The transpose of rows of columns, of so many elements each."""
    return lt.of_transpose((rows, columns, inner), (1, 0, 2))


def _stack(graph: Terms, cls: int, rows: int, inner: int) -> tuple[int, ...]:
    """The blocks below each other whose transpose a class is; they have this many rows together."""
    size = graph.size(cls)
    turned = _exchange(rows, size // (rows * inner), inner)
    if turned == lt.identity(size):
        return _members(graph, cls)
    bases = (n.args[0] for n in graph.of(cls, "V") if n.attrs[0] == turned and graph.size(n.args[0]) == size)
    return next(map(partial(_members, graph), bases), ())


def _heights(graph: Terms, blocks: Sequence[int], width: int) -> tuple[int, ...]:
    """The rows of each block; none where a block does not end with a row."""
    sizes = [graph.size(b) for b in blocks]
    return () if any(size % width for size in sizes) else tuple(size // width for size in sizes)


def _columns_of_blocks(graph: Terms, emit: Emit) -> None:
    """[[a; b] [c; d]] = [[a c]; [b d]]: blocks joined below each other first, or beside each other first."""
    for node in graph.nodes("V"):
        layout: Layout = node.attrs[0]
        members = _members(graph, node.args[0])
        if not members or graph.const(node.cls) or len(layout.dims) not in (2, 3):
            continue
        rows, columns, inner = (*(count for count, _ in layout.dims), 1)[:3]
        widths = [graph.size(x) // (rows * inner) for x in members]
        if layout != _exchange(columns, rows, inner) or sum(widths) != columns:
            continue
        stacks = [_stack(graph, x, rows, inner) for x in members]
        heights = {_heights(graph, stack, width * inner) for stack, width in zip(stacks, widths, strict=True)}
        if len(heights) == 1 and heights != {()}:
            bands = zip(heights.pop(), zip(*stacks, strict=True), strict=True)
            emit(node.cls, graph.cat([_beside(graph, blocks, height, widths, inner) for height, blocks in bands]))


def _beside(graph: Terms, blocks: Sequence[Term], height: int, widths: Sequence[int], inner: int) -> Term:
    """Blocks of one height and these widths side by side."""
    turned = [graph.view(b, _exchange(height, width, inner)) for b, width in zip(blocks, widths, strict=True)]
    return graph.view(graph.cat(turned), _exchange(sum(widths), height, inner))


RULES: tuple[HostRule, ...] = (
    HostRule("concat-of-one", "cat(a) => a", _cat_of_one, "exact", "definition of concat", "nothing to join"),
    HostRule(
        "concat-of-equals",
        "cat(a, ..., a) => a[repeat]",
        _cat_of_equals,
        "exact",
        "definition of concat",
        "copies are a broadcast",
    ),
    HostRule(
        "concat-of-concats",
        "cat(..., cat(a, ...), ...) => cat(..., a, ..., ...)",
        _flatten,
        "exact",
        "MIGraphX simplify_reshapes: nested concat",
        "one level of joining says everything",
    ),
    HostRule(
        "concat-of-slices",
        "cat(a[L1], ..., a[Ln]) => a[L]",
        _cat_of_views,
        "exact",
        f"TASO (SOSP 2019): split then concat; {_TOWERS}",
        "slices that follow each other are one slice",
        guard_text="equal layouts at equal steps, or runs end to end",
    ),
    HostRule(
        "concat-of-views",
        "cat(a1[L], ..., an[L]) => cat(a1, ..., an)[L']",
        _cat_of_equal_views,
        "exact",
        _TOWERS,
        "join first, view once",
        guard_text="equal layouts that do not shrink equal sizes",
    ),
    HostRule(
        "concat-of-operators",
        "cat(f(a1), ..., f(an)) => f(cat(a1, ..., an))",
        _cat_of_operator,
        "exact",
        f"MIGraphX simplify_algebra: concat of equal ops; {_TOWERS}",
        "n small kernels become one; n products become one batched product",
        guard_text="one operator with equal attributes",
    ),
    HostRule(
        "concat-of-permuted-operators",
        "cat(f(a1)[L1], ..., f(an)[Ln]) => f(cat(a1[L1], ..., an[Ln]))",
        _cat_of_permuted_operators,
        "exact",
        _TOWERS,
        "elementwise operators do not mind where their elements lie, so members of unequal widths join too",
        guard_text="one elementwise operator; each view only permutes",
    ),
    HostRule(
        "concat-of-tall-products",
        "cat(a1 @ b, ..., an @ b) => cat(a1, ..., an) @ b",
        _cat_of_tall_products,
        "exact",
        "MIGraphX horizontal fusion of dots that share an input",
        "products that share a factor are one product, whatever their heights",
    ),
    HostRule(
        "concat-of-gathers",
        "cat(gather(t1, i1), ..., gather(tn, in)) => gather(cat(t1, ..., tn), cat(i1, ..., in mod rows + start))",
        _cat_of_gathers,
        "exact",
        "MIGraphX fuse_horizontal: gathers from embedding tables",
        "look-ups in many small tables are one look-up in a table of them all",
        guard_text="constant tables with rows of one length",
    ),
    HostRule(
        "view-of-concat",
        "cat(a1, ..., an)[L] => ai[L']",
        _view_of_cat,
        "exact",
        "TASO (SOSP 2019): concat then split",
        "what is not read is not joined",
        guard_text="the view reads within one member, or within some that are joined already",
    ),
)

EXPLORING: tuple[HostRule, ...] = (
    HostRule(
        "operator-of-concats",
        "f(cat(a1, ..., an), cat(b1, ..., bn)) => cat(f(a1, b1), ..., f(an, bn))",
        _operator_of_cats,
        "exact",
        "TASO (SOSP 2019), axioms of concatenation; discovered: --operators matmul,add,concat --size 3",
        "member by member, differently joined operands meet",
        guard_text="joined at equal places",
    ),
    HostRule(
        "reduction-over-joined-axis",
        "f.reduce(cat(a1, ..., an, axis=1)) => f(f.reduce(a1), ..., f.reduce(an))",
        _reduction_over_cat,
        "reassociating",
        "TASO (SOSP 2019), axioms of concatenation; discovered: --operators concat,transpose,relu,mul,sum --size 2",
        "rows joined in another order have the same sums",
        guard_text="sums, products, maxima and minima of whole rows",
    ),
    HostRule(
        "reduction-of-stacked-rows",
        "f.reduce(cat(a1, ..., an)) => cat(f.reduce(a1), ..., f.reduce(an))",
        _reduction_of_stack,
        "exact",
        "TASO (SOSP 2019), axioms of concatenation; discovered: --operators sum,transpose,concat --size 4",
        "each row is reduced by itself, in whatever stack it stands",
        guard_text="whole rows",
    ),
    HostRule(
        "product-over-joined-axis",
        "cat(a1, ..., an, axis=1) @ cat(b1, ..., bn, axis=0) => a1 @ b1 + ... + an @ bn",
        _product_over_cat,
        "reassociating",
        "TASO (SOSP 2019), axioms of concatenation; discovered: --operators matmul,add,concat --size 3",
        "a product over a joined axis is a sum of products, which may share a factor",
        guard_text="one batch, whole rows",
    ),
    HostRule(
        "product-of-blocks",
        "cat(a1, ..., an) @ b => cat(a1 @ b, ..., an @ b)",
        _product_of_blocks,
        "exact",
        "TASO (SOSP 2019), axioms of concatenation; discovered: --operators matmul,concat --size 4",
        "each block of rows, or of columns of the right factor, has a product of its own, which may be a sum",
        guard_text="one batch, whole rows",
    ),
    HostRule(
        "columns-of-blocks",
        "cat(cat(a, b), cat(c, d), axis=1) => cat(cat(a, c, axis=1), cat(b, d, axis=1))",
        _columns_of_blocks,
        "exact",
        "TASO (SOSP 2019), axioms of concatenation; discovered: --operators matmul,add,concat --size 3",
        "blocks joined either way round meet",
        guard_text="stacks of equal heights",
    ),
)
"""Laws that only bring forms together: for proving and exploring."""
