"""Terms as calls of ATen operators in an FX graph: one row for each operator of programs."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from eqsat.base.numerics import is_float, lowest
from eqsat.errors import InputError
from eqsat.frontends.torch.calls import TorchCall
from eqsat.frontends.torch.operators.tensors import dtype_of, import_torch, to_tensor
from eqsat.program.term import Term, topological

_MOST_AXES = 3
"""Of the windows of torch's convolutions and pools."""


class Writer:
    """Writes terms into a graph, each once.

    Attributes:
        graph: gets the calls, at its insertion point.
        values: what is written so far; inputs are here before anything is written.
        owner: the module of the graph, which holds the constants.
        device: where tensors without operands are made.
    """

    def __init__(self, owner: Any, graph: Any, values: dict[Term, Any], device: Any) -> None:
        self.aten = import_torch().ops.aten
        self.owner, self.graph, self.values, self.device = owner, graph, values, device
        self.readers: Counter[Term] = Counter()
        self.calls: dict[tuple[TorchCall, tuple[Any, ...]], Any] = {}

    def write(self, roots: Sequence[Term]) -> list[Any]:
        """The nodes of these terms.

        Raises:
            InputError: torch has no operator for a term.
        """
        order = topological(roots)
        self.readers.update(arg for term in order for arg in term.args)
        self.readers.update(roots)
        for term in order:
            if term not in self.values:
                self.values[term] = ROWS[term.op](self, term, *(self.values[arg] for arg in term.args))
        return [self.values[root] for root in roots]

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A call of an ATen operator, by `name.overload`."""
        packet, _, overload = name.partition(".")
        target = getattr(getattr(self.aten, packet), overload or "default")
        return self.graph.call_function(target, args, kwargs)

    def carried(self, call: TorchCall, operands: tuple[Any, ...]) -> Any:
        """A call of torch that the program carries; one call for all of its results."""
        if (call, operands) not in self.calls:
            args, kwargs = call.bound(operands)
            self.calls[call, operands] = self.graph.call_function(call.function, args, kwargs)
        return self.calls[call, operands]

    def constant(self, value: Any, name: str = "constant") -> Any:
        """A buffer of the graph's module."""
        taken = {key for key, _ in self.owner.named_buffers(recurse=False)}
        free = next(key for i in range(len(taken) + 1) if (key := f"_eqsat_{name}_{i}") not in taken)
        self.owner.register_buffer(free, to_tensor(value).to(self.device))
        return self.graph.get_attr(free)


Row = Callable[..., Any]
"""A writer, a term and the nodes of its operands to the node of its value."""


def _plain(name: str) -> Row:
    return lambda to, term, *operands: to.call(name, *operands)


def _binary(name: str) -> Row:
    """With a number as second operand where it is one everywhere."""

    def write(to: Writer, term: Term, a: Any, b: Any) -> Any:
        right = term.args[1]
        if right.op == "full":
            return to.call(f"{name}.Scalar", a, right.attr("value"))
        return to.call(f"{name}.Tensor", a, b)

    return write


def _commutative(name: str) -> Row:
    """As `_binary`, with a number on either side."""
    write = _binary(name)

    def written(to: Writer, term: Term, a: Any, b: Any) -> Any:
        left, right = term.args
        if left.op == "full" and right.op != "full":
            return to.call(f"{name}.Scalar", b, left.attr("value"))
        return write(to, term, a, b)

    return written


def _add(to: Writer, term: Term, a: Any, b: Any) -> Any:
    """A product and its bias are one operator, which takes the bias as a vector."""
    for product, bias in (term.args, term.args[::-1]):
        if product.op == "matmul" and product.ndim == 2 and bias.op == "broadcast" and to.readers[product] == 1:
            [row] = bias.args
            if is_float(term.dtype) and row.shape[-1:] == (row.size,) == term.shape[1:]:
                vector = to.values[row] if row.ndim == 1 else to.call("reshape", to.values[row], [row.size])
                return to.call("addmm", vector, *(to.values[arg] for arg in product.args))
    return _commutative("add")(to, term, a, b)


def _pow(to: Writer, term: Term, a: Any, b: Any) -> Any:
    exponent = term.args[1]
    if exponent.op == "full":
        return to.call("pow.Tensor_Scalar", a, exponent.attr("value"))
    return to.call("pow.Tensor_Tensor", a, b)


def _sign(to: Writer, term: Term, x: Any) -> Any:
    """NaN has the sign NaN, but 0 in torch."""
    found = to.call("sign", x)
    return to.call("where.self", to.call("isnan", x), x, found) if is_float(term.dtype) else found


def _div(to: Writer, term: Term, a: Any, b: Any) -> Any:
    if "int" in term.dtype:
        return to.call("div.Tensor_mode", a, b, rounding_mode="trunc")
    return _binary("div")(to, term, a, b)


def _full(to: Writer, term: Term) -> Any:
    return to.call("full", list(term.shape), term.attr("value"), dtype=dtype_of(term.dtype), device=to.device)


def _iota(to: Writer, term: Term) -> Any:
    shape, axis = term.shape, term.attr("axis")
    ramp = to.call("arange", shape[axis], dtype=dtype_of(term.dtype), device=to.device)
    apart = to.call("reshape", ramp, [-1 if i == axis else 1 for i in range(len(shape))])
    return to.call("expand", apart, list(shape))


def _matmul(to: Writer, term: Term, a: Any, b: Any) -> Any:
    """torch's product repeats leading dims by itself, and then takes fewer and larger products."""
    batch = term.shape[:-2]
    if not batch:
        return to.call("mm", a, b)
    left, right = term.args
    narrow = _unrepeated(right)
    if np.broadcast_shapes(left.shape[:-2], narrow.shape[:-2]) == batch:
        right, b = narrow, to.values[narrow]
    narrow = _unrepeated(left)
    if np.broadcast_shapes(narrow.shape[:-2], right.shape[:-2]) == batch:
        a = to.values[narrow]
    return to.call("matmul", a, b)


def _unrepeated(x: Term) -> Term:
    """The operand of a broadcast that repeats matrices whole."""
    source = x.args[0] if x.op == "broadcast" else x
    return source if source.ndim >= 2 and source.shape[-2:] == x.shape[-2:] else x


def _slice(to: Writer, term: Term, x: Any) -> Any:
    """torch has positive steps alone: a negative one reads from last to first, and is turned afterwards."""
    shape = term.args[0].shape
    turned = []
    ranges = zip(term.attr("starts"), term.attr("stops"), term.attr("steps"), strict=True)
    for axis, (start, stop, step) in enumerate(ranges):
        if step < 0:
            count = len(range(start, stop, step))
            start, stop, step = start + (count - 1) * step, start + 1, -step
            turned.append(axis)
        if (start, stop, step) != (0, shape[axis], 1):
            x = to.call("slice.Tensor", x, axis, start, stop, step)
    return to.call("flip", x, turned) if turned else x


def _padded(to: Writer, x: Any, lo: Sequence[int], hi: Sequence[int], value: Any) -> Any:
    pairs = [n for pair in zip(reversed(lo), reversed(hi), strict=True) for n in pair]
    return to.call("constant_pad_nd", x, pairs, value) if any(pairs) else x


def _reduce(to: Writer, term: Term, x: Any) -> Any:
    kind, axes, keep = term.attr("kind"), list(term.attr("axes")), term.attr("keepdims")
    if kind == "sum":
        return to.call("sum.dim_IntList", x, axes, keep, dtype=dtype_of(term.dtype))
    if kind == "prod":  # one axis at a time, the last first
        steps = sorted(axes, reverse=True)
        return reduce(lambda y, axis: to.call("prod.dim_int", y, axis, keep, dtype=dtype_of(term.dtype)), steps, x)
    if kind in ("argmax", "argmin"):
        return to.call(kind, x, axes[0], keep)
    return to.call(f"a{kind}", x, axes, keep)


def _conv(to: Writer, term: Term, x: Any, w: Any) -> Any:
    """torch pads both sides alike. What it does not have is a product of unfolded windows."""
    lo, hi, rank = term.attr("pads_lo"), term.attr("pads_hi"), len(term.attr("pads_lo"))
    if lo != hi or rank > _MOST_AXES:
        x, lo = _padded(to, x, (0, 0, *lo), (0, 0, *hi), 0), (0,) * rank
    if rank > _MOST_AXES:
        return _multiplied_windows(to, term, x, w)
    steps, apart = list(term.attr("strides")), list(term.attr("dilations"))
    return to.call("convolution", x, w, None, steps, list(lo), apart, False, [0] * rank, term.attr("groups"))


def _multiplied_windows(to: Writer, term: Term, x: Any, w: Any) -> Any:
    """A convolution of a padded tensor: a product for each group of channels."""
    n, channels, *places = term.shape
    groups, [per_group, *kernel] = term.attr("groups"), term.args[1].shape[1:]
    rank, length = len(kernel), per_group * prod(kernel)
    x = _unfolded(to, term, x, kernel)
    x = to.call("reshape", x, [n, groups, per_group, *places, *kernel])
    x = to.call("permute", x, [0, 1, 2, *range(3 + rank, 3 + 2 * rank), *range(3, 3 + rank)])
    columns = to.call("reshape", x, [n, groups, length, prod(places)])
    rows = to.call("reshape", w, [groups, channels // groups, length])
    return to.call("reshape", to.call("matmul", rows, columns), list(term.shape))


def _pool(to: Writer, term: Term, x: Any) -> Any:
    """Padded first: torch's own padding is limited to half a window. A sum is a mean that divides by one. What torch's
    pools do not have is a reduction of unfolded windows."""
    maximum = term.attr("kind") == "max"
    kernel, steps, apart = (list(term.attr(name)) for name in ("kernel", "strides", "dilations"))
    rank, lo, hi = len(kernel), term.attr("pads_lo"), term.attr("pads_hi")
    x = _padded(to, x, (0, 0, *lo), (0, 0, *hi), lowest(term.dtype) if maximum else 0)
    if not is_float(term.dtype) or rank > _MOST_AXES or (not maximum and any(d != 1 for d in apart)):
        return _reduced_windows(to, term, x)
    if maximum:
        return to.call(f"max_pool{rank}d", x, kernel, steps, [0] * rank, apart)
    if rank > 1:
        return to.call(f"avg_pool{rank}d", x, kernel, steps, divisor_override=1)
    flat = to.call("unsqueeze", x, 2)
    return to.call("squeeze.dim", to.call("avg_pool2d", flat, [1, *kernel], [1, *steps], divisor_override=1), 2)


def _reduced_windows(to: Writer, term: Term, x: Any) -> Any:
    """A pool of a padded tensor."""
    x = _unfolded(to, term, x, term.attr("kernel"))
    last = list(range(-len(term.attr("kernel")), 0))
    if term.attr("kind") == "max":
        return to.call("amax", x, last)
    return to.call("sum.dim_IntList", x, last, dtype=dtype_of(term.dtype))


def _unfolded(to: Writer, term: Term, x: Any, kernel: Sequence[int]) -> Any:
    """A padded tensor with the elements of its windows as further axes."""
    windows = zip(kernel, term.attr("strides"), term.attr("dilations"), strict=True)
    for axis, (size, step, apart) in enumerate(windows, 2):
        x = to.call("unfold", x, axis, (size - 1) * apart + 1, step)
        x = to.call("slice.Tensor", x, -1, 0, None, apart) if apart > 1 else x
    return x


def _opaque(to: Writer, term: Term, *operands: Any) -> Any:
    call = term.attr("spec")
    if not isinstance(call, TorchCall):
        raise InputError(f"torch has no operator for {term.attr('name')}, which the program carries from elsewhere")
    results = to.carried(call, operands)
    return to.graph.call_function(operator.getitem, (results, term.attr("index"))) if call.several else results


_SAME_NAME = (
    "neg", "abs", "sqrt", "rsqrt", "reciprocal", "exp", "log", "log1p", "erf", "tanh", "sigmoid", "relu", "sin", "cos",
    "floor", "ceil", "round",
)  # fmt: skip

ROWS: Mapping[str, Row] = {
    **{name: _plain(name) for name in _SAME_NAME},
    "not": _plain("logical_not"),
    "sign": _sign, "add": _add, "mul": _commutative("mul"), "sub": _binary("sub"), "div": _div,
    "pow": _pow, "mod": _binary("remainder"), "min": _plain("minimum"), "max": _plain("maximum"),
    "and": _plain("logical_and"), "or": _plain("logical_or"),
    "equal": _commutative("eq"), "less": _binary("lt"), "less_equal": _binary("le"),
    "greater": _binary("gt"), "greater_equal": _binary("ge"),
    "full": _full, "iota": _iota, "matmul": _matmul,
    "constant": lambda to, term: to.constant(term.attr("value").array),
    "cast": lambda to, term, x: to.call("_to_copy", x, dtype=dtype_of(term.dtype)),
    "concat": lambda to, term, *xs: to.call("cat", list(xs), term.attr("axis")),
    "where": _plain("where.self"),
    "transpose": lambda to, term, x: to.call("permute", x, list(term.attr("perm"))),
    "reshape": lambda to, term, x: to.call("reshape", x, list(term.shape)),
    "broadcast": lambda to, term, x: to.call("expand", x, list(term.shape)),
    "slice": _slice,
    "pad": lambda to, term, x: _padded(to, x, term.attr("lo"), term.attr("hi"), term.attr("value")),
    "reduce": _reduce, "conv": _conv, "pool": _pool,
    "gather": lambda to, term, x, index: to.call("index.Tensor", x, [None] * term.attr("axis") + [index]),
    "opaque": _opaque,
}  # fmt: skip
"""Every operator of programs except inputs."""
