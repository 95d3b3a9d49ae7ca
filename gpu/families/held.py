"""What the kernel of a stream holds on chip, by which its tiles are chosen. Reports say it without its generators."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.gpu.code.errors import NotLowerable
from eqsat.gpu.table.streams import StreamForm, WalkForm
from eqsat.program.core import Node
from eqsat.streams.stream import Accumulator, Stream

Factor = tuple[tuple[Node, float], ...]
"""The corrections of an accumulator."""

_TOTALS = ("float32", "float16", "bfloat16")
"""Types of totals, all computed in float."""


def form_of(found: Sequence[Stream]) -> StreamForm:
    """What the kernel of these walks holds."""
    forms = [
        WalkForm(
            length=x.length,
            depths=tuple(node.attrs[2] for node in x.inner),
            products=len(x.products),
            elements=len(elements_of(x)),
            totals=len(x.totals),
            passes=x.passes,
            statistics=sum(not s.of_rows for s in x.statistics),
        )
        for x in found
    ]
    return StreamForm((found[0].batch, found[0].rows, found[0].width), tuple(forms))


def dtype_of(found: Sequence[Stream]) -> str:
    """The type of all operands.

    Raises:
        NotLowerable: they differ, or totals are not floating.
    """
    products = [x for stream in found for x in stream.products]
    multiplied = [*(x.node for x in products), *(node for stream in found for node in stream.inner)]
    dtypes = {x.element.dtype for x in products} | {a.dtype for node in multiplied for a in node.args}
    if len(dtypes) != 1:
        raise NotLowerable(f"operands of products are of several types: {sorted(dtypes)}")
    if any(x.node.dtype not in _TOTALS for stream in found for x in stream.totals):
        raise NotLowerable("a total is of a type that is not computed in float")
    return dtypes.pop()


def elements_of(stream: Stream) -> list[tuple[Node, Factor]]:
    """The different left operands of products."""
    return list(dict.fromkeys(element_key(x) for x in stream.products))


def element_key(x: Accumulator) -> tuple[Node, Factor]:
    """Equal for products with the same left operand."""
    return x.element, x.corrections
