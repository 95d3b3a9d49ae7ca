"""Terms as NumPy expressions: `relu(x @ w + b)`, for steps, forms and reports.

Operators are infix where NumPy's are, and broadcasts that NumPy does by itself are left out. Expressions are made of
pieces: text, and the terms that the reader knows by name. Names come last, from the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from eqsat.base.graphs import to_make
from eqsat.program.ops import row
from eqsat.program.term import Shape, Term

Pieces = tuple[str | Term, ...]
"""An expression: text, with inputs and named terms as they are."""

Shown = Mapping[Term, str | Term]
"""Terms that are not written out, each with the piece in its place: itself where it has a name, else `…`."""

Text = tuple[Pieces, int]
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
    return joined(pieces(term, named), named)


def joined(text: Pieces, named: Mapping[Term, str]) -> str:
    """Pieces as one text; inputs that are not in `named` have their own names."""
    return "".join(p if isinstance(p, str) else named[p] if p in named else p.attr("name") for p in text)


def pieces(term: Term, named: Iterable[Term]) -> Pieces:
    """`expression`, before terms are replaced by their names."""
    return _pieces(term, {t: t for t in named})


def sketch(term: Term, named: Collection[Term]) -> Pieces:
    """The term, with `…` for what is computed more than two operators below its top."""
    level = [term]
    for _ in range(2):
        level = [_computed(a, named) for t in level for a in t.args if t not in named]
    deep = {t: "…" for t in level if t.args and t not in named and t is not term}
    return _pieces(term, {t: t for t in named} | deep)


def _computed(term: Term, named: Collection[Term]) -> Term:
    """What a chain of views reads."""
    while term.args and term not in named and row(term.op).view:
        (term,) = term.args
    return term


def _pieces(term: Term, known: Shown) -> Pieces:
    shown = known
    for depth in _DEPTHS:
        shown = _cut(term, known, depth)
        if _operators(term, shown) <= _MOST:
            break
    return _text(term, shown)[0]


def _cut(term: Term, shown: Shown, depth: int) -> Shown:
    """`shown`, and `…` for the operators that lie so far below a term."""
    level = [term]
    for _ in range(depth):
        level = list(dict.fromkeys(a for t in level if t not in shown for a in t.args))
    deep = {t: "…" for t in level if t.args and t not in shown and t is not term}
    return {**shown, **deep} if deep else shown


def _operators(term: Term, shown: Shown) -> int:
    """Operators of a term written out, what is shared as often as it is written."""

    def written(t: Term) -> Sequence[Term]:
        return () if t in shown else t.args[: SHOWN if len(t.args) > LISTED else LISTED]

    counts: dict[Term, int] = {}
    for t in to_make(term, counts, written):
        counts[t] = 1 + sum(counts[a] for a in written(t))
    return counts[term]


def _text(term: Term, shown: Shown) -> Text:
    if term in shown:
        return (shown[term],), _ATOM
    write = _WRITERS.get(term.op)
    if write is not None:
        return write(term, shown)
    if term.op in _INFIX:
        return _infix(term, shown)
    return _call(_CALLED.get(term.op, term.op), [_operand(a, term, shown)[0] for a in term.args]), _ATOM


def _all(*parts: str | Pieces) -> Pieces:
    """Parts of an expression one after another."""
    return tuple(piece for part in parts for piece in ((part,) if isinstance(part, str) else part))


def _list(parts: Iterable[str | Pieces]) -> Pieces:
    """Parts with commas between them."""
    return _all(*(x for part in parts for x in (", ", part)))[1:]


def _call(name: str, parts: Iterable[str | Pieces]) -> Pieces:
    return _all(f"{name}(", _list(parts), ")")


def _tight(text: Text, least: int) -> Pieces:
    return text[0] if text[1] >= least else _all("(", text[0], ")")


def _atom(term: Term, shown: Shown) -> Pieces:
    return _tight(_text(term, shown), _ATOM)


def _infix(term: Term, shown: Shown) -> Text:
    sign, binds, left, right = _INFIX[term.op]
    a, b = (_operand(arg, term, shown) for arg in term.args)
    return _all(_tight(a, left), f" {sign} ", _tight(b, right)), binds


def _operand(term: Term, reader: Term, shown: Shown) -> Text:
    """An operand of an elementwise operator or a product, without the broadcast that NumPy does by itself."""
    shaped_by_others = reader.op in _ELEMENTWISE and any(a.op != "full" for a in reader.args)
    if term.op == "full" and term not in shown and shaped_by_others:
        return (_number(term.attr("value")),), _ATOM
    if term.op == "broadcast" and term not in shown and _implied(term, reader):
        term = term.args[0]
        inner = term.args[0] if term.op == "reshape" and term not in shown else term
        if inner.shape and term.shape == (1,) * (term.ndim - inner.ndim) + inner.shape:
            term = inner
    return _text(term, shown)


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


def _input(term: Term, shown: Shown) -> Text:
    return (term,), _ATOM


def _constant(term: Term, shown: Shown) -> Text:
    array = term.attr("value").array
    return (_number(array.item()) if array.size == 1 else f"constant {term.spec}",), _ATOM


def _full(term: Term, shown: Shown) -> Text:
    number = _number(term.attr("value"))
    return (f"full({_dims(term.shape)}, {number})" if term.shape else number,), _ATOM


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cast(term: Term, shown: Shown) -> Text:
    return _all(_atom(term.args[0], shown), f".astype({term.dtype})"), _ATOM


def _neg(term: Term, shown: Shown) -> Text:
    return _all("-", _atom(term.args[0], shown)), _SCALED


def _transpose(term: Term, shown: Shown) -> Text:
    perm, x = term.attr("perm"), _atom(term.args[0], shown)
    if perm == (1, 0):
        return _all(x, ".T"), _ATOM
    last = (*range(len(perm) - 2), len(perm) - 1, len(perm) - 2)
    return _all(x, ".mT" if perm == last else f".transpose{perm}"), _ATOM


def _reshape(term: Term, shown: Shown) -> Text:
    inner, before = term.args[0], term.args[0].shape
    if _stacks(term) and inner not in shown:
        return _all("stack([", _listed(inner.args, shown), "])"), _ATOM
    x, axes = _atom(inner, shown), _new_axes(before, term.shape)
    if axes is not None:
        return _all(x, f"[{', '.join(axes)}]"), _ATOM
    return _all(x, f".reshape({', '.join(map(str, term.shape))})"), _ATOM


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


def _broadcast(term: Term, shown: Shown) -> Text:
    if term.size == term.args[0].size:
        axes = _new_axes(term.args[0].shape, term.shape)
        return _all(_atom(term.args[0], shown), f"[{', '.join(axes or ('...',))}]"), _ATOM
    return _call("broadcast_to", [_text(term.args[0], shown)[0], _dims(term.shape)]), _ATOM


def _dims(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


def _slice(term: Term, shown: Shown) -> Text:
    ranges = zip(term.args[0].shape, term.attr("starts"), term.attr("stops"), term.attr("steps"), strict=True)
    parts = [_range(*r) for r in ranges]
    while len(parts) > 1 and parts[-1] == ":":
        parts.pop()
    return _all(_atom(term.args[0], shown), f"[{', '.join(parts)}]"), _ATOM


def _range(size: int, start: int, stop: int, step: int) -> str:
    if step < 0:
        first = "" if start == size - 1 else str(start)
        return f"{first}:{'' if stop < 0 else stop}:{step}"
    text = f"{start or ''}:{'' if stop >= size else stop}"
    return text if step == 1 else f"{text}:{step}"


def _concat(term: Term, shown: Shown) -> Text:
    axis, parts = term.attr("axis"), term.args
    stacked = all(_adds_axis(a, axis) and a not in shown for a in parts)
    listed = _listed([a.args[0] for a in parts] if stacked else parts, shown)
    at = f", axis={axis}" if axis else ""
    return _all("stack([" if stacked else "concatenate([", listed, f"]{at})"), _ATOM


def _listed(parts: Sequence[Term], shown: Shown) -> Pieces:
    texts = [_text(a, shown)[0] for a in (parts if len(parts) <= LISTED else parts[:SHOWN])]
    return _list([*texts, *([f"… {len(parts) - SHOWN} more"] if len(parts) > LISTED else [])])


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


def _pad(term: Term, shown: Shown) -> Text:
    widths = ", ".join(f"({lo}, {hi})" for lo, hi in zip(term.attr("lo"), term.attr("hi"), strict=True))
    value = f", {_number(term.attr('value'))}" if term.attr("value") else ""
    return _all("pad(", _text(term.args[0], shown)[0], f", ({widths}){value})"), _ATOM


def _reduce(term: Term, shown: Shown) -> Text:
    axes = term.attr("axes")
    axis = axes[0] if len(axes) == 1 else axes
    keep = ", keepdims=True" if term.attr("keepdims") else ""
    return _all(f"{term.attr('kind')}(", _text(term.args[0], shown)[0], f", axis={axis}{keep})"), _ATOM


def _where(term: Term, shown: Shown) -> Text:
    mask, inner, _ = term.args
    hidden = mask.op == "constant" and mask not in shown
    if hidden and _is_scattered(inner) and inner.args[1] not in shown:
        return _scattered(inner, shown)  # outside of the mask is padding
    return _call("where", [_operand(a, term, shown)[0] for a in term.args]), _ATOM


def _is_scattered(term: Term) -> bool:
    """Whether a term reads another at places that no slice or transpose says: windows that overlap."""
    return term.op == "gather" and term.args[1].op == "constant" and term.args[1].size > 1


def _scattered(term: Term, shown: Shown) -> Text:
    x = term.args[0]
    while x.op == "reshape" and x not in shown:
        (x,) = x.args
    return _call("windows", [_text(x, shown)[0], _dims(term.shape)]), _ATOM


def _gather(term: Term, shown: Shown) -> Text:
    if _is_scattered(term) and term.args[1] not in shown:
        return _scattered(term, shown)
    return _call("take", [*(_text(a, shown)[0] for a in term.args), f"axis={term.attr('axis')}"]), _ATOM


def _windows(term: Term, shown: Shown) -> Text:
    """Convolutions and pools, with those attributes that say something."""
    name = term.op if term.op == "conv" else f"{term.attr('kind')}_pool"
    parts: list[str | Pieces] = [_text(a, shown)[0] for a in term.args]
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
    return _call(name, parts), _ATOM


def _same(values: Sequence[int]) -> object:
    return values[0] if len(set(values)) == 1 else tuple(values)


def _iota(term: Term, shown: Shown) -> Text:
    axis = term.attr("axis")
    return (f"arange({term.size})" if term.ndim == 1 else f"indices({_dims(term.shape)})[{axis}]",), _ATOM


def _opaque(term: Term, shown: Shown) -> Text:
    return _call(term.attr("name"), [_text(a, shown)[0] for a in term.args]), _ATOM


_WRITERS: dict[str, Callable[[Term, Shown], Text]] = {
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
