"""Programs run by plain Python over nested index loops: the independent reference for NumPy's answers.

Floats are Python floats (so float64), integers wrap where their type would. Nothing here calls eqsat's numerics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from eqsat.program.ir import Program
from eqsat.program.term import Term

Array = np.ndarray[Any, Any]


def _total(f: Callable[[float], float], low: float = -math.inf) -> Callable[[float], float]:
    """`f` as IEEE 754 has it: NaN in, NaN out; NaN below its domain; infinities where Python raises."""

    def g(x: float) -> float:
        if math.isnan(x) or x < low:
            return math.nan
        try:
            return f(x)
        except OverflowError:
            return math.inf
        except (ValueError, ZeroDivisionError):
            return -math.inf if x == low else math.nan

    return g


def _reciprocal(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1 / x


def _divide(a: float, b: float) -> float:
    if isinstance(a, int):
        return int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def _relu(x: float) -> float:
    return x if x > 0 or math.isnan(x) else type(x)(0)


def _sign(x: float) -> float:
    return x if math.isnan(x) else type(x)((x > 0) - (x < 0))


def _pick(better: Callable[[float, float], bool]) -> Callable[[float, float], float]:
    return lambda a, b: a if math.isnan(a) or (not math.isnan(b) and better(a, b)) else b


def _round(f: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: x if math.isnan(x) or math.isinf(x) else math.copysign(float(f(x)), x)


UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": lambda x: -x,
    "abs": abs,
    "sqrt": _total(math.sqrt, 0.0),
    "rsqrt": lambda x: _reciprocal(_total(math.sqrt, 0.0)(x)),
    "reciprocal": _reciprocal,
    "exp": _total(math.exp),
    "log": _total(math.log, 0.0),
    "log1p": _total(math.log1p, -1.0),
    "erf": math.erf,
    "tanh": math.tanh,
    "sigmoid": lambda x: _reciprocal(1 + _total(math.exp)(-x)),
    "relu": _relu,
    "sin": _total(math.sin),
    "cos": _total(math.cos),
    "floor": _round(math.floor),
    "ceil": _round(math.ceil),
    "round": _round(round),
    "sign": _sign,
    "not": lambda x: not x,
}

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _divide,
    "pow": lambda a, b: a**b,
    "min": _pick(lambda a, b: a < b),
    "max": _pick(lambda a, b: a > b),
    "mod": lambda a, b: a % b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "equal": lambda a, b: a == b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
}


def run(program: Program, inputs: dict[str, Array]) -> dict[str, Array]:
    """Every output, floats in float64."""
    values: dict[Term, Array] = {}
    for term in program.terms():
        args = [values[a] for a in term.args]
        values[term] = inputs[term.attr("name")].astype(_wide(term.dtype)) if term.op == "input" else _apply(term, args)
    return {name: values[term] for name, term in program.outputs.items()}


def _wide(dtype: str) -> Any:
    return np.dtype(np.float64) if "float" in dtype else np.dtype(dtype)


def _apply(term: Term, args: list[Array]) -> Array:
    out = np.zeros(term.shape, _wide(term.dtype))
    element = ELEMENT[term.op](term, *args) if term.op in ELEMENT else _elementwise(term, args)
    for index in np.ndindex(*term.shape):
        out[index] = _wrapped(element(index), term.dtype)
    return out


def _wrapped(value: Any, dtype: str) -> Any:
    bits = {"int32": 32, "int64": 64}.get(dtype)
    return (int(value) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) if bits else value


def _elementwise(term: Term, args: list[Array]) -> Callable[..., Any]:
    f = (UNARY | BINARY)[term.op]
    return lambda i: f(*(a[i].item() for a in args))


def _constant(term: Term) -> Callable[..., Any]:
    return lambda i: term.attr("value").array[i].item()


def _slice(term: Term, x: Array) -> Callable[..., Any]:
    starts, steps = term.attr("starts"), term.attr("steps")
    return lambda i: x[tuple(a + s * j for a, s, j in zip(starts, steps, i, strict=True))]


def _concat(term: Term, *xs: Array) -> Callable[..., Any]:
    axis = term.attr("axis")

    def element(i: tuple[int, ...]) -> Any:
        at = i[axis]
        for x in xs:
            if at < x.shape[axis]:
                return x[(*i[:axis], at, *i[axis + 1 :])]
            at -= x.shape[axis]

    return element


def _inside(x: Array, i: tuple[int, ...], outside: Any) -> Any:
    return x[i] if all(0 <= j < n for j, n in zip(i, x.shape, strict=True)) else outside


def _pad(term: Term, x: Array) -> Callable[..., Any]:
    lo, value = term.attr("lo"), term.attr("value")
    return lambda i: _inside(x, tuple(j - p for j, p in zip(i, lo, strict=True)), value)


def _reshape(term: Term, x: Array) -> Callable[..., Any]:
    flat = [x[i] for i in np.ndindex(*x.shape)]
    at = {i: j for j, i in enumerate(np.ndindex(*term.shape))}
    return lambda i: flat[at[i]]


def _broadcast(term: Term, x: Array) -> Callable[..., Any]:
    lead = len(term.shape) - x.ndim
    return lambda i: x[tuple(0 if n == 1 else j for n, j in zip(x.shape, i[lead:], strict=True))]


def _folded(kind: str, values: list[Any]) -> Any:
    if kind in ("sum", "prod"):
        return sum(values) if kind == "sum" else math.prod(values)
    best = BINARY["max" if "max" in kind else "min"]
    winner = values[0]
    for v in values[1:]:
        winner = best(winner, v)
    same = [j for j, v in enumerate(values) if v == winner or (math.isnan(v) and math.isnan(winner))]
    return same[0] if kind.startswith("arg") else winner


def _reduce(term: Term, x: Array) -> Callable[..., Any]:
    kind, axes, keep = term.attr("kind"), term.attr("axes"), term.attr("keepdims")

    def element(i: tuple[int, ...]) -> Any:
        outer = iter(j for j, n in enumerate(i) if not keep or j not in axes)
        places = [range(x.shape[a]) if a in axes else [i[next(outer)]] for a in range(x.ndim)]
        return _folded(kind, [x[p].item() for p in product(*places)])

    return element


def _gather(term: Term, x: Array, index: Array) -> Callable[..., Any]:
    axis = term.attr("axis")
    return lambda i: x[(*i[:axis], int(index[i[axis : axis + index.ndim]]), *i[axis + index.ndim :])]


def _taps(term: Term, kernel: tuple[int, ...], at: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    """(position in the kernel, position in the unpadded input) of the window at `at`."""
    rows = list(zip(at, term.attr("strides"), term.attr("pads_lo"), term.attr("dilations"), strict=True))
    for k in np.ndindex(*kernel):
        yield k, tuple(o * s - p + d * j for (o, s, p, d), j in zip(rows, k, strict=True))


def _conv(term: Term, x: Array, w: Array) -> Callable[..., Any]:
    per_group = w.shape[0] // term.attr("groups")

    def element(i: tuple[int, ...]) -> Any:
        n, oc, *at = i
        first = oc // per_group * w.shape[1]
        return sum(
            w[(oc, c, *k)] * _inside(x[n, first + c], place, 0)
            for c in range(w.shape[1])
            for k, place in _taps(term, w.shape[2:], tuple(at))
        )

    return element


def _pool(term: Term, x: Array) -> Callable[..., Any]:
    kind = term.attr("kind")
    least = -math.inf if x.dtype.kind == "f" else int(np.iinfo(x.dtype).min)

    def element(i: tuple[int, ...]) -> Any:
        n, c, *at = i
        outside = 0 if kind == "sum" else least
        return _folded(kind, [_inside(x[n, c], p, outside) for _, p in _taps(term, term.attr("kernel"), tuple(at))])

    return element


def _cast(term: Term, x: Array) -> Callable[..., Any]:
    convert = {"bool": bool, "int32": int, "int64": int}.get(term.dtype, float)
    return lambda i: convert(x[i].item())


def _opaque(term: Term, *xs: Array) -> Callable[..., Any]:
    declared = [x.astype(a.dtype) for x, a in zip(xs, term.args, strict=True)]
    result = term.attr("run")(*declared)[term.attr("index")]
    return lambda i: result[i]


ELEMENT: dict[str, Callable[..., Callable[..., Any]]] = {
    "constant": _constant,
    "full": lambda term: lambda i: term.attr("value"),
    "iota": lambda term: lambda i: i[term.attr("axis")],
    "where": lambda term, c, a, b: lambda i: a[i] if c[i] else b[i],
    "cast": _cast,
    "matmul": lambda term, a, b: (
        lambda i: sum(a[(*i[:-1], k)].item() * b[(*i[:-2], k, i[-1])].item() for k in range(a.shape[-1]))
    ),
    "transpose": lambda term, x: lambda i: x[tuple(i[term.attr("perm").index(a)] for a in range(x.ndim))],
    "reshape": _reshape,
    "broadcast": _broadcast,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "reduce": _reduce,
    "gather": _gather,
    "conv": _conv,
    "pool": _pool,
    "opaque": _opaque,
}
"""For each operator that is not elementwise: the term and its operands to a function of the result's index."""
