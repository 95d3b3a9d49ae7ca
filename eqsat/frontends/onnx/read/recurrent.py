"""ONNX's RNN, GRU and LSTM, unrolled step by step for short sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from eqsat.errors import InputError, ShapeError
from eqsat.frontends.onnx.operators.elementwise import ACTIVATIONS, PARAMETERS
from eqsat.frontends.onnx.operators.node import Converter, Node, Row, as_attribute, row
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.terms.lookups import part
from eqsat.program import composites, ops
from eqsat.program.term import Term

STEPS = 8
"""Most steps of one layer, both directions together, that are unrolled; longer sequences are carried as opaque terms.

Each step is two kernels that depend on the step before, with hardly anything to rewrite. An LSTM of size 64 takes 9
kernels and 1 s of search over 4 steps, 16 kernels and 4 s over 8 steps; in onnxruntime these run 2 and 3 times as long
as its own LSTM.
"""

Activation = Callable[[Term], Term]

_NAMES = {name.lower(): name for name in ACTIVATIONS}
"""ONNX ignores the case of letters here."""


@dataclass(frozen=True)
class Cell:
    """One direction of a layer.

    Attributes:
        w, r: weights of the input [gates h, i] and of the state [gates h, h].
        bias, state_bias: [gates h], of the two products.
        activations: in the order of ONNX.
        peephole: [3 h] of an LSTM, in the order i, o, f.
        clip: bound on the activations' operands, or None.
    """

    w: Term
    r: Term
    bias: Term
    state_bias: Term
    activations: Sequence[Activation]
    peephole: Term | None
    clip: float | None

    def bounded(self, x: Term) -> Term:
        return x if self.clip is None else composites.clip(x, -self.clip, self.clip)

    def from_state(self, h: Term) -> Term:
        """The state's share of all gates: [b, gates h]."""
        return composites.add(ops.matmul(h, ops.transpose(self.r)), self.state_bias)


States = tuple[Term, ...]
Step = Callable[[Cell, Term, States], States]
"""Maps a cell, the input's share of all gates [b, gates h] and the states (h, and c for LSTM) to the next states."""


def _rnn(cell: Cell, x: Term, states: States) -> States:
    return (cell.activations[0](cell.bounded(ops.add(x, cell.from_state(states[0])))),)


def _gru(linear_before_reset: bool) -> Step:
    """Gates in the order z, r, h."""

    def step(cell: Cell, x: Term, states: States) -> States:
        (h,) = states
        size = h.shape[-1]
        f, g = cell.activations
        xz, xr, xh = ops.split(x, [size] * 3, -1)
        if linear_before_reset:
            hz, hr, hh = ops.split(cell.from_state(h), [size] * 3, -1)
            r = f(cell.bounded(ops.add(xr, hr)))
            inner = ops.mul(r, hh)
        else:
            zr, own = ops.split(cell.r, [2 * size, size], 0)
            zr_bias, own_bias = ops.split(cell.state_bias, [2 * size, size], 0)
            hz, hr = ops.split(composites.add(ops.matmul(h, ops.transpose(zr)), zr_bias), [size] * 2, -1)
            r = f(cell.bounded(ops.add(xr, hr)))
            inner = composites.add(ops.matmul(ops.mul(r, h), ops.transpose(own)), own_bias)
        z = f(cell.bounded(ops.add(xz, hz)))
        new = g(cell.bounded(ops.add(xh, inner)))
        return (ops.add(ops.mul(ops.sub(ops.full_like(1, z), z), new), ops.mul(z, h)),)

    return step


def _lstm(input_forget: bool) -> Step:
    """Gates in the order i, o, f, c."""

    def step(cell: Cell, x: Term, states: States) -> States:
        h, c = states
        size = h.shape[-1]
        f, g, last = cell.activations
        i, o, forget, new = ops.split(ops.add(x, cell.from_state(h)), [size] * 4, -1)
        pi, po, pf = (None,) * 3 if cell.peephole is None else ops.split(cell.peephole, [size] * 3, 0)
        i = f(cell.bounded(_peeped(i, pi, c)))
        keep = ops.sub(ops.full_like(1, i), i) if input_forget else f(cell.bounded(_peeped(forget, pf, c)))
        c = ops.add(ops.mul(keep, c), ops.mul(i, g(cell.bounded(new))))
        o = f(cell.bounded(_peeped(o, po, c)))
        return ops.mul(o, last(c)), c

    return step


def _peeped(gate: Term, peephole: Term | None, c: Term) -> Term:
    return gate if peephole is None else ops.add(gate, composites.mul(peephole, c))


def _layer(node: Node, step: Step, gates: int, defaults: Sequence[str], states: int) -> list[Term]:
    """All directions of a layer: Y[t, d, b, h] and the last states [d, b, h], or batch first with layout 1."""
    x, w, r, b = node.input(0), node.input(1), node.input(2), node.optional(3)
    batch_first = bool(node.attr("layout", 0))
    if x.ndim != 3 or w.ndim != 3 or r.ndim != 3:
        raise ShapeError(f"{node.op} takes x, w and r of three dims, got {x.shape}, {w.shape}, {r.shape}")
    x = ops.transpose(x, (1, 0, 2)) if batch_first else x
    steps, batch, _ = x.shape
    directions, size = r.shape[0], r.shape[2]
    wanted = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(node.attr("direction", "forward"))
    if directions != wanted or w.shape != (directions, gates * size, x.shape[2]) or r.shape[1] != gates * size:
        raise ShapeError(f"{node.op} takes w (d, {gates} h, i) and r (d, {gates} h, h), got {w.shape} and {r.shape}")
    if not 0 < steps * directions <= STEPS:
        raise Declined(f"{steps} steps")
    lengths = node.ints(4)
    if lengths is not None and set(lengths) != {steps}:
        raise Declined("sequences of several lengths")
    functions = _activations(node, defaults, directions)
    starts = [_start(node, 5 + i, (directions, batch, size), x.dtype, batch_first) for i in range(states)]
    peephole = node.optional(7) if states == 2 else None
    outputs, ends = [], []
    for d in range(directions):
        biases = [ops.full(0, (gates * size,), x.dtype)] * 2
        if b is not None:
            biases = list(ops.split(part(b, 0, d), [gates * size] * 2, 0))
        own = functions[d * len(defaults) : (d + 1) * len(defaults)]
        peeped = None if peephole is None else part(peephole, 0, d)
        cell = Cell(part(w, 0, d), part(r, 0, d), biases[0], biases[1], own, peeped, node.attr("clip"))
        backward = d == 1 or node.attr("direction", "forward") == "reverse"
        made, last = _unrolled(cell, step, x, tuple(part(s, 0, d) for s in starts), backward)
        outputs.append(made)
        ends.append(last)
    y = ops.stack(outputs, 1)
    finals = [ops.stack([last[i] for last in ends]) for i in range(states)]
    if batch_first:
        y = ops.transpose(y, (2, 0, 1, 3))
        finals = [ops.transpose(final, (1, 0, 2)) for final in finals]
    return [y, *finals]


def _unrolled(cell: Cell, step: Step, x: Term, states: States, backward: bool) -> tuple[Term, States]:
    """h of every step [t, b, h], and the last states; the products with the inputs are one product for all steps."""
    steps, batch, inputs = x.shape
    flat = ops.reshape(x, (steps * batch, inputs))
    shares = composites.add(ops.matmul(flat, ops.transpose(cell.w)), cell.bias)
    made: dict[int, Term] = {}
    for t in reversed(range(steps)) if backward else range(steps):
        share = ops.slice_(shares, [t * batch], [(t + 1) * batch], [0])
        states = step(cell, share, states)
        made[t] = states[0]
    return ops.stack([made[t] for t in range(steps)]), states


def _start(node: Node, index: int, shape: tuple[int, int, int], dtype: str, batch_first: bool) -> Term:
    state = node.optional(index)
    if state is None:
        return ops.full(0, shape, dtype)
    state = ops.transpose(state, (1, 0, 2)) if batch_first else state
    if state.shape != shape:
        raise ShapeError(f"{node.op} takes initial states of {shape}, got {state.shape}")
    return state


def _activations(node: Node, defaults: Sequence[str], directions: int) -> list[Activation]:
    """The activations of all directions; alphas and betas go, in order, to the functions that take them."""
    names = [name.lower() for name in node.attr("activations", list(defaults) * directions)]
    if len(names) != len(defaults) * directions:
        raise InputError(f"{node.op} takes {len(defaults)} activations per direction, got {len(names)}")
    unknown = [name for name in names if name not in _NAMES]
    if unknown:
        raise Declined(f"activation {unknown[0]}")
    left = {name: iter(node.attr(f"activation_{name}", ())) for name in ("alpha", "beta")}
    found = []
    for name in map(_NAMES.__getitem__, names):
        given = {p: next(left[p], as_attribute(default)) for p, default in PARAMETERS.get(name, {}).items()}
        found.append(partial(ACTIVATIONS[name], **given))
    return found


_LAYERS: dict[str, Converter] = {
    "GRU": lambda node: _layer(node, _gru(bool(node.attr("linear_before_reset", 0))), 3, ("sigmoid", "tanh"), 1),
    "LSTM": lambda node: _layer(node, _lstm(bool(node.attr("input_forget", 0))), 4, ("sigmoid", "tanh", "tanh"), 2),
    "RNN": lambda node: _layer(node, _rnn, 1, ("tanh",), 1),
}

RECURRENT: dict[str, Row] = {
    name: row(convert, 7, 14, 22, unless=f"more than {STEPS} steps, several lengths, other activations")
    for name, convert in _LAYERS.items()
}
"""One row per operator, with the since-versions whose meaning the converter covers."""
