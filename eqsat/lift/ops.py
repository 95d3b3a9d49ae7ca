"""The ways to write each non-elementwise core operator as a term, given the shapes of its neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import prod

from eqsat.base.numerics import lowest
from eqsat.layout.arithmetic import Layout, compose, identity, inverse, of_transpose, row_major, strided
from eqsat.lift.forms import Form, Need, Way, plain, whole
from eqsat.lift.view_chain import reading, unfolds
from eqsat.lift.windows import BATCH, CHANNEL, SPATIAL, Windows, channels_ordered, guessed_shapes, windows_of
from eqsat.program import ops
from eqsat.program.node import Node
from eqsat.program.term import Shape, Term

# Extra costs, in units of one move of an operand.
_SWAPPED = 0.05  # (B^T A^T)^T instead of A B
_LEADING = 0.02  # a matrix broadcast over the other operand's leading dims; written files omit the broadcast
_WEIGHTS = 32  # most nodes of an expression for constant weights
_POINTWISE_CONV = 0.5  # a product written as a convolution along a line, with windows of one position


@dataclass
class Hints:
    """Shapes that the neighbours of a node suggest.

    Attributes:
        operands: for each operand, the shapes it is available in.
        bases: for each operand, (node, layout, form): the operand is V(node, layout), and the node has this form.
        out: shapes that readers of the node prefer.
        views: layouts through which the node is read.
        convs: the source has convolutions, so a product over windows that do not overlap may be one too.
    """

    operands: list[list[Shape]]
    bases: list[list[tuple[Node, Layout, Form]]]
    out: list[Shape] = field(default_factory=list)
    views: list[Layout] = field(default_factory=list)
    convs: bool = True


def ways(node: Node, hints: Hints) -> list[Way]:
    """The ways to write the node, the plainest first; at least one."""
    found = list(_WAYS[node.op](node, hints))
    # Equal needs and forms give the same term: keep the cheaper way.
    unique: dict[tuple[Form, tuple[Need, ...]], Way] = {}
    for way in found:
        key = (way.form, way.needs)
        if key not in unique or way.cost < unique[key].cost:
            unique[key] = way
    return list(unique.values())


# Products


def _product(node: Node, hints: Hints) -> Iterator[Way]:
    batch, m, k, n = node.attrs
    a, b = node.args
    for lead in _batch_shapes(node, hints):
        yield Way(plain((*lead, m, n)), (whole(a, (*lead, m, k)), whole(b, (*lead, k, n))), 0.0, _matmul)
        yield Way(
            Form(of_transpose((batch, n, m), (0, 2, 1)), (*lead, n, m)),
            (
                Need(b, of_transpose((batch, k, n), (0, 2, 1)), (*lead, n, k)),
                Need(a, of_transpose((batch, m, k), (0, 2, 1)), (*lead, k, m)),
            ),
            _SWAPPED,
            _matmul,
        )
    if batch == 1:
        for rows in _row_shapes(m, k, n, hints):
            yield Way(plain((*rows, n)), (whole(a, (*rows, k)), whole(b, (k, n))), _LEADING, _matmul_repeated)
    yield from _convolutions(node, hints)


def _matmul(args: Sequence[Term]) -> Term:
    return ops.matmul(*args)


def _matmul_repeated(args: Sequence[Term]) -> Term:
    a, b = args
    return ops.matmul(a, ops.broadcast(b, (*a.shape[:-2], *b.shape)))


def _batch_shapes(node: Node, hints: Hints) -> Iterable[Shape]:
    batch, m, k, n = node.attrs
    found = [() if batch == 1 else (batch,)]
    for shapes, dims in ((hints.operands[0], {(m, k)}), (hints.operands[1], {(k, n)}), (hints.out, {(m, n), (n, m)})):
        found += [s[:-2] for s in shapes if len(s) > 2 and s[-2:] in dims and prod(s[:-2]) == batch]
    return dict.fromkeys(found)


def _row_shapes(m: int, k: int, n: int, hints: Hints) -> Iterable[Shape]:
    found = []
    for shapes, last in ((hints.operands[0], k), (hints.out, n)):
        found += [s[:-1] for s in shapes if len(s) > 2 and s[-1] == last and prod(s[:-1]) == m]
    return dict.fromkeys(found)


# Convolutions


def _convolutions(node: Node, hints: Hints) -> Iterator[Way]:
    batch, m, k, n = node.attrs
    sides = ((0, m, n, identity(batch * m * k)), (1, n, m, of_transpose((batch, k, n), (0, 2, 1))))
    for side, rows, channels, rows_first in sides:
        for windows, need in _windows(side, (batch, rows, k), rows_first, 0, hints):
            # Windows without overlap or padding: a program's author more likely wrote a plain product.
            meant = windows.overlap or (hints.convs and _constant(node.args[1 - side]))
            if meant and not windows.over_channels:
                yield _convolution(node, side, windows, need, channels)


def _constant(node: Node) -> bool:
    """Whether a value is computed from constants alone, in a few steps."""
    seen, stack = {node}, [node]
    while stack:
        at = stack.pop()
        if at.op in ("In", "Opaque") or len(seen) > _WEIGHTS:
            return False
        new = [arg for arg in at.args if arg not in seen]
        seen.update(new)
        stack.extend(new)
    return True


def _windows(
    side: int, parts: tuple[int, int, int], rows_first: Layout, neutral: float, hints: Hints
) -> Iterator[tuple[Windows, Need]]:
    """The windows that an operand reads, padded with ``neutral``, and the need for the value they are read from."""
    tried: set[Need] = set()
    for base, layout, form in hints.bases[side]:
        if layout.masked and layout.fill != neutral:
            continue
        forms = [form]
        if unfolds(layout, base.size):  # worth a guess at the shape of the operand
            forms += [plain(shape) for shape in guessed_shapes(layout, base.size)]
        for each in forms:
            order = inverse(each.order, base.size)
            if len(each.shape) < 3 or order is None or Need(base, order, each.shape) in tried:
                continue
            tried.add(Need(base, order, each.shape))
            total = compose(each.order, layout)
            total = None if total is None else compose(total, rows_first)
            found = None if total is None else windows_of(total, each.shape, parts)
            crop = None if found is None else compose(order, found.crop(each.shape))
            if found is not None and crop is not None:
                yield found, Need(base, crop, found.x)
    yield from _windows_in_order(side, parts, rows_first, neutral, hints)


def _windows_in_order(
    side: int, parts: tuple[int, int, int], rows_first: Layout, neutral: float, hints: Hints
) -> Iterator[tuple[Windows, Need]]:
    """The windows of channels that an operand reads in another order than they have."""
    for base, layout in dict.fromkeys((base, layout) for base, layout, _ in hints.bases[side]):
        total = compose(layout, rows_first) if layout.masked and layout.fill == neutral else None
        ordered = None if total is None else channels_ordered(total, base.size, parts[0])
        if ordered is None or not unfolds(layout, base.size):
            continue
        found = windows_of(ordered.windows, ordered.shape, parts)
        crop = None if found is None else compose(ordered.view, found.crop(ordered.shape))
        if found is not None and crop is not None and not crop.contiguous:
            yield found, Need(base, crop, found.x)


def _convolution(node: Node, side: int, windows: Windows, need: Need, channels: int) -> Way:
    """The product as a convolution; ``side`` is the operand that holds the windows, the other holds the weights."""
    groups, order = windows.groups, windows.order(channels, side)
    shape = (windows.x[BATCH], groups * channels, *windows.out)

    depth = prod(size for _, size in windows.taps)
    weight_steps = _steps_of(windows.taps, channels if side == 0 else 1)
    taps = [(size, weight_steps[dim]) for dim, size in sorted(windows.taps)]
    weight_rows = [(groups, depth * channels), (channels, 1 if side == 0 else depth)]
    weights = Need(
        node.args[1 - side],
        strided(0, [*weight_rows, *taps]),
        (groups * channels, windows.channels_per_group, *windows.kernel),
    )
    build = partial(_conv, windows=windows)
    plain_product = windows.pointwise and len(windows.kernel) == 1
    return Way(Form(order, shape), (need, weights), _POINTWISE_CONV if plain_product else 0.0, build)


def _steps_of(taps: Sequence[tuple[int, int]], innermost: int) -> dict[int, int]:
    """The step of each dim of the taps, if the last one steps by ``innermost``."""
    sizes = [size for _, size in taps]
    return {dim: step * innermost for (dim, _), step in zip(taps, row_major(sizes), strict=True)}


def _conv(args: Sequence[Term], windows: Windows) -> Term:
    x, w = args
    return ops.conv(x, w, windows.strides, windows.lo, windows.hi, windows.dilations, windows.groups)


# Reductions


def _reduction(node: Node, hints: Hints) -> Iterator[Way]:
    kind, length = node.attrs
    outer = node.size
    for kept, reduced in _split_shapes(node, hints):
        if _tidy(kept):
            yield _trailing(node, kept, reduced, keepdims=False)
            yield _trailing(node, kept, reduced, keepdims=True)
    for base, layout, form in hints.bases[0]:
        yield from _in_place(node, base, layout, form)
    for shape in hints.out:
        if prod(shape) == outer:
            if _tidy(shape):
                yield _trailing(node, shape, (length,), keepdims=False)
            yield from _at_unit_dims(node, shape)
    if kind in ("sum", "max") and node.dtype != "bool":
        yield from _pools(node, hints)
    yield _trailing(node, (outer,), (length,), keepdims=False)


def _split_shapes(node: Node, hints: Hints) -> Iterator[tuple[Shape, Shape]]:
    """(kept, reduced) dims, from the shapes that the operand is available in."""
    kind, length = node.attrs
    for shape in hints.operands[0]:
        for cut in range(len(shape) - 1, -1, -1):
            reduced = shape[cut:]
            if prod(reduced) == length and reduced[0] != 1 and (len(reduced) == 1 or not kind.startswith("arg")):
                yield shape[:cut], reduced


def _tidy(shape: Shape) -> bool:
    """Whether all dims of size 1 come first; anywhere else they would cause more such dims."""
    dims = [n for n in shape if n != 1]
    return shape[len(shape) - len(dims) :] == tuple(dims)


def _trailing(node: Node, kept: Shape, reduced: Shape, keepdims: bool) -> Way:
    axes = tuple(range(len(kept), len(kept) + len(reduced)))
    shape = kept + (1,) * len(reduced) if keepdims else kept
    build = partial(_reduce, kind=node.attrs[0], axes=axes, keepdims=keepdims)
    return Way(plain(shape), (whole(node.args[0], kept + reduced),), 0.0, build)


def _reduce(args: Sequence[Term], kind: str, axes: tuple[int, ...], keepdims: bool) -> Term:
    return ops.reduce(kind, args[0], axes, keepdims)


def _at_unit_dims(node: Node, shape: Shape) -> Iterator[Way]:
    """With the reduced dim placed where the result has a dim of size 1."""
    kind, length = node.attrs
    for i, n in enumerate(shape):
        if n != 1:
            continue
        source = (*shape[:i], length, *shape[i + 1 :])
        last = of_transpose(source, [j for j in range(len(source)) if j != i] + [i])
        order = inverse(last, prod(source))
        if order is not None:
            build = partial(_reduce, kind=kind, axes=(i,), keepdims=True)
            yield Way(plain(shape), (Need(node.args[0], order, source),), 0.0, build)


def _in_place(node: Node, base: Node, layout: Layout, form: Form) -> Iterator[Way]:
    """Over axes of the operand's own shape, wherever they are, instead of moving them to the end first."""
    kind, length = node.attrs
    total = compose(form.order, layout)
    order = inverse(form.order, base.size)
    if total is None or order is None or total.size != base.size:
        return
    dims = [i for i, n in enumerate(form.shape) if n != 1]
    found = reading(total, tuple(form.shape[i] for i in dims))
    if found is None or found.radices != tuple(form.shape[i] for i in dims) or found.masks:
        return
    whole_dims = zip(found.places, found.steps, found.valid, found.sizes, strict=True)
    if any(p < 0 or s != 1 or v != (0, n) or n != found.radices[p] for p, s, v, n in whole_dims):
        return  # a dim is read in part, or besides it what fills the array
    cut, inside = len(found.sizes), 1
    while cut and inside < length:
        cut -= 1
        inside *= found.sizes[cut]
    reduced = sorted(dims[p] for p in found.places[cut:])
    if inside != length or (kind.startswith("arg") and len(reduced) != 1):
        return
    kept = [dims[p] for p in found.places[:cut]]
    weights = dict(zip(sorted(kept), row_major([form.shape[i] for i in sorted(kept)]), strict=True))
    out_order = strided(0, [(form.shape[i], weights[i]) for i in kept])
    for keepdims in (False, True):
        shape = tuple(1 if i in reduced else n for i, n in enumerate(form.shape) if keepdims or i not in reduced)
        build = partial(_reduce, kind=kind, axes=tuple(reduced), keepdims=keepdims)
        yield Way(Form(out_order, shape), (Need(base, order, form.shape),), 0.0, build)


def _pools(node: Node, hints: Hints) -> Iterator[Way]:
    kind, length = node.attrs
    parts = (1, node.size, length)
    neutral = lowest(node.dtype) if kind == "max" else 0
    for windows, need in _windows(0, parts, identity(node.size * length), neutral, hints):
        if windows.slides and all(dim != CHANNEL for dim, _ in windows.taps):
            shape = (*windows.x[:SPATIAL], *windows.out)
            result = dict(enumerate(row_major(shape)))
            order = strided(0, [(size, result[dim]) for dim, size in windows.rows])
            yield Way(Form(order, shape), (need,), 0.0, partial(_pool, kind=kind, windows=windows))


def _pool(args: Sequence[Term], kind: str, windows: Windows) -> Term:
    return ops.pool(kind, args[0], windows.kernel, windows.strides, windows.lo, windows.hi, windows.dilations)


# Concatenation


def _concatenation(node: Node, hints: Hints) -> Iterator[Way]:
    """Along the outermost axis, or along one that the views of the operands and of the result agree upon."""
    between = _middle_axes(node, hints)
    shapes = [shape for operand in hints.operands for shape in operand]
    shapes += [form.shape for operand in hints.bases for _, _, form in operand] + hints.out
    for shape in dict.fromkeys(shapes):
        for axis in range(len(shape)):
            outer, inner = shape[:axis], shape[axis + 1 :]
            if prod(outer) == 1 or (prod(outer), prod(inner)) in between:
                yield from _along(node, outer, inner)
    for outer, inner in between:
        yield from _along(node, (outer,), (inner,) if inner > 1 else ())
    yield from _along(node, (), ())


def _middle_axes(node: Node, hints: Hints) -> dict[tuple[int, int], None]:
    """(outer, inner) element counts around an axis that views make outermost before the concatenation and move back
    after it."""
    found: dict[tuple[int, int], None] = {}
    for _, layout, form in (entry for entries in hints.bases for entry in entries):
        total = compose(form.order, layout)
        for outer, inner in _swapped_blocks(total) if total is not None else ():
            found[outer, inner] = None
    for layout in hints.views:
        for n, inner in _swapped_blocks(layout):
            if node.size % (n * inner) == 0:
                found[node.size // (n * inner), inner] = None
    return found


def _swapped_blocks(layout: Layout) -> Iterator[tuple[int, int]]:
    """Each (outer, inner) for which the layout transposes [outer, n, inner] to [n, outer, inner]."""
    dims = layout.dims
    if layout.masked or layout.offset or len(dims) not in (2, 3):
        return
    inner = dims[2][0] if len(dims) == 3 else 1
    (n, _), (outer, _) = dims[:2]
    if layout == of_transpose((outer, n, inner), (1, 0, 2)):
        yield outer, inner


def _along(node: Node, outer: Shape, inner: Shape) -> Iterator[Way]:
    rest = prod(outer) * prod(inner)
    if rest == 0 or any(arg.size % rest for arg in node.args):
        return
    needs = []
    for arg in node.args:
        n = arg.size // rest
        back = of_transpose((n, prod(outer), prod(inner)), (1, 0, 2))
        needs.append(Need(arg, back, (*outer, n, *inner)))
    n = node.size // rest
    order = of_transpose((prod(outer), n, prod(inner)), (1, 0, 2))
    yield Way(Form(order, (*outer, n, *inner)), tuple(needs), 0.0, partial(_concat, axis=len(outer)))


def _concat(args: Sequence[Term], axis: int) -> Term:
    return ops.concat(args, axis)


# Gathers, views that don't compose, opaque operators


def _gather(node: Node, hints: Hints) -> Iterator[Way]:
    data, index = node.args
    n = node.attrs[1]
    places = [shape for shape in hints.operands[1] if prod(shape) == index.size] or [(index.size,)]
    for around, place in product(_around(node, hints), places):
        before, after = around
        needs = (whole(data, (*before, n, *after)), whole(index, place))
        yield Way(plain((*before, *place, *after)), needs, 0.0, partial(_take, axis=len(before)))


def _around(node: Node, hints: Hints) -> Iterable[tuple[Shape, Shape]]:
    """Dims before and after the gathered axis."""
    outer, n, inner = node.attrs
    found = [
        (shape[:axis], shape[axis + 1 :])
        for shape in hints.operands[0]
        for axis in range(len(shape))
        if shape[axis] == n and prod(shape[:axis]) == outer
    ]
    found.append(((outer,) if outer > 1 else (), (inner,) if inner > 1 else ()))
    return dict.fromkeys(found)


def _take(args: Sequence[Term], axis: int) -> Term:
    return ops.gather(args[0], args[1], axis)


def _view(node: Node, hints: Hints) -> Iterator[Way]:
    (arg,) = node.args
    for shape in [*hints.out, *hints.operands[0], (node.size,)]:
        if prod(shape) == node.size:
            yield Way(plain(shape), (Need(arg, node.attrs[0], shape),), 0.0, _same)


def _same(args: Sequence[Term]) -> Term:
    return args[0]


_WAYS = {
    "MM": _product,
    "Red": _reduction,
    "Cat": _concatenation,
    "Gather": _gather,
    "V": _view,
}
