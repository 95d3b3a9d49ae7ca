"""Terms as NumPy expressions: `relu(x @ w + b)`, for steps, forms and reports.

Operators are infix where NumPy's are, and broadcasts that NumPy does by itself are left out. Names of inputs and
constants come from the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eqsat.program.ops import row
from eqsat.program.term import Shape, Term

Text = tuple[str, int]
"""An expression, and how tightly it binds: one of the numbers below."""

_COMPARED, _SUM, _PRODUCT, _SCALED, _ATOM = range(5)
"""`x @ w + b` needs no parentheses, `(x @ w) * s` and `(x @ w) @ v` have them, for the reader's sake."""

_INFIX: dict[str, tuple[str, int, int, int]] = {
    "add": ("+", _SUM, _SUM, _PRODUCT),
    "sub": ("-", _SUM, _SUM, _PRODUCT),
    "matmul": ("@", _PRODUCT, _ATOM, _ATOM),
    "mul": ("*", _SCALED, _SCALED, _ATOM),
    "div": ("/", _SCALED, _SCALED, _ATOM),
    "mod": ("%", _SCALED, _SCALED, _ATOM),
    "pow": ("**", _SCALED, _ATOM, _ATOM),
    "less": ("<", _COMPARED, _SUM, _SUM),
    "less_equal": ("<=", _COMPARED, _SUM, _SUM),
    "greater": (">", _COMPARED, _SUM, _SUM),
    "greater_equal": (">=", _COMPARED, _SUM, _SUM),
    "equal": ("==", _COMPARED, _SUM, _SUM),
}
"""Sign, binding, and what the operands must bind at least as tightly as."""

_CALLED = {"max": "maximum", "min": "minimum", "and": "logical_and", "or": "logical_or", "not": "logical_not"}
_ELEMENTWISE = frozenset(_INFIX) - {"matmul"} | {"max", "min", "and", "or", "where"}
LISTED, SHOWN = 4, 2
"""A concatenation of more than so many operands shows only the first few."""


_DEPTHS = (60, 30, 15, 8)
"""Operators under each other that are written out; fewer where the text would have more than _MOST operators."""

_MOST = 2_000


def expression(term: Term, named: Mapping[Term, str]) -> str:
    """The term in NumPy's words; terms in `named`, inputs and constants by their names, `…` for what lies very deep."""
    shown = named
    for depth in _DEPTHS:
        shown = _cut(term, named, depth)
        if _operators(term, shown) <= _MOST:
            break
    return _text(term, shown)[0]


def _cut(term: Term, named: Mapping[Term, str], depth: int) -> Mapping[Term, str]:
    """`named`, and `…` for the operators that lie so far below a term."""
    level = [term]
    for _ in range(depth):
        level = list(dict.fromkeys(a for t in level if t not in named for a in t.args))
    deep = {t: "…" for t in level if t.args and t not in named and t is not term}
    return {**named, **deep} if deep else named


def _operators(term: Term, named: Mapping[Term, str]) -> int:
    """Operators of a term written out, what is shared as often as it is written."""
    counts: dict[Term, int] = {}
    stack = [term]
    while stack:
        t = stack.pop()
        args = () if t in named else t.args[: SHOWN if len(t.args) > LISTED else LISTED]
        if wait := [a for a in args if a not in counts]:
            stack += [t, *wait]
        else:
            counts[t] = 1 + sum(counts[a] for a in args)
    return counts[term]


def sketch(term: Term, named: Mapping[Term, str], depth: int = 2) -> str:
    """The term, with `…` for what is computed more than `depth` operators below its top."""
    shown = dict(named)
    level = [term]
    for _ in range(depth):
        level = [_computed(a, named) for t in level for a in t.args if t not in named]
    shown |= {t: "…" for t in level if t.args and t not in named and t is not term}
    return expression(term, shown)


def _computed(term: Term, named: Mapping[Term, str]) -> Term:
    """What a chain of views reads."""
    while term.args and term not in named and row(term.op).view:
        (term,) = term.args
    return term


def _text(term: Term, named: Mapping[Term, str]) -> Text:
    if term in named:
        return named[term], _ATOM
    write = _WRITERS.get(term.op)
    if write is not None:
        return write(term, named)
    if term.op in _INFIX:
        return _infix(term, named)
    parts = ", ".join(_operand(a, term, named)[0] for a in term.args)
    return f"{_CALLED.get(term.op, term.op)}({parts})", _ATOM


def _tight(text: Text, least: int) -> str:
    return text[0] if text[1] >= least else f"({text[0]})"


def _atom(term: Term, named: Mapping[Term, str]) -> str:
    return _tight(_text(term, named), _ATOM)


def _infix(term: Term, named: Mapping[Term, str]) -> Text:
    sign, binds, left, right = _INFIX[term.op]
    a, b = (_operand(arg, term, named) for arg in term.args)
    return f"{_tight(a, left)} {sign} {_tight(b, right)}", binds


def _operand(term: Term, reader: Term, named: Mapping[Term, str]) -> Text:
    """An operand of an elementwise operator or a product, without the broadcast that NumPy does by itself."""
    shaped_by_others = reader.op in _ELEMENTWISE and any(a.op != "full" for a in reader.args)
    if term.op == "full" and term not in named and shaped_by_others:
        return _number(term.attr("value")), _ATOM
    if term.op == "broadcast" and term not in named and _implied(term, reader):
        term = term.args[0]
        inner = term.args[0] if term.op == "reshape" and term not in named else term
        if inner.shape and term.shape == (1,) * (term.ndim - inner.ndim) + inner.shape:
            term = inner
    return _text(term, named)


def _implied(term: Term, reader: Term) -> bool:
    """Whether NumPy would broadcast the operand of `term` to its shape, for the sake of the other operands."""
    inner = term.args[0].shape
    others = [a for a in reader.args if a is not term]
    if reader.op == "matmul":
        matrix = inner[-2:] == term.shape[-2:]
        return matrix and all(o.shape[:-2] == term.shape[:-2] and o.op != "broadcast" for o in others)
    if reader.op not in _ELEMENTWISE:
        return False
    return any(o.shape == term.shape and o.op not in ("broadcast", "full") for o in others)


# --- operators with a form of their own


def _input(term: Term, named: Mapping[Term, str]) -> Text:
    return term.attr("name"), _ATOM


def _constant(term: Term, named: Mapping[Term, str]) -> Text:
    array = term.attr("value").array
    return (_number(array.item()), _ATOM) if array.size == 1 else (f"constant {term.spec}", _ATOM)


def _full(term: Term, named: Mapping[Term, str]) -> Text:
    number = _number(term.attr("value"))
    return (f"full({_dims(term.shape)}, {number})" if term.shape else number), _ATOM


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cast(term: Term, named: Mapping[Term, str]) -> Text:
    return f"{_atom(term.args[0], named)}.astype({term.dtype})", _ATOM


def _neg(term: Term, named: Mapping[Term, str]) -> Text:
    return f"-{_atom(term.args[0], named)}", _SCALED


def _transpose(term: Term, named: Mapping[Term, str]) -> Text:
    perm, x = term.attr("perm"), _atom(term.args[0], named)
    if perm == (1, 0):
        return f"{x}.T", _ATOM
    last = (*range(len(perm) - 2), len(perm) - 1, len(perm) - 2)
    return f"{x}.mT" if perm == last else f"{x}.transpose{perm}", _ATOM


def _reshape(term: Term, named: Mapping[Term, str]) -> Text:
    inner, before = term.args[0], term.args[0].shape
    if _stacks(term) and inner not in named:
        return f"stack([{_listed(inner.args, named)}])", _ATOM
    x, axes = _atom(inner, named), _new_axes(before, term.shape)
    if axes is not None:
        return f"{x}[{', '.join(axes)}]", _ATOM
    dims = ", ".join(map(str, term.shape))
    return f"{x}.reshape({dims})", _ATOM


def _new_axes(before: Shape, after: Shape) -> list[str] | None:
    """`None` and `:` for each dim, where dims of size 1 are put into a shape and no more; None for anything else."""
    axes: list[str] = []
    i = 0
    for n in after:
        if i < len(before) and n == before[i]:
            axes.append(":")
            i += 1
        elif n == 1:
            axes.append("None")
        else:
            return None
    return axes if i == len(before) and before else None


def _broadcast(term: Term, named: Mapping[Term, str]) -> Text:
    if term.size == term.args[0].size:
        axes = _new_axes(term.args[0].shape, term.shape)
        return f"{_atom(term.args[0], named)}[{', '.join(axes or ('...',))}]", _ATOM
    return f"broadcast_to({_text(term.args[0], named)[0]}, {_dims(term.shape)})", _ATOM


def _dims(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


def _slice(term: Term, named: Mapping[Term, str]) -> Text:
    ranges = zip(term.args[0].shape, term.attr("starts"), term.attr("stops"), term.attr("steps"), strict=True)
    parts = [_range(*r) for r in ranges]
    while len(parts) > 1 and parts[-1] == ":":
        parts.pop()
    return f"{_atom(term.args[0], named)}[{', '.join(parts)}]", _ATOM


def _range(size: int, start: int, stop: int, step: int) -> str:
    if step < 0:
        first = "" if start == size - 1 else str(start)
        return f"{first}:{'' if stop < 0 else stop}:{step}"
    text = f"{start or ''}:{'' if stop >= size else stop}"
    return text if step == 1 else f"{text}:{step}"


def _concat(term: Term, named: Mapping[Term, str]) -> Text:
    axis, parts = term.attr("axis"), term.args
    stacked = all(_adds_axis(a, axis) and a not in named for a in parts)
    listed = _listed([a.args[0] for a in parts] if stacked else parts, named)
    at = f", axis={axis}" if axis else ""
    return f"{'stack' if stacked else 'concatenate'}([{listed}]{at})", _ATOM


def _listed(parts: Sequence[Term], named: Mapping[Term, str]) -> str:
    texts = [_text(a, named)[0] for a in (parts if len(parts) <= LISTED else parts[:SHOWN])]
    return ", ".join([*texts, *([f"… {len(parts) - SHOWN} more"] if len(parts) > LISTED else [])])


def _stacks(term: Term) -> bool:
    """Whether a reshape gives the operands of a concatenation an axis of their own."""
    inner = term.args[0]
    shapes = {a.shape for a in inner.args}
    return (
        inner.op == "concat"
        and inner.attr("axis") == 0
        and len(shapes) == 1
        and term.shape == (len(inner.args), *next(iter(shapes)))
    )


def _adds_axis(term: Term, axis: int) -> bool:
    return term.op == "reshape" and term.shape == (*term.args[0].shape[:axis], 1, *term.args[0].shape[axis:])


def _pad(term: Term, named: Mapping[Term, str]) -> Text:
    widths = ", ".join(f"({lo}, {hi})" for lo, hi in zip(term.attr("lo"), term.attr("hi"), strict=True))
    value = f", {_number(term.attr('value'))}" if term.attr("value") else ""
    return f"pad({_text(term.args[0], named)[0]}, ({widths}){value})", _ATOM


def _reduce(term: Term, named: Mapping[Term, str]) -> Text:
    axes = term.attr("axes")
    axis = axes[0] if len(axes) == 1 else axes
    keep = ", keepdims=True" if term.attr("keepdims") else ""
    return f"{term.attr('kind')}({_text(term.args[0], named)[0]}, axis={axis}{keep})", _ATOM


def _where(term: Term, named: Mapping[Term, str]) -> Text:
    mask, inner, _ = term.args
    hidden = mask.op == "constant" and mask not in named
    if hidden and _is_scattered(inner) and inner.args[1] not in named:
        return _scattered(inner, named)  # outside of the mask is padding
    return f"where({', '.join(_operand(a, term, named)[0] for a in term.args)})", _ATOM


def _is_scattered(term: Term) -> bool:
    """Whether a term reads another at places that no slice or transpose says: windows that overlap."""
    return term.op == "gather" and term.args[1].op == "constant" and term.args[1].size > 1


def _scattered(term: Term, named: Mapping[Term, str]) -> Text:
    x = term.args[0]
    while x.op == "reshape" and x not in named:
        (x,) = x.args
    return f"windows({_text(x, named)[0]}, {_dims(term.shape)})", _ATOM


def _gather(term: Term, named: Mapping[Term, str]) -> Text:
    if _is_scattered(term) and term.args[1] not in named:
        return _scattered(term, named)
    x, index = (_text(a, named)[0] for a in term.args)
    return f"take({x}, {index}, axis={term.attr('axis')})", _ATOM


def _windows(term: Term, named: Mapping[Term, str]) -> Text:
    """Convolutions and pools, with those attributes that say something."""
    name = term.op if term.op == "conv" else f"{term.attr('kind')}_pool"
    parts = [_text(a, named)[0] for a in term.args]
    if term.op == "pool":
        parts.append(str(term.attr("kernel")))
    for key, plain in (("strides", 1), ("dilations", 1)):
        if any(n != plain for n in term.attr(key)):
            parts.append(f"{key}={_same(term.attr(key))}")
    lo, hi = term.attr("pads_lo"), term.attr("pads_hi")
    if any((*lo, *hi)):
        parts.append(f"pads={_same(lo) if lo == hi else (lo, hi)}")
    if term.op == "conv" and term.attr("groups") != 1:
        parts.append(f"groups={term.attr('groups')}")
    return f"{name}({', '.join(parts)})", _ATOM


def _same(values: Sequence[int]) -> object:
    return values[0] if len(set(values)) == 1 else tuple(values)


def _iota(term: Term, named: Mapping[Term, str]) -> Text:
    axis = term.attr("axis")
    return f"arange({term.shape[axis]})" if len(term.shape) == 1 else f"indices({_dims(term.shape)})[{axis}]", _ATOM


def _opaque(term: Term, named: Mapping[Term, str]) -> Text:
    return f"{term.attr('name')}({', '.join(_text(a, named)[0] for a in term.args)})", _ATOM


_WRITERS: dict[str, Callable[[Term, Mapping[Term, str]], Text]] = {
    "input": _input,
    "constant": _constant,
    "full": _full,
    "iota": _iota,
    "cast": _cast,
    "neg": _neg,
    "transpose": _transpose,
    "reshape": _reshape,
    "broadcast": _broadcast,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "reduce": _reduce,
    "where": _where,
    "gather": _gather,
    "conv": _windows,
    "pool": _windows,
    "opaque": _opaque,
}
