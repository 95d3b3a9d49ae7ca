"""Short names for expressions over core nodes, in which families write their examples."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node, make


def array(name: str, size: int, dtype: str = "float32") -> Node:
    """An array in memory."""
    return make("In", (name, size, dtype))


def full(value: float, like: Node) -> Node:
    """A number, as often as there are elements in `like`."""
    return make("Full", (value, like.size, like.dtype))


def un(f: str, a: Node) -> Node:
    """f of every element."""
    return make("Un", (f,), (a,))


def bin_(f: str, a: Node, b: Node) -> Node:
    """f of every pair of elements."""
    return make("Bin", (f,), (a, b))


def view(layout: lay.Layout, a: Node) -> Node:
    """The elements that a layout names."""
    return make("V", (layout,), (a,))


def transposed(a: Node, shape: Sequence[int], perm: Sequence[int]) -> Node:
    """a[shape] with its axes permuted."""
    return view(lay.of_transpose(shape, perm), a)


def looked_up(table: Node, rows: int, places: Node) -> Node:
    """table[rows, columns] at places, which count modulo the rows."""
    wrapped = bin_("mod", places, full(rows, places))
    return make("Gather", (1, rows, table.size // rows), (table, wrapped))


def along_rows(row: Node, rows: int) -> Node:
    """row[columns] repeated for every row."""
    return view(lay.of_broadcast((row.size,), (rows, row.size)), row)


def along_columns(column: Node, columns: int) -> Node:
    """column[rows] repeated for every column."""
    return view(lay.strided(0, ((column.size, 1), (columns, 0))), column)


def reduced(f: str, a: Node, length: int) -> Node:
    """a[.., length] reduced over its innermost axis."""
    return make("Red", (f, length), (a,))


def times(dims: tuple[int, int, int, int], a: Node, b: Node) -> Node:
    """a[batch, m, k] @ b[batch, k, n], dims being (batch, m, k, n)."""
    return make("MM", dims, (a, b))


def product(batch: int, m: int, k: int, n: int, dtype: str = "float32") -> Node:
    """x[batch, m, k] @ w[batch, k, n]."""
    return times((batch, m, k, n), array("x", batch * m * k, dtype), array("w", batch * k * n, dtype))


def with_bias_and_relu(p: Node) -> Node:
    """relu(p + bias), with a bias for every column of the product p."""
    batch, m, _, n = p.attrs
    return un("relu", bin_("add", p, along_rows(array("bias", n, p.dtype), batch * m)))


def softmax(rows: int, columns: int, dtype: str = "float32") -> Node:
    """The softmax of every row of x[rows, columns]."""
    x = array("x", rows * columns, dtype)
    e = un("exp", bin_("sub", x, along_columns(reduced("max", x, columns), columns)))
    return bin_("div", e, along_columns(reduced("sum", e, columns), columns))


def layernorm(rows: int, columns: int, dtype: str = "float32") -> Node:
    """Every row of x[rows, columns] less its mean, over its deviation, times gain[columns]."""
    x = array("x", rows * columns, dtype)
    total = reduced("sum", x, columns)
    mean = bin_("mul", total, full(1 / columns, total))
    centred = bin_("sub", x, along_columns(mean, columns))
    variance = bin_("mul", reduced("sum", bin_("mul", centred, centred), columns), full(1 / columns, total))
    unit = bin_("mul", centred, along_columns(un("rsqrt", bin_("add", variance, full(1e-5, total))), columns))
    return bin_("mul", unit, along_rows(array("gain", columns, dtype), rows))
