"""How the results of a graph lie in memory: their strides, and what memory they share.

Callers may depend on both: `view` needs strides that fit, and a change in place shows in every tensor of one memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from eqsat.frontends.torch.operators.tensors import import_torch


class Layout(NamedTuple):
    """How a result lies.

    Attributes:
        strides: in elements.
        shares: the first input or earlier result of the same memory, by its place among these; None for none.
    """

    strides: tuple[int, ...]
    shares: int | None


def layouts(graph_module: Any, fakes: Sequence[Any]) -> list[Layout | None]:
    """The layout of each result of a graph run on these fake tensors; None for what is no tensor."""
    torch = import_torch()
    with fakes[0].fake_mode if fakes else torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        results = torch.fx.Interpreter(graph_module).run(*fakes)
    memory = [x.untyped_storage()._cdata for x in fakes]
    found: list[Layout | None] = []
    for x in results:
        if not isinstance(x, torch.Tensor):
            found.append(None)
            continue
        own = x.untyped_storage()._cdata
        found.append(Layout(x.stride(), memory.index(own) if own in memory else None))
        memory.append(own)
    return found


def lay_out(graph_module: Any, fakes: Sequence[Any], wanted: Sequence[Layout | None]) -> None:
    """Copy the results of a graph that do not lie as wanted. One that overlaps itself, such as an expanded one, may
    also lie densely."""
    graph = graph_module.graph
    [end] = graph.find_nodes(op="output")
    placed = []
    for node, here, there in zip(end.args[0], layouts(graph_module, fakes), wanted, strict=True):
        if here and there and not _suffices(here, there):
            with graph.inserting_before(end):
                placed.append(_copied(graph, node, there.strides))
        else:
            placed.append(node)
    end.args = (type(end.args[0])(placed),)


def _suffices(here: Layout, there: Layout) -> bool:
    return (here.strides == there.strides or 0 in there.strides) and here.shares in (None, there.shares)


def _copied(graph: Any, node: Any, strides: Sequence[int]) -> Any:
    """A copy of a tensor whose axes lie in the order of these strides."""
    torch = import_torch()
    aten, contiguous = torch.ops.aten, torch.contiguous_format
    order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    turned = graph.call_function(aten.permute.default, (node, order))
    copied = graph.call_function(aten.clone.default, (turned,), {"memory_format": contiguous})
    return graph.call_function(aten.permute.default, (copied, [order.index(axis) for axis in range(len(order))]))
