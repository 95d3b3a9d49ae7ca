"""Corrections: how a sum runs along while an earlier total of the same axis still grows.

A sum over k of f(x, d) needs the total d = max t before it begins. It can be summed under the maximum so far where a
change of d changes every term by the same factor: f(x, d') = h(d, d') f(x, d). Here f is a product of terms and of
exponentials exp(e), and e falls with d as it grows with t. Then the factor is exp(alpha (d - d')), at most 1 as d
grows, and no term overflows. Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); the general
criterion is that of RedFuser (arXiv 2603.10026).

A factor that depends on totals alone leaves the sum altogether: sum of g(x) h(d) is h(d) times the sum of g(x).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from eqsat.base.numerics import HALVES, is_float
from eqsat.layout.arithmetic import Layout, strided
from eqsat.program.core import CAST, Node, make
from eqsat.program.node import is_elementwise


@dataclass(frozen=True, slots=True)
class Rows:
    """The domain of a stream: `count` rows of `length` elements.

    Attributes:
        spread: the layout that repeats a value of each row for all its elements.
        above: the nodes that depend on a total, and so change while it grows.
    """

    count: int
    length: int
    above: Collection[Node]

    @property
    def spread(self) -> Layout:
        return strided(0, ((self.count, 1), (self.length, 0)))

    def row_of(self, node: Node) -> Node | None:
        """The value of each row, of `count` elements, where an array of elements repeats it; None where it does not.
        Only for nodes that depend on a total, and for numbers."""
        if node.op == "Full":
            return make("Full", (node.attrs[0], self.count, node.dtype))
        if node not in self.above:
            return None
        if node.op == "V":
            (value,) = node.args  # of more rows where only some of them are read
            return value if node.attrs[0] == self.spread and value.size == self.count else None
        if not is_elementwise(node.op):
            return None
        rows = [self.row_of(a) for a in node.args]
        return None if any(r is None for r in rows) else make(node.op, node.attrs, [r for r in rows if r is not None])


def factored(node: Node, rows: Rows) -> tuple[Node, Node | None]:
    """(element, scale): the elements as a product of what stays in the sum and a factor of each row, which is of
    `rows.count` elements and depends on totals alone; None for no such factor."""
    element, scale = _factored(node, rows)
    return (node, None) if element is None else (element, scale)


def guarded(node: Node, rows: Rows) -> tuple[Node, Node] | None:
    """(element, scale) of a softmax that gives 0 where it would give NaN: rows that are masked altogether.

    exp(e) / l with l = sum exp(e) is NaN in all of a row or nowhere: where l is 0, since then all exponentials are, or
    NaN. So the scale is 1 / l, and 0 where that is not finite. A sum times a scale of 0 is then 0 whatever it is.
    None for other elements.
    """
    y = _without_nan(node)
    element, scale = factored(y, rows) if y is not None else (node, None)
    if scale is None or element.op != "Un" or element.attrs[0] != "exp" or scale.op != "Bin":
        return None
    one, total = scale.args
    if scale.attrs[0] != "div" or one.op != "Full" or one.attrs[0] != 1:
        return None
    if total.op != "Red" or total.attrs[0] != "sum" or total.args[0] is not element:
        return None
    most, zero = (make("Full", (x, scale.size, scale.dtype)) for x in (float("inf"), 0.0))
    finite = make("Bin", ("less",), (make("Un", ("abs",), (scale,)), most))
    return element, make("Where", (), (finite, scale, zero))


def _without_nan(node: Node) -> Node | None:
    """y, for y where it equals itself and 0 elsewhere."""
    if node.op != "Where":
        return None
    test, y, other = node.args
    if test.op == "Un" and test.attrs[0] == "not":
        (test,) = test.args
        y, other = other, y
    is_zero = other.op == "Full" and other.attrs[0] == 0
    return y if is_zero and test.op == "Bin" and test.attrs[0] == "equal" and test.args == (y, y) else None


def _factored(node: Node, rows: Rows) -> tuple[Node | None, Node | None]:
    """As `factored`, with None for an element of 1."""
    if node not in rows.above:
        return node, None
    row = rows.row_of(node)
    if row is not None:
        return None, row
    if node.op == "Bin" and node.attrs[0] in ("mul", "div") and is_float(node.dtype):
        (f,) = node.attrs
        (a, p), (b, q) = (_factored(x, rows) for x in node.args)
        return _combined(f, a, b, node.size, node.dtype), _combined(f, p, q, rows.count, node.dtype)
    if node.op == "Un" and (node.attrs[0] == "neg" or node.attrs[0].startswith(CAST)):
        element, scale = _factored(node.args[0], rows)
        if element is None or scale is None:
            return node, None
        if node.attrs[0] == "neg":
            return make("Un", node.attrs, (element,)), scale
        if _keeps_range(element, node.dtype):
            return make("Un", node.attrs, (element,)), make("Un", node.attrs, (scale,))
    return node, None


def _combined(f: str, a: Node | None, b: Node | None, size: int, dtype: str) -> Node | None:
    """f of two factors, None being 1."""
    if b is None:
        return a
    if a is None and f == "mul":
        return b
    return make("Bin", (f,), (a or make("Full", (1, size, dtype)), b))


def _keeps_range(element: Node, dtype: str) -> bool:
    """Whether elements fit a type to which they are cast without the factor that was taken from them: the type is as
    wide, or they came from a type of its range, or they are at most 1 (an exponential of what is below its maximum)."""
    if dtype not in HALVES:
        return True
    if element.op == "Un" and element.attrs[0].startswith(CAST):
        return element.args[0].dtype == dtype
    return element.op == "Un" and element.attrs[0] == "exp"


def correction(element: Node, total: Node, rows: Rows, element_above: Collection[Node]) -> float | None:
    """alpha, where summed elements change by exp(alpha (old - new)) when a maximum or minimum goes from old to new.

    Args:
        total: the Red node of the maximum or minimum; `element_above` are the nodes above it.

    Returns:
        None where they change by no such factor, or where elements could overflow on the way.
    """
    if total.op != "Red" or total.attrs[0] not in ("max", "min"):
        return None
    exponents = _exponents(element, element_above)
    if exponents is None:
        return None
    reduced = _linear(total.args[0], rows)
    alpha = 0.0
    for exponent in exponents:
        terms = _linear(exponent, rows)
        fall = -terms.get(total, 0.0)
        grows = fall > 0 if total.attrs[0] == "max" else fall < 0
        only = all(x is total or x not in element_above for x in terms)
        if not grows or not only or any(abs(terms.get(x, 0.0) - fall * c) > 0 for x, c in reduced.items()):
            return None
        alpha += fall
    return alpha


def _exponents(node: Node, above: Collection[Node]) -> list[Node] | None:
    """The exponents of all factors exp(e) of a product that depend on a total; None where it depends on it in another
    way."""
    if node not in above:
        return []
    if node.op == "Un":
        (f,), (a,) = node.attrs, node.args
        if f == "exp":
            return [a]
        return _exponents(a, above) if f == "neg" or f.startswith(CAST) else None
    if node.op == "Bin" and node.attrs[0] == "mul":
        both = [_exponents(a, above) for a in node.args]
        return None if any(x is None for x in both) else [e for x in both if x is not None for e in x]
    if node.op == "Bin" and node.attrs[0] == "div" and node.args[1] not in above:
        return _exponents(node.args[0], above)
    return None


def _linear(node: Node, rows: Rows) -> Mapping[Node, float]:
    """Elements as a sum of nodes times numbers, constants left out; a total that is repeated along its row counts as
    itself. Casts between floating types are taken as the value that they round."""
    if node.op == "Full":
        return {}
    if node.op == "V" and node in rows.above and node.attrs[0] == rows.spread:
        return _linear(node.args[0], rows)
    if node.op == "Un":
        (f,), (a,) = node.attrs, node.args
        if f == "neg":
            return _scaled(_linear(a, rows), -1.0)
        if f.startswith(CAST) and is_float(a.dtype) and is_float(node.dtype):
            return _linear(a, rows)
    if node.op == "Bin" and is_float(node.dtype):
        (f,), (a, b) = node.attrs, node.args
        if f in ("add", "sub"):
            found = dict(_linear(a, rows))
            for x, c in _scaled(_linear(b, rows), 1.0 if f == "add" else -1.0).items():
                found[x] = found.get(x, 0.0) + c
            return {x: c for x, c in found.items() if c}
        if f == "mul" and a.op == "Full":
            a, b = b, a
        if f in ("mul", "div") and b.op == "Full" and b.attrs[0]:
            by = float(b.attrs[0])
            return _scaled(_linear(a, rows), by if f == "mul" else 1 / by)
    return {node: 1.0}


def _scaled(terms: Mapping[Node, float], by: float) -> dict[Node, float]:
    return {x: c * by for x, c in terms.items()}
