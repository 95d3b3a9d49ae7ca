"""Constants of the core: their nodes, and constant subtrees computed ahead of time.

Large ones are computed in runs of elements, so that a processor's cache holds what they need: scaling the weights of a
large model reads and writes them once instead of once for each operator and conversion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from eqsat.base.graphs import operands_first
from eqsat.base.mapped import release
from eqsat.base.numerics import Array, Precision, dtype_name, np_dtype
from eqsat.layout.arithmetic import Layout, compose, strided
from eqsat.program.evaluation import evaluate, read, strided_view
from eqsat.program.node import MOVES, Node, flops, is_elementwise, is_folded, make, substitute, topological
from eqsat.program.sizes import ELEMENT_WORK, FOLDED_WORK, Budget
from eqsat.program.term import ConstArray, distinguish, named

RUN = 1 << 18
"""Elements in a run, about: 2 MiB in float64."""

LARGE = 4 * RUN
"""Elements up to which everything is computed at once."""

Runs = list[Layout]
"""How the runs of an array are read, in order."""


class Folded(NamedTuple):
    """Roots with their constants computed ahead of time.

    Attributes:
        roots: over inputs and final constants.
        constants: digest to flat values, of the constants that the roots need.
        origins: what each computed constant came from, over the constants that were given.
    """

    roots: tuple[Node, ...]
    constants: dict[str, Array]
    origins: dict[Node, Node]


def folding_budget(constants: Iterable[Array]) -> Budget:
    """What may be computed ahead of time over these constants, in one call of `fold` or in several."""
    return Budget(FOLDED_WORK, sum(array.size for array in constants))


def fold(
    roots: Sequence[Node],
    constants: Mapping[str, Array],
    written: Sequence[Node] = (),
    limit: int = 1 << 26,
    budget: Budget | None = None,
) -> Folded:
    """Constant subtrees as constants: those of `written` natively, others over them in float64, rounded once.

    A view of a constant stays a view, and so does anything of more than `limit` elements, or beyond the work that is
    done ahead of time: that of a `budget` which others share, or one of its own.
    """
    known = dict(constants)
    budget = budget or folding_budget(constants.values())
    native = _largest(roots, set(written))
    first = _folded(native, known, limit, "native", budget)
    final = dict(zip(native, first.roots, strict=True))
    out = _folded(substitute(roots, final), known, limit, "float64", budget)
    then = substitute(tuple(out.origins.values()), first.origins)
    origins = first.origins | dict(zip(out.origins, then, strict=True))
    needed = [n for n in topological(out.roots) if n.op == "Const"]
    return Folded(
        out.roots,
        {n.attrs[0]: known[n.attrs[0]] for n in needed},
        {n: origins[n] for n in needed if n in origins},
    )


def _largest(roots: Sequence[Node], among: set[Node]) -> list[Node]:
    """Those of some nodes that the roots reach through others alone."""
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node in among:
            found[node] = None
        elif node not in seen:
            seen.add(node)
            stack.extend(reversed(node.args))
    return list(found)


def _folded(roots: Sequence[Node], known: dict[str, Array], limit: int, precision: Precision, budget: Budget) -> Folded:
    """The roots with constant subtrees computed; their values go into `known`."""
    order = topological(roots)
    constant: dict[Node, bool] = {}
    for node in order:
        small = node.size <= limit and flops(node) <= FOLDED_WORK
        over = is_folded(node.op) and all(constant[a] for a in node.args)
        constant[node] = over and small and budget.spend(_work(node))
    moved: dict[Node, bool] = {}
    for node in order:
        moved[node] = node.op in MOVES and all(moved[a] for a in node.args)
    nodes = _to_fold(roots, order, constant)
    computed = _Named(precision, known, moved)
    folded: dict[Node, Node] = {}
    given = {node for node in order if node.op == "Const"}

    rest = []
    for node in nodes:
        # What is only moved keeps its bits in its own type, which takes a quarter of the memory of float64 for halves.
        value = evaluate([node], {}, known)[0] if moved[node] else in_runs(node, known, precision)
        if value is None:
            rest.append(node)
        else:
            folded[node] = computed.node(node, np.ascontiguousarray(value))
    with np.errstate(all="ignore"):
        for node, value in zip(rest, evaluate(rest, {}, known, precision=precision), strict=True):
            own = np.ascontiguousarray(value.astype(np_dtype(node.dtype), copy=False))
            folded[node] = computed.node(node, own)
    for node in given:
        release(known[node.attrs[0]])
    origins = {made: node for node, made in folded.items() if made.op == "Const" and made not in given}
    return Folded(tuple(substitute(roots, folded)), known, origins)


def _work(node: Node) -> int:
    """What computing a node takes, in FLOPs of a product. A view without a mask is only read."""
    if not node.args or (node.op == "V" and not node.attrs[0].masked):
        return 0
    return flops(node) + ELEMENT_WORK * node.size if node.op == "MM" else ELEMENT_WORK * max(flops(node), node.size)


class _Named:
    """Constants that were computed, known by how they were: to read a large one takes as long as to compute it."""

    def __init__(self, precision: Precision, known: dict[str, Array], moved: Mapping[Node, bool]) -> None:
        self._precision, self._known, self._moved = precision, known, moved
        self._names: dict[Node, str] = {}

    def node(self, node: Node, value: Array) -> Node:
        """The node of a constant with the value that was computed for another node."""
        value.flags.writeable = False  # nobody else holds it, so that it need not be copied
        constant = ConstArray(value)
        distinguish(constant.array, lambda: self._name(node))
        return constant_node(constant, self._known)

    def _name(self, node: Node) -> str:
        """What is only moved has the same bits at every precision."""
        for each in operands_first([node], self._names):
            how = "" if self._moved[each] else self._precision
            self._names[each] = named(f"{how} {each.op} {each.attrs} {[self._names[a] for a in each.args]}")
        return self._names[node]


def _to_fold(roots: Sequence[Node], order: Sequence[Node], constant: Mapping[Node, bool]) -> list[Node]:
    """The largest constant subtrees that compute something: read by what varies, by a view of that, or as a root."""
    wanted: dict[Node, None] = dict.fromkeys(roots)
    for node in reversed(order):
        if not constant[node] or (node.op == "V" and node in wanted):
            wanted.update(dict.fromkeys(node.args))
    return [n for n in order if n in wanted and constant[n] and n.args and n.op != "V"]


def in_runs(root: Node, constants: Mapping[str, Array], precision: Precision) -> Array | None:
    """The value of a node that depends on constants alone, in its own type; None where it is better computed at once.

    The operators at the top are elementwise, below some that move their results. What they read is a view of a
    constant, or only moved, or small: the last two are computed once.
    """
    if root.size <= LARGE:
        return None
    if root.op in MOVES and root.args:
        return _moved(root, constants, precision)
    if not is_elementwise(root.op):
        return None
    leaves = _leaves(root)
    step = _step(leaves, root.size)
    plain = [strided(start, ((min(step, root.size - start), 1),)) for start in range(0, root.size, step)]
    sources: dict[Node, tuple[Array, Runs]] = {}
    for leaf in leaves:
        source, runs = _viewed(leaf, plain)
        if source.op == "Const":
            array = constants[source.attrs[0]].reshape(-1)
        else:
            moved = all(n.op in MOVES for n in topological([source]))
            if source.size > RUN and not moved:
                return None
            (array,) = evaluate([source], {}, constants, precision="native" if moved else precision)
        sources[leaf] = array, runs
    out = np.empty(root.size, np_dtype(root.dtype))
    for i, run in enumerate(plain):
        part = substitute([root], {x: make("In", (str(k), run.size, x.dtype)) for k, x in enumerate(sources)})
        env = {str(k): read(array, runs[i]) for k, (array, runs) in enumerate(sources.values())}
        with np.errstate(all="ignore"):
            (out[run.offset : run.offset + run.size],) = evaluate(part, env, {}, precision=precision)
    return out


def _moved(root: Node, constants: Mapping[str, Array], precision: Precision) -> Array | None:
    """The value of a view or a concatenation of what is computed in runs."""
    values = [in_runs(a, constants, precision) for a in root.args]
    if all(value is None for value in values):
        return None
    env: dict[str, Array] = {}
    for a, value in zip(root.args, values, strict=True):
        found = evaluate([a], {}, constants, precision=precision)[0] if value is None else value
        env[str(len(env))] = found.astype(np_dtype(a.dtype), copy=False)
    held = [make("In", (name, a.size, a.dtype)) for name, a in zip(env, root.args, strict=True)]
    return evaluate([make(root.op, root.attrs, held)], env, {})[0]


def _leaves(root: Node) -> list[Node]:
    """What elementwise operators at the top read."""
    found: dict[Node, None] = {}
    stack = [root]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if is_elementwise(node.op):
            stack.extend(reversed(node.args))
        else:
            found[node] = None
    return list(found)


def _step(leaves: Sequence[Node], size: int) -> int:
    """Elements in a run: whole turns of the outermost digit of what is read, so that a run of it is a view, too."""
    turns = [leaf.attrs[0].size // leaf.attrs[0].dims[0][0] for leaf in leaves if leaf.op == "V" and leaf.attrs[0].dims]
    turn = max([n for n in turns if n <= LARGE], default=1)
    return min(size, turn * max(1, RUN // turn))


def _viewed(leaf: Node, plain: Runs) -> tuple[Node, Runs]:
    """What a leaf is a view of, and how its runs are read from that; the leaf itself where they are no views."""
    if leaf.op == "V":
        runs = [compose(leaf.attrs[0], run) for run in plain]
        found = [run for run in runs if run is not None]
        if len(found) == len(runs):
            return leaf.args[0], found
    return leaf, plain


def constant_node(value: ConstArray, constants: dict[str, Array]) -> Node:
    """The node of a constant, whose flat values go into `constants`; one repeated value becomes Full."""
    flat = value.array.reshape(-1)
    dtype = dtype_name(flat.dtype)
    if flat.size == 0:
        return make("Full", (0, 0, dtype))
    if _repeats(flat):
        return make("Full", (flat[0].item(), flat.size, dtype))
    constants.setdefault(value.digest, flat)
    return make("Const", (value.digest, flat.size, dtype))


FEW_BYTES = 1 << 16
"""Bytes of a constant that take no time to read beside a launch: its repeats stay, as views of it only add forms."""


def without_repeats(value: Array) -> Array:
    """An array once along each axis where all its slices have the same bits; itself if it is small, if there is no such
    axis, or if all its elements are the same."""
    if value.nbytes <= FEW_BYTES:
        return value
    once, bits = value, value.view(f"u{value.itemsize}")
    for axis, n in enumerate(value.shape):
        line = bits[(0,) * axis + (slice(None),) + (0,) * (value.ndim - axis - 1)]
        if n > 1 and (line[-1] == line[0]) and (bits == bits.take([0], axis)).all():  # most weights are not read for it
            once, bits = once.take([0], axis), bits.take([0], axis)
    return once if once.size > 1 else value


def view_node(base: Node, layout: Layout, constants: dict[str, Array]) -> Node:
    """The node of a constant that reads each element of another one, through a layout without a mask.

    Its values are a view of the other's: nothing is copied or hashed. They have a dim for each digit of the layout; a
    caller that needs them flat calls `reshape(-1)`.
    """
    source = base.attrs[0]
    digest = f"{source}{_OF}{hashlib.sha256(repr((layout.offset, layout.dims)).encode()).hexdigest()[:32]}"
    constants[digest] = strided_view(constants[source], layout.offset, layout.dims)
    return make("Const", (digest, layout.size, base.dtype))


_OF = "@"
"""In the digest of a constant that `view_node` made: after the digest of the constant that it reads."""


def viewed(digest: str) -> str:
    """The digest of the constant that holds the elements: a view that `view_node` made holds none of its own."""
    return digest.partition(_OF)[0]


def _repeats(flat: Array) -> bool:
    """Whether all elements have the same bits; most arrays that vary show it in a few elements."""
    rows = flat.view(np.uint8).reshape(flat.size, -1)
    return bool(np.all(rows[:16] == rows[0]) and np.all(rows == rows[0]))
